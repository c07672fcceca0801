"""Case files: what they mean, and what is said about bad ones."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from gfgnn.bench.case import SUITES, case_of, read_case, suite
from gfgnn.bench.contenders import CONTENDERS, contender, missing
from gfgnn.bench.plan import jobs
from gfgnn.checks import InputError

GOOD = """
seeds = 2
budget = { seconds = 5 }
[[data]]
name = "citeseer"
split = "per_class=20"
[model]
layers = [2, 4]
hidden = 8
[[contender]]
name = "target"
settings = { target = { step = "sweep" } }
[[contender]]
name = "adam"
label = "adam GCN"
model = { family = "gcn" }
data = { normalise = "rows" }
budget = { iterations = 7 }
layers = [4]
"""


def changed(**values: Any) -> dict[str, Any]:
    return tomllib.loads(GOOD) | values


def test_runs_of_a_seed_follow_one_another() -> None:
    case = case_of(tomllib.loads(GOOD), "good", "good.toml")
    made = list(jobs(case, case.data[0]))
    order = [(job.model["layers"], job.seed, job.label) for job in made]
    assert order == [
        (2, 0, "target"), (2, 1, "target"),
        (4, 0, "target"), (4, 0, "adam GCN"), (4, 1, "target"), (4, 1, "adam GCN"),
    ]  # fmt: skip
    adam = made[-1]
    assert adam.options == {"split": "per_class=20", "normalise": "rows", "split_seed": 1}
    assert adam.model == {"family": "gcn", "hidden": 8, "layers": 4}
    assert adam.budget == {"seconds": 5, "iterations": 7}
    assert len({job.key for job in made}) == len(made)
    assert len(list(jobs(case, case.data[0], seeds=1))) == 3


def test_keys_know_settings_but_not_limits() -> None:
    def key(**values: Any) -> str:
        case = case_of(changed(**values), "good", "good.toml")
        return next(jobs(case, case.data[0])).key

    assert key(title="another", limit_seconds=7, memory="1GB", against="adam GCN") == key()
    assert key(threads=2) != key()
    assert key(model={"layers": [2, 4], "hidden": 9}) != key()


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"seed": 3}, "seed = 3"),
        ({"seeds": 0}, "seeds must be at least 1; got 0"),
        ({"budget": {"second": 1}}, "budget.second = 1"),
        ({"budget": {"seconds": "long"}}, "budget.seconds must be a number; got 'long'"),
        ({"data": [{"name": "cora", "normalize": "rows"}]}, "data.normalize = 'rows'"),
        ({"data": [{"normalise": "rows"}]}, "data.name must name a data set; got None"),
        ({"data": [{"name": "cora", "reach": 80}]}, "data.reach must lie between 0.0 and 1.0; got 80"),
        ({"data": [{"name": "cora"}, {"name": "cora"}]}, "data: cora is there twice"),
        ({"data": []}, "data must be a table or several"),
        ({"model": {"layers": [2, 4], "width": 4}}, "contender 1: model.width = 4"),
        ({"model": {"layers": [2, 4], "family": "gat"}}, "got 'gat'"),
        ({"model": {"layers": []}}, r"model.layers must be depths"),
        ({"contender": [{"name": "adamm"}]}, "no contender 'adamm'"),
        ({"contender": [{"name": "target"}, {"name": "target"}]}, "contender: target is there twice"),
        ({"contender": [{"name": "target", "layers": 8}]}, r"layers \[8\] are not among"),
        ({"contender": [{"name": "target", "settings": {"part": 2}}]}, "unknown settings: part"),
        ({"contender": [{"name": "target", "settings": {"seed": 2}}]}, "seed cannot be set here"),
        ({"contender": [{"name": "target", "settings": {"iters": 2}}]}, "iters cannot be set here"),
        ({"contender": [{"name": "target", "settings": {"target": {"prox": -1}}}]}, "prox must be at least 0"),
        ({"against": "sgd"}, "against must be the label of a contender, target, adam GCN; got 'sgd'"),
        ({"memory": "much"}, "memory must be an amount of memory"),
    ],
)  # fmt: skip
def test_bad_cases_are_told_with_key_and_value(values: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said) as error:
        case_of(changed(**values), "bad", "bad.toml")
    assert str(error.value).startswith("bad.toml: ")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        read_case(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("seeds = ")
    with pytest.raises(InputError, match="not valid TOML"):
        read_case(tmp_path / "bad.toml")


def test_shipped_suites_can_be_read() -> None:
    assert set(SUITES) >= {"quick", "depth", "scale", "distributed"}
    for name in SUITES:
        for case in suite(name):
            assert case.title != case.name
            assert any(entrant.missing is None for entrant in case.entrants)
    with pytest.raises(InputError, match="no suite 'slow'"):
        suite("slow")


def test_contenders_are_there_or_said_to_be_missing() -> None:
    for name in CONTENDERS:
        if missing(name) is None:
            assert callable(contender(name))
    assert missing("gfgnn.nowhere.at_all:run") == "not available: there is no module gfgnn.nowhere"
    with pytest.raises(InputError, match="no function nothing"):
        contender("gfgnn.bench.ours:nothing")
