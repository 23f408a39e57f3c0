"""The grader's side: have an answer run in a sandbox, and judge what comes out.

The answer never runs in this process. It gets bytes, believes nothing about them
(`safe_serialization`), and takes its own cases and the exercise's own judge.
"""

import contextlib
import dataclasses
import json
import os
import random
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import types
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from course_lib.checks import hash_order_dependence, registry
from course_lib.checks.examine import examine, has_right_result
from course_lib.checks.exercise import Exercise
from course_lib.checks.run_answer import Job, Outcome, Trouble
from course_lib.checks.verdict import Verdict
from course_lib.ranks import serialization

from . import fork_server, loopback_traffic, safe_serialization
from .answer_program import Program, keep_lines
from .isolation import Sandbox, hidden_from_others
from .library_copy import modules_of_every_run, write_library
from .names import CHECKS
from .resource_limits import Limits
from .sandboxed_run import DEFINED, Task

_START = (
    "import importlib, sys; sys.path.insert(0, sys.argv[1]); "
    f"importlib.import_module({fork_server.__name__!r}).main()"
)
FIRST_USER, _USERS = 64_000, 256  # that no system gives to anybody
_DEFINE_SECONDS = 30.0
_MORE_SECONDS = 20.0  # than an exercise's own time-out, for one case
_PATIENCE = 10.0  # to see everything gone after the run was cancelled


class Grader:
    """Runs and judges answers, several at a time if asked from several threads.

    isolated: whether the system lets runs have namespaces of their own; without them runs have only
    limits, and as root a user of their own.
    """

    def __init__(self, limits: Limits | None = None, isolated: bool | None = None):
        if sys.platform != "linux":
            raise OSError("grading runs on Linux: use a container or a virtual machine elsewhere")
        self._limits = limits or Limits()
        self._folder = Path(tempfile.mkdtemp(prefix="grading-"))
        self._folder.chmod(0o711)
        self._lock = threading.Lock()
        self._cancel_fds: set[int] = set()
        self._closed = False
        try:
            library = write_library(self._folder, ())
        except BaseException:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise
        self._control, theirs = socket.socketpair()
        with theirs:
            self._fork_server = subprocess.Popen(
                [
                    *(sys.executable, "-I", "-B", "-c", _START),
                    *(str(library), str(theirs.fileno())),
                ],
                pass_fds=[theirs.fileno()],
                env=_clean_environment(),
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
            )
        ready = self._control.recv(1)
        if not ready:
            self.close()
            raise SandboxError("the process that starts the runs has ended; see the lines above")
        self.isolated = ready == fork_server.READY if isolated is None else isolated
        if not self.isolated and os.geteuid() == 0 and (folder := hidden_from_others()):
            self.close()
            raise OSError(
                "this system gives runs no namespaces, so they run as another user than root, who "
                f"may not enter {folder}, where Python lies: grade as another user, or with a "
                "Python that everybody can read"
            )

    def verdict(
        self, exercise: Exercise, program: Program, rng: random.Random, imports: Sequence[str]
    ) -> Verdict:
        """Run the program on the cases that `rng` draws, up to the first that goes wrong.

        imports: the statements by which the lesson imports from the course; nothing else of it can
        be imported in the run.
        """
        keep_lines(program)
        with self._lock:
            library = write_library(self._folder, imports)
        hashing = hash_order_dependence.line_of_sources(piece.source for piece in program.pieces)
        with _user_of_its_own() as user:

            def collect(jobs: Sequence[Job]) -> Generator[Outcome]:
                return self._outcomes(exercise, program, jobs, library, user)

            verdict = examine(exercise, rng, collect, hashing)
            if _may_have_a_share(verdict) and has_right_result(exercise, rng, collect, hashing):
                verdict = dataclasses.replace(verdict, right_result=True)
            return verdict

    def close(self) -> None:
        """End the fork server, and with it every run; a verdict that is being taken raises."""
        with self._lock:
            self._closed = True
            self._control.close()
            for cancel_fd in self._cancel_fds:
                os.close(cancel_fd)
            self._cancel_fds.clear()
        self._fork_server.wait(timeout=30)
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> "Grader":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -----------------------------------------------------------------------------------------

    def _outcomes(
        self,
        exercise: Exercise,
        program: Program,
        jobs: Sequence[Job],
        library: Path,
        user: int,
        once_more: bool = True,
    ) -> Generator[Outcome]:
        """One outcome for each job, until one is a trouble; then there are no more.

        once_more: whether a job of which more or less crossed than was recorded is run again. On a
        very busy machine the kernel may send a packet twice, which cannot be told from a hidden
        one: hardly so in the next run as well. That is in a new sandbox, where nothing is left of
        the first.
        """
        folder = tempfile.mkdtemp(prefix="run-", dir=self._folder)
        sandbox = Sandbox((str(library),), user, self.isolated, self._limits)
        order = fork_server.Order(sandbox, str(library), folder)
        results, theirs = os.pipe()
        cancelled, cancel_fd = os.pipe()
        fate, fate_end = os.pipe()
        messages = _Messages(results, fate)
        try:
            with self._lock:
                self._cancel_fds.add(cancel_fd)
                with _file_of(_packed(exercise, program, jobs)) as task:
                    ends = (theirs, cancelled, fate_end, task.fileno())
                    fork_server.send_order(self._control, order, *ends)
            for end in (theirs, cancelled, fate_end):
                os.close(end)
            if messages.next(_DEFINE_SECONDS) != DEFINED:
                what = messages.why or "what it sent cannot be read"
                yield Outcome(trouble=Trouble("signature", f"its cell {what}"))
                return
            for job in jobs:
                message = messages.next(exercise.timeout + _MORE_SECONDS)
                if self._closed:
                    raise RuntimeError("the grader was closed during a run")
                outcome = _read(message, messages.why)
                if self.isolated and once_more and loopback_traffic.breach(job, outcome):
                    run = (exercise, program, [job], library, user)
                    yield from self._outcomes(*run, once_more=False)
                else:
                    yield loopback_traffic.compared(job, outcome) if self.isolated else outcome
        finally:
            with self._lock:
                if cancel_fd in self._cancel_fds:
                    self._cancel_fds.remove(cancel_fd)
                    os.close(cancel_fd)
            messages.drain(_PATIENCE)
            shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _user_of_its_own() -> Iterator[int]:
    """The number of a user that no other run on this machine has, whichever grader started it.

    A socket's name says so to all, and is gone with this process, however it ends.
    """
    for number in range(FIRST_USER, FIRST_USER + _USERS):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as mark:
            try:
                mark.bind(f"\0course_lib: user {number} runs an answer")
            except OSError:  # somebody has it
                continue
            yield number
            return
    raise SandboxError(f"all {_USERS} users for runs are taken")


def _file_of(task: bytes) -> BinaryIO:
    """An open file without a name: ranks are forked from who gets it, before it is read."""
    file = tempfile.TemporaryFile()  # noqa: SIM115 - closed by whoever asked
    file.write(task)
    file.seek(0)
    return file


def _may_have_a_share(verdict: Verdict) -> bool:
    """Whether a promise is what was broken, and the exercise counts the result by itself."""
    contract = verdict.exercise.contract
    # Without the law of causes nobody knows where the result is from.
    separate = contract.separate and contract.causal
    return separate and verdict.failure is not None and verdict.failure.finding.promise


class SandboxError(RuntimeError):
    """This machine could not lock a run in: nobody's answer is to blame."""


class _Messages:
    """What comes out of a run: messages with their lengths in front, and how it ended."""

    def __init__(self, results: int, fate: int):
        self._results, self._fate = results, fate
        self.why = ""  # there is no next message

    def next(self, seconds: float) -> bytes:
        """The next message; b"" if none came, and then `why` says what happened instead."""
        deadline = time.monotonic() + seconds
        head = self._read(8, deadline)
        size = int.from_bytes(head, "big")
        if len(head) == 8 and size <= safe_serialization.LARGEST:
            message = self._read(size, deadline)
            if len(message) == size:
                return message
        if not self.why:
            self.why = "sent something that is no result"
        return b""

    def _read(self, size: int, deadline: float) -> bytes:
        received = bytearray()
        while len(received) < size:
            wait = max(0.0, deadline - time.monotonic())
            if not select.select([self._results], [], [], wait)[0]:
                self.why = "did not finish in time, and was stopped"
                break
            part = os.read(self._results, min(size - len(received), 2**20))
            if not part:
                self.why = self._end()
                break
            received += part
        return bytes(received)

    def _end(self) -> str:
        """How the run ended, by the supervisor's word. Raises `SandboxError` if it never began."""
        said = b""
        while select.select([self._fate], [], [], _PATIENCE)[0]:
            part = os.read(self._fate, 4096)
            if not part:
                break
            said += part
        for line in said.splitlines():
            fate = json.loads(line)
            if fate["reason"] == "sandbox":
                raise SandboxError(fate["detail"])
            if fate["reason"] in ("memory", "disk"):
                what = {"memory": "memory", "disk": "space on the disk"}[fate["reason"]]
                return f"took more {what} than it may, and was stopped"
            return f"ended its process (exit code {fate['detail']}) instead of returning"
        return "ended its process"

    def drain(self, seconds: float) -> None:
        """Wait until the supervisor has seen everything gone; throw away what is still coming."""
        deadline = time.monotonic() + seconds
        left = {self._results, self._fate}
        while self._fate in left and (wait := deadline - time.monotonic()) > 0:
            for ready in select.select(list(left), [], [], wait)[0]:
                if not os.read(ready, 2**20):
                    left.discard(ready)
        os.close(self._results)
        os.close(self._fate)


def _read(message: bytes, why: str) -> Outcome:
    if message:
        try:
            return safe_serialization.load(message)
        except ValueError:
            why = "sent something that is no result"
    return Outcome(trouble=Trouble("failed", f"Your program {why}."))


def _packed(exercise: Exercise, program: Program, jobs: Sequence[Job]) -> bytes:
    """The task without anything that tells right from wrong. Code of the exercise goes by value."""
    bare = tuple(
        dataclasses.replace(
            job, exercise=job.exercise.bare(), laws=tuple(law.bare() for law in job.laws)
        )
        for job in jobs
    )
    own = sys.modules[exercise.on_rank.__module__]  # a teacher's exercise may be anywhere
    return serialization.pack_anonymously(Task(program, bare), [*_staying(), own])


def _staying() -> list[types.ModuleType]:
    """The modules of the checks that no run may import."""
    registry.all_exercises()
    shared = modules_of_every_run()
    return [
        module
        for name, module in list(sys.modules.items())
        if name.startswith(f"{CHECKS}.") and name not in shared
    ]


def _clean_environment() -> dict[str, str]:
    """Nothing of the grader's own: no tokens, no paths, no settings of a scheduler."""
    return {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "TORCH_CPP_LOG_LEVEL": "ERROR",
        "OPENBLAS_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "1",
        "OMP_WAIT_POLICY": "passive",
    }
