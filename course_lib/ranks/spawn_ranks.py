"""The launcher: a small process beside the kernel that starts, reaps and ends the ranks.

A kernel must not fork itself once torch has used threads in it, and a fresh Python needs seconds
to import torch. The launcher imports torch once, never computes, and forks a rank in milliseconds.
Where a fork after importing torch is unsafe (macOS) it starts a fresh Python for each rank instead.

The launcher also sees to it that nothing is left. It holds one end of a socket; when the kernel
dies, however it dies, the socket closes and the launcher ends every rank and removes the runs'
folders. Every rank leads a process group of its own, which is killed with it, so a rank's children
go too.
"""

import contextlib
import gc
import importlib
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

from .prctl import adopt_orphans, die_with_parent

# Imported after the first run, or when idle: torch.optim loads it at the first optimizer step, and
# four ranks that each do so keep two cores busy for seconds. The first run does not wait for it.
_IDLE_IMPORTS = ["torch._dynamo"]
_IDLE_SECONDS = 0.5
_MOST_FILES = 4096
_RANK = "from course_lib.ranks import rank_process as r; sys.exit(r.spawned())"


def serve(
    control: socket.socket, confine: Callable[..., str] | None = None, prelude: str = ""
) -> None:
    """Take orders (one JSON object per line) until the kernel closes its end; then leave nothing.

    confine: shuts each rank off before it reads its job (`launcher_client.Confine`).
    prelude: what a rank that is a fresh Python runs first.
    """
    from . import rank_process as rank_module  # imports torch, once for all ranks

    rank_module.rehearse()
    gc.collect()
    gc.freeze()  # a rank is not to copy pages because its collector touches them
    # A rank that is asked where it is before it can answer is not to die of the question.
    signal.signal(rank_module.STACK_SIGNAL, signal.SIG_IGN)
    adopt_orphans()  # a dead rank's children become the launcher's, which then ends them
    wake_read, wake_write = os.pipe()
    for end in (wake_read, wake_write):
        os.set_blocking(end, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake_write)

    own_fds = (control.fileno(), wake_read, wake_write)
    launcher = _Launcher(rank_module, own_fds, confine, prelude)
    sources: list[socket.socket | int] = [control, wake_read]
    pending = b""
    try:
        while True:
            quiet = _IDLE_SECONDS if launcher.idle_imports and not launcher.pids else None
            ready, _, _ = select.select(sources, [], [], quiet)
            if not ready:
                launcher.use_idle_time()
                continue
            if wake_read in ready:
                os.read(wake_read, 4096)
                launcher.reap()
            if control in ready:
                received = control.recv(65536)
                if not received:
                    return
                *lines, pending = (pending + received).split(b"\n")
                for line in lines:
                    launcher.obey(json.loads(line))
    finally:
        for folder in list(launcher.folders):
            launcher.end(folder)
            shutil.rmtree(folder, ignore_errors=True)
        launcher.kill_orphans()


class _Launcher:
    def __init__(
        self,
        rank_module,
        own_fds: tuple[int, ...],
        confine: Callable[..., str] | None,
        prelude: str,
    ):
        self.rank_module = rank_module
        self.own_fds = own_fds
        self.confine = confine
        self.prelude = prelude
        self.pids: dict[int, tuple[str, int]] = {}  # pid -> (run folder, rank), not yet reaped
        self.folders: set[str] = set()
        self.idle_imports = [name for name in _IDLE_IMPORTS if name not in sys.modules]

    def obey(self, order: dict) -> None:
        folder = order.get("folder", "")
        if order["do"] == "start":
            self.folders.add(folder)
            for rank in range(order["world_size"]):
                fresh = rank in order["fresh"]
                start = self._fork if order["start"] == "forkserver" else self._spawn
                pid = start(folder, rank, fresh)
                self.pids[pid] = (folder, rank)
                self._run_dir(folder).tell(rank=rank, kind="started", pid=pid)
        elif order["do"] == "stack":
            for pid, (of, _) in self.pids.items():
                if of == folder:
                    _signal(os.kill, pid, self.rank_module.STACK_SIGNAL)
        elif order["do"] == "end":
            self.end(folder)
            self._run_dir(folder).tell(kind="ended")
            self.folders.discard(folder)
            if not self.folders:
                self.use_idle_time()
        elif order["do"] == "import":
            _import(order["names"])

    def use_idle_time(self) -> None:
        names, self.idle_imports = self.idle_imports, []
        _import(names)

    def _run_dir(self, folder: str):
        return self.rank_module.RunDir(Path(folder))

    def _fork(self, folder: str, rank: int, fresh: bool) -> int:
        told, tell = os.pipe() if self.confine else (-1, -1)
        pid = os.fork()
        if pid:
            if self.confine:
                os.close(tell)
                pid = _confined(told)
            with contextlib.suppress(OSError):
                os.setpgid(pid, pid)  # in both processes, so that neither can be too late
            return pid
        status, run_dir, again = 1, self._run_dir(folder), ""
        try:
            os.setpgid(0, 0)
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for fd in self.own_fds:
                os.close(fd)
            if self.confine:
                os.closerange(3, tell)  # what is inherited is shared
                os.closerange(tell + 1, _MOST_FILES)
                again = self.confine(run_dir, rank, lambda pid: _send(tell, pid))
                _send(tell, 0)  # nothing has gone wrong
                os.close(tell)
            else:
                die_with_parent()  # the launcher may be killed before it could clean up
            if fresh:
                command = self._command(folder, rank, again)
                os.execve(command[0], command, self._environ(rank, fresh))
            status = self.rank_module.main(run_dir, rank)
        except BaseException:
            traceback.print_exc()  # into the rank's own output, if it has come that far
        finally:
            os._exit(status)

    def _spawn(self, folder: str, rank: int, fresh: bool) -> int:
        process = subprocess.Popen(
            self._command(folder, rank, ""),
            env=self._environ(rank, fresh),
            stdin=subprocess.DEVNULL,
            process_group=0,
        )
        process.returncode = 0  # reaped here, by waitpid; Popen is not to wait for it as well
        return process.pid

    def _command(self, folder: str, rank: int, again: str) -> list[str]:
        code = f"import sys; {self.prelude}{again}{_RANK}"
        return [sys.executable, "-c", code, folder, str(rank)]

    def _environ(self, rank: int, fresh: bool) -> dict[str, str]:
        """Another seed for hashes in each fresh rank, and everywhere else the launcher's."""
        return dict(os.environ, PYTHONHASHSEED=str(1 + rank)) if fresh else dict(os.environ)

    def reap(self) -> None:
        """Collect every child that has ended, adopted grandchildren included."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            if pid in self.pids:
                folder, rank = self.pids.pop(pid)
                _signal(os.killpg, pid, signal.SIGKILL)  # what the rank left running
                code = os.waitstatus_to_exitcode(status)
                self._run_dir(folder).tell(rank=rank, kind="exited", code=code)

    def end(self, folder: str) -> None:
        """Kill what is left of a run and wait until it is gone."""
        pids = [pid for pid, (of, _) in self.pids.items() if of == folder]
        for pid in pids:
            _signal(os.killpg, pid, signal.SIGKILL)
        for pid in pids:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)
            self.pids.pop(pid, None)
        if not self.pids:
            self.kill_orphans()

    def kill_orphans(self) -> None:
        """Kill adopted descendants that had left their rank's process group (Linux)."""
        for pid in _children() - self.pids.keys():
            _signal(os.kill, pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)


def _import(names: list[str]) -> None:
    """Import here, once, what each rank would import otherwise: those forked from now on have it.

    A rank that needs what cannot be imported here says so itself.
    """
    for name in names:
        with contextlib.suppress(Exception, SystemExit):
            importlib.import_module(name)
    gc.freeze()


def _send(pipe: int, number: int) -> None:
    os.write(pipe, f"{number}\n".encode())


def _confined(told: int) -> int:
    """The process of a rank that is shut off. Raises `RuntimeError` if it could not be."""
    with open(told) as lines:
        numbers = sorted(map(int, lines.read().split()))
    if len(numbers) != 2 or numbers[0] != 0:
        raise RuntimeError("a rank could not be shut off from the others")
    return numbers[1]


def _children() -> set[int]:
    """This process's children, adopted ones included; none where the system does not tell."""
    with contextlib.suppress(OSError):
        return set(
            map(int, Path("/proc/self/task/", str(os.getpid()), "children").read_text().split())
        )
    return set()


def _signal(send, pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        send(pid, number)


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
