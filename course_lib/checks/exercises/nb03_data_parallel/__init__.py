"""Notebook 03: replicas that stay equal, buckets that overlap, and what more GPUs are worth."""

from .accumulate import ACCUMULATE
from .average import BIG_BATCH_GRADIENT
from .buckets import AVERAGE_IN_BUCKETS
from .numbers import (
    LEARNING_RATE,
    SCALING_EFFICIENCY,
)
from .order import BUCKETS_BY_READY_TIME
from .sampler import SHARD_INDICES
from .start import START_EQUAL

EXERCISES = (
    START_EQUAL,
    BIG_BATCH_GRADIENT,
    SHARD_INDICES,
    AVERAGE_IN_BUCKETS,
    ACCUMULATE,
    SCALING_EFFICIENCY,
    LEARNING_RATE,
    BUCKETS_BY_READY_TIME,
)
