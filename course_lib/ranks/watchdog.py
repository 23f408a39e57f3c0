"""The kernel's side of a run: wait for the ranks, notice when they are stuck, end them.

A run is over when every rank has delivered its result, when one of them failed and the others have
settled, when all that are left wait for each other, or when the time is up.
"""

import json
import os
import select
import socket
import time
from dataclasses import dataclass, field
from typing import Any

from course_lib.observe import Frame

from .hang_detection import HangDetector, size_of
from .launcher_client import Launcher, LauncherEnded
from .progress import Bar
from .run_directory import RunDir
from .source_location import read_dump

_TICK = 0.25
_START = 60.0  # the most that starting the processes may take; the time-out counts from there
# A failed rank's peers get this long to fail as well or to come to a halt, so that the report can
# say where each of them was. The usual case, all of them failing alike, takes milliseconds.
_SETTLE = 1.0
_OUTPUT_LIMIT = 64 * 2**20


@dataclass
class Outcome:
    """How the run ended; rank by rank what is known."""

    world_size: int
    delivered: dict[int, str] = field(default_factory=dict)  # rank -> "result" or "failure"
    exited: dict[int, int] = field(default_factory=dict)  # rank -> exit code, without delivering
    broken: dict[int, str] = field(default_factory=dict)  # rank -> why it could not deliver
    deadlocked: bool = False
    out_of_time: bool = False
    interrupted: bool = False
    flooded: int | None = None  # the rank that printed without end

    @property
    def unfinished(self) -> list[int]:
        done = self.delivered.keys() | self.exited.keys()
        return [rank for rank in range(self.world_size) if rank not in done]

    @property
    def complete(self) -> bool:
        return all(self.delivered.get(rank) == "result" for rank in range(self.world_size))


class Watch:
    """Follows one run from start to end through its event pipe."""

    def __init__(self, run_dir: RunDir, launcher: Launcher, world_size: int, observed: bool):
        self.run_dir, self.launcher = run_dir, launcher
        # By descriptor: whose events they are, None for those of the run, and a line's beginning.
        self.pipes: dict[int, tuple[int | None, bytes]] = {_opened(run_dir.events): (None, b"")}
        for rank in range(world_size):
            self.pipes[_opened(run_dir.of(rank, "events"))] = rank, b""
        self.outcome = Outcome(world_size)
        self.pids: dict[int, int] = {}
        self.bar = Bar(world_size)
        self.ended = False
        self.detector = HangDetector(run_dir, self.pids, observed, self._stack)

    def until_over(self, timeout: float) -> Outcome:
        deadline = time.monotonic() + timeout + _START
        begun = time.monotonic()
        settled_by = None
        outcome = self.outcome
        while not outcome.complete:
            now = time.monotonic()
            if len(self.pids) < outcome.world_size:
                begun = now  # the launcher may still be importing torch
            else:
                deadline = min(deadline, begun + timeout)
            if any(kind == "failure" for kind in outcome.delivered.values()) or outcome.exited:
                settled_by = settled_by or now + _SETTLE
                if now >= settled_by or self.detector.all_blocked(outcome.unfinished):
                    break
            if now >= deadline:
                outcome.out_of_time = True
                break
            self._receive(min(_TICK, deadline - now, (settled_by or deadline) - now))
            if settled_by is None and self.detector.deadlocked(outcome.unfinished):
                outcome.deadlocked = True
                break
            if self._flooded():
                break
        return outcome

    def until_over_or_interrupted(self, timeout: float) -> Outcome:
        """`until_over`; a keyboard interrupt is one more way in which a run may end."""
        try:
            return self.until_over(timeout)
        except KeyboardInterrupt:
            self.outcome.interrupted = True
            return self.outcome

    def ask_for_stacks(self, patience: float = 0.5) -> None:
        """Let every unfinished rank write down where it is, blocked in C++ or not."""
        waiting = [self.run_dir.of(rank, "stack") for rank in self.outcome.unfinished]
        before = {path: size_of(path) for path in waiting}
        self.launcher.order("stack", self.run_dir)
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline and any(size_of(p) == before[p] for p in waiting):
            time.sleep(0.01)
        time.sleep(0.02)  # a dump is a few writes

    def end(self) -> None:
        """Kill what still runs and wait until the launcher says that nothing is left."""
        self.bar.close()
        try:
            if self.launcher.alive:
                self.launcher.order("end", self.run_dir)
                deadline = time.monotonic() + 5
                while not self.ended and self.launcher.alive and time.monotonic() < deadline:
                    self._receive(_TICK)
        finally:
            for pipe in self.pipes:
                os.close(pipe)

    def _stack(self, rank: int) -> list[Frame]:
        self.ask_for_stacks()
        return read_dump(self.run_dir.of(rank, "stack").read_text())

    def _receive(self, patience: float) -> None:
        sources: list[socket.socket | int] = [*self.pipes, self.launcher.control]
        ready, _, _ = select.select(sources, [], [], max(0.0, patience))
        if self.launcher.control in ready and not self.launcher.alive:
            raise LauncherEnded(
                f"the process that starts the ranks has ended: {self.launcher.last_words}"
            )
        for pipe in self.pipes.keys() & set(ready):
            rank, pending = self.pipes[pipe]
            *lines, pending = (pending + os.read(pipe, 65536)).split(b"\n")
            self.pipes[pipe] = rank, pending
            for line in lines:
                if rank is None:
                    self.ended |= json.loads(line)["kind"] == "ended"
                else:
                    self._note(rank, **json.loads(line))

    def _note(self, rank: int, kind: str, **details: Any) -> None:
        if kind == "started":
            self.pids[rank] = details["pid"]
        elif kind in ("result", "failure"):
            self.outcome.delivered[rank] = kind
        elif kind == "exited":
            if rank not in self.outcome.delivered:
                self.outcome.exited[rank] = details["code"]
        elif kind == "broken":
            self.outcome.broken[rank] = details["why"]
        elif kind == "step":
            self.bar.update(rank, details["done"], details["total"])

    def _flooded(self) -> bool:
        for rank in range(self.outcome.world_size):
            if size_of(self.run_dir.of(rank, "out")) > _OUTPUT_LIMIT:
                self.outcome.flooded = rank
                return True
        return False


def _opened(pipe: os.PathLike) -> int:
    """For reading and writing, so that it never looks closed between two writers."""
    return os.open(pipe, os.O_RDWR | os.O_NONBLOCK)
