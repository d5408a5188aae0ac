"""Where a model comes from: what a user types becomes a Source, and a Source becomes a module again."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from ..models.phases import PhaseModule


class SourceError(Exception):
    """A source that names nothing, or nothing that can be exported; the message names it, the rule and the value."""


@dataclass(frozen=True)
class Source:
    """Where an exported model came from, precise enough to build it again.

    `kind` is "preset" (name = preset, at `size`, random weights of `seed`), "checkpoint" (name = a folder of published
    weights), "module" (name = "package.module:factory", a function without arguments that returns a module with a
    `signature`) or "file" (name = an .onnx whose source is not known).
    """

    kind: str
    name: str
    size: str = "full"
    seed: int = 0

    def weight_bytes(self) -> int | None:
        """Bytes of the weights in float32, before any is made; None where only building it would tell."""
        if self.kind == "checkpoint":
            return sum(file.stat().st_size for file in Path(self.name).glob("*.safetensors"))
        if self.kind != "preset":
            return None
        from ..models.cost import parameters
        from ..models.presets import PRESETS

        return 4 * parameters(PRESETS[self.name].at(self.size))  # type: ignore[arg-type]

    def module(self, phase: str) -> PhaseModule:
        """The source model of one phase, rebuilt; needs torch.

        Raises:
            SourceError: the source names something that is not there.
        """
        if self.kind == "preset":
            from ..models.phases import phase_module
            from ..models.presets import PRESETS

            if self.name not in PRESETS:
                raise SourceError(f"source: no preset is named {self.name!r}")
            return phase_module(PRESETS[self.name].at(self.size), phase, seed=self.seed)  # type: ignore[arg-type]
        if self.kind == "checkpoint":
            from ..models.checkpoints import load
            from ..models.phases import phase_module

            config, model = load(Path(self.name))
            return phase_module(config, phase, model=model)
        if self.kind == "module":
            module, _, factory = self.name.partition(":")
            return cast("PhaseModule", getattr(import_module(module), factory)())
        if self.kind == "file":
            raise SourceError(f"source: {self.name} came as a file, and the model behind it is not known")
        raise SourceError(f"source: kind {self.kind!r} is none of preset, checkpoint, module, file")
