"""``gfgnn predict``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from gfgnn.cli import options as o

#: Settings that change what the network sees; they follow the model to other data unless given anew.
INPUT_SETTINGS = ("features", "normalise", "symmetrise", "feature_storage")


def predict_command(
    model: Annotated[Path, typer.Option(help="Folder of a run, or its model.safetensors.")],
    data: o.Data = None,
    root: o.Root = None,
    features: o.Features = None,
    normalise: o.Normalise = None,
    symmetrise: o.Symmetrise = None,
    max_year: o.MaxYear = None,
    feature_storage: o.FeatureStorage = None,
    download: o.Download = False,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    transductive: Annotated[
        bool,
        typer.Option(
            "--transductive", help="By the embeddings of --solver admm or community-admm, for its own graph."
        ),
    ] = False,
    parts: Annotated[
        int | None, typer.Option(help="Parts of the graph to go over one after the other (all at once).")
    ] = None,
    memory_limit: Annotated[
        str | None, typer.Option(help="Such as 16GB: as few parts as keep to it.")
    ] = None,
    post: o.Post = None,
    corrections: o.Corrections = None,
    correction_alpha: o.CorrectionAlpha = None,
    correction_scale: o.CorrectionScale = None,
    smoothings: o.Smoothings = None,
    smoothing_alpha: o.SmoothingAlpha = None,
    out: Annotated[
        Path, typer.Option(help="File for node_id, prediction and probability (or value).")
    ] = Path("predictions.npz"),
) -> None:
    """Predict class and probability of every node; without --data, of the graph the network was trained on."""
    o.show_warnings_plainly()
    from gfgnn.checkpoint import load_model
    from gfgnn.checks import check_device
    from gfgnn.cli.table import official_lines
    from gfgnn.config import CorrectAndSmoothConfig
    from gfgnn.data.ogb import official_test
    from gfgnn.predict import predict, smoothed
    from gfgnn.toml import RunConfig

    check_device(device)
    settings = CorrectAndSmoothConfig(
        **o.correct_and_smooth(corrections, correction_alpha, correction_scale, smoothings, smoothing_alpha)
    )
    run = RunConfig(post=post or "none", correct_and_smooth=settings)
    network = load_model(model)  # before the data, which may take long
    given = o.given(
        name=data,
        root=root,
        features=features,
        normalise=normalise,
        symmetrise=symmetrise,
        max_year=max_year,
        feature_storage=feature_storage,
    )
    graph = o.load_graph({**_trained_on(model, everything=data is None), **given}, download=download)
    predictions = predict(
        model if transductive else network,
        graph,
        device=device,
        transductive=transductive,
        parts=parts,
        memory_limit=memory_limit,
    )
    if run.post != "none":
        predictions = smoothed(predictions, graph, settings)
    predictions.save(out)
    print(f"{predictions.node_id.numel():,} predictions for {graph.name} written to {out}")
    if predictions.prediction is not None and predictions.probability is not None:
        for line in official_lines(official_test(graph, predictions.prediction, predictions.probability)):
            print(line)


def _trained_on(model: Path, *, everything: bool) -> dict[str, Any]:
    """The data settings of the run beside the model, or those of them that suit other data too."""
    from gfgnn.output import CONFIG_FILE
    from gfgnn.toml import loads_run

    file = (model if model.is_dir() else model.parent) / CONFIG_FILE
    if not file.is_file():
        return {}
    settings = loads_run(o.read_text(file), str(file)).data
    return settings if everything else {k: v for k, v in settings.items() if k in INPUT_SETTINGS}
