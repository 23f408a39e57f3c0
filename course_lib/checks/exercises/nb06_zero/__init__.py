"""Notebook 06: what a parameter takes in memory, and ways to hold less of it."""

from course_lib.checks.exercises.nb06_zero.clipping import CLIP_ACROSS_SHARDS
from course_lib.checks.exercises.nb06_zero.costs import ZERO_COSTS
from course_lib.checks.exercises.nb06_zero.layer_by_layer import ZERO3_STEP
from course_lib.checks.exercises.nb06_zero.meter import HELD_BYTES
from course_lib.checks.exercises.nb06_zero.partitioned import ZERO1, ZERO2
from course_lib.checks.exercises.nb06_zero.precision import MASTER_WEIGHTS, OFFLOAD
from course_lib.checks.exercises.nb06_zero.recomputing import CHECKPOINTED
from course_lib.checks.exercises.nb06_zero.sharded_layer import SHARD_LAYER

EXERCISES = (
    HELD_BYTES,
    ZERO1,
    ZERO2,
    SHARD_LAYER,
    ZERO3_STEP,
    ZERO_COSTS,
    MASTER_WEIGHTS,
    OFFLOAD,
    CHECKPOINTED,
    CLIP_ACROSS_SHARDS,
)
