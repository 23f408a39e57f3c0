"""Run a function on N real ranks from a notebook cell: start, watch, explain, clean up."""

import os
import sys

from course_lib.ranks.errors import Failure, RankError, RankTimeout
from course_lib.ranks.hostclient import host
from course_lib.ranks.launch import collect, run_ranks
from course_lib.ranks.progress import report_step
from course_lib.ranks.results import RankResults

__all__ = [
    "Failure",
    "RankError",
    "RankResults",
    "RankTimeout",
    "collect",
    "report_step",
    "run_ranks",
]

# In a notebook the host imports torch while the learner reads the next lines. A host or a rank,
# which also import this package, must not start hosts of their own.
if "ipykernel" in sys.modules and "COURSE_LIB_HOST" not in os.environ:
    host()
