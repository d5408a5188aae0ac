"""Logits of the last token alone: what decoding reads, at a fraction of the head's cost."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from torch import Tensor, nn

from ..models.phases import PhaseModule
from ..models.signature import Signature
from .source import SourceError


def only_last(module: PhaseModule, name: str) -> PhaseModule:
    """The same module, whose head sees the last token of each row: logits (batch, 1, vocabulary).

    Raises:
        SourceError: it has no head over logits.
    """
    model: Any = getattr(module, "model", None)
    embeddings = getattr(model, "get_output_embeddings", lambda: None)()
    head = embeddings if isinstance(embeddings, nn.Module) else getattr(model, "head", None)
    outputs = module.signature.outputs
    if not isinstance(head, nn.Module) or "logits" not in [spec.name for spec in outputs]:
        raise SourceError(f"{name}: has no logits of each token, so --last-logits means nothing")
    head.register_forward_pre_hook(_last)
    one = (replace(s, shape=(s.shape[0], 1, *s.shape[2:])) if s.name == "logits" else s for s in outputs)
    module.signature = Signature(module.signature.inputs, tuple(one))
    return module


def _last(_: nn.Module, arguments: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """States (batch, tokens, width) → (batch, 1, width)."""
    return (arguments[0][:, -1:], *arguments[1:])
