"""Notebook 04: layers split between ranks, what they send, and what they keep."""

from .attention import PARALLEL_ATTENTION
from .conjugates import MEGATRON_F, MEGATRON_G
from .linears import COLUMN_LINEAR, ROW_LINEAR
from .mlp import PARALLEL_MLP
from .sequence import SEQUENCE_PARALLEL_MLP
from .traffic import LAYER_TRAFFIC
from .vocabulary import (
    VOCAB_CROSS_ENTROPY,
    VOCAB_EMBEDDING,
)

EXERCISES = (
    COLUMN_LINEAR,
    ROW_LINEAR,
    MEGATRON_F,
    MEGATRON_G,
    PARALLEL_MLP,
    LAYER_TRAFFIC,
    PARALLEL_ATTENTION,
    VOCAB_EMBEDDING,
    VOCAB_CROSS_ENTROPY,
    SEQUENCE_PARALLEL_MLP,
)
