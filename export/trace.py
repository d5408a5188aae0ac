"""Tracing: a module becomes an ONNX program whose axes are free, and says which branches it took on the way.

torch.export keeps a guard for each condition on a size that the code asked about: `sequence <= 36`, with the line that
asked. What the trace did not see lies on the other side of a guard.
"""

from __future__ import annotations

import contextlib
import io
import logging
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import onnx_ir
import sympy  # type: ignore[import-untyped]
import torch
from torch._dynamo.exc import UserError
from torch.export import Dim, ExportedProgram
from torch.export._patches import register_gru_while_loop_decomposition, register_lstm_while_loop_decomposition

from ..models.phases import PhaseModule
from ..models.signature import Signature, Sizes, TensorSpec
from .folding import fold
from .lowerings import LOWERINGS
from .mending import mend
from .source import Source

_OURS = (str(Path(torch.__file__).parent), str(Path(__file__).parent))


class ExportError(Exception):
    """A model that could not be exported; the message names the source and the reason in one line."""


@dataclass(frozen=True)
class Guard:
    """A condition on sizes that the trace took for true, and the line of source that asked it."""

    condition: Any  # of sympy, over the symbols below
    axes: dict[Any, str]  # the axis of the signature that a symbol stands for
    line: str

    def holds(self, sizes: Sizes) -> bool:
        """Whether the traced branch is the right one at these sizes."""
        size = {symbol: TensorSpec("", "", (axis,)).resolve(sizes)[0] for symbol, axis in self.axes.items()}
        return bool(self.condition.xreplace({symbol: sympy.Integer(value) for symbol, value in size.items()}))

    def __str__(self) -> str:
        named = self.condition.xreplace({symbol: sympy.Symbol(axis) for symbol, axis in self.axes.items()})
        return f"{named} ({self.line})"


def trace(module: PhaseModule, source: Source, opset: int) -> Any:
    """The ONNX program of a module: torch.export on an example, the signature's names and axes declared on the result.

    Raises:
        ExportError: the exporter refuses the model, or fixes an axis that should be free.
    """
    return traced(module, source, opset)[0]


def traced(
    module: PhaseModule, source: Source, opset: int, before_folding: Callable[[onnx_ir.Model], None] | None = None
) -> tuple[Any, tuple[Guard, ...]]:
    """The same, with the guards of the trace; `before_folding` may change the graph before constants are folded."""
    signature = module.signature
    with torch.no_grad(), quiet():
        try:
            try:
                captured = _capture(module, signature)
            except UserError as error:
                _refuse_fixed(module, signature, error)
            guards = _guards(captured, signature)
            program = torch.onnx.export(
                captured,
                dynamo=True,
                opset_version=opset,
                input_names=[spec.name for spec in signature.inputs],
                output_names=[spec.name for spec in signature.outputs],
                custom_translation_table=LOWERINGS,
                optimize=False,
                verbose=False,
            )
            assert program is not None  # dynamo=True always returns one
            if before_folding is not None:
                before_folding(program.model)
            fold(program.model)
            mend(program.model)
        except ExportError as error:
            raise ExportError(f"{source.name}: {error}") from error
        except Exception as error:  # a user's module and two exporters: what they raise has no class in common
            raise ExportError(f"{source.name}: {refusal(error)}") from error
    shapes, names = _shapes(captured), captured.graph_signature
    _declare(program.model.graph.inputs, signature.inputs, names.user_inputs, shapes, source)
    _declare(program.model.graph.outputs, signature.outputs, names.user_outputs, shapes, source)
    return program, guards


def _capture(module: PhaseModule, signature: Signature, dim: Any = Dim.DYNAMIC) -> ExportedProgram:
    """torch.export as torch.onnx.export calls it: sizes 0 and 1 in the example do not fix an axis."""
    feeds = signature.feeds(module.example, padding="left")
    free = tuple({i: dim for i, size in enumerate(spec.shape) if isinstance(size, str)} for spec in signature.inputs)
    device = next((parameter.device for parameter in module.parameters()), "cpu")  # meta, where weights are streamed
    example = tuple(torch.from_numpy(array).to(device) for array in feeds.values())
    with (
        register_lstm_while_loop_decomposition(),
        register_gru_while_loop_decomposition(),
        torch.fx.experimental._config.patch(backed_size_oblivious=True),  # type: ignore[attr-defined]
    ):
        return torch.export.export(module, example, dynamic_shapes=(free,), strict=False)


def _refuse_fixed(module: PhaseModule, signature: Signature, error: Exception) -> NoReturn:
    """Raise for an axis that the code itself fixes, as int(x.shape[1]) does; a second trace shows the line."""
    program = _capture(module, signature, Dim.AUTO)
    shapes = _shapes(program)
    given = zip(program.graph_signature.user_inputs, signature.inputs, strict=True)
    fixed = [
        f"axis {axis} ({dim}) of {spec.name} at {size}"
        for name, spec in given
        for axis, (size, dim) in enumerate(zip(shapes[str(name)], spec.shape, strict=True))
        if isinstance(dim, str) and (isinstance(size, int) or size.node.expr.is_number)
    ]
    environments = [
        size.node.shape_env for shape in shapes.values() for size in shape if isinstance(size, torch.SymInt)
    ]
    equal = (guard for env in environments[:1] for guard in env.guards if isinstance(guard.expr, sympy.Eq))
    lines = [_asked(guard.sloc) for guard in equal if any(side.is_Integer for side in guard.expr.args)]
    where = f" ({lines[0]})" if lines else ""
    raise ExportError(f"the code fixes {', '.join(fixed) or 'a size'}{where}") from error


def _guards(program: ExportedProgram, signature: Signature) -> tuple[Guard, ...]:
    """The conditions that some sizes of the signature's axes would not meet are among these."""
    names = program.graph_signature.user_inputs
    shapes = _shapes(program)
    axes: dict[Any, str] = {}
    environment = None
    for name, spec in zip(names, signature.inputs, strict=True):
        for size, dim in zip(shapes[str(name)], spec.shape, strict=True):
            if isinstance(size, torch.SymInt) and isinstance(dim, str):
                axes[size.node.expr] = dim
                environment = size.node.shape_env
    if environment is None:
        return ()
    asked = [(guard.expr.xreplace(environment.replacements), guard.sloc) for guard in environment.guards]
    return tuple(
        Guard(condition, {symbol: axes[symbol] for symbol in condition.free_symbols}, _asked(location))
        for condition, location in asked
        if condition.free_symbols and condition.free_symbols <= axes.keys()
    )


def _asked(location: Any) -> str:
    """The line that asked for a guard: the model's own, or torch's where torch asked for itself."""
    frame = location.framework_loc
    return _line([frame]) or location.maybe_user_loc or f"torch: {frame.name}"


def _line(frames: Iterable[Any]) -> str | None:
    """The innermost of these frames that belongs to the model."""
    theirs = [frame for frame in frames if not frame.filename.startswith((*_OURS, "<"))]
    if not theirs:
        return None
    frame = theirs[-1]
    return f"{frame.filename}:{frame.lineno} in {frame.name}: {(frame.line or '').strip()}"


def refusal(error: BaseException) -> str:
    """The first line of the deepest cause, since what torch wraps around it is advice, and the model's own line."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    where = _line(traceback.extract_tb(error.__traceback__))
    if type(error).__name__ == "GuardOnDataDependentSymNode":
        said = "what is computed depends on values, not on sizes alone, and a graph holds one branch"
    else:
        said = f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
    return f"{said} ({where})" if where else said


def _declare(
    values: Iterable[onnx_ir.Value | None],
    specs: Iterable[TensorSpec],
    names: Iterable[Any],
    shapes: Mapping[str, Any],
    source: Source,
) -> None:
    """Give each value the axes of its spec; a dimension that the trace fixed but should be free is an error.

    The trace is asked and not the graph, which declares the traced sizes of an LSTM as if they were fixed.
    """
    for value, spec, name in zip(values, specs, names, strict=True):
        assert value is not None
        for axis, (dim, found) in enumerate(zip(spec.shape, shapes[str(name)], strict=True)):
            if isinstance(found, int) and found != dim:
                raise ExportError(
                    f"{source.name}: axis {axis} of {spec.name} should be {dim!r} and is fixed at {found}"
                )
        value.shape = onnx_ir.Shape(spec.shape)


def _shapes(program: ExportedProgram) -> dict[str, Any]:
    """The shape of each value of a trace, by its name."""
    values = ((node.name, node.meta.get("val")) for node in program.graph.nodes)
    return {name: value.shape for name, value in values if isinstance(value, torch.Tensor)}


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep the exporter's own progress and advice off the user's terminal; errors still arrive as exceptions."""
    loggers = [logging.getLogger(name) for name in ("torch", "torch.onnx", "onnxscript", "onnx_ir")]
    levels = [logger.level for logger in loggers]
    silent = io.StringIO()
    with warnings.catch_warnings(), contextlib.redirect_stdout(silent), contextlib.redirect_stderr(silent):
        warnings.simplefilter("ignore")
        for logger in loggers:
            logger.setLevel(logging.CRITICAL)
        try:
            yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)
