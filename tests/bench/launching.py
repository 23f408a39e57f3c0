"""Starting ranks, against three other ways: the next call, and the first in a fresh kernel.

Engines of ipyparallel stay from call to call, which starts nothing and is faster; what one call
leaves in them, a crash or a hang, the next one finds.
"""

import importlib.util
import subprocess
from functools import partial

from tests.bench._launchers import RANKS, first, in_fresh_process, warm
from tests.bench.measurement import Measurement, Row

_FIRSTS = 2  # of each, in a process of its own


def _against(peer: str, package: str, pairs: int, limit: float | None = None) -> list[Measurement]:
    def nothing(note: str) -> list[Measurement]:
        return [Measurement(f"{RANKS} ranks", limit=limit, note=note)]

    if importlib.util.find_spec(package) is None:
        return nothing(f"needs {package}: pip install -e '.[bench]'")
    try:
        return _compared(peer, pairs, limit)
    except subprocess.TimeoutExpired as hung:
        return nothing(f"hung each time, for {hung.timeout} s")


def _compared(peer: str, pairs: int, limit: float | None) -> list[Measurement]:
    again = Measurement(
        f"{RANKS} ranks, warm, results returned",
        tuple(in_fresh_process(warm, "run_ranks", peer, pairs)),
        limit,
    ).or_floor(
        "only forks that meet, connect and add",
        lambda: tuple(in_fresh_process(warm, "forks", peer, pairs)),
    )
    ratios = tuple(
        in_fresh_process(first, "run_ranks") / in_fresh_process(first, peer) for _ in range(_FIRSTS)
    )
    return [again, Measurement(f"{RANKS} ranks, first call and its import", ratios)]


ROWS = [
    Row(
        "launch",
        "run_ranks against accelerate.notebook_launcher",
        partial(_against, "notebook_launcher", "accelerate", 15, 0.8),
    ),
    Row(
        "spawn",
        "run_ranks against torch.multiprocessing.spawn",
        partial(_against, "spawn", "torch", 3),
    ),
    Row(
        "engines",
        "run_ranks, which starts ranks, against ipyparallel's engines, which stay",
        partial(_against, "ipyparallel", "ipyparallel", 25),
    ),
]
