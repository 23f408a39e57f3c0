"""Notebook 00: how much memory training needs; ranks, messages, hangs, first collectives."""

from course_lib.checks.exercises.nb00_ranks.all_gather import ALL_GATHER_BY_SENDS
from course_lib.checks.exercises.nb00_ranks.blame import BLAME
from course_lib.checks.exercises.nb00_ranks.broadcast import BROADCAST_BY_SENDS
from course_lib.checks.exercises.nb00_ranks.memory_wall import MEMORY_WALL
from course_lib.checks.exercises.nb00_ranks.ping_pong import PING_PONG
from course_lib.checks.exercises.nb00_ranks.rank_tensor import RANK_TENSOR
from course_lib.checks.exercises.nb00_ranks.scatter import SCATTER_BY_SENDS

EXERCISES = (
    MEMORY_WALL,
    RANK_TENSOR,
    PING_PONG,
    BLAME,
    BROADCAST_BY_SENDS,
    ALL_GATHER_BY_SENDS,
    SCATTER_BY_SENDS,
)
