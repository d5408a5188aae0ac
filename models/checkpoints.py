"""Published weights into these modules: a Hugging Face checkpoint folder becomes a configuration and a model.

A folder holds `config.json` and `*.safetensors`, which is memory-mapped; a pickle is never opened. The file of each
family in `presets/` owns the table of its names.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from . import presets
from .config import ModelConfig
from .deferred import Draw, without_weights
from .family import Family, Part, PerExpert, PerHead
from .transformer import build

CONFIG_BYTES = 1 << 20  # a config.json larger than this is no config


class CheckpointError(ValueError):
    """A checkpoint that does not fit; the message names the file, the tensor and what was expected."""


def families() -> dict[str, Family]:
    """Every family, by `model_type`, collected from the files in `presets/`."""
    modules = (import_module(f".{found.name}", presets.__name__) for found in iter_modules(presets.__path__))
    return {family.model_type: family for module in modules for family in getattr(module, "FAMILIES", ())}


def load(folder: Path) -> tuple[ModelConfig, nn.Module]:
    """The configuration and the model of a checkpoint folder, in float32 and eval mode.

    Raises:
        CheckpointError: no such file, an unknown family, or an unknown, missing or misshapen tensor.
        ConfigError: a configuration that no model can have, or an option that is not supported.
    """
    family, config = read_config(folder)
    with ExitStack() as stack:
        stored = _open(folder, family, stack)
        config = family.refine(config, stored.keys())
        with torch.device("meta"):
            model = build(config)
        _refuse_other_family(family, stored, folder)
        values = dict(_values(model, family, stored, folder))
        _refuse_unknown(family, stored, model, folder)
    _fill(model, values)
    _restore_buffers(model, config)
    return config, model


def stored(folder: Path) -> tuple[ModelConfig, nn.Module, Draw]:
    """The same without weights in memory: each is read from its file when it is asked for by name, float32.

    Raises:
        CheckpointError, ConfigError: as `load`; a misshapen tensor when it is read.
    """
    family, config = read_config(folder)
    tensors = _open(folder, family, ExitStack())  # the files stay open as long as what reads from them lives
    config = family.refine(config, tensors.keys())
    with without_weights():
        model = build(config)
    _refuse_other_family(family, tensors, folder)
    readers = dict(_readers(model, family, tensors, folder))
    _refuse_unknown(family, tensors, model, folder)
    first = {parameter: name for name, parameter in reversed(list(model.named_parameters(remove_duplicate=False)))}
    names = {name: first[parameter] for name, parameter in model.named_parameters(remove_duplicate=False)}
    return config, model, lambda name: readers[names[name]]().to(torch.float32)


def read_config(folder: Path) -> tuple[Family, ModelConfig]:
    """The family and configuration of a checkpoint folder.

    Raises:
        CheckpointError: no readable config.json, or a family that is not known here.
        ConfigError: a configuration that no model can have, or an option that is not supported.
    """
    path = folder / "config.json"
    if not path.is_file() or path.stat().st_size > CONFIG_BYTES:
        raise CheckpointError(f"{path}: not there, or larger than a configuration can be")
    try:
        content = json.loads(path.read_text())
        model_type = content["model_type"]
        known = families()
        if model_type not in known:
            raise CheckpointError(f"{path}: model_type {model_type!r} is none of {', '.join(sorted(known))}")
        return known[model_type], known[model_type].config(content)
    except (UnicodeDecodeError, json.JSONDecodeError, KeyError, TypeError) as error:
        raise CheckpointError(f"{path}: not a configuration: {type(error).__name__} {error}") from None


def copy(model: nn.Module, family: Family, tensors: Mapping[str, Tensor]) -> None:
    """Copy tensors under a family's names into a model that is there already.

    Raises:
        CheckpointError: a missing or misshapen tensor.
    """
    stored = {name.removeprefix(family.prefix): partial(_same, tensor) for name, tensor in tensors.items()}
    with torch.no_grad():
        values = dict(_values(model, family, stored, Path("tensors")))
        for name, parameter in model.named_parameters():
            parameter.copy_(values[name])


def _open(folder: Path, family: Family, stack: ExitStack) -> dict[str, Callable[[], Tensor]]:
    """Each tensor of the folder by its name without prefix, read when it is asked for."""
    stored: dict[str, Callable[[], Tensor]] = {}
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise CheckpointError(f"{folder}: no *.safetensors in it (pickled weights are never opened)")
    for file in files:
        try:
            opened = stack.enter_context(safe_open(file, framework="pt"))
        except (SafetensorError, OSError) as error:
            raise CheckpointError(f"{file}: {error}") from None
        for name in opened.keys():  # noqa: SIM118  (not a mapping)
            stored[name.removeprefix(family.prefix)] = partial(opened.get_tensor, name)
    return stored


def _values(
    model: nn.Module, family: Family, stored: Mapping[str, Callable[[], Tensor]], where: Path
) -> Iterator[tuple[str, Tensor]]:
    for name, read in _readers(model, family, stored, where):
        yield name, read()


def _readers(
    model: nn.Module, family: Family, stored: Mapping[str, Callable[[], Tensor]], where: Path
) -> Iterator[tuple[str, Callable[[], Tensor]]]:
    """How to read each of our parameters; that a tensor is missing is said at once."""
    for name, parameter in model.named_parameters():
        part, names = _counterpart(name, model, family)
        for theirs in names:
            if theirs not in stored:
                raise CheckpointError(f"{where}: tensor {theirs} is missing ({family.model_type})")

        def read(
            name: str = name, shape: torch.Size = parameter.shape, part: Any = part, names: list[str] = names
        ) -> Tensor:
            value: Tensor = part.take(*(stored[theirs]() for theirs in names))
            if value.shape != shape:
                shapes = f"{tuple(value.shape)} for {name}, should be {tuple(shape)}"
                raise CheckpointError(f"{where}: tensor {', '.join(names)} gives shape {shapes}")
            return value

        yield name, read


def _counterpart(name: str, model: nn.Module, family: Family) -> tuple[Part | PerHead | PerExpert, list[str]]:
    """Where one of our parameters stands in a checkpoint: one tensor, or one for each expert."""
    module, _, kind = name.rpartition(".")
    layer = re.search(r"\.(\d+)\.", module)
    index = layer[1] if layer else ""
    entry = family.modules[module.replace(f".{index}.", ".{i}.") if layer else module]
    part = Part(entry) if isinstance(entry, str) else entry
    theirs = f"{part.name.replace('{i}', index)}.{kind}"
    if isinstance(part, PerHead):
        mixer = model.get_submodule(module.rpartition(".")[0])
        return replace(part, size=mixer.head_dim), [theirs]  # type: ignore[arg-type]
    if not isinstance(part, PerExpert):
        return part, [theirs]
    return part, [theirs.replace("{e}", str(expert)) for expert in range(model.get_submodule(module).experts)]  # type: ignore[arg-type]


def _refuse_other_family(family: Family, stored: Mapping[str, object], folder: Path) -> None:
    """Weights of another family than config.json names are one mistake, not a hundred missing tensors."""
    if _first_layer(family) <= stored.keys():
        return
    others = [other.model_type for other in families().values() if _holds(other, stored)]
    if others:
        found = " or ".join(sorted(others))
        raise CheckpointError(f"{folder}: config.json says {family.model_type}, and the tensors are those of {found}")


def _holds(family: Family, stored: Iterable[str]) -> bool:
    """Whether the weights of the first layer are those of this family, no more and no fewer."""
    first = _first_layer(family)
    starts = tuple({name.partition(".0.")[0] + ".0." for name in first})
    names = (re.sub(r"\.experts\.\d+\.", ".experts.0.", name.removeprefix(family.prefix)) for name in stored)
    return first == {name for name in names if name.startswith(starts) and name.endswith(".weight")}


def _first_layer(family: Family) -> set[str]:
    """The names of the weights of a family's first layer."""
    parts = (entry if isinstance(entry, str) else entry.name for entry in family.modules.values())
    return {f"{name.replace('{i}', '0').replace('{e}', '0')}.weight" for name in parts if "{i}" in name}


def _refuse_unknown(family: Family, stored: Mapping[str, object], model: nn.Module, folder: Path) -> None:
    parameters = model.named_parameters(remove_duplicate=False)
    used = {theirs for name, _ in parameters for theirs in _counterpart(name, model, family)[1]}
    for name in stored:
        if name not in used and not any(re.fullmatch(pattern, name) for pattern in family.ignored):
            raise CheckpointError(f"{folder}: tensor {name} has no place in a {family.model_type} model")


def _fill(model: nn.Module, values: Mapping[str, Tensor]) -> None:
    """Give the parameters of a model on the meta device their values, in memory of its own."""
    contiguous = torch.contiguous_format
    filled = {
        parameter: nn.Parameter(values[name].to(torch.float32, copy=True, memory_format=contiguous), False)
        for name, parameter in model.named_parameters()
    }
    # A tied weight is one parameter under each of its names; `to_empty` would make two of it.
    names = model.named_parameters(remove_duplicate=False)
    model.load_state_dict({name: filled[parameter] for name, parameter in names}, assign=True)


def _restore_buffers(model: nn.Module, config: ModelConfig) -> None:
    """Computed buffers (frequencies) were left without values on the meta device: take them from a position module."""
    for module in model.modules():
        for name in module._non_persistent_buffers_set:
            fresh = dict(config.position.build(config).named_buffers())[name]
            setattr(module, name, fresh)


def _same(tensor: Tensor) -> Tensor:
    return tensor
