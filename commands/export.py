"""`isorun export`: a model becomes a folder with a graph and its manifest."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..export.opsets import DEFAULT_OPSET
from ..terminal import fail, say, table
from .options import Dtype, Size, Target

if TYPE_CHECKING:
    from ..export.artifact import ExportedModel


def export(
    model: Annotated[str, typer.Argument(help="PRESET[@SIZE], hf:FOLDER, module:factory, a checkpoint, an .onnx.")],
    output: Annotated[Path | None, typer.Option("-o", "--output", help="The folder to make.")] = None,
    phase: Annotated[str, typer.Option(help="forward, step (with a cache) or encode.")] = "forward",
    size: Annotated[Size, typer.Option(help="Of a preset: tiny, small, or full as published.")] = Size.small,
    opset: Annotated[int, typer.Option(min=18, max=25)] = DEFAULT_OPSET,
    seed: Annotated[int, typer.Option(help="Seed of the random weights of a preset.")] = 0,
    dtype: Annotated[Dtype, typer.Option(help="The precision of the graph.")] = Dtype.fp32,
    per_channel: Annotated[bool, typer.Option(help="int8: a scale for each output channel, or each matrix.")] = True,
    block_size: Annotated[int, typer.Option(help="int4 and int8-weights: input channels with one scale.")] = 32,
    accuracy_level: Annotated[int, typer.Option(min=0, max=4, help="The same: 0 is float32 products, 4 int8.")] = 4,
    max_drift: Annotated[
        float | None,
        typer.Option(help="int8, int8-weights, int4: layers keep more bits until outputs drift less."),
    ] = None,
    external_data: Annotated[bool, typer.Option(help="Weights in a file of their own, as from 1.5 GiB on.")] = False,
    target: Annotated[Target, typer.Option("--for", help="Whose fused operators to use.")] = Target.portable,
    last_logits: Annotated[bool, typer.Option(help="Logits of the last token alone.")] = False,
    force: Annotated[bool, typer.Option(help="Replace the export that the folder holds.")] = False,
    allow_specialised: Annotated[bool, typer.Option(help="Also what holds at the traced sizes alone.")] = False,
    cache: Annotated[bool, typer.Option(help="Take an export of the same that is there already.")] = True,
    compare_exporters: Annotated[bool, typer.Option(help="torch's two exporters side by side; no folder.")] = False,
) -> None:
    """Export a model to ONNX with free batch, sequence and past, and a manifest."""
    from ..export.source import read

    if max_drift is not None:
        _refuse_drift(dtype, max_drift)
    source = read(model, size.value, seed)
    if compare_exporters:
        from ..export.exporters import compare

        table(f"{model}, {phase}", compare(source, phase, opset=opset))
        return
    if output is None:
        fail("export: the folder to make is missing: -o DIR")
    quantisation = {
        "per_channel": per_channel,
        "block_size": block_size,
        "accuracy_level": accuracy_level,
        "max_drift": max_drift,
    }
    if source.kind == "file":
        if last_logits:
            fail(f"{model}: is a graph already: --last-logits is for models that are traced")
        _adopt(Path(source.name), output, dtype, target, quantisation, external=external_data, force=force)
        return
    from ..export.cache import export as run

    artifact, there = run(
        source,
        phase,
        output,
        prove=lambda: _prover(source.weight_bytes()),
        keep=cache,
        opset=opset,
        dtype=dtype.value,
        target=target.value,
        last_logits=last_logits,
        force=force,
        allow_specialised=allow_specialised,
        external=external_data,
        quantisation=quantisation,
    )
    _report(artifact, "from the cache" if there else f"in {artifact.seconds:.1f} s")


def _adopt(
    file: Path,
    output: Path,
    dtype: Dtype,
    target: Target,
    quantisation: dict[str, Any],
    *,
    external: bool,
    force: bool,
) -> None:
    """An .onnx that is there already, as it is, with fused operators, or in another precision."""
    from ..export.adoption import adopt_file
    from ..export.finish import derive
    from ..export.precision import Quantisation

    if dtype is Dtype.fp32 and target is Target.portable:
        _report(adopt_file(file, output, force=force), "adopted")
        return
    with TemporaryDirectory(prefix="isorun-") as folder:
        adopted = adopt_file(file, Path(folder) / "adopted")
        artifact = derive(
            adopted,
            dtype.value,
            output,
            target=target.value,
            prove=_prover(adopted.sizes["file_bytes"]),
            options=Quantisation(**quantisation),
            external=external,
            force=force,
        )
        _report(artifact, f"adopted in {dtype.value} for {target.value}")


def _refuse_drift(dtype: Dtype, max_drift: float) -> None:
    """At once, and not after the trace."""
    from ..export.precision import refuse_drift

    try:
        refuse_drift(dtype.value, max_drift)
    except ValueError as error:
        fail(f"export: {error}")


def _prover(weight_bytes: int | None) -> Any:
    """What fused graphs are held to; it brings torch, so only where something is made."""
    from ..bench.proof import prover

    return prover(weight_bytes)


def _report(artifact: ExportedModel, how: str) -> None:
    for note in artifact.notes:
        say(note)
    for name, error in artifact.errors.items():
        say(f"error of {name} against float64: {error:.2g}")
    say(f"{sum(artifact.ops.values())} nodes at opset {artifact.opset}, {how}")
    say(artifact.model_path)
