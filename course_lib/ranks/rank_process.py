"""The life of one rank process: join the group, run the learner's function, deliver, wait.

A rank that has delivered its result or its exception does not leave: it waits until the launcher
ends it. Were it to leave, its sockets would close, and every rank that waits for it would raise a
"connection closed by peer" that hides what happened first. And a process that is ended from outside
runs no exit handlers, closes no group and joins no threads, so nothing can go wrong in them after
the work was done.
"""

import contextlib
import datetime
import faulthandler
import io
import json
import os
import pickle
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from course_lib.observe import Recorder

from . import progress, serialization, torch_warnings
from .prctl import die_with_parent
from .run_directory import RunDir
from .shared_failure import own_part

STACK_SIGNAL = signal.SIGUSR1
_LONGEST_CHAIN, _LONGEST_REASON = 8, 500
_LOOPBACK = {"linux": "lo", "darwin": "lo0"}


def spawned() -> int:
    """Entry of a rank that is a fresh Python: `python -c ... FOLDER RANK`."""
    die_with_parent()
    return main(RunDir(Path(sys.argv[1])), int(sys.argv[2]))


def main(run_dir: RunDir, rank: int) -> int:
    """Run one rank of the job in `run_dir`; the exit status says only whether it delivered."""
    try:
        return _live(run_dir, rank)
    except BaseException as problem:  # of our own work: a full disk, no descriptors left
        why = f"{type(problem).__name__}: {problem}"
        run_dir.tell(rank=rank, kind="broken", why=why[:_LONGEST_REASON])
        raise


def _live(run_dir: RunDir, rank: int) -> int:
    _redirect(run_dir, rank)
    job = pickle.loads(run_dir.job.read_bytes())
    # Longer than the kernel's patience: gloo's own time-out explains nothing.
    patience = datetime.timedelta(seconds=job["timeout"] + 60)
    _settle(job, rank)
    torch_warnings.divert(run_dir.of(rank, "warnings"))
    try:
        payload, what = _work(run_dir, job, rank, patience), "result"
    except BaseException as problem:  # SystemExit and KeyboardInterrupt end the rank, not us
        payload, what = json.dumps(_describe(problem)).encode(), "failure"
    _flush()
    run_dir.deliver(rank, what, payload)
    run_dir.tell(rank=rank, kind=what)
    time.sleep(patience.total_seconds())
    return 0


def _redirect(run_dir: RunDir, rank: int) -> None:
    """Send all that this process prints to its own file, Python and native code alike."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    output = os.open(run_dir.of(rank, "out"), flags)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (output, 1), (output, 2)):
        os.dup2(source, target)
    os.close(output)
    os.close(nothing)
    # Nothing is kept back in a buffer: a killed rank's last words are in the file.
    for name, fd in (("stdout", 1), ("stderr", 2)):
        raw = io.FileIO(fd, "wb", closefd=False)
        stream = io.TextIOWrapper(raw, "utf-8", errors="backslashreplace", write_through=True)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    nobody = io.TextIOWrapper(io.FileIO(0, closefd=False))
    for name in ("stdin", "__stdin__"):
        setattr(sys, name, nobody)

    stack_file = io.FileIO(run_dir.of(rank, "stack"), "wb")
    faulthandler.enable(stack_file, all_threads=False)
    # Runs in C, so it also shows the line of a rank that is blocked inside gloo.
    faulthandler.register(STACK_SIGNAL, stack_file, all_threads=False)


def _settle(job: dict, rank: int) -> None:
    """Take over the kernel's folder, path and environment, and this rank's share of the cores."""
    os.environ.clear()
    os.environ.update(job["environ"])
    threads = str(job["threads"])
    os.environ.update(
        RANK=str(rank),
        LOCAL_RANK=str(rank),
        WORLD_SIZE=str(job["world_size"]),
        LOCAL_WORLD_SIZE=str(job["world_size"]),
        OMP_NUM_THREADS=threads,
        MKL_NUM_THREADS=threads,
        GLOO_SOCKET_IFNAME=_LOOPBACK.get(sys.platform, ""),
        NCCL_SOCKET_IFNAME=_LOOPBACK.get(sys.platform, ""),
    )
    with contextlib.suppress(OSError):
        os.chdir(job["folder"])
    sys.path[:] = job["path"]
    sys.argv = [""]
    torch.set_num_threads(job["threads"])


def _work(run_dir: RunDir, job: dict, rank: int, patience: datetime.timedelta) -> bytes:
    if job["device"] == "cuda":
        torch.cuda.set_device(rank)
    dist.init_process_group(
        job["backend"],
        store=dist.PrefixStore("group", run_dir.store(patience)),
        rank=rank,
        world_size=job["world_size"],
        timeout=patience,
    )
    # Gloo connects at the first operation: done here, so that a rank which never communicates does
    # not leave the others inside a set-up that no line of theirs explains.
    dist.barrier()
    progress.attach(run_dir, rank)
    function, args, kwargs = serialization.unpack(job["call"])
    if (own := run_dir.of(rank, "arguments")).exists():
        args += serialization.unpack(own.read_bytes())
    recorder = None
    if job["observe"]:
        journal = run_dir.of(rank, "journal")
        recorder = Recorder(journal, rank, memory=job["observe"] == "memory")
    with recorder or contextlib.nullcontext():
        value = function(*args, **kwargs)
    try:
        return serialization.pack_result(value)
    except Exception as problem:
        raise UnreadableResult(f"{type(value).__name__}: {problem}") from problem


class UnreadableResult(TypeError):
    """The function returned something that cannot travel between processes."""


def _describe(problem: BaseException) -> dict[str, Any]:
    """The exception as plain data: its class may exist nowhere but in this process."""
    frames, step = [], problem.__traceback__
    while step:
        code = step.tb_frame.f_code
        frames.append([code.co_filename, step.tb_lineno, code.co_name])
        step = step.tb_next
    if isinstance(problem, SyntaxError) and problem.filename:
        frames.append([problem.filename, problem.lineno or 0, "<syntax>"])
    kind = "raised"
    inside: list[list] = []
    if own := own_part(problem):
        problem, inside = own
    else:
        kind = "told"
    if isinstance(problem, SystemExit):
        kind = "exited"
    elif isinstance(problem, UnreadableResult):
        kind = "unreadable"
    return {
        "kind": kind,
        "type": type(problem).__name__,
        "message": _message(problem),
        "caused_by": _chain(problem),
        "frames": inside + frames[::-1],
        "traceback": "".join(traceback.format_exception(problem)),
        "time": time.monotonic(),
    }


def _chain(problem: BaseException) -> list[str]:
    """What `problem` was raised from, or while it was handled, outwards."""
    found: list[str] = []
    step: BaseException | None = problem
    while step and len(found) < _LONGEST_CHAIN:
        step = step.__cause__ or (None if step.__suppress_context__ else step.__context__)
        if step:
            found.append(f"{type(step).__name__}: {_message(step)}")
    return found


def _message(problem: BaseException) -> str:
    try:
        return str(problem)
    except Exception:
        return "(its message could not be printed)"


def rehearse() -> None:
    """Do once, in the launcher, what every rank would do first: look things up and fill caches."""
    with Recorder(os.devnull, 0):
        torch.ones(1).add_(1)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
