"""Which axes of tensors are free: found by running a module at other sizes, no two of them equal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import torch
from torch import Tensor

from ..models.signature import Dim, Signature, Sizes, TensorSpec

EXAMPLE = {"batch": 3, "sequence": 7, "past": 5, "source": 11}
_OTHERS = ({"batch": 2, "sequence": 8, "past": 9, "source": 13}, {"batch": 4, "sequence": 10, "past": 3, "source": 17})
Named = Mapping[str, Tensor]


class AxisError(Exception):
    """An axis that changes with the inputs, and is none of their axes; the message names the output and the sizes."""


def outputs_of(call: Callable[[Named], Named], inputs: tuple[TensorSpec, ...]) -> tuple[TensorSpec, ...]:
    """The specs of what `call` returns for inputs of these specs.

    Raises:
        AxisError: an axis grows as no axis of the inputs does.
    """
    axes = sorted({dim for spec in inputs for dim in spec.shape if isinstance(dim, str)})
    probes = [{**sizes, **_own(axes, start)} for sizes, start in zip(_OTHERS, (19, 37), strict=True)]
    first, second = (_run(call, inputs, sizes) for sizes in probes)
    return tuple(
        TensorSpec(
            name,
            dtype_name(tensor),
            tuple(
                _dim(name, axis, pair, axes, probes)
                for axis, pair in enumerate(zip(tensor.shape, second[name].shape, strict=True))
            ),
        )
        for name, tensor in first.items()
    )


def free_axes(call: Callable[[Named], Named], tensors: Named) -> dict[tuple[str, int], str]:
    """The names of the axes at whose other sizes a call still runs, by input and axis; equal sizes are one axis.

    An axis of size 1 is one that is broadcast, and so fixed, unless it is the first or that of ids.
    """
    groups: dict[tuple[bool, int], list[tuple[str, int]]] = {}
    for key, tensor in tensors.items():
        ids = tensor.dim() == 2 and not tensor.is_floating_point()
        for axis, size in enumerate(tensor.shape):
            if axis == 0 or size > 1 or ids:
                groups.setdefault((axis == 0, size), []).append((key, axis))
    free: dict[tuple[str, int], str] = {}
    bound: dict[int, list[tuple[str, int]]] = {}
    for (first, size), axes in groups.items():
        if _resizable(call, tensors, axes, size):
            _name(free, axes, "batch" if first else "sequence")
        else:
            bound.setdefault(size, []).extend(axes)
    for size, axes in bound.items():
        if size > 1 and _resizable(call, tensors, axes, size):  # a first axis together with later ones: a mask (n, n)
            _name(free, axes, "sequence")
    return free


def _resizable(call: Callable[[Named], Named], tensors: Named, axes: list[tuple[str, int]], size: int) -> bool:
    others = ({key: _resized(t, key, axes, size + more) for key, t in tensors.items()} for more in (2, 5))
    return all(_runs(call, other) for other in others)


def _name(free: dict[tuple[str, int], str], axes: list[tuple[str, int]], usual: str) -> None:
    label = usual if usual not in free.values() else f"{axes[0][0]}_{axes[0][1]}"
    free.update(dict.fromkeys(axes, label))


def _resized(tensor: Tensor, key: str, axes: list[tuple[str, int]], size: int) -> Tensor:
    """A tensor with some axes at another size, its values repeated in turn."""
    for axis in (axis for name, axis in axes if name == key):
        tensor = tensor.index_select(axis, torch.arange(size) % tensor.shape[axis])
    return tensor


def _runs(call: Callable[[Named], Named], tensors: Named) -> bool:
    try:
        with torch.no_grad():
            call(tensors)
    except Exception:  # a user's code raises what it likes
        return False
    return True


def example_sizes(inputs: Iterable[TensorSpec]) -> Sizes:
    """Sizes to trace at: never 0 or 1, all different."""
    return {**EXAMPLE, **_own(sorted({dim for spec in inputs for dim in spec.shape if isinstance(dim, str)}), 6)}


def dtype_name(tensor: Tensor) -> str:
    """The NumPy name of a tensor's type."""
    return str(tensor.dtype).removeprefix("torch.")


def _own(axes: list[str], start: int) -> dict[str, int]:
    """Sizes for axes of other names than the usual."""
    parts = {part.strip() for axis in axes for part in axis.split("+")} - EXAMPLE.keys()
    return {name: start + 3 * number for number, name in enumerate(sorted(parts))}


def _run(call: Callable[[Named], Named], inputs: tuple[TensorSpec, ...], sizes: Sizes) -> Named:
    feeds = Signature(inputs, ()).feeds(sizes)
    with torch.no_grad():
        return call({name: torch.from_numpy(array) for name, array in feeds.items()})


def _dim(name: str, axis: int, pair: tuple[int, int], axes: list[str], probes: list[dict[str, int]]) -> Dim:
    if pair[0] == pair[1]:
        return pair[0]
    for known in axes:
        spec = TensorSpec("", "", (known,))
        if all(spec.resolve(sizes) == (size,) for sizes, size in zip(probes, pair, strict=True)):
            return known
    raise AxisError(f"axis {axis} of output {name!r} is {pair[0]} at {probes[0]} and {pair[1]} at {probes[1]}")
