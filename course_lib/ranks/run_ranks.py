"""`run_ranks`: run a function on N real ranks and bring back what they returned.

Each call starts fresh processes, so nothing of one run, crashed or stuck or merely untidy, is there
in the next. The ranks meet through a file in the run's own folder: no environment variable is set,
no port is opened for it.
"""

import os
import pickle
import re
import sys
import threading
from collections.abc import Callable, Collection, Sequence
from typing import Any

from . import captured_output, serialization, unsendable
from .collect_results import conclude
from .devices import choose_devices
from .errors import RankError, RankInterrupt, told_briefly
from .launcher_client import running_launcher
from .recorder_warnings import show_warnings
from .results import RankResults
from .run_directory import RunDir
from .watchdog import Watch

_MOST_RANKS = 256
# Left over from torchrun or an earlier experiment, these would make a rank talk to someone else.
_told_large: set[str] = set()
_FOREIGN = ("MASTER_ADDR", "MASTER_PORT", "GROUP_RANK", "ROLE_RANK", "TORCHELASTIC_", "COURSE_LIB_")
_one_at_a_time = threading.RLock()


def run_ranks(
    fn: Callable[..., Any],
    world_size: int,
    *args: Any,
    timeout: float = 20.0,
    observe: bool | str = True,
    device: str = "auto",
    start: str | None = None,
    **kwargs: Any,
) -> RankResults:
    """Run `fn(*args, **kwargs)` on `world_size` ranks and return what each of them returned.

    `fn` may live in a cell, be a lambda or a closure, and use whatever its cell uses. On every rank
    the default process group is up when it starts: it calls `torch.distributed` as it would on a
    cluster. What the ranks print is shown when they are done, rank by rank.

    timeout: seconds until ranks that have not finished are ended. Ranks that can only wait for each
        other are noticed after about two seconds.
    observe: record what the ranks send, receive and compute (`results.trace`); "memory" records
        what lies in memory too, which slows them down.
    device: "auto" takes NCCL where there is a GPU for every rank, else gloo on the CPU.
    start: "forkserver" or "spawn"; None takes the one that is right for this system.

    Raises `ValueError` for a bad argument before any process starts, `RankError` when a rank raised
    or died, and `RankTimeout` when the ranks were stuck.
    """
    try:
        results = collect(
            fn,
            world_size,
            args,
            kwargs,
            timeout=timeout,
            observe=observe,
            device=device,
            start=start,
        )
    except (RankError, RankInterrupt) as error:
        captured_output.show(error.output, error.remarks)
        raise
    if device == "auto" and (why := choose_devices(world_size, device).reason) != "gloo on the CPU":
        print(why)
    captured_output.show(results.output, results.remarks)
    show_warnings(results.warnings)
    return results


def collect(
    fn: Callable[..., Any],
    world_size: int,
    args: tuple = (),
    kwargs: dict[str, Any] | None = None,
    *,
    by_rank: Sequence[tuple] | None = None,
    timeout: float = 20.0,
    observe: bool | str = True,
    device: str = "auto",
    start: str | None = None,
    fresh: Collection[int] = (),
) -> RankResults:
    """`run_ranks` without showing anything.

    by_rank: for each rank its own further arguments, after `args`; no other rank is sent them.
    fresh: ranks that are a Python of their own, as all are on a cluster. The others are forked from
        one process, and so agree on what differs between processes: the order of sets, `hash` of a
        text, addresses.
    """
    _validate(fn, world_size, timeout, observe)
    start = start or default_start()
    if start not in ("forkserver", "spawn"):
        raise ValueError(f'start must be "forkserver" or "spawn", not {start!r}')
    devices = choose_devices(world_size, device)
    call = _pack_call(fn, args, kwargs or {})
    own = [serialization.pack(each) for each in by_rank or ()]
    remarks = _large(call, fn, args, kwargs or {})

    with _one_at_a_time, told_briefly("the run was being prepared, or brought to its end."):
        run_dir = RunDir.create(world_size)
        watch = None
        try:
            job = {
                "call": call,
                "world_size": world_size,
                "timeout": timeout,
                "observe": observe,
                "backend": devices.backend,
                "device": devices.device,
                "threads": max(1, len(_cores()) // world_size),
                "environ": {k: v for k, v in os.environ.items() if not k.startswith(_FOREIGN)},
                "path": sys.path,
                "folder": os.getcwd(),
            }
            run_dir.job.write_bytes(pickle.dumps(job))
            for rank, payload in enumerate(own):
                run_dir.of(rank, "arguments").write_bytes(payload)
            watch = Watch(run_dir, running_launcher(), world_size, bool(observe))
            ranks = {"world_size": world_size, "start": start, "fresh": sorted(fresh)}
            watch.launcher.order("start", run_dir, **ranks)
            outcome = watch.until_over_or_interrupted(timeout)
            if outcome.unfinished:
                watch.ask_for_stacks()
            ended, watch = watch, None
            ended.end()
            return conclude(run_dir, outcome, timeout, bool(observe), remarks)
        finally:
            if watch:  # our own error
                watch.end()
            run_dir.remove()


def import_ahead(*names: str) -> None:
    """Have modules of the course imported once, before ranks start, and not in each rank.

    Waits for a run that is under way, whose end the launcher must not miss while it imports. Does
    nothing where each rank is a fresh Python.
    """
    if default_start() == "forkserver":
        with _one_at_a_time:
            running_launcher().import_ahead(*names)


def default_start() -> str:
    """ "forkserver" on Linux. Elsewhere a fork after importing torch is unsafe, so "spawn"."""
    return "forkserver" if sys.platform == "linux" else "spawn"


def _validate(fn: Any, world_size: Any, timeout: Any, observe: Any) -> None:
    if not callable(fn):
        raise ValueError(
            f"run_ranks needs a function, not {type(fn).__name__}. Write run_ranks(fn, 4), without "
            "calling fn: it is called on every rank."
        )
    if isinstance(world_size, bool) or not isinstance(world_size, int):
        raise ValueError(f"world_size must be a whole number of ranks, not {world_size!r}")
    if not 1 <= world_size <= _MOST_RANKS:
        raise ValueError(f"world_size must be from 1 to {_MOST_RANKS}, not {world_size}")
    if not timeout > 0:
        raise ValueError(f"timeout must be more than 0 seconds, not {timeout}")
    if observe not in (True, False, "memory"):
        raise ValueError(f'observe must be True, False or "memory", not {observe!r}')


def _pack_call(fn: Callable, args: tuple, kwargs: dict[str, Any]) -> bytes:
    try:
        return serialization.pack((fn, args, kwargs))
    except Exception as problem:
        raise ValueError(
            f"{getattr(fn, '__name__', 'the function')} uses something that cannot be sent to "
            f"another process: {unsendable.culprit(fn, args, kwargs) or problem}. Create it inside "
            "the function instead, so that each rank makes its own."
        ) from problem


def _large(call: bytes, fn: Callable, args: tuple, kwargs: dict[str, Any]) -> list[str]:
    """A remark on what makes a call large, once for the same variables."""
    if len(call) <= unsendable.LARGE:
        return []
    parts = unsendable.large_parts(fn, args, kwargs)
    names = re.sub(r" \(\d+ MB\)", "", parts)
    if not parts or names in _told_large:
        return []
    _told_large.add(names)
    return [
        f"{len(call) / 1e6:.0f} MB are sent to every rank: {parts}. What is large is better made "
        "or loaded inside the function."
    ]


def _cores() -> list[int] | range:
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return range(os.cpu_count() or 1)
