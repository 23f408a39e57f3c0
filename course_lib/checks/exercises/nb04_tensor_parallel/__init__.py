"""Notebook 04: layers split between ranks, what they send, and what they keep."""

from course_lib.checks.exercises.nb04_tensor_parallel.attention import PARALLEL_ATTENTION
from course_lib.checks.exercises.nb04_tensor_parallel.conjugates import MEGATRON_F, MEGATRON_G
from course_lib.checks.exercises.nb04_tensor_parallel.linears import COLUMN_LINEAR, ROW_LINEAR
from course_lib.checks.exercises.nb04_tensor_parallel.mlp import PARALLEL_MLP
from course_lib.checks.exercises.nb04_tensor_parallel.sequence import SEQUENCE_PARALLEL_MLP
from course_lib.checks.exercises.nb04_tensor_parallel.traffic import LAYER_TRAFFIC
from course_lib.checks.exercises.nb04_tensor_parallel.vocabulary import (
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
