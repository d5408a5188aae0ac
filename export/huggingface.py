"""`hf:FOLDER`: a local checkpoint folder as transformers reads it, behind a flat signature. Nothing is fetched or run.

Only safetensors are read, never a pickle; the model's code is that of the installed transformers, never the folder's.
"""

from __future__ import annotations

import contextlib
import inspect
import warnings
from collections.abc import Iterator, Mapping
from logging import CRITICAL
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn

from ..models.signature import Signature
from .axes import EXAMPLE, outputs_of
from .float64 import exactly
from .hub_attention import ATTENTION, register
from .hub_buckets import whole_buckets
from .hub_phases import Call, calls
from .source import SourceError

if TYPE_CHECKING:
    from ..models.phases import PhaseModule


class HubModule(nn.Module):
    """A model of transformers behind the flat signature of one phase, as `models.phases.PhaseModule` is for ours."""

    def __init__(self, model: nn.Module, call: Call) -> None:
        super().__init__()
        self.model = model
        self.call = call
        self.example = EXAMPLE
        self._steady = False
        self.signature = Signature(call.inputs, outputs_of(self._named, call.inputs))

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """Inputs in the signature's order → outputs in the signature's order; wholly in float64 after `double()`."""
        names = (spec.name for spec in self.call.inputs)
        named = dict(zip(names, tensors, strict=True))
        return tuple(self._named(named).values())

    @contextlib.contextmanager
    def steady(self) -> Iterator[None]:
        """For calls with inputs of one shape: what guards a call is done once for all of them, not timed with each."""
        with self._guarded():
            self._steady = True
            try:
                yield
            finally:
                self._steady = False

    def _named(self, named: Mapping[str, Tensor]) -> dict[str, Tensor]:
        with contextlib.nullcontext() if self._steady else self._guarded():
            return self.call.run(self.model, named)

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[None]:
        with _quiet(), _unchanged(self.model), exactly(self.model):
            yield


@contextlib.contextmanager
def _unchanged(model: nn.Module) -> Iterator[None]:
    """Undo what a call does to the model itself, so that no call depends on the one before it.

    BigBird turns to full attention for good at its first short input, and dynamic NTK keeps its longest frequencies.
    """
    parts = ("_modules", "_parameters", "_buffers")
    before = [(part, dict(vars(part)), [dict(getattr(part, name)) for name in parts]) for part in model.modules()]
    try:
        yield
    finally:
        for part, attributes, held in before:
            vars(part).clear()
            vars(part).update(attributes)
            for name, content in zip(parts, held, strict=True):
                getattr(part, name).clear()
                getattr(part, name).update(content)


def load(folder: Path, phase: str) -> PhaseModule:
    """The model of a checkpoint folder in float32, behind the signature of one phase.

    Raises:
        SourceError: transformers is missing or does not know the model, weights are missing or no safetensors, or the
            model has no such phase.
    """
    with _quiet():
        model = _model(folder)
        known = calls(model, str(folder))
        if phase not in known:
            name = type(model).__name__
            raise SourceError(f"hf:{folder}: {name} has no phase {phase!r}; it has {', '.join(known)}")
        try:
            return cast("PhaseModule", HubModule(model, known[phase]()))
        except SourceError:
            raise
        except Exception as error:  # their code raises what it likes
            name = type(model).__name__
            raise SourceError(f"hf:{folder}: {name} does not run on token ids alone: {_said(error)}") from error


def phases(folder: Path) -> tuple[str, ...]:
    """The phases that the model of a checkpoint folder has, told by its class and configuration: no weight is read.

    Raises:
        SourceError: transformers is missing or does not know the model.
    """
    transformers = _transformers(folder)
    with _quiet(), torch.device("meta"):
        try:
            config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
            model = _architecture(transformers, config, folder)._from_config(config)
        except SourceError:
            raise
        except Exception as error:  # as in `_model`
            raise SourceError(f"hf:{folder}: {_said(error)}") from error
        return tuple(calls(model, str(folder)))


def _transformers(folder: Path) -> Any:
    try:
        import transformers
    except ImportError:
        raise SourceError(f"hf:{folder}: transformers is not installed: pip install 'isorun[hf]'") from None
    return transformers


def _model(folder: Path) -> nn.Module:
    transformers = _transformers(folder)
    if not any(folder.glob("*.safetensors")):
        raise SourceError(f"hf:{folder}: no *.safetensors; a pickle is never opened, since it can run any code")
    try:
        config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        architecture = _architecture(transformers, config, folder)
        model, report = _weights(architecture, config, folder)
    except SourceError:
        raise
    except Exception as error:  # it reads files of other people's, with classes of many libraries
        raise SourceError(f"hf:{folder}: {_said(error)}") from error
    _refuse_incomplete(report, folder)
    whole_buckets(model)
    return cast("nn.Module", model.eval().requires_grad_(False))


def _said(error: Exception) -> str:
    first = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {first}"


def _weights(architecture: Any, config: Any, folder: Path) -> tuple[Any, dict[str, Any]]:
    """The model and what was amiss: attention is ours where it can be, and experts are computed without branches."""
    register()
    options: dict[str, Any] = {"dtype": torch.float32, "local_files_only": True, "use_safetensors": True}
    if architecture._can_set_experts_implementation():
        options["experts_implementation"] = "batched_mm"
    fused = [ATTENTION] if architecture._supports_sdpa else []
    for attention in (*fused, "eager"):
        try:
            found: tuple[Any, dict[str, Any]] = architecture.from_pretrained(
                folder, config=config, attn_implementation=attention, output_loading_info=True, **options
            )
            return found
        except KeyError as error:  # an older model looks its attention up in a table of its own
            if error.args != (ATTENTION,):
                raise
    raise AssertionError("eager attention is in every table")


def _architecture(transformers: Any, config: Any, folder: Path) -> Any:
    """The class that the configuration names, if it is one of transformers' models and takes token ids."""
    name = (config.architectures or [""])[0]
    found = getattr(transformers, name, None)
    if not (isinstance(found, type) and issubclass(found, transformers.PreTrainedModel)):
        raise SourceError(f"hf:{folder}: config.json names the architecture {name!r}, which transformers does not have")
    takes = list(inspect.signature(found.forward).parameters)  # type: ignore[attr-defined]
    if "input_ids" not in takes:
        first = next(iter(takes[1:]), "nothing")
        raise SourceError(
            f"hf:{folder}: {name} takes {first}, and only models of token ids (input_ids) can be exported"
        )
    return found


def _refuse_incomplete(report: dict[str, Any], folder: Path) -> None:
    """Weights that the files lack would be random, and other ones at every load."""
    for what in ("missing_keys", "mismatched_keys"):
        names = sorted(str(key) for key in report.get(what) or ())
        if names:
            raise SourceError(f"hf:{folder}: {what.replace('_', ' ')} in *.safetensors: {', '.join(names[:4])}")


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep the progress bars and advice of transformers off the user's terminal."""
    try:
        from transformers.utils import logging
    except ImportError:
        yield
        return
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity(CRITICAL)
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()  # type: ignore[no-untyped-call]
