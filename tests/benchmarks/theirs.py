"""A model of transformers as its users export it, and the same file rewritten: rows of fast.py."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from isorun.bench.proof import prover
from isorun.export.adoption import adopt_file
from isorun.export.finish import derive


class Logits(nn.Module):
    """Ids and a mask → logits."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        found: Tensor = self.model(input_ids=input_ids, attention_mask=attention_mask, use_cache=False).logits
        return found


def exported(root: Path, *, dynamo: bool) -> tuple[Path, Path]:
    """Folders: what torch.onnx.export makes of a Llama of the sizes of `llama3-8b` at `small`, and that rewritten."""
    name = "dynamo" if dynamo else "torchscript"
    plain, fused = root / f"theirs-{name}", root / f"theirs-{name}-ort-cpu"
    if not plain.exists():
        file = root / f"theirs-{name}.onnx"
        _export(file, dynamo=dynamo)
        adopt_file(file, plain)
    if not fused.exists():
        artifact = adopt_file(root / f"theirs-{name}.onnx", root / "adopted", force=True)
        derive(artifact, "fp32", fused, target="ort-cpu", prove=prover(artifact.sizes["file_bytes"]))
    return plain, fused


def _export(file: Path, *, dynamo: bool) -> None:
    import transformers

    sizes = {"hidden_size": 256, "intermediate_size": 896, "num_attention_heads": 8, "num_key_value_heads": 2}
    config = transformers.LlamaConfig(**sizes, vocab_size=4096, num_hidden_layers=4, max_position_embeddings=8192)
    torch.manual_seed(0)
    write(file, transformers.LlamaForCausalLM(config).eval(), torch.ones(2, 7, dtype=torch.int64), dynamo=dynamo)


def write(file: Path, model: nn.Module, ids: Tensor, *, dynamo: bool, **options: Any) -> None:
    """A file as users make it, batch and sequence free, by torch.export or TorchScript; more options are torch's."""
    names, free = ["input_ids", "attention_mask"], {0: "batch", 1: "sequence"}
    if dynamo:
        dims = {axis: torch.export.Dim(name) for axis, name in free.items()}
        options |= {"dynamic_shapes": (dims, dims), "external_data": False, "verbose": False}
    else:
        options |= {"dynamic_axes": dict.fromkeys(names, free)}
    given = (ids, torch.ones_like(ids))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of theirs, about their own code
        torch.onnx.export(
            Logits(model), given, file, dynamo=dynamo, input_names=names, output_names=["logits"], **options
        )
