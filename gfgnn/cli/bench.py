"""``gfgnn bench``: measure, compare, report."""

from __future__ import annotations

import shlex
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from gfgnn.checks import InputError, check_count
from gfgnn.cli.errors import FAILED, INTERRUPTED, ends_in_order, friendly


class _RunUnlessNamed(typer.core.TyperGroup):
    """``gfgnn bench CASE.toml`` is ``gfgnn bench run CASE.toml``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in (*self.commands, "--help", "-h"):
            args = ["run", *args]
        return super().parse_args(ctx, args)


bench_app = typer.Typer(
    help="Measure gfgnn against baselines: gfgnn bench CASE.toml, or gfgnn bench --suite quick.",
    no_args_is_help=True,
    cls=_RunUnlessNamed,
)


@bench_app.command("run")
@friendly
def run_command(
    cases: Annotated[list[Path] | None, typer.Argument(help="Case files, see docs/benchmarks.md.")] = None,
    suite: Annotated[
        str | None, typer.Option(help="Cases that come with gfgnn: quick, depth, scale, distributed, sanity.")
    ] = None,
    seeds: Annotated[int | None, typer.Option(help="Runs of each contender, in place of the case's.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for runs and report (runs/bench- and the time).")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the runs that --out holds.")] = False,
    data_root: Annotated[str | None, typer.Option(help="Folder of data to look in first.")] = None,
) -> None:
    """Run cases, or a suite of them (the word run may be left out)."""
    from gfgnn.bench.case import read_case
    from gfgnn.bench.case import suite as cases_of
    from gfgnn.bench.runner import Bench

    if bool(cases) == (suite is not None):
        raise InputError("give case files or --suite, one of the two.")
    if seeds is not None:
        check_count("seeds", seeds, 1, 1000)
    wanted = cases_of(suite) if suite is not None else [read_case(path) for path in cases or []]
    names = [case.name for case in wanted]
    if len(set(names)) < len(names):
        raise InputError(f"case files must have names of their own; got {', '.join(names)}.")
    folder = out or Path("runs") / time.strftime("bench-%Y%m%d-%H%M%S")
    bench = Bench(
        wanted, folder, seeds=seeds, root=data_root, resume=resume, command=shlex.join(["gfgnn", *sys.argv[1:]]),
        say=lambda text: print(text, file=sys.stderr, flush=True),
    )  # fmt: skip
    try:
        with ends_in_order():
            bench.run()
    except KeyboardInterrupt:
        _report(folder)
        print("Interrupted: --resume goes on with the rest.", file=sys.stderr)
        raise typer.Exit(INTERRUPTED) from None
    _report(folder)


@bench_app.command("report")
@friendly
def report_command(folder: Annotated[Path, typer.Argument(help="Folder of a benchmark.")]) -> None:
    """Write table, pictures and page of a folder's runs again."""
    _report(folder)


@bench_app.command("compare")
@friendly
def compare_command(
    old: Annotated[Path, typer.Argument(help="Folder of a benchmark, or its runs.jsonl.")],
    new: Annotated[Path, typer.Argument(help="A later one.")],
) -> None:
    """Show what NEW does worse than OLD, beyond noise; the status is 1 if there is anything."""
    from gfgnn.bench.compare import compare
    from gfgnn.bench.records import read_lines
    from gfgnn.cli.table import align

    changes = compare(read_lines(old), read_lines(new))
    if not changes:
        raise InputError(f"{old} and {new} have no contender, data and layers in common.")
    rows = [["case", "data", "layers", "contender", "measure", "old", "new", ""]]
    rows += [
        [c.case, c.data, str(c.layers), c.contender, c.measure, c.old, c.new, "WORSE" if c.worse else ""]
        for c in changes
    ]
    print("\n".join(align(rows)))
    worse = sum(change.worse for change in changes)
    print(f"\n{worse} of {len(changes)} figures are worse.")
    if worse:
        raise typer.Exit(FAILED)


def _report(folder: Path) -> None:
    from gfgnn.bench.report import write_report

    print(f"Written to {folder}: runs.jsonl, {', '.join(write_report(folder))}")
