"""The kernel's end of the launcher: started when first needed, one for each process."""

import atexit
import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable
from pathlib import Path

from .run_directory import RunDir

_SERVE = (
    "import socket, sys; from course_lib.ranks.spawn_ranks import serve; "
    "serve(socket.socket(fileno=int(sys.argv[1])))"
)
Confine = Callable[[RunDir, int, Callable[[int], None]], str]
"""Shuts a rank off: confine(run_dir, rank, tell).

It may go on in a child, whose process id as the launcher knows it is then told; the process that
called has to end itself. Returned are statements, each with a semicolon, by which a fresh Python in
the place of this process knows that it is shut off."""

_COURSE = Path(__file__).parents[2]

_lock = threading.Lock()
_launcher: "Launcher | None" = None


class Launcher:
    """A running launcher process and the socket that keeps it alive."""

    process: "subprocess.Popen[bytes] | _Child"

    def __init__(self) -> None:
        self.owner = os.getpid()
        self.imported: set[str] = set()
        self.control, theirs = socket.socketpair()
        environ = dict(
            os.environ,
            PYTHONPATH=os.pathsep.join(filter(None, [str(_COURSE), os.environ.get("PYTHONPATH")])),
            TORCH_CPP_LOG_LEVEL="ERROR",  # read once, when torch is imported
            OPENBLAS_NUM_THREADS="1",  # no helper threads in a process that forks, whatever
            OMP_NUM_THREADS="1",  # is imported there; a rank takes its share of the cores itself
            # Threads that wait for each other leave the core to other ranks, instead of spinning.
            OMP_WAIT_POLICY=os.environ.get("OMP_WAIT_POLICY", "passive"),
            # Large pages: a fork copies the table of pages, and so takes half the time.
            GLIBC_TUNABLES=os.environ.get("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1"),
            # The order of a set of names is the same in every run, as inputs of checks are.
            PYTHONHASHSEED="0",
            PYTHONUTF8="1",  # torch refuses names of files that Python could not decode
            COURSE_LIB_LAUNCHER="1",
        )
        environ.pop("PYTHONWARNINGS", None)  # to import torch with warnings as errors would fail
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - closed in close()
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-c", _SERVE, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._stderr,
                # Away from the kernel's process group, which Jupyter interrupts as a whole.
                start_new_session=True,
            )

    @property
    def alive(self) -> bool:
        return self.owner == os.getpid() and self.process.poll() is None

    @property
    def last_words(self) -> str:
        """What the launcher wrote before it ended; for the report of its death."""
        self._stderr.seek(0)
        return self._stderr.read().decode(errors="replace").strip() or "it left no message"

    def order(self, do: str, run_dir: RunDir, **details: object) -> None:
        message = json.dumps({"do": do, "folder": str(run_dir.path), **details})
        self.control.sendall(message.encode() + b"\n")

    def import_ahead(self, *names: str) -> None:
        """Have modules of the course imported once in the launcher, not once in each rank."""
        if new := sorted(set(names) - self.imported):
            self.imported.update(new)
            self.control.sendall(json.dumps({"do": "import", "names": new}).encode() + b"\n")

    def close(self) -> None:
        if self.owner == os.getpid():
            self.control.close()
            self.process.wait(timeout=10)
            self._stderr.close()


class _ForkedLauncher(Launcher):
    """A launcher that is a fork of this process, and so has imported what this process has."""

    def __init__(self, close: tuple[int, ...], confine: Confine | None, prelude: str) -> None:
        from .spawn_ranks import serve

        self.owner = os.getpid()
        self.imported = set(sys.modules)
        self.control, theirs = socket.socketpair()
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - closed in close()
        child = os.fork()
        if not child:
            try:
                os.setsid()
                os.dup2(self._stderr.fileno(), 2)
                os.environ["COURSE_LIB_LAUNCHER"] = "1"
                self.control.close()
                for descriptor in close:
                    os.close(descriptor)
                serve(theirs, confine, prelude)
            except BaseException:
                traceback.print_exc()  # into what `last_words` reads
            finally:
                os._exit(0)
        theirs.close()
        self.process = _Child(child)


class _Child:
    """What `Launcher` needs of a `subprocess.Popen`, for a child that was forked."""

    def __init__(self, pid: int):
        self.pid = pid

    def poll(self) -> int | None:
        try:
            return 0 if os.waitpid(self.pid, os.WNOHANG)[0] else None
        except ChildProcessError:
            return 0

    def wait(self, timeout: float) -> None:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, 0)


def fork_launcher(*close: int, confine: Confine | None = None, prelude: str = "") -> None:
    """Make the launcher of this process by a fork, where no thread has been started yet.

    Spares the second in which a fresh launcher imports torch; call it before anything that
    computes. close: descriptors that are none of the launcher's business. confine: called in each
    rank's process before it reads its job (`Confine`). prelude: what a rank that is a fresh Python
    runs before it can import the course, statements that each end with a semicolon.
    """
    global _launcher
    _launcher = _ForkedLauncher(close, confine, prelude)


class LauncherEnded(RuntimeError):
    """The process that starts the ranks is gone: no rank's program is to blame."""


def running_launcher() -> Launcher:
    """The launcher of this process, started if there is none (after a fork: a new one)."""
    global _launcher
    with _lock:
        if _launcher is None or not _launcher.alive:
            _launcher = Launcher()
            atexit.register(_launcher.close)
        return _launcher
