"""A thousand runs in a row, and what has grown by then."""

import psutil
import torch
import torch.distributed as dist

from course_lib.ranks import collect
from course_lib.ranks.launcher_client import running_launcher
from tests.bench.measurement import Measurement, Row

_CALLS = 1000


def _work() -> None:
    dist.all_reduce(torch.ones(1000))


def _many_calls() -> list[Measurement]:
    me = psutil.Process()
    collect(_work, 2)
    helper = psutil.Process(running_launcher().process.pid)

    def use() -> dict[str, int]:
        return {
            "descriptors": me.num_fds() + helper.num_fds(),
            "processes": len(me.children(recursive=True)),
            "MB": (me.memory_info().rss + helper.memory_info().rss) // 2**20,
        }

    for _ in range(_CALLS // 10):  # caches fill up first
        collect(_work, 2)
    before = use()
    for _ in range(_CALLS):
        collect(_work, 2)
    after = use()
    growth = ", ".join(f"{what} {before[what]} -> {after[what]}" for what in before)
    return [Measurement(f"{_CALLS} calls of 2 ranks", note=growth)]


ROWS = [Row("calls", "what a thousand runs leave behind", _many_calls)]
