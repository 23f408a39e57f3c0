"""Run a function on N real ranks from a notebook cell: start, watch, explain, clean up.

In the order in which to read, each line by itself:

    a call          run_ranks, and magic for %%ranks; devices, results
    on its way      serialization, unsendable; run_directory for the folder through which all speak
    the processes   spawn_ranks, launcher_client, prctl; rank_process is the life of one
    meanwhile       watchdog, hang_detection; captured_output for what they print,
                    torch_warnings, progress
    at its end      collect_results, errors, shared_failure; recorder_warnings
    a report        failure_report, diagnosis for why ranks are stuck
      its words     source_location, wording, report_width
"""

import os
import sys

from .errors import Failure, RankError, RankInterrupt, RankTimeout
from .launcher_client import running_launcher
from .progress import report_step
from .results import RankResults
from .run_ranks import collect, run_ranks

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

# In a notebook the launcher imports torch while the learner reads the next lines. A launcher or a
# rank, which also import this package, must not start launchers of their own.
if "ipykernel" in sys.modules and "COURSE_LIB_LAUNCHER" not in os.environ:
    running_launcher()
