"""BERT."""

from ..attention import Softmax
from ..config import ModelConfig
from ..embedding import Tokens
from ..feedforward import MLP
from ..norm import LayerNorm
from ..position import Learned

PRESETS = (
    ModelConfig(
        name="bert-base",
        source="Devlin et al. 2019; model card bert-base-uncased",
        topology="encoder",
        dim=768,
        layers=12,
        heads=12,
        vocab=30_522,
        context=512,
        embedding=Tokens(token_types=2, norm=LayerNorm(1e-12)),
        mixer=Softmax(),
        position=Learned(),
        norm=LayerNorm(1e-12),
        ffn=MLP("gelu", 3072),
        residual="post",
    ),
)
