"""Ways to start ranks, each as a context that yields one call: start, add, come back.

They are timed in fresh processes (`in_fresh_process`): some fork, which hangs where torch has used
threads, and the first call counts only where nothing is loaded yet.
"""

import contextlib
import json
import logging
import os
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator

import cloudpickle
import psutil
import torch
import torch.distributed as dist

from tests.bench.measurement import paired, seconds_of

RANKS = 4
Call = Callable[[], object]
_PATIENCE, _TRIES = 60, 3  # seconds for each
_MARK = "BENCH_LAUNCHER"  # in the environment of whatever a fresh process starts


def _work() -> float:
    total = torch.ones(1000)
    dist.all_reduce(total)
    return total[0].item()


def _checked(results: list[float]) -> None:
    assert results == [float(len(results))] * len(results), results


# ------------------------------------------------------------------------------------------------
# The launchers
# ------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def run_ranks() -> Iterator[Call]:
    from course_lib.ranks import collect

    # As if it were in a cell: no rank imports this module first.
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    yield lambda: _checked(list(collect(_work, RANKS)))


@contextlib.contextmanager
def notebook_launcher() -> Iterator[Call]:
    from accelerate import notebook_launcher

    yield lambda: notebook_launcher(_join_and_work, num_processes=RANKS, use_port=_free_port())


def _join_and_work() -> None:
    # What the other launcher leaves to the function; it cannot return the result either.
    dist.init_process_group("gloo")
    _work()
    dist.destroy_process_group()


def _free_port() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return str(free.getsockname()[1])


@contextlib.contextmanager
def spawn() -> Iterator[Call]:
    from torch import multiprocessing

    def call() -> None:
        with tempfile.TemporaryDirectory() as folder:
            multiprocessing.spawn(_meet_and_work, (RANKS, folder), RANKS)

    yield call


def _meet(rank: int, ranks: int, folder: str) -> None:
    dist.init_process_group("gloo", f"file://{folder}/store", rank=rank, world_size=ranks)


def _meet_and_work(rank: int, ranks: int, folder: str) -> None:
    _meet(rank, ranks, folder)
    _work()
    dist.destroy_process_group()


@contextlib.contextmanager
def ipyparallel() -> Iterator[Call]:
    """Engines that stay, and a process group that stays in them."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["IPYTHONDIR"] = folder  # or it makes a profile in the user's home
        from ipyparallel import Cluster

        cluster = Cluster(n=RANKS, log_level=logging.ERROR)
        cluster.start_cluster_sync()
        try:
            client = cluster.connect_client_sync()
            client.wait_for_engines(RANKS, timeout=60, interactive=False)
            meeting = [client[r].apply_async(_meet, r, RANKS, folder) for r in range(RANKS)]
            for rank in meeting:
                rank.get(60)
            yield lambda: _checked(client[:].apply_sync(_work))
            client.close()
        finally:
            cluster.stop_cluster_sync()


@contextlib.contextmanager
def forks(ranks: int = RANKS) -> Iterator[Call]:
    """Only what cannot be left out: forks that meet, connect and add. Nothing returns."""

    def call() -> None:
        with tempfile.TemporaryDirectory() as folder:
            for pid in [_fork(rank, ranks, folder) for rank in range(ranks)]:
                assert os.waitpid(pid, 0)[1] == 0, "a forked rank has failed"

    yield call


def _fork(rank: int, ranks: int, folder: str) -> int:
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        _meet(rank, ranks, folder)
        _work()
        status = 0
    finally:
        os._exit(status)


# ------------------------------------------------------------------------------------------------
# In a process of their own
# ------------------------------------------------------------------------------------------------


def in_fresh_process(function: Callable, *arguments: object) -> object:
    """What a function of this module returns (plain data) in a fresh process.

    Whatever that process has started and not ended is ended here. One that hangs is tried again,
    and `subprocess.TimeoutExpired` is raised after the last. notebook_launcher does now and then:
    it forks a rank while the thread of its store looks up the address of another, and the fork
    waits for that thread's lock, which nobody releases.
    """
    for _ in range(_TRIES - 1):
        with contextlib.suppress(subprocess.TimeoutExpired):
            return _apart(function.__name__, arguments)
    return _apart(function.__name__, arguments)


def _apart(function: str, arguments: tuple[object, ...]) -> object:
    code = (
        "import json; from tests.bench import _launchers; "
        f"print(json.dumps(_launchers.{function}(*{arguments!r})))"
    )
    mark = uuid.uuid4().hex
    try:
        with tempfile.TemporaryFile("w+") as answer:  # forked ranks would keep a pipe open
            command = [sys.executable, "-c", code]
            environ = {**os.environ, _MARK: mark}
            subprocess.run(command, stdout=answer, env=environ, timeout=_PATIENCE, check=True)
            answer.seek(0)
            return json.loads(answer.read().splitlines()[-1])
    finally:
        _end_marked(mark)


def _end_marked(mark: str) -> None:
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get(_MARK) == mark:
                process.kill()


def warm(ours: str, theirs: str, pairs: int) -> tuple[float, ...]:
    """Ratios of calls that are not the first."""
    with globals()[ours]() as our_call, globals()[theirs]() as their_call:
        return paired(our_call, their_call, pairs=pairs)


def first(launcher: str) -> float:
    """Seconds of the first call, with the launcher's import; torch itself has been imported."""
    started = time.perf_counter()
    with globals()[launcher]() as call:
        call()
        return time.perf_counter() - started


def seconds_of_forks(ranks: int, calls: int) -> float:
    """Median seconds of bare forks of this many ranks."""
    with forks(ranks) as call:
        return sorted(seconds_of(call) for _ in range(calls))[calls // 2]
