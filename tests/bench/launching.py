"""Starting ranks: against accelerate's notebook_launcher, and a thousand times in a row."""

import importlib.util
import json
import socket
import subprocess
import sys
import tempfile

import psutil
import torch
import torch.distributed as dist

from tests.bench.row import Measurement, Row, paired

_RANKS, _CALLS = 4, 1000


def _work() -> float:
    total = torch.ones(1000)
    dist.all_reduce(total)
    return total[0].item()


def _join_and_work() -> None:
    # What the other launcher leaves to the function; it cannot return the result either.
    dist.init_process_group("gloo")
    _work()
    dist.destroy_process_group()


def _free_port() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return str(free.getsockname()[1])


def _warm_run() -> list[Measurement]:
    if importlib.util.find_spec("accelerate") is None:
        return [Measurement("4 ranks", note="needs accelerate: pip install -e '.[bench]'")]
    # A fresh process: the other launcher forks, and hangs where torch has used threads before.
    command = [sys.executable, "-c", "from tests.bench.launching import compare; compare()"]
    with tempfile.TemporaryFile("w+") as answer:  # a pipe would be kept open by its forked ranks
        subprocess.run(command, stdout=answer, timeout=300, check=True)
        answer.seek(0)
        ratios = tuple(json.loads(answer.read().splitlines()[-1]))
    return [Measurement("4 ranks, warm, results returned", ratios, limit=0.8)]


def compare() -> None:
    """Print the ratios; runs in a process of its own."""
    from accelerate import notebook_launcher

    from course_lib.ranks import collect

    def ours() -> None:
        assert list(collect(_work, _RANKS)) == [float(_RANKS)] * _RANKS

    def theirs() -> None:
        notebook_launcher(_join_and_work, num_processes=_RANKS, use_port=_free_port())

    print(json.dumps(paired(ours, theirs, pairs=15)))


def _many_calls() -> list[Measurement]:
    from course_lib.ranks import collect
    from course_lib.ranks.hostclient import host

    me = psutil.Process()
    collect(_work, 2)
    helper = psutil.Process(host().process.pid)

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


ROWS = [
    Row("launch", "run_ranks against accelerate.notebook_launcher", _warm_run),
    Row("calls", "what a thousand runs leave behind", _many_calls),
]
