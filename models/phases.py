"""Phases: the graphs that a model is exported as, each a flat list of named tensors in and out.

    forward   all tokens at once, without a cache            every topology
    step      new tokens after a past, which may be empty    decoder, encoder-decoder
    encode    the source once, with cross-attention keys     encoder-decoder

Names are those of Hugging Face's exports: `input_ids`, `attention_mask`, `past_key_values.0.key` → `present.0.key`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from .attention import Cache
from .config import CacheTensor, ConfigError, ModelConfig
from .signature import PAST, PRESENT, Dim, Signature, Sizes, TensorSpec
from .transformer import build

TOTAL = "past + sequence"

Named = dict[str, Tensor]


@dataclass(frozen=True)
class Phase:
    """How one graph of a topology is fed and called."""

    signature: Callable[[ModelConfig], Signature]
    call: Callable[[Any, Named], Iterable[Tensor]]


class PhaseModule(nn.Module):
    """A model behind the flat signature of one phase: tensors in the order of its inputs → tensors of its outputs."""

    def __init__(self, model: nn.Module, phase: Phase, config: ModelConfig) -> None:
        super().__init__()
        self.model = model
        self.signature = phase.signature(config)
        self.example = example_sizes(config)
        self.call = phase.call

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """Inputs in the signature's order → outputs in the signature's order."""
        names = (spec.name for spec in self.signature.inputs)
        return tuple(self.call(self.model, dict(zip(names, tensors, strict=True))))


def phase_module(config: ModelConfig, name: str, *, seed: int = 0, model: nn.Module | None = None) -> PhaseModule:
    """The module of one phase, with random weights from the seed or around a model that is there already.

    Raises:
        ConfigError: the topology has no such phase.
    """
    phase = _phase(config, name)
    return PhaseModule(model or build(config, seed=seed), phase, config)


def example_sizes(config: ModelConfig) -> Sizes:
    """Sizes to trace at: never 0 or 1, all different, and long enough for the mixer's general path.

    torch.export fixes every dimension that is 0 or 1 in the example, those inside the model included.
    """
    general = max(mixer.general_tokens for mixer in config.mixers)
    sequence = max(7, general + 6)
    return {"batch": 3, "sequence": sequence, "past": 5, "source": sequence + 4}


def signature(config: ModelConfig, name: str) -> Signature:
    """The inputs and outputs of one phase of a configuration."""
    return _phase(config, name).signature(config)


def phases(config: ModelConfig) -> tuple[str, ...]:
    """The names of the phases that a configuration has."""
    return tuple(_PHASES[config.topology])


def _phase(config: ModelConfig, name: str) -> Phase:
    if name not in _PHASES[config.topology]:
        known = ", ".join(phases(config))
        raise ConfigError(f"{config.name} ({config.topology}) has no phase {name!r}; it has {known}")
    return _PHASES[config.topology][name]


# Signatures


def _ids(config: ModelConfig, name: str = "input_ids", axis: str = "sequence") -> TensorSpec:
    return TensorSpec(name, "int64", ("batch", axis), limit=config.vocab)


def _mask(name: str, axis: str) -> TensorSpec:
    return TensorSpec(name, "int64", ("batch", axis), limit=2)


def _position_ids(config: ModelConfig) -> tuple[TensorSpec, ...]:
    if not config.position.uses_ids:
        return ()
    return (TensorSpec("position_ids", "int64", ("batch", "sequence"), limit=config.max_tokens),)


def _types(config: ModelConfig) -> tuple[TensorSpec, ...]:
    types = config.embedding.token_types
    return (TensorSpec("token_type_ids", "int64", ("batch", "sequence"), limit=types),) if types else ()


def _logits(config: ModelConfig) -> TensorSpec:
    return TensorSpec("logits", "float32", ("batch", "sequence", config.vocab))


def _states(config: ModelConfig) -> TensorSpec:
    return TensorSpec("last_hidden_state", "float32", ("batch", "sequence", config.dim))


def _caches(layers: Iterable[Sequence[CacheTensor]], prefix: str, infix: str, axis: str) -> tuple[TensorSpec, ...]:
    """One tensor a layer and cache tensor; `axis` is the length in place of "past"."""

    def shape(tensor: CacheTensor) -> tuple[Dim, ...]:
        return tuple(axis if dim == "past" else dim for dim in tensor.shape)

    return tuple(
        TensorSpec(f"{prefix}.{layer}.{infix}{tensor.name}", "float32", shape(tensor))
        for layer, tensors in enumerate(layers)
        for tensor in tensors
    )


def _self_caches(config: ModelConfig) -> list[tuple[CacheTensor, ...]]:
    return [mixer.cache(config) for mixer in config.mixers]


def _cross_caches(config: ModelConfig) -> list[tuple[CacheTensor, ...]]:
    shape = ("batch", config.heads, "past", config.head_dim)
    return [(CacheTensor("key", shape), CacheTensor("value", shape))] * config.layers


def _encoder_forward(config: ModelConfig) -> Signature:
    inputs = (_ids(config), _mask("attention_mask", "sequence"), *_types(config))
    pooled = (TensorSpec("pooler_output", "float32", ("batch", config.dim)),) if config.pooler else ()
    return Signature(inputs, (_states(config), *pooled))


def _decoder_forward(config: ModelConfig) -> Signature:
    inputs = (_ids(config), _mask("attention_mask", "sequence"), *_position_ids(config))
    return Signature(inputs, (_logits(config),))


def _decoder_step(config: ModelConfig) -> Signature:
    cache = _self_caches(config)
    inputs = (_ids(config), _mask("attention_mask", TOTAL), *_position_ids(config))
    return Signature(
        (*inputs, *_caches(cache, PAST, "", "past")),
        (_logits(config), *_caches(cache, PRESENT, "", TOTAL)),
    )


def _seq2seq_forward(config: ModelConfig) -> Signature:
    source = (_ids(config, axis="source"), _mask("attention_mask", "source"))
    target = (_ids(config, "decoder_input_ids"), _mask("decoder_attention_mask", "sequence"))
    return Signature((*source, *target), (_logits(config),))


def _seq2seq_encode(config: ModelConfig) -> Signature:
    inputs = (_ids(config), _mask("attention_mask", "sequence"))
    keys = _caches(_cross_caches(config), PRESENT, "encoder.", "sequence")
    return Signature(inputs, (_states(config), *keys))


def _seq2seq_step(config: ModelConfig) -> Signature:
    cache, cross = _self_caches(config), _cross_caches(config)
    inputs = (_ids(config), _mask("encoder_attention_mask", "source"), _mask("decoder_attention_mask", TOTAL))
    past = _caches(cache, PAST, "decoder.", "past") + _caches(cross, PAST, "encoder.", "source")
    return Signature((*inputs, *past), (_logits(config), *_caches(cache, PRESENT, "decoder.", TOTAL)))


# Calls


def _layers(named: Named, infix: str = "") -> list[Cache]:
    """The cache tensors of each layer, in order of layer."""
    layers: dict[str, list[Tensor]] = {}
    for name, tensor in named.items():
        _, _, rest = name.partition(f"{PAST}.")
        layer, _, kind = rest.partition(".")
        if rest and kind.startswith(infix):
            layers.setdefault(layer, []).append(tensor)
    return [tuple(tensors) for tensors in layers.values()]


def _flat(caches: Iterable[Cache]) -> Iterable[Tensor]:
    return (tensor for cache in caches for tensor in cache)


def _call_encoder_forward(model: Any, t: Named) -> Iterable[Tensor]:
    states = model(t["input_ids"], t["attention_mask"], t.get("token_type_ids"))
    return (states,) if model.pooler is None else (states, model.pooler(states))


def _call_decoder_forward(model: Any, t: Named) -> Iterable[Tensor]:
    logits, _ = model(t["input_ids"], t["attention_mask"], t.get("position_ids", t["input_ids"]))
    return (logits,)


def _call_decoder_step(model: Any, t: Named) -> Iterable[Tensor]:
    positions = t.get("position_ids", t["input_ids"])
    logits, present = model(t["input_ids"], t["attention_mask"], positions, _layers(t))
    return (logits, *_flat(present))


def _call_seq2seq_forward(model: Any, t: Named) -> Iterable[Tensor]:
    _, keys = model.encode(t["input_ids"], t["attention_mask"])
    logits, _ = model.decode(t["decoder_input_ids"], t["decoder_attention_mask"], t["attention_mask"], keys)
    return (logits,)


def _call_seq2seq_encode(model: Any, t: Named) -> Iterable[Tensor]:
    states, keys = model.encode(t["input_ids"], t["attention_mask"])
    return (states, *_flat(keys))


def _call_seq2seq_step(model: Any, t: Named) -> Iterable[Tensor]:
    past, keys = _layers(t, "decoder."), _layers(t, "encoder.")
    logits, present = model.decode(t["input_ids"], t["decoder_attention_mask"], t["encoder_attention_mask"], keys, past)
    return (logits, *_flat(present))


_PHASES: dict[str, dict[str, Phase]] = {
    "encoder": {"forward": Phase(_encoder_forward, _call_encoder_forward)},
    "decoder": {
        "forward": Phase(_decoder_forward, _call_decoder_forward),
        "step": Phase(_decoder_step, _call_decoder_step),
    },
    "encoder-decoder": {
        "forward": Phase(_seq2seq_forward, _call_seq2seq_forward),
        "encode": Phase(_seq2seq_encode, _call_seq2seq_encode),
        "step": Phase(_seq2seq_step, _call_seq2seq_step),
    },
}
