"""Notebook 02: all-reduce from send and recv, what it costs, and training with it."""

from .crossover import CROSSOVER_BYTES
from .fit import FIT_ALPHA_BETA
from .fusion import FUSED_ALL_REDUCE
from .halving_doubling import (
    HALVING_DOUBLING_ALL_REDUCE,
)
from .hooks import AVERAGE_GRADIENTS_BY_HOOKS
from .ring_halves import (
    RING_ALL_GATHER,
    RING_REDUCE_SCATTER,
)
from .ring_whole import RING_ALL_REDUCE
from .through_rank_0 import (
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
