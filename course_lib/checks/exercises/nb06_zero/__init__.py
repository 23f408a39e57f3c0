"""Notebook 06: what a parameter takes in memory, and ways to hold less of it."""

from .clipping import CLIP_ACROSS_SHARDS
from .costs import ZERO_COSTS
from .layer_by_layer import ZERO3_STEP
from .meter import HELD_BYTES
from .partitioned import ZERO1, ZERO2
from .precision import MASTER_WEIGHTS, OFFLOAD
from .recomputing import CHECKPOINTED
from .sharded_layer import SHARD_LAYER

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
