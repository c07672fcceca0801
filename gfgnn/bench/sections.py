"""The report as headed tables, to be written as Markdown or HTML."""

from __future__ import annotations

import statistics
from collections import Counter
from dataclasses import dataclass, field

from gfgnn.bench.cells import (
    Cell,
    Measure,
    Ratio,
    Run,
    best_tests,
    cells,
    last_tests,
    per_iteration,
    ratio,
    to_best,
    to_score,
)
from gfgnn.bench.records import STARTED, Line, runs_of, skipped_of
from gfgnn.bench.reference import published

NOTHING = "-"


@dataclass(frozen=True)
class Section:
    """A heading, what is to be known of the table, and the table with its head."""

    title: str
    text: str = ""
    rows: list[list[str]] = field(default_factory=list)


def sections(lines: list[Line]) -> list[Section]:
    """All sections that the lines give something for."""
    found = cells(lines)
    cases = list(dict.fromkeys(cell.case for cell in found))
    made: list[Section] = []
    for case in cases:
        own = [cell for cell in found if cell.case == case]
        made += [accuracy(own), *depths(own), times(own), costs(own), speedups(own)]
    made += [unfinished(found), passed_over(lines), references(lines), circumstances(lines)]
    return [section for section in made if len(section.rows) > 1]


def accuracy(own: list[Cell]) -> Section:
    """Scores of one case's cells."""
    rows = [
        [
            "data",
            "layers",
            "contender",
            "runs",
            "test at best val",
            "last test",
            "best at iteration",
            "s to best",
        ]
    ]
    for cell in own:
        for label, runs in cell.runs.items():
            done = cell.done(label)
            best = [outcome.best for outcome in done if outcome.best is not None]
            rows.append([
                cell.data, str(cell.layers), label, count(runs), percent(best_tests(done)) or status(runs),
                percent(last_tests(done)) or NOTHING,
                number([line["iteration"] for line in best], ".0f"), number([line["seconds"] for line in best], ".2f"),
            ])  # fmt: skip
    text = "Test scores in percent, mean ± standard deviation over seeds; iterations and seconds are medians."
    return Section(f"{own[0].title}: accuracy", text, rows)


def depths(own: list[Cell]) -> list[Section]:
    """Scores against depth, for each graph with several depths."""
    made = []
    for data in dict.fromkeys(cell.data for cell in own):
        row = [cell for cell in own if cell.data == data]
        if len(row) < 2:
            continue
        labels = list(dict.fromkeys(label for cell in row for label in cell.runs))
        table = [["contender", *(f"{cell.layers} layers" for cell in row)]]
        for label in labels:
            table.append([label, *(_score(cell, label) for cell in row)])
        text = "Test score in percent at the best validation score, mean ± standard deviation over seeds."
        made.append(Section(f"{own[0].title}: accuracy against depth on {data}", text, table))
    return made


def times(own: list[Cell]) -> Section:
    """Seconds to stated scores, and how they compare pair by pair."""
    against = own[0].against
    rows = [["data", "layers", "contender", "measure", "seconds", "got there", f"times as long as {against}"]]
    for cell in own:
        measures: list[tuple[str, Measure]] = [("best val", to_best)]
        measures += [(f"test {score:g}", to_score(score)) for score in cell.reach]
        measures.append(("iteration", per_iteration))
        for name, measure in measures:
            for label in cell.runs:
                if found := [measure(outcome) for outcome in cell.done(label)]:
                    reached = [seconds for seconds, there in found if there]
                    compared = None if label == against else ratio(cell.pairs(against, label), measure)
                    rows.append([
                        cell.data, str(cell.layers), label, name, number(reached, ".4g"),
                        f"{len(reached)}/{len(found)}", ratio_text(compared),
                    ])  # fmt: skip
    text = (
        "Training seconds with set-up, without evaluation: medians over the runs that got there. A ratio is the median "
        "over pairs of runs with the same seed, made one after the other, and in brackets the least and the largest. A "
        f"run that never got there counts with all its time, which makes the ratio a lower bound (≥); where only "
        f"{against} never got there, it is 0."
    )
    return Section(f"{own[0].title}: time", text, rows)


def costs(own: list[Cell]) -> Section:
    """What an iteration takes."""
    head = [
        "data",
        "layers",
        "contender",
        "set-up s",
        "ms/iteration",
        "GFLOP/iteration",
        "peak MB of each rank",
    ]
    rows = [[*head, "MB sent/iteration", "idle share"]]
    for cell in own:
        for label in cell.runs:
            if not (done := cell.done(label)):
                rows.append([cell.data, str(cell.layers), label, status(cell.runs[label]), *[NOTHING] * 5])
                continue
            steps = [o.seconds_per_iteration * 1e3 for o in done if o.seconds_per_iteration is not None]
            work = [o.flops_per_iteration / 1e9 for o in done if o.flops_per_iteration is not None]
            sent = [sum(o.bytes_per_iteration.values()) / 1e6 for o in done if o.bytes_per_iteration]
            idle = [statistics.fmean(o.idle_share) for o in done if o.idle_share]
            ranks = zip(*(o.peak_bytes for o in done), strict=False)
            peaks = ", ".join(f"{statistics.median(rank) / 1e6:,.0f}" for rank in ranks)
            rows.append([
                cell.data, str(cell.layers), label, number([o.setup_seconds for o in done], ".2f"),
                number(steps, ".2f"), number(work, ".3g"), peaks or NOTHING, number(sent, ".3g"), number(idle, ".1%"),
            ])  # fmt: skip
    text = (
        "Medians over seeds. Peaks are of the whole process, Python, libraries and the graph included; traffic is of "
        "all ranks together; the idle share is the mean over ranks. Operations are those that a contender "
        "counts; gfgnn's solvers and adam have gfgnn.profiling count them. A dash: nobody counts it."
    )
    return Section(f"{own[0].title}: cost", text, rows)


def speedups(own: list[Cell]) -> Section:
    """Contenders on several ranks against themselves on one, pair by pair."""
    rows = [
        ["data", "layers", "contender", "ranks", "one rank is", "iteration, speed-up", "best val, speed-up"]
    ]
    for cell in own:
        one = {
            runs[0].line["contender"]: label
            for label, runs in cell.runs.items()
            if ranks_of(cell, label) == 1
        }
        for label, runs in cell.runs.items():
            alone = one.get(runs[0].line["contender"])
            if alone is not None and (ranks := ranks_of(cell, label)) > 1:
                pairs = cell.pairs(label, alone)
                found = [ratio_text(ratio(pairs, measure)) for measure in (per_iteration, to_best)]
                rows.append([cell.data, str(cell.layers), label, str(ranks), alone, *found])
    text = "Seconds on one rank over seconds on several, medians over pairs, the least and the largest in brackets."
    return Section(f"{own[0].title}: several ranks", text, rows)


def unfinished(found: list[Cell]) -> Section:
    """Runs that are in no figure, and why."""
    rows = [["case", "data", "layers", "contender", "seed", "what became of it", "why"]]
    rows += [
        [cell.case, cell.data, str(cell.layers), label, str(run.line["seed"]), run.outcome.status,
         run.outcome.reason or NOTHING]
        for cell in found for label, runs in cell.runs.items() for run in runs if not run.done
    ]  # fmt: skip
    return Section("Runs that enter no figure", "", rows)


def passed_over(lines: list[Line]) -> Section:
    """Data and contenders that were not there."""
    rows = [["case", "data or contender", "why"]]
    rows += [[line["case"], line["data"] or line["label"], line["reason"]] for line in skipped_of(lines)]
    return Section("Passed over", "", rows)


def references(lines: list[Line]) -> Section:
    """Published figures of the same data sets, a row for each method and source."""
    found: dict[tuple[str, ...], list[str]] = {}
    for row in published(line["source"] for line in runs_of(lines)):
        test = f"{100 * row.test:.1f}" + ("" if row.sd is None else f" ± {100 * row.sd:.1f}")
        shown = test if row.layers is None else f"{row.layers}: {test}"
        key = (row.data, row.method, f"{row.source}, {row.url}", row.setting)
        found.setdefault(key, []).append(shown)
    rows = [["data", "method", "test, by layers", "source", "setting"]]
    rows += [[key[0], key[1], ", ".join(tests), key[2], key[3]] for key, tests in found.items()]
    text = (
        "Not measured here: accuracies in percent as others have published them, on their machines and terms."
    )
    return Section("Published figures", text, rows)


def circumstances(lines: list[Line]) -> Section:
    """Machines, versions, commands and the like, a row for each session."""
    rows = [["began", "command", "commit", "machine", "versions", "threads", "seeds", "load before runs"]]
    for started in (line for line in lines if line.get("kind") == STARTED):
        runs = [line for line in lines if "outcome" in line and line["session"] == started["session"]]
        machine = started["machine"]
        hardware = f"{machine['processor']}, {machine['cores']} cores, {machine['memory_gb']} GB, {machine['system']}"
        versions = ", ".join(f"{n} {machine[n]}" for n in ("python", "torch", "torch_geometric", "gfgnn"))
        loads = [line["load"][0] for line in runs if line["load"][0] is not None]
        rows.append([
            started["date"], started["command"] or NOTHING, started["commit"], hardware, versions,
            ", ".join(str(n) for n in sorted({line["threads"] for line in runs})) or NOTHING,
            ", ".join(str(n) for n in sorted({line["seed"] for line in runs})) or NOTHING,
            f"{min(loads):.1f} to {max(loads):.1f}" if loads else NOTHING,
        ])  # fmt: skip
    text = (
        "Each run was a process of its own: it loaded the data, warmed up on a small graph and then trained. "
        "Contenders took turns within each seed. Threads are of each rank; a commit with + had changes."
    )
    return Section("Circumstances", text, rows)


def ranks_of(cell: Cell, label: str) -> int:
    """Of a contender's runs: as many as report a peak."""
    return max((len(outcome.peak_bytes) for outcome in cell.done(label)), default=0)


def count(runs: list[Run]) -> str:
    """How many of the runs are done."""
    done = sum(run.done for run in runs)
    return str(done) if done == len(runs) else f"{done} of {len(runs)} ({status(runs)})"


def status(runs: list[Run]) -> str:
    """What became of the runs that are not done."""
    found = Counter(run.outcome.status for run in runs if not run.done)
    return ", ".join(
        f"{name}" if number == len(runs) else f"{number} {name}" for name, number in found.items()
    )


def percent(scores: list[float]) -> str:
    """Mean and standard deviation; empty without scores."""
    if not scores:
        return ""
    sd = f" ± {100 * statistics.stdev(scores):.1f}" if len(scores) > 1 else ""
    return f"{100 * statistics.fmean(scores):.1f}{sd}"


def number(values: list[float], form: str) -> str:
    """The median."""
    return format(statistics.median(values), form) if values else NOTHING


def ratio_text(found: Ratio | None) -> str:
    """A ratio as tables have it."""
    if found is None:
        return NOTHING
    spread = f" ({found.low:.2f} to {found.high:.2f})" if found.pairs > 1 else ""
    return f"{'≥ ' if found.bound else ''}{found.median:.2f}{spread}"


def _score(cell: Cell, label: str) -> str:
    if label not in cell.runs:
        return NOTHING
    return percent(best_tests(cell.done(label))) or status(cell.runs[label])
