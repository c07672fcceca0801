"""The report of a benchmark: a Markdown table, pictures, and one HTML page that holds all of it."""

from __future__ import annotations

import base64
import html
import json
from pathlib import Path

from gfgnn.bench.cells import cells
from gfgnn.bench.plots import Figure, plots
from gfgnn.bench.records import Line, read_lines
from gfgnn.bench.sections import Section, sections
from gfgnn.checkpoint import atomic_write

TABLE_FILE, PAGE_FILE = "table.md", "report.html"
STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #222; max-width: 78rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2.2rem; }
table { border-collapse: collapse; font-size: 13px; } div.wide { overflow-x: auto; }
th, td { padding: .25rem .6rem; text-align: right; border-bottom: 1px solid #ddd; vertical-align: top; }
th { border-bottom: 2px solid #999; } th:first-child, td:first-child, td.words { text-align: left; }
img { max-width: 100%; } p.note { color: #555; max-width: 60rem; }
"""
#: cells longer than this are text, and set like it
WORDS = 28


def write_report(out: Path) -> list[str]:
    """Writes all that ``runs.jsonl`` in ``out`` gives, and returns the names of the files.

    Raises:
        InputError: there is no ``runs.jsonl``, or it is damaged.
    """
    lines = read_lines(out)
    made, pictures = sections(lines), plots(cells(lines))
    atomic_write(out / TABLE_FILE, markdown(made, [name for name, _ in pictures]).encode())
    for name, picture in pictures:
        atomic_write(out / name, picture)
    atomic_write(out / PAGE_FILE, page(made, pictures, lines).encode())
    return [TABLE_FILE, *(name for name, _ in pictures), PAGE_FILE]


def markdown(made: list[Section], pictures: list[str]) -> str:
    """All sections as Markdown."""
    parts = ["# Benchmark"]
    for section in made:
        parts += [f"## {section.title}", *([section.text] if section.text else []), table(section.rows)]
    parts += [f"![{name}]({name})" for name in pictures]
    return "\n\n".join(parts) + "\n"


def table(rows: list[list[str]]) -> str:
    """Rows, of which the first is the head, as a Markdown table."""
    lines = [f"| {' | '.join(cell.replace('|', '/') for cell in row)} |" for row in rows]
    return "\n".join([lines[0], "|" + "---|" * len(rows[0]), *lines[1:]])


def page(made: list[Section], pictures: list[Figure], lines: list[Line]) -> str:
    """One HTML page that needs no other file: pictures are in it, and nothing is fetched."""
    body = ["<h1>Benchmark of gfgnn</h1>"]
    body += [f'<p><img alt="{html.escape(name)}" src="{_inline(png)}"></p>' for name, png in pictures]
    for section in made:
        body.append(f"<h2>{html.escape(section.title)}</h2>")
        if section.text:
            body.append(f'<p class="note">{html.escape(section.text)}</p>')
        body.append(f'<div class="wide">{_html_table(section.rows)}</div>')
    settings = {f"{line['case']}, {line['label']}, {line['model']['layers']} layers": _settings(line) for line in lines
                if "outcome" in line}  # fmt: skip
    body.append("<h2>Settings as used</h2>")
    body += [
        f"<details><summary>{html.escape(name)}</summary><pre>{html.escape(text)}</pre></details>"
        for name, text in settings.items()
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>Benchmark of gfgnn</title>'
        f"<style>{STYLE}</style></head><body>\n" + "\n".join(body) + "\n</body></html>\n"
    )


def _settings(line: Line) -> str:
    shown = {name: line[name] for name in ("contender", "settings", "model", "options", "budget", "threads")}
    outcome = line["outcome"]
    return json.dumps(
        {**shown, "used": outcome["settings"], "facts": outcome["facts"]}, indent=1, default=str
    )


def _html_table(rows: list[list[str]]) -> str:
    head = "".join(f"<th>{html.escape(cell)}</th>" for cell in rows[0])
    body = "\n".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows[1:])
    return f"<table><thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table>"


def _cell(text: str) -> str:
    words = ' class="words"' if len(text) > WORDS else ""
    return f"<td{words}>{html.escape(text)}</td>"


def _inline(png: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(png).decode()}"
