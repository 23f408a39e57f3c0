"""Run a function on N real ranks from a notebook cell: start, watch, explain, clean up."""

import os
import sys

from .errors import Failure, RankError, RankInterrupt, RankTimeout
from .hostclient import host
from .launch import collect, run_ranks
from .progress import report_step
from .results import RankResults

__all__ = [
    "Failure",
    "RankError",
    "RankInterrupt",
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
