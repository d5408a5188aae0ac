"""The opsets that can be asked for, and why 23 is the default. Nothing is imported here."""

from __future__ import annotations

OPSETS = {
    18: "attention, RMS norms, rotary positions and GELU in primitive operators; constants of attention in float32",
    19: "as 18",
    20: "Gelu is one operator",
    21: "as 20",
    22: "as 20",
    23: "Attention, RMSNormalization and RotaryEmbedding are one operator each: decode 1.2 to 3 times as fast as at 18",
    24: "Attention is one operator; the exporter fuses RMS norms and rotary positions at 23 alone",
    25: "as 24; the newest that ONNX Runtime 1.32 loads",
}
DEFAULT_OPSET = 23  # the newest at which the exporter keeps all three whole
