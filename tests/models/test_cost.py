"""Cost: published parameter counts, torch's own counter of operations, the bytes of real caches."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode
from transformers import (
    BertConfig,
    BertModel,
    Gemma2Config,
    Gemma2ForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
    OpenAIGPTConfig,
    OpenAIGPTLMHeadModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from isorun.models import recurrent
from isorun.models.attention import Softmax
from isorun.models.config import ConfigError, ModelConfig
from isorun.models.cost import cache_bytes, flops, parameters
from isorun.models.phases import phase_module, phases
from isorun.models.presets import PRESETS
from isorun.models.transformer import build

from .plain import architectures, tiny

GIB = 2**30
PUBLISHED = {
    "gpt2": 124_439_808,
    "gpt1": 116_534_784,
    "gpt2-medium": 354_823_168,
    "gpt2-large": 774_030_080,
    "gpt2-xl": 1_557_611_200,
    "bert-base": 109_482_240,
    "bert-large": 335_141_888,
    "llama-7b": 6_738_415_616,
    "llama2-7b": 6_738_415_616,
    "llama2-70b": 68_976_648_192,
    "llama3-70b": 70_553_706_496,
    "deepseek-7b": 6_910_365_696,
    "yi-6b": 6_061_035_520,
    "mixtral-8x7b": 46_702_792_704,
    "qwen-7b": 7_721_324_544,
    "qwen2-7b": 7_615_616_512,
    "qwen3-8b": 8_190_735_360,
    "gemma2-2b": 2_614_341_888,
    "llama3-8b": 8_030_261_248,
    "mistral-7b": 7_241_732_096,
    "llama2-long": 6_738_415_616,
    "codellama-7b": 6_738_546_688,
    "llama3.1-8b": 8_030_261_248,
}
THEIRS = {
    "gpt2": lambda: GPT2LMHeadModel(GPT2Config()),
    "bert-base": lambda: BertModel(BertConfig()),
    "gpt1": lambda: OpenAIGPTLMHeadModel(OpenAIGPTConfig()),
    "mixtral-8x7b": lambda: MixtralForCausalLM(MixtralConfig()),
    "gemma2-2b": lambda: Gemma2ForCausalLM(Gemma2Config()),
    "qwen2-7b": lambda: Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=152_064,
            hidden_size=3584,
            intermediate_size=18_944,
            num_hidden_layers=28,
            num_attention_heads=28,
            num_key_value_heads=4,
        )
    ),
    "qwen3-8b": lambda: Qwen3ForCausalLM(
        Qwen3Config(intermediate_size=12_288, num_hidden_layers=36, num_key_value_heads=8)
    ),
    "llama3-8b": lambda: LlamaForCausalLM(
        LlamaConfig(vocab_size=128_256, hidden_size=4096, intermediate_size=14_336, num_key_value_heads=8)
    ),
    "mistral-7b": lambda: MistralForCausalLM(MistralConfig()),
}


@pytest.mark.parametrize("preset", PUBLISHED)
def test_published_parameters(preset: str) -> None:
    assert parameters(PRESETS[preset]) == PUBLISHED[preset]


@pytest.mark.parametrize("preset", THEIRS)
def test_parameters_of_hugging_face_at_the_same_sizes(preset: str) -> None:
    with torch.device("meta"):
        assert THEIRS[preset]().num_parameters() == PUBLISHED[preset]


# What a paper rounds: table 2.1 of GPT-3 in millions and billions, table 1 of PaLM to 0.01 billion, table 1 of
# Transformer-XL to the million.
ROUNDED = {"gpt3-small": (1e6, 125), "gpt3-175b": (1e9, 175), "palm-8b": (1e7, 863), "transformer-xl": (1e6, 151)}


@pytest.mark.parametrize("preset", ROUNDED)
def test_parameters_as_a_paper_rounds_them(preset: str) -> None:
    unit, count = ROUNDED[preset]
    assert round(parameters(PRESETS[preset]) / unit) == count


@pytest.mark.parametrize(
    ("preset", "dim", "published"), [("transformer-base", 512, 65e6), ("transformer-big", 1024, 213e6)]
)
def test_transformer(preset: str, dim: int, published: float) -> None:
    # Table 3 of the paper says 65 and 213 million, of models whose vocabulary is not given to the token ("about 37000"
    # for German, 32000 for French). So the structure is counted by hand here, and the published figure to 3 %.
    hidden, vocab = 4 * dim, 37_000
    attention = 4 * (dim * dim + dim)
    ffn = dim * hidden + hidden + hidden * dim + dim
    norm = 2 * dim
    encoder = 6 * (attention + ffn + 2 * norm)
    decoder = 6 * (2 * attention + ffn + 3 * norm)
    assert parameters(PRESETS[preset]) == vocab * dim + encoder + decoder
    assert parameters(PRESETS[preset]) == pytest.approx(published, rel=0.03)


def test_lstm() -> None:
    # "66M" is how later work cites the large model of Zaremba et al. 2014.
    dim, vocab = 1500, 10_000
    layer = 4 * (dim * dim + dim * dim + dim)
    flags = 4 * dim  # the fixed column that lets padding through
    assert parameters(PRESETS["lstm"]) == 2 * vocab * dim + 2 * (layer + flags)
    assert round(parameters(PRESETS["lstm"]) / 1e6) == 66


def test_rnn() -> None:
    dim, vocab = 1500, 10_000
    assert parameters(PRESETS["rnn"]) == 2 * vocab * dim + 2 * (dim * dim + dim * dim + dim)


def test_a_mixture_computes_all_experts_and_routing_would_need_a_quarter() -> None:
    """The gates leave two of eight; the others are computed and multiplied by zero, and the count says so."""
    config = PRESETS["mixtral-8x7b"]
    dim, hidden, tokens = 4096, 14_336, 10
    expert = 3 * 2 * dim * hidden
    assert config.ffns[0].flops(config, tokens) == tokens * (8 * expert + 2 * dim * 8)


@pytest.mark.parametrize("preset", PRESETS)
def test_a_full_model_on_meta_takes_no_memory_and_no_time(preset: str) -> None:
    began = time.process_time()
    with torch.device("meta"):
        model = build(PRESETS[preset])
    assert time.process_time() - began < 2
    assert all(tensor.is_meta for tensor in (*model.parameters(), *model.buffers()))


def unrolled(x: Tensor, h: Tensor, c: Tensor, w: Tensor, u: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """The LSTM written out, a matrix product for the input and one for the state in each step."""
    ys = []
    for step in x.unbind(1):
        i, f, g, o = (step @ w.T + h @ u.T + b).chunk(4, dim=-1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
        ys.append(h)
    return torch.stack(ys, 1), c


def unrolled_rnn(x: Tensor, h: Tensor, w: Tensor, u: Tensor, b: Tensor) -> Tensor:
    """The same for the simple network."""
    ys = []
    for step in x.unbind(1):
        h = torch.tanh(step @ w.T + h @ u.T + b)
        ys.append(h)
    return torch.stack(ys, 1)


UNROLLED = {"lstm": unrolled, "rnn": unrolled_rnn}


@pytest.mark.parametrize("preset", UNROLLED)
def test_the_unrolled_network_is_the_operator(preset: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = phase_module(PRESETS[preset].at("tiny"), "step").double()
    inputs = feeds(module, {"batch": 3, "sequence": 9, "past": 4})
    expected = module(*inputs)
    monkeypatch.setattr(recurrent, preset, UNROLLED[preset])
    for a, b in zip(module(*inputs), expected, strict=True):
        assert (a - b).abs().max() < 1e-13


def feeds(module: torch.nn.Module, sizes: dict[str, int]) -> list[Tensor]:
    """Left-padded inputs, floating ones in the module's own precision."""
    dtype = next(module.parameters()).dtype
    arrays = module.signature.feeds(sizes, padding="left").values()
    tensors = [torch.from_numpy(array) for array in arrays]
    return [tensor.to(dtype) if tensor.is_floating_point() else tensor for tensor in tensors]


COUNTED = [(name, phase) for name, config in architectures().items() for phase in phases(config)]
# Around mistral's windows (16 and 8 tokens): below, at, one above, several blocks with a rest.
SHAPES = [(1, 0), (1, 40), (7, 5), (16, 3), (17, 0), (37, 21)]


def other_size(config: ModelConfig) -> ModelConfig:
    return config.scaled(dim=96, layers=3, heads=6, vocab=101, context=64)


@pytest.mark.parametrize(("preset", "phase"), COUNTED)
@pytest.mark.parametrize("scaled", [tiny, other_size], ids=["tiny", "other"])
def test_flops_are_those_that_torch_counts(preset, phase, scaled, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    for name, written_out in UNROLLED.items():
        monkeypatch.setattr(recurrent, name, written_out)  # the operators themselves are not counted
    config = scaled(PRESETS[preset])
    module = phase_module(config, phase)
    for tokens, past in SHAPES:
        sizes = {"batch": 3, "sequence": tokens, "past": past, "source": 11}
        # CPU's fused attention is not counted either; MATH is the same function in counted matrix products.
        with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
            module(*feeds(module, sizes))
        counted = {axis: size for axis, size in sizes.items() if axis in module.signature.axes}
        assert flops(config, phase, counted) == counter.get_total_flops()  # exactly


def test_a_decode_step_pays_for_the_window_and_not_for_the_past() -> None:
    config = PRESETS["mistral-7b"]
    sizes = {"batch": 1, "sequence": 1}
    costs = [flops(config, "step", {**sizes, "past": past}) for past in (4094, 4095, 4096, 30_000)]
    assert costs[1] == costs[2] == costs[3]
    assert costs[1] - costs[0] == 32 * 4 * 4096  # one key less in 32 layers of dim 4096


@pytest.mark.parametrize("preset", [name for name, config in PRESETS.items() if config.topology != "encoder"])
@pytest.mark.parametrize("past", [0, 5])
def test_cache_bytes_are_those_of_the_present_tensors(preset: str, past: int) -> None:
    for config in (PRESETS[preset].at("tiny"), other_size(PRESETS[preset])):
        module = phase_module(config, "step")
        outputs = module(*feeds(module, {"batch": 3, "sequence": 4, "past": past, "source": 11}))
        names = [spec.name for spec in module.signature.outputs]
        present = [tensor for name, tensor in zip(names, outputs, strict=True) if name.startswith("present.")]
        assert len(present) == sum(len(mixer.cache(config)) for mixer in config.mixers)
        expected = sum(tensor.numel() * tensor.element_size() for tensor in present)
        assert cache_bytes(config, batch=3, tokens=past + 4, bytes_per_number=4) == expected


def test_cache_of_llama_7b_is_two_gib_and_groups_of_four_quarter_it() -> None:
    grouped = PRESETS["llama3-8b"]
    llama7b = replace(grouped, mixer=Softmax())  # 32 layers, 32 heads of 128
    assert (llama7b.layers, llama7b.heads, llama7b.head_dim) == (32, 32, 128)
    sizes = {"batch": 1, "tokens": 4096, "bytes_per_number": 2}
    assert cache_bytes(llama7b, **sizes) == 2 * GIB
    assert cache_bytes(grouped, **sizes) == 2 * GIB / 4
    assert cache_bytes(replace(grouped, mixer=Softmax(kv_heads=1)), **sizes) == 2 * GIB / 32


def test_a_recurrent_state_does_not_grow() -> None:
    costs = {cache_bytes(PRESETS["lstm"], batch=1, tokens=n, bytes_per_number=4) for n in (0, 1, 4096)}
    assert costs == {2 * 2 * 1500 * 4}


def test_an_encoder_has_no_cache() -> None:
    with pytest.raises(ConfigError, match="bert-base: an encoder has no cache"):
        cache_bytes(PRESETS["bert-base"], batch=1, tokens=1, bytes_per_number=4)
