"""Where a model comes from: what a user types becomes a Source, and a Source becomes a module again."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..models.phases import PhaseModule

SIZES = ("tiny", "small", "full")
KINDS = ("preset", "checkpoint", "hf", "module", "file")


class SourceError(Exception):
    """A source that names nothing, or nothing that can be exported; the message names it, the rule and the value."""


@dataclass(frozen=True)
class Source:
    """Where an exported model came from, precise enough to build it again.

    `kind` is "preset" (name = preset, at `size`, random weights of `seed`), "checkpoint" (name = a folder of published
    weights for these modules), "hf" (name = a folder that transformers reads), "module" (name =
    "package.module:factory", see `factory.py`) or "file" (name = an .onnx whose source is not known). With
    `last_logits` its head computes the last token alone.
    """

    kind: str
    name: str
    size: str = "full"
    seed: int = 0
    last_logits: bool = False

    def weight_bytes(self) -> int | None:
        """Bytes of the weights in float32, before any is made; None where only building it would tell."""
        if self.kind in ("checkpoint", "hf"):
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
        module = self._module(phase)
        if self.last_logits:
            from .last import only_last

            return only_last(module, self.name)
        return module

    def phases(self) -> tuple[str, ...]:
        """The phases of a model that its own code knows: "hf" without its weights, "module" by calling the factory.

        Raises:
            SourceError: the code is not there, or fails.
        """
        if self.kind == "hf":
            from .huggingface import phases

            return phases(Path(self.name))
        from .factory import call

        return ("forward", "step") if "past" in call(self.name).signature.axes else ("forward",)

    def _module(self, phase: str) -> PhaseModule:
        if self.kind == "preset":
            from ..models.phases import phase_module
            from ..models.presets import PRESETS

            refuse_unknown(self)
            return phase_module(PRESETS[self.name].at(self.size), phase, seed=self.seed)  # type: ignore[arg-type]
        if self.kind == "checkpoint":
            from ..models.checkpoints import load
            from ..models.phases import phase_module

            config, model = load(Path(self.name))
            return phase_module(config, phase, model=model)
        if self.kind == "hf":
            from .huggingface import load as load_hf

            return load_hf(Path(self.name), phase)
        if self.kind == "module":
            from .factory import call

            return call(self.name)
        if self.kind == "file":
            raise SourceError(f"source: {self.name} came as a file, and the model behind it is not known")
        raise SourceError(f"source: kind {self.kind!r} is none of {', '.join(KINDS)}")


def parse(text: str, size: str = "small", seed: int = 0) -> Source:
    """What a user types as a Source that is known to be there; presets are looked up, which imports torch.

    PRESET, PRESET@SIZE, hf:FOLDER, module:factory, FILE.onnx, or a folder with config.json and *.safetensors.

    Raises:
        SourceError: it names nothing that is there.
    """
    source = read(text, size, seed)
    refuse_unknown(source)
    return source


def read(text: str, size: str = "small", seed: int = 0) -> Source:
    """The same without a look at the presets, and so without torch."""
    path = Path(text)
    if text.startswith("hf:"):
        return Source("hf", str(_folder(text, Path(text.removeprefix("hf:")).expanduser())))
    if path.suffix == ".onnx":
        if not path.is_file():
            raise SourceError(f"{text}: no such file")
        return Source("file", str(path.resolve()))
    if path.is_dir() and (path / "config.json").is_file():
        return Source("checkpoint", str(_folder(text, path)))
    if ":" in text:
        return Source("module", text, seed=seed)
    name, _, named = text.partition("@")
    if (named or size) not in SIZES:
        raise SourceError(f"{text}: size {named or size!r} is none of {', '.join(SIZES)}")
    return Source("preset", name, named or size, seed)


def refuse_unknown(source: Source) -> None:
    """Raise a SourceError with the nearest names where a source names a preset that does not exist."""
    if source.kind != "preset":
        return
    from ..models.presets import PRESETS

    if source.name not in PRESETS:
        near = get_close_matches(source.name, PRESETS, n=3, cutoff=0.5)
        hint = f"did you mean {', '.join(near)}?" if near else "`isorun list models` shows them"
        raise SourceError(f"unknown model {source.name!r}; {hint}")


def _folder(text: str, folder: Path) -> Path:
    """The folder of a checkpoint, absolute.

    Raises:
        SourceError: it is not one.
    """
    if not folder.is_dir():
        raise SourceError(f"{text}: no such folder; nothing is fetched, so it must be a local one")
    if not (folder / "config.json").is_file():
        raise SourceError(f"{text}: no config.json, so this is not a checkpoint folder")
    if not any(folder.glob("*.safetensors")):
        pickled = ", ".join(sorted(file.name for file in folder.iterdir() if file.suffix in (".bin", ".pt", ".pth")))
        why = f"{pickled} is a pickle, which can run any code" if pickled else "no *.safetensors"
        raise SourceError(f"{text}: {why}; save the model with save_pretrained(safe_serialization=True)")
    return folder.resolve()
