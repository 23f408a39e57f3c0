"""Notebook 05: pipelines as tables, what they cost, and running them."""

from .blocking import STUCK_RANKS
from .clever_tables import (
    INTERLEAVED_SCHEDULE,
    ZERO_BUBBLE_SCHEDULE,
)
from .executor import RUN_SCHEDULE
from .numbers import (
    BUBBLE_FRACTIONS,
    PEAK_IN_FLIGHT,
)
from .plain_tables import (
    GPIPE_SCHEDULE,
    ONE_F_ONE_B_SCHEDULE,
)
from .two_stages import TWO_STAGE_STEP

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
