"""`module:factory`: a user's own function returns a model, and it becomes a module with a flat signature.

The function takes no arguments and returns a module that has a `signature`, or (module, Signature), or (module, inputs)
with example tensors, by name or in the order of `forward`. The working folder is importable. Axes of examples are free
if the module runs at another size of theirs; equal sizes are one axis. The first axis of the inputs is "batch", the
first free one after it "sequence", and others are named after their input.
"""

from __future__ import annotations

import inspect
import sys
import traceback
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from torch import Tensor, nn

from ..models.signature import Signature, TensorSpec
from .axes import AxisError, dtype_name, example_sizes, free_axes, outputs_of
from .float64 import exactly
from .source import SourceError

if TYPE_CHECKING:
    from ..models.phases import PhaseModule

RETURNS = "an nn.Module with a `signature`, (module, Signature) or (module, example inputs)"


class UserModule(nn.Module):
    """A user's module behind a flat signature: tensors in the order of its inputs → tensors of its outputs."""

    def __init__(self, model: nn.Module, inputs: tuple[TensorSpec, ...], outputs: tuple[TensorSpec, ...] = ()) -> None:
        super().__init__()
        self.model = model
        self.names = tuple(spec.name for spec in inputs)
        self.example = example_sizes(inputs)
        self.signature = Signature(inputs, outputs or outputs_of(lambda named: _called(model, named), inputs))

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """Inputs in the signature's order → outputs in the signature's order; wholly in float64 after `double()`."""
        return tuple(_called(self.model, dict(zip(self.names, tensors, strict=True))).values())


def call(name: str) -> PhaseModule:
    """What a factory returns, as a module with a signature.

    Raises:
        SourceError: there is no such function, it raises or needs arguments, or it returns something else.
    """
    factory = _find(name)
    try:
        inspect.signature(factory).bind()
    except TypeError as error:
        raise SourceError(f"{name}: the factory is called without arguments: {error}") from None
    try:
        made = factory()
    except Exception as error:  # a user's code raises what it likes
        frame = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{frame.filename}:{frame.lineno}"
        raise SourceError(f"{name}: the factory raised {type(error).__name__}: {error} ({where})") from error
    signature = getattr(made, "signature", None)
    if isinstance(made, nn.Module) and isinstance(signature, Signature):
        made.eval()
        return cast("PhaseModule", made if hasattr(made, "example") else _declared(name, made, signature))
    if not (isinstance(made, tuple) and len(made) == 2 and isinstance(made[0], nn.Module)):
        what = f"{type(made).__name__} without a signature" if isinstance(made, nn.Module) else type(made).__name__
        raise SourceError(f"{name}: the factory returned {what}, and should return {RETURNS}")
    model, given = made
    if isinstance(given, Signature):
        return cast("PhaseModule", _declared(name, model.eval(), given))
    return cast("PhaseModule", _from_examples(name, model.eval(), given))


def _find(name: str) -> Any:
    module, _, attribute = name.partition(":")
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        found = getattr(import_module(module), attribute, None)
    except Exception as error:  # importing runs a user's code
        raise SourceError(f"{name}: cannot import {module!r}: {type(error).__name__}: {error}") from error
    if not callable(found):
        raise SourceError(f"{name}: {module} has no function {attribute!r}")
    return found


def _declared(name: str, model: nn.Module, signature: Signature) -> UserModule:
    _bind(name, model, {spec.name: None for spec in signature.inputs})
    return UserModule(model, signature.inputs, signature.outputs)


def _from_examples(name: str, model: nn.Module, given: Any) -> UserModule:
    tensors = _by_name(name, model, given)
    free = free_axes(lambda named: _called(model, named), tensors)
    inputs = tuple(
        TensorSpec(
            key,
            dtype_name(tensor),
            tuple(free.get((key, axis), size) for axis, size in enumerate(tensor.shape)),
            None if tensor.is_floating_point() else int(tensor.max()) + 1,
        )
        for key, tensor in tensors.items()
    )
    try:
        return UserModule(model, inputs)
    except AxisError as error:
        raise SourceError(f"{name}: {error}") from None


def _by_name(name: str, model: nn.Module, given: Any) -> dict[str, Tensor]:
    """Example inputs under the names of the arguments of `forward`."""
    if isinstance(given, Tensor):
        given = (given,)
    if not isinstance(given, Mapping | tuple | list):
        raise SourceError(f"{name}: the example inputs are a {type(given).__name__}, and should be tensors by name")
    bound = _bind(name, model, given)
    for key, value in bound.items():
        if not isinstance(value, Tensor) or value.numel() == 0:
            raise SourceError(f"{name}: the input {key!r} is {type(value).__name__}, not a tensor with values")
    return bound


def _bind(name: str, model: nn.Module, given: Mapping[str, Any] | tuple[Any, ...] | list[Any]) -> dict[str, Any]:
    """The given inputs by argument, in the order of `forward`.

    Raises:
        SourceError: an argument without a default was not given, or one was given that is not there.
    """
    signature = inspect.signature(model.forward)
    try:
        bound = signature.bind(**given) if isinstance(given, Mapping) else signature.bind(*given)
    except TypeError as error:
        raise SourceError(f"{name}: {type(model).__name__}.forward on the inputs that were given: {error}") from None
    flat: dict[str, Any] = {}
    for key, value in bound.arguments.items():
        kind = signature.parameters[key].kind
        if kind is inspect.Parameter.VAR_POSITIONAL:
            flat |= {f"input_{number}": one for number, one in enumerate(value)}
        elif kind is inspect.Parameter.VAR_KEYWORD:
            flat |= value
        else:
            flat[key] = value
    return flat


def _called(model: nn.Module, named: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The outputs of a module by name, its inputs given by name where `forward` knows them."""
    takes = inspect.signature(model.forward).parameters
    with exactly(model):
        return _flat(model(**named) if takes.keys() >= named.keys() else model(*named.values()))


def _flat(result: Any) -> dict[str, Tensor]:
    """What a module returns as tensors by name."""
    if isinstance(result, Tensor):
        return {"output": result}
    items = result.items() if isinstance(result, Mapping) else ((f"output_{i}", part) for i, part in enumerate(result))
    return {str(key): value for key, value in items if isinstance(value, Tensor)}
