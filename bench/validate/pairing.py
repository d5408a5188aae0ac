"""Another graph as the reference: which of its inputs and outputs are those of the model, where names differ.

What has one name is one thing. What is left over pairs in order, if it is as many tensors of the same kinds and ranks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ...models.signature import Array, Signature, TensorSpec
from ...runtimes.base import Placement, Session
from .finding import Finding, refuse

CHECK = "semantics"


@dataclass(frozen=True)
class Pairing:
    """The names of the reference by the names of the model, where the two differ."""

    inputs: Mapping[str, str] = field(default_factory=dict)
    outputs: Mapping[str, str] = field(default_factory=dict)

    def feeds(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """The model's inputs as the reference calls them."""
        return {self.inputs.get(name, name): array for name, array in feeds.items()}

    def results(self, results: Mapping[str, Array]) -> dict[str, Array]:
        """The reference's outputs as the model calls them."""
        back = {theirs: mine for mine, theirs in self.outputs.items()}
        return {back.get(name, name): array for name, array in results.items()}


class Paired:
    """A session of the reference that speaks in the model's names."""

    def __init__(self, session: Session, pairing: Pairing) -> None:
        self._session, self._pairing = session, pairing

    def stage(self, feeds: Mapping[str, Array]) -> object:
        """As `Session.stage`."""
        return self._session.stage(self._pairing.feeds(feeds))

    def run(self, staged: object) -> object:
        """As `Session.run`."""
        return self._session.run(staged)

    def fetch(self, raw: object) -> dict[str, Array]:
        """As `Session.fetch`."""
        return self._pairing.results(self._session.fetch(raw))

    def placement(self) -> Placement:
        """As `Session.placement`."""
        return self._session.placement()

    def close(self) -> None:
        """As `Session.close`."""
        self._session.close()


def pair(model: Signature, reference: Signature) -> Pairing:
    """What pairs in order, since it has no name in common."""
    return Pairing(_in_order(model.inputs, reference.inputs), _in_order(model.outputs, reference.outputs))


def check(model: Signature, reference: Signature) -> list[Finding]:
    """A note on what pairs in order.

    Raises:
        Refusal: the reference has an input that the model lacks, or has in another shape.
    """
    pairing = pair(model, reference)
    theirs = {spec.name: spec for spec in reference.inputs}
    mine = {pairing.inputs.get(spec.name, spec.name): spec for spec in model.inputs}
    if missing := [name for name in theirs if name not in mine]:
        names = ", ".join(spec.name for spec in model.inputs)
        raise refuse(CHECK, f"the reference takes {', '.join(missing)}, and the model's inputs are {names}")
    for name, spec in theirs.items():
        if not _fit(mine[name].shape, spec.shape):
            shapes = f"{list(mine[name].shape)} in the model and {list(spec.shape)} in the reference"
            raise refuse(CHECK, f"input {mine[name].name} has the shape {shapes}")
    named = [f"{one} with {other}" for one, other in (*pairing.inputs.items(), *pairing.outputs.items())]
    if not named:
        return []
    return [Finding(check=CHECK, status="note", says=f"names of model and reference pair in order: {', '.join(named)}")]


def _in_order(mine: Sequence[TensorSpec], theirs: Sequence[TensorSpec]) -> dict[str, str]:
    common = {spec.name for spec in mine} & {spec.name for spec in theirs}
    ours, others = ([spec for spec in specs if spec.name not in common] for specs in (mine, theirs))
    if len(ours) != len(others) or any(_kind(one) != _kind(other) for one, other in zip(ours, others, strict=True)):
        return {}
    return {one.name: other.name for one, other in zip(ours, others, strict=True)}


def _kind(spec: TensorSpec) -> tuple[str, int]:
    return np.dtype(spec.dtype).kind, len(spec.shape)


def _fit(mine: Sequence[int | str], theirs: Sequence[int | str]) -> bool:
    """Whether one array can have both shapes."""
    pairs = zip(mine, theirs, strict=False)
    return len(mine) == len(theirs) and all(a == b or isinstance(a, str) or isinstance(b, str) for a, b in pairs)
