"""The process from which all graded runs are forked: it has imported torch once, and no answer.

It runs from a copy of the library in which no answer stands, keeps no secret, and does nothing but
fork. For each order a supervisor is made, and below it, in the sandbox, the run:

    fork server ── supervisor ── first process of the sandbox ── sandboxed run ── launcher ── ranks

The supervisor stays outside: it ends the run when the other end of `cancel_fd` is closed (by the
grader or by its death), when the run takes too much memory, or when the sandboxed run is done; then
it tells the run's fate.
"""

import contextlib
import functools
import gc
import importlib
import json
import os
import pickle
import select
import shutil
import signal
import socket
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path

from course_lib.ranks import launcher_client, prctl
from course_lib.ranks.run_directory import RunDir

from . import isolation, rank_confinement, safe_serialization, sandboxed_run
from .isolation import Sandbox
from .names import COURSE, TECHNIQUES

READY, READY_WITHOUT_NAMESPACES = b"!", b"?"
_TICK = 0.2


@dataclass(frozen=True)
class Order:
    """One run: the sandbox, the copy of the library to import from, a folder.

    What is to be run is in none of the processes that ranks are forked from: it comes as a file.
    """

    sandbox: Sandbox
    library: str
    folder: str


def send_order(
    control: socket.socket, order: Order, results: int, cancel_fd: int, fate: int, task: int
) -> None:
    """Ask the fork server at the other end of `control` for a run; it gets copies of the pipes.

    results: written by the sandboxed run; cancel_fd: the run is ended when its other end is closed;
    fate: written by the supervisor at the end, one line of JSON; task: the file of the `Task`.
    """
    body = pickle.dumps(order)
    socket.send_fds(control, [len(body).to_bytes(8, "big")], [results, cancel_fd, fate, task])
    control.sendall(body)


def serve(control: socket.socket) -> None:
    """Say what kind of runs there will be, then fork a supervisor for each order, to the end."""

    import course_lib.ranks.rank_process  # noqa: F401 - what every rank needs is imported once, here

    importlib.import_module("torch._dynamo")  # torch.optim loads it at its first step
    gc.collect()
    gc.freeze()
    control.sendall(READY if isolation.available() else READY_WITHOUT_NAMESPACES)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # supervisors are reaped by the system
    while True:
        head, pipes, _, _ = socket.recv_fds(control, 8, 4)
        if not head:
            return
        body = bytearray()
        while left := int.from_bytes(head, "big") - len(body):
            if not (part := control.recv(left)):
                return
            body += part
        if not os.fork():
            control.close()
            try:
                _supervise(pickle.loads(body), *pipes)
            except BaseException:
                _tell(pipes[2], "sandbox", traceback.format_exc()[-2000:])
            finally:
                os._exit(0)
        for pipe in pipes:
            os.close(pipe)


def _supervise(order: Order, results: int, cancel_fd: int, fate: int, task: int) -> None:
    """Start the run, and outlive it."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    processes = _Processes()
    if order.sandbox.namespaces:
        isolation.leave_namespaces()
    else:
        prctl.adopt_orphans()
    alive, held = os.pipe()  # `held` is closed when the child has ended, and not before
    child = os.fork()
    if not child:
        processes.close()
        os.close(cancel_fd)
        os.close(alive)
        _enter(order, results, fate, task, held)
    os.close(results)
    os.close(task)
    os.close(held)
    reason, status = _watch(child, alive, cancel_fd, order, processes)
    if status is None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        status = os.waitpid(child, 0)[1]
    _kill_all(processes)
    _tell(fate, reason, os.waitstatus_to_exitcode(status))


def _watch(
    child: int, alive: int, cancel_fd: int, order: Order, processes: "_Processes"
) -> tuple[str, int | None]:
    """Why the run is over, and the status of the child if it has ended by itself."""
    shared = processes.memory(os.getpid())  # what each one of the run has from the fork server
    while True:
        ready, _, _ = select.select([cancel_fd, alive], [], [], _TICK)
        if alive in ready:
            return "ended", os.waitpid(child, 0)[1]
        if cancel_fd in ready:
            return "stopped", None
        used = sum(max(0, processes.memory(pid) - shared) for pid in processes.below(os.getpid()))
        if used > order.sandbox.limits.memory:
            return "memory", None
        if not order.sandbox.namespaces and _size_of(order.folder) > order.sandbox.limits.disk:
            return "disk", None


def _enter(order: Order, results: int, fate: int, task: int, held: int) -> None:
    """In the first process: enter the sandbox, fork the run, wait for it, and never return.

    The end of the first process of a namespace is the end of all others in it.
    """
    code = 1
    try:
        _close_in(order)
        run_pid = os.fork()
        if run_pid:
            os.close(results)
            os.close(task)
            code = os.waitstatus_to_exitcode(os.waitpid(run_pid, 0)[1])
            code = code if code >= 0 else 128 - code
        else:
            os.close(held)
            safe_serialization.carry_results()
            if order.sandbox.namespaces:
                RunDir.use_places(isolation.RANKS, isolation.PLACES)
            confine, prelude = _confine(order.sandbox), _prelude(order.library)
            launcher_client.fork_launcher(results, fate, task, confine=confine, prelude=prelude)
            sandboxed_run.run(task, results)
            code = 0
    except BaseException:  # of our own code: answers run in the ranks, and nowhere else
        with contextlib.suppress(OSError):
            _tell(fate, "sandbox", traceback.format_exc()[-2000:])
    finally:
        os._exit(code)


def _confine(sandbox: Sandbox) -> launcher_client.Confine | None:
    return functools.partial(rank_confinement.confine, sandbox) if sandbox.namespaces else None


def _prelude(library: str) -> str:
    """What a rank that is a fresh Python lacks of what the others have from this process."""
    return (
        f"sys.path[:1] = [{library!r}]; "
        f"from {safe_serialization.__name__} import carry_results; carry_results(); "
    )


def _close_in(order: Order) -> None:
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(nothing, standard)
    isolation.enter(order.sandbox, order.folder)
    _use_library(order.library)


def _tell(fate: int, reason: str, detail: object) -> None:
    os.write(fate, json.dumps({"reason": reason, "detail": detail}).encode() + b"\n")


def _use_library(library: str) -> None:
    """Import what is still to be imported of the course from there, and all techniques anew.

    The fork server's own techniques lack the names that only this lesson needs.
    """
    sys.path[0] = library
    for name, module in list(sys.modules.items()):
        if f"{name}.".startswith(f"{TECHNIQUES}."):
            del sys.modules[name]
        elif name.split(".")[0] == COURSE and hasattr(module, "__path__"):
            module.__path__[:] = [f"{library}/{name.replace('.', '/')}"]
    vars(sys.modules[COURSE]).pop(TECHNIQUES.removeprefix(f"{COURSE}."), None)
    importlib.invalidate_caches()


def _kill_all(processes: "_Processes") -> None:
    """Without a namespace, what the run has left is now this process's own, and is killed."""
    for _ in range(100):
        left = processes.below(os.getpid())
        if not left:
            return
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, 0)[0]:
                pass


class _Processes:
    """The machine's processes by their numbers here.

    A supervisor ends up with the file system of its run, where /proc knows only those inside, by
    other numbers. So this keeps the one that was there before.
    """

    def __init__(self) -> None:
        self._proc = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY)

    def close(self) -> None:
        os.close(self._proc)

    def below(self, pid: int) -> list[int]:
        """All that descend from a process."""
        found, new = [], [pid]
        while new:
            new = [child for parent in new for child in self._children(parent)]
            found += new
        return found

    def memory(self, pid: int) -> int:
        """Bytes that belong to this process only, or are shared memory."""
        lines = self._read(f"{pid}/status").splitlines()
        sizes = [line.split()[1] for line in lines if line.startswith(("RssAnon", "RssShmem"))]
        return sum(map(int, sizes)) * 1024

    def _children(self, pid: int) -> list[int]:
        with contextlib.suppress(OSError):
            tasks = os.open(f"{pid}/task", os.O_RDONLY | os.O_DIRECTORY, dir_fd=self._proc)
            try:
                threads = os.listdir(tasks)
            finally:
                os.close(tasks)
            texts = [self._read(f"{pid}/task/{thread}/children") for thread in threads]
            return [int(child) for text in texts for child in text.split()]
        return []

    def _read(self, name: str) -> str:
        with contextlib.suppress(OSError):
            file = os.open(name, os.O_RDONLY, dir_fd=self._proc)
            with open(file, encoding="utf-8") as text:
                return text.read()
        return ""


def _size_of(folder: str) -> int:
    sizes = 0
    for parent, _, files in os.walk(folder):
        for file in files:
            with contextlib.suppress(OSError):
                sizes += os.lstat(os.path.join(parent, file)).st_blocks * 512
    return sizes


def main() -> None:
    """`python -I -c "..." LIBRARY DESCRIPTOR`, as `grading` starts it.

    The folder around the library is the grader's, and goes even if the grader was killed.
    """
    try:
        serve(socket.socket(fileno=int(sys.argv[2])))
    finally:
        shutil.rmtree(Path(sys.argv[1]).parent, ignore_errors=True)
