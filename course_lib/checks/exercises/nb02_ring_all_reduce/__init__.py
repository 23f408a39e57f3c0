"""Notebook 02: all-reduce from send and recv, what it costs, and training with it."""

from course_lib.checks.exercises.nb02_ring_all_reduce.crossover import CROSSOVER_BYTES
from course_lib.checks.exercises.nb02_ring_all_reduce.fit import FIT_ALPHA_BETA
from course_lib.checks.exercises.nb02_ring_all_reduce.fusion import FUSED_ALL_REDUCE
from course_lib.checks.exercises.nb02_ring_all_reduce.halving_doubling import (
    HALVING_DOUBLING_ALL_REDUCE,
)
from course_lib.checks.exercises.nb02_ring_all_reduce.hooks import AVERAGE_GRADIENTS_BY_HOOKS
from course_lib.checks.exercises.nb02_ring_all_reduce.ring_halves import (
    RING_ALL_GATHER,
    RING_REDUCE_SCATTER,
)
from course_lib.checks.exercises.nb02_ring_all_reduce.ring_whole import RING_ALL_REDUCE
from course_lib.checks.exercises.nb02_ring_all_reduce.through_rank_0 import (
    GATHER_BROADCAST_ALL_REDUCE,
)

EXERCISES = (
    GATHER_BROADCAST_ALL_REDUCE,
    RING_REDUCE_SCATTER,
    RING_ALL_GATHER,
    RING_ALL_REDUCE,
    FIT_ALPHA_BETA,
    CROSSOVER_BYTES,
    FUSED_ALL_REDUCE,
    AVERAGE_GRADIENTS_BY_HOOKS,
    HALVING_DOUBLING_ALL_REDUCE,
)
