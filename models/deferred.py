"""Models without weights, and weights on demand: for models that do not fit into memory.

Parameters stand on the meta device, where they have a shape and no values. `Draw` gives the values of one by its name,
float32, equal to those of the ordinary model: drawn from the seed, or read from a checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from .config import ModelConfig
from .transformer import build, initialise_module

Draw = Callable[[str], Tensor]


def seeded(config: ModelConfig, seed: int) -> tuple[nn.Module, Draw]:
    """The model of a configuration without weights, and those that `build` gives it from the seed."""
    with without_weights():
        model = build(config)
    return model, _Seeded(model, config, seed)


@contextmanager
def without_weights() -> Iterator[None]:
    """Modules built here have parameters on the meta device; their buffers, which are computed, have values."""
    register = nn.Module.register_parameter

    def register_empty(self: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        if parameter is not None and not parameter.is_meta:  # a tied one is registered again, and stays the same one
            parameter = nn.Parameter(parameter.to("meta"), requires_grad=False)
        register(self, name, parameter)

    nn.Module.register_parameter = register_empty  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        nn.Module.register_parameter = register  # type: ignore[method-assign]


class _Seeded:
    """Random access to one stream of random numbers: the state of the generator is kept at the start of each module.

    Asked in the order of the modules nothing is drawn twice. The weights of the last module are kept: a matrix is asked
    for twice where its integers and its scales are written.
    """

    def __init__(self, model: nn.Module, config: ModelConfig, seed: int) -> None:
        self._config = config
        self._generator = torch.Generator().manual_seed(seed)
        self._modules = list(model.modules())
        self._states: list[Tensor] = []
        self._kept: tuple[int, dict[str, Tensor]] = (-1, {})
        holders = {
            parameter: (i, name)  # of a tied weight the last: what it draws is what stays
            for i, holder in enumerate(self._modules)
            for name, parameter in holder.named_parameters(recurse=False)
        }
        names = model.named_parameters(remove_duplicate=False)
        self._holders = {name: holders[parameter] for name, parameter in names}

    def __call__(self, name: str) -> Tensor:
        """The values of a parameter, float32."""
        index, own_name = self._holders[name]
        while len(self._states) < index:
            self._draw(len(self._states))
        if self._kept[0] != index:
            self._kept = index, self._draw(index)
        return self._kept[1][own_name]

    def _draw(self, index: int) -> dict[str, Tensor]:
        """The own weights of a module; the first time it is its turn, and later from the state kept then."""
        if index == len(self._states):
            self._states.append(self._generator.get_state())
        generator = torch.Generator()
        generator.set_state(self._states[index])
        module = self._modules[index]
        empty = dict(module.named_parameters(recurse=False))
        for name, parameter in empty.items():
            module._parameters[name] = nn.Parameter(torch.empty(parameter.shape), requires_grad=False)
        initialise_module(module, self._config, generator)
        drawn = {name: parameter.data for name, parameter in module.named_parameters(recurse=False)}
        module._parameters.update(empty)
        if index == len(self._states) - 1:
            self._generator = generator
        return drawn
