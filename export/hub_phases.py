"""The phases of a model of transformers: which inputs each takes, and how the model is called with them.

Names and shapes are those of `models.phases`. What transformers keeps in cache objects becomes flat tensors.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..models.phases import TOTAL
from ..models.signature import PAST, TensorSpec
from .hub_caches import Named, cache_of, layers_of, past_of, present_of, two_caches


@dataclass(frozen=True)
class Call:
    """One phase: its inputs, and the call that turns them into named outputs."""

    inputs: tuple[TensorSpec, ...]
    run: Callable[[Any, Named], dict[str, Tensor]]


def calls(model: nn.Module, name: str) -> dict[str, Callable[[], Call]]:
    """The phases that a model has, each made when it is asked for."""
    config: Any = model.config
    if config.is_encoder_decoder:
        if "decoder_input_ids" not in _takes(model) or model.get_output_embeddings() is None:  # type: ignore[operator]
            return {}
        return {phase: lambda phase=phase: _seq2seq(model, phase) for phase in ("forward", "encode", "step")}  # type: ignore[misc]
    if _is_decoder(model):
        return {"forward": lambda: _decoder_forward(model), "step": lambda: _decoder_step(model, name)}
    return {"forward": lambda: _forward(model)}


def _is_decoder(model: nn.Module) -> bool:
    """A causal language model; BERT's own class for it is one only where its configuration says so."""
    takes, config = _takes(model), model.config
    generates = model.get_output_embeddings() is not None and _cache_keyword(model) is not None  # type: ignore[operator]
    causal = type(model).__name__.endswith(("ForCausalLM", "LMHeadModel"))
    return "input_ids" in takes and generates and causal and getattr(config, "is_decoder", True) is not None


def _takes(model: nn.Module) -> Mapping[str, inspect.Parameter]:
    return inspect.signature(model.forward).parameters


def _cache_keyword(model: nn.Module) -> str | None:
    """The name of the cache among the arguments: it was renamed within transformers 5."""
    return next((name for name in ("cache", "past_key_values") if name in _takes(model)), None)


# Inputs


def _ids(model: nn.Module, name: str = "input_ids", axis: str = "sequence") -> TensorSpec:
    return TensorSpec(name, "int64", ("batch", axis), limit=model.config.get_text_config().vocab_size)  # type: ignore[union-attr, operator]


def _mask(name: str, axis: str) -> TensorSpec:
    return TensorSpec(name, "int64", ("batch", axis), limit=2)


def _optional(model: nn.Module, *specs: TensorSpec) -> tuple[TensorSpec, ...]:
    return tuple(spec for spec in specs if spec.name in _takes(model))


def _caches(shapes: Iterable[tuple[Tensor, Tensor]], prefix: str, infix: str, axis: str) -> tuple[TensorSpec, ...]:
    return tuple(
        TensorSpec(f"{prefix}.{layer}.{infix}{kind}", "float32", ("batch", tensor.shape[1], axis, tensor.shape[3]))
        for layer, pair in enumerate(shapes)
        for kind, tensor in zip(("key", "value"), pair, strict=True)
    )


# Calls


def _forward(model: nn.Module) -> Call:
    """An encoder, a classifier: every tensor that it returns, under the name that it returns it by."""
    types = getattr(model.config, "type_vocab_size", 0)
    kinds = (TensorSpec("token_type_ids", "int64", ("batch", "sequence"), limit=types),) if types else ()
    inputs = (_ids(model), *_optional(model, _mask("attention_mask", "sequence"), *kinds))
    uncached = {"use_cache": False} if "use_cache" in _takes(model) else {}

    def run(model: Any, named: Named) -> dict[str, Tensor]:
        result = model(**named, **uncached, return_dict=True)
        return {name: value for name, value in result.items() if isinstance(value, Tensor)}

    return Call(inputs, run)


def _decoder_inputs(model: nn.Module, total: str) -> tuple[TensorSpec, ...]:
    positions = TensorSpec("position_ids", "int64", ("batch", "sequence"), limit=_table(model))
    return (_ids(model), *_optional(model, _mask("attention_mask", total), positions))


def _decoder_forward(model: nn.Module) -> Call:
    def run(model: Any, named: Named) -> dict[str, Tensor]:
        return {"logits": model(**named, use_cache=False).logits}

    return Call(_decoder_inputs(model, "sequence"), run)


def _decoder_step(model: nn.Module, name: str) -> Call:
    keyword = _cache_keyword(model)
    assert keyword is not None  # _is_decoder asked
    layers = layers_of(_probe(model, keyword), name)
    inputs = _decoder_inputs(model, TOTAL)

    def run(model: Any, named: Named) -> dict[str, Tensor]:
        cache = cache_of(named, "")
        plain = {spec.name: named[spec.name] for spec in inputs}
        logits = model(**plain, **{keyword: cache}, use_cache=True).logits
        return {"logits": logits, **present_of(cache, "")}

    return Call((*inputs, *_caches(layers, PAST, "", "past")), run)


def _seq2seq(model: nn.Module, phase: str) -> Call:
    if phase == "encode":
        return Call((_ids(model), _mask("attention_mask", "sequence")), _encode)
    if phase == "forward":
        source = (_ids(model, axis="source"), _mask("attention_mask", "source"))
        target = (_ids(model, "decoder_input_ids"), _mask("decoder_attention_mask", "sequence"))
        return Call((*source, *target), lambda model, named: {"logits": model(**named, use_cache=False).logits})
    past = _seq2seq_caches(model)
    masks = (_mask("encoder_attention_mask", "source"), _mask("decoder_attention_mask", TOTAL))
    return Call((_ids(model), *masks, *past), _seq2seq_step)


def _encode(model: Any, named: Named) -> dict[str, Tensor]:
    """States, and the keys and values that cross-attention makes of them: one decoder step fills that cache.

    What else the step computes is not an output, so an export drops it.
    """
    states = model.get_encoder()(**named).last_hidden_state
    cache = two_caches({}, {})
    start = torch.zeros_like(named["input_ids"][:, :1])
    _decode(model, start, states, named["attention_mask"], torch.ones_like(start), cache)
    return {"last_hidden_state": states, **present_of(cache.cross_attention_cache, "encoder.")}


def _seq2seq_step(model: Any, named: Named) -> dict[str, Tensor]:
    """New tokens after a past; the encoder's states themselves are no longer asked for."""
    cache = two_caches(past_of(named, "decoder."), past_of(named, "encoder."))
    source_mask = named["encoder_attention_mask"]
    states = next(model.parameters()).new_zeros(*source_mask.shape, model.config.hidden_size)
    logits = _decode(model, named["input_ids"], states, source_mask, named["decoder_attention_mask"], cache)
    return {"logits": logits, **present_of(cache.self_attention_cache, "decoder.")}


def _decode(model: Any, ids: Tensor, states: Tensor, source_mask: Tensor, mask: Tensor, cache: Any) -> Tensor:
    from transformers.modeling_outputs import BaseModelOutput

    optional = {"decoder_attention_mask": mask} if "decoder_attention_mask" in _takes(model) else {}
    result = model(
        decoder_input_ids=ids,
        encoder_outputs=BaseModelOutput(last_hidden_state=states),
        attention_mask=source_mask,
        **optional,
        **{str(_cache_keyword(model)): cache},
        use_cache=True,
    )
    logits: Tensor = result.logits
    return logits


# Caches


def _probe(model: Any, keyword: str) -> Any:
    """The cache of its own kind that a model fills in a pass over two tokens."""
    with torch.no_grad():
        result = model(input_ids=torch.zeros((1, 2), dtype=torch.int64), use_cache=True)
    return result[keyword]


def _seq2seq_caches(model: Any) -> tuple[TensorSpec, ...]:
    ids = torch.zeros((1, 2), dtype=torch.int64)
    cache = two_caches({}, {})
    with torch.no_grad():
        states = model.get_encoder()(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state
        _decode(model, ids, states, torch.ones_like(ids), torch.ones_like(ids), cache)
    own, cross = layers_of(cache.self_attention_cache, ""), layers_of(cache.cross_attention_cache, "")
    return _caches(own, PAST, "decoder.", "past") + _caches(cross, PAST, "encoder.", "source")


def _table(model: nn.Module) -> int | None:
    """The rows of a table that positions look up: the position after its last one; None where none is looked up.

    The tables are those whose indices grow by one when all positions do.
    """
    if "position_ids" not in _takes(model):
        return None
    before, after = _looked_up(model, 0), _looked_up(model, 1)
    limits = [rows - most + 1 for name, (most, rows) in before.items() if after[name][0] == most + 1]
    return min(limits, default=None)


def _looked_up(model: nn.Module, first: int) -> dict[str, tuple[int, int]]:
    """The largest index and the rows of each table, when two tokens stand at `first` and after it."""
    found: dict[str, tuple[int, int]] = {}

    def note(name: str) -> Callable[..., None]:
        return lambda table, args: found.update({name: (int(args[0].max()), table.num_embeddings)})

    tables = [(name, part) for name, part in model.named_modules() if isinstance(part, nn.Embedding)]
    handles = [part.register_forward_pre_hook(note(name)) for name, part in tables]
    try:
        with torch.no_grad():
            ids = torch.zeros((1, 2), dtype=torch.int64)
            model(input_ids=ids, position_ids=torch.arange(first, first + 2)[None])
    finally:
        for handle in handles:
            handle.remove()
    return found
