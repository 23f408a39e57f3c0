"""Notebook 00: how much memory training needs; ranks, messages, hangs, first collectives."""

from .all_gather import ALL_GATHER_BY_SENDS
from .blame import BLAME
from .broadcast import BROADCAST_BY_SENDS
from .memory_wall import MEMORY_WALL
from .ping_pong import PING_PONG
from .rank_tensor import RANK_TENSOR
from .scatter import SCATTER_BY_SENDS

EXERCISES = (
    MEMORY_WALL,
    RANK_TENSOR,
    PING_PONG,
    BLAME,
    BROADCAST_BY_SENDS,
    ALL_GATHER_BY_SENDS,
    SCATTER_BY_SENDS,
)
