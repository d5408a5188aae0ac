"""Recurrent baselines."""

from dataclasses import replace

from ..config import ModelConfig
from ..embedding import Tokens
from ..feedforward import NoFeedForward
from ..norm import NoNorm
from ..position import NoPosition
from ..recurrent import LSTM, RNN

LSTM_LARGE = ModelConfig(
    name="lstm",
    source="Zaremba et al. 2014, the large model",
    topology="decoder",
    dim=1500,
    layers=2,
    heads=1,
    vocab=10_000,
    context=35,
    embedding=Tokens(),
    mixer=LSTM(),
    position=NoPosition(),
    norm=NoNorm(),
    ffn=NoFeedForward(),
    residual="none",
    tie_embeddings=False,
)

PRESETS = (
    LSTM_LARGE,
    replace(LSTM_LARGE, name="rnn", source="Elman 1990, at the sizes of lstm to be compared with it", mixer=RNN()),
)
