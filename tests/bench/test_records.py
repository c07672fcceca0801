"""Lines on the disk."""

from __future__ import annotations

from pathlib import Path

import pytest
from lines import line, outcome

from gfgnn.bench.records import append_line, read_lines, runs_of
from gfgnn.checks import InputError


def test_a_torn_last_line_is_passed_over_and_goes(tmp_path: Path) -> None:
    file = tmp_path / "new" / "runs.jsonl"
    append_line(file, {"a": 1})
    with file.open("a") as opened:
        opened.write('{"a": 2, "b')
    assert read_lines(tmp_path / "new") == [{"a": 1}]
    append_line(file, {"a": 3})
    assert read_lines(file) == [{"a": 1}, {"a": 3}]
    file.write_text('{"a": 2, "b')
    append_line(file, {"a": 4})
    assert read_lines(file) == [{"a": 4}]


def test_other_damage_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "runs.jsonl"
    file.write_text('{"a": 1}\nnonsense\n{"a": 2}\n')
    with pytest.raises(InputError, match="line 2"):
        read_lines(file)
    with pytest.raises(InputError, match="cannot be read"):
        read_lines(tmp_path / "none")


def test_the_latest_run_counts() -> None:
    made = [line("ours", 0, outcome((1.0, 0.5, value))) for value in (0.5, 0.6)]
    other = line("ours", 1, outcome((1.0, 0.5, 0.7)))
    assert runs_of([made[0], other, made[1]]) == [made[1], other]
