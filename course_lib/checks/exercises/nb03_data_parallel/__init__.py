"""Notebook 03: replicas that stay equal, buckets that overlap, and what more GPUs are worth."""

from course_lib.checks.exercises.nb03_data_parallel.accumulate import ACCUMULATE
from course_lib.checks.exercises.nb03_data_parallel.average import BIG_BATCH_GRADIENT
from course_lib.checks.exercises.nb03_data_parallel.buckets import AVERAGE_IN_BUCKETS
from course_lib.checks.exercises.nb03_data_parallel.numbers import (
    LEARNING_RATE,
    SCALING_EFFICIENCY,
)
from course_lib.checks.exercises.nb03_data_parallel.order import BUCKETS_BY_READY_TIME
from course_lib.checks.exercises.nb03_data_parallel.sampler import SHARD_INDICES
from course_lib.checks.exercises.nb03_data_parallel.start import START_EQUAL

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
