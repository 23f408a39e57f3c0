"""Notebook 07: three axes at once, where they lie, and what a cluster makes of them."""

from course_lib.checks.exercises.nb07_three_d_parallelism.across_axes import (
    LOSS_EVERYWHERE,
    NORM_ON_A_MESH,
)
from course_lib.checks.exercises.nb07_three_d_parallelism.choosing import CHOOSE_MESH
from course_lib.checks.exercises.nb07_three_d_parallelism.nodes import BYTES_BY_LINK
from course_lib.checks.exercises.nb07_three_d_parallelism.places import (
    GROUPS_ALONG,
    PLACE_OF_RANK,
)
from course_lib.checks.exercises.nb07_three_d_parallelism.sizing import (
    BYTES_PER_DEVICE,
    TOKENS_TO_HIDE,
)

EXERCISES = (
    PLACE_OF_RANK,
    GROUPS_ALONG,
    BYTES_BY_LINK,
    LOSS_EVERYWHERE,
    NORM_ON_A_MESH,
    BYTES_PER_DEVICE,
    TOKENS_TO_HIDE,
    CHOOSE_MESH,
)
