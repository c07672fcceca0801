"""What ``gfgnn train`` says when training has ended."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gfgnn.output import RunFolder
    from gfgnn.predict import Predictions
    from gfgnn.result import Result


def official_of(result: Result) -> dict[str, float]:
    """What OGB's evaluator says of the test nodes, where the graph is a data set of OGB with its own split.

    It takes one more run of the network on one device; a grid may have been chosen because that does not fit.
    """
    from gfgnn.data.ogb import SETS, official_test

    if result.graph.name not in SETS or (result.ranks and not result.config.out_of_core):
        return {}
    predicted = predicted_by(result)
    if predicted.prediction is None or predicted.probability is None:
        return {}
    return official_test(result.graph, predicted.prediction, predicted.probability)


def predicted_by(result: Result) -> Predictions:
    """What the best iterate predicts, part after part where it was trained so, and within the same memory limit."""
    from gfgnn.predict import predict, room_of

    room = room_of(result.config)
    return predict(result, result.graph, device=room.device, parts=room.parts, memory_limit=room.memory_limit)


def summarise(result: Result, adam: Result | None) -> dict[str, Any]:
    """The object of ``result.json`` and ``--json``; with a comparison, Adam's own object under ``adam``."""
    summary = result.summary()
    if adam is not None:
        summary["adam"] = adam.summary()
        summary["adam_seconds_to_best_ratio"] = adam.seconds_to_best / result.seconds_to_best
    return summary


def report(
    result: Result, adam: Result | None, out: RunFolder | None, official: dict[str, float], *, as_json: bool
) -> None:
    """Prints the outcome: one JSON object, or a few lines."""
    if as_json:
        from gfgnn.checkpoint import jsonable

        print(json.dumps(jsonable(summarise(result, adam) | official)))
        return
    from gfgnn.cli.table import comparison, memory_line, official_lines, ranks_table

    print(comparison(result, adam))
    for line in official_lines(official):
        print(line)
    if result.fit is not None:
        print(memory_line(result))
    if result.ranks:
        print(f"\n{ranks_table(result)}\n")
    if result.profile is not None:
        from gfgnn.cli.profile import profile_text

        print(f"\n{profile_text(result.profile)}\n")
        if out is None:
            print("For a trace that Chrome and Perfetto show, add --out DIR.")
    for note in result.notes:
        print(f"note: {note}", file=sys.stderr)
    if result.interrupted:
        print("Interrupted: this is the best iterate up to then.")
    elif adam is not None and adam.interrupted:
        print("Interrupted: Adam's is the best iterate up to then.")
    if out is not None:
        print(f"Written to {out.path}: {', '.join(out.files())}")
