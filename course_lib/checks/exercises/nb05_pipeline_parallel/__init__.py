"""Notebook 05: pipelines as tables, what they cost, and running them."""

from course_lib.checks.exercises.nb05_pipeline_parallel.blocking import STUCK_RANKS
from course_lib.checks.exercises.nb05_pipeline_parallel.clever_tables import (
    INTERLEAVED_SCHEDULE,
    ZERO_BUBBLE_SCHEDULE,
)
from course_lib.checks.exercises.nb05_pipeline_parallel.executor import RUN_SCHEDULE
from course_lib.checks.exercises.nb05_pipeline_parallel.numbers import (
    BUBBLE_FRACTIONS,
    PEAK_IN_FLIGHT,
)
from course_lib.checks.exercises.nb05_pipeline_parallel.plain_tables import (
    GPIPE_SCHEDULE,
    ONE_F_ONE_B_SCHEDULE,
)
from course_lib.checks.exercises.nb05_pipeline_parallel.two_stages import TWO_STAGE_STEP

EXERCISES = (
    TWO_STAGE_STEP,
    BUBBLE_FRACTIONS,
    GPIPE_SCHEDULE,
    PEAK_IN_FLIGHT,
    ONE_F_ONE_B_SCHEDULE,
    RUN_SCHEDULE,
    STUCK_RANKS,
    INTERLEAVED_SCHEDULE,
    ZERO_BUBBLE_SCHEDULE,
)
