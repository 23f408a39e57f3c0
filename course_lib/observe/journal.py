"""A rank's journal: one JSON list a line, appended while things happen.

Lines go straight to the operating system, so that the journal of a rank which is killed, or stuck
inside gloo, is complete up to that moment. Frames and groups are told once and referred to by
number, and times are `time.monotonic()` in seconds. Several threads may write at once, without a
lock: then lines come in an order that only holds for each thread, and a number may be explained
later than it is used.

    ["clock", zero]             what `time.time()` was when `time.monotonic()` was 0
    ["rank", version, rank, world size]
    ["group", id, name, [global ranks]]
    ["frame", id, file, line, function]
    ["issue", n, op, group id, peer, tag, nbytes, [shapes], dtype, reduce_op, blocking, native,
              time, [frame ids], [spans], [splits] or null, thread]
    ["wait", n, time]           wait() was called
    ["done", n, time, peer]     it returned; the peer is where a message from any rank came from
    ["compute", start, end, seconds, [spans]]
    ["label", name, start, end]
    ["block", n, time, nbytes, saved]       a storage began, changed, or ended with 0 bytes
    ["kind", n, kind]                       what a storage is for
    ["warning", kind, message, [frame ids], [frame ids]]
    ["end", time, whole]        the recorder was closed; whole: not by an exception
"""

import functools
import itertools
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from .events import Block, CommEvent, ComputeSpan, Frame, Label, RankWarning

VERSION = 4
_text = functools.lru_cache(maxsize=4096)(json.dumps)  # the same few strings and shapes recur


class JournalWriter:
    """Begins the journal at `path` and appends to it, until it is closed.

    A process forked from the rank writes nothing, and nor does a hook that runs too late.
    """

    def __init__(self, path: str | os.PathLike):
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC
        self._fd = os.open(path, flags, 0o600)
        self._writer: int | None = os.getpid()
        self._frames: dict[Frame, str] = {}
        self._groups: dict[tuple[str, tuple[int, ...]], str] = {}
        self._numbers = itertools.count()
        self._new: list[str] = []  # lines to write before the next one

    def clock(self, zero: float) -> None:
        self._write(f'["clock",{zero!r}]')

    def rank(self, rank: int, world_size: int) -> None:
        self._write(f'["rank",{VERSION},{rank},{world_size}]')

    def issue(self, e: CommEvent) -> None:
        peer = "null" if e.peer is None else e.peer
        spans = _text(e.spans) if e.spans else "[]"
        splits = _text(e.splits) if e.splits else "null"
        self._write(
            f'["issue",{e.n},"{e.op}",{self._group(e)},{peer},{e.tag},{e.nbytes},{_text(e.shapes)},'
            f'"{e.dtype}",{_text(e.reduce_op)},{_json(e.blocking)},{_json(e.native)},'
            f"{e.issued!r},{self._where(e.where)},{spans},{splits},{e.thread}]"
        )

    def wait(self, n: int, time: float) -> None:
        self._write(f'["wait",{n},{time!r}]')

    def done(self, n: int, time: float, peer: int | None = None) -> None:
        self._write(f'["done",{n},{time!r},{"null" if peer is None else peer}]')

    def compute(self, start: float, end: float, seconds: float, spans: Sequence[str]) -> None:
        # Goes out with the next line: computation ends where something else is written.
        labels = _text(tuple(spans)) if spans else "[]"
        self._new.append(f'["compute",{start!r},{end!r},{seconds!r},{labels}]')

    def label(self, name: str, start: float, end: float) -> None:
        self._write(f'["label",{_text(name)},{start!r},{end!r}]')

    def block(self, n: int, time: float, nbytes: int, saved: bool) -> None:
        self._write(f'["block",{n},{time!r},{nbytes},{_json(saved)}]')

    def kind(self, n: int, kind: str) -> None:
        self._write(f'["kind",{n},"{kind}"]')

    def warning(self, warning: RankWarning) -> None:
        frames = f"{self._where(warning.where)},{self._where(warning.issued_at)}"
        self._write(f'["warning","{warning.kind}",{_text(warning.message)},{frames}]')

    def end(self, time: float, whole: bool) -> None:
        self._write(f'["end",{time!r},{_json(whole)}]')

    def close(self) -> None:
        self._writer = None
        os.close(self._fd)

    def _where(self, frames: tuple[Frame, ...]) -> str:
        return "[" + ",".join([self._frames.get(f) or self._define(f) for f in frames]) + "]"

    def _define(self, frame: Frame) -> str:
        name = self._frames[frame] = str(next(self._numbers))
        location = f"{_text(frame.file)},{frame.line},{_text(frame.function)}"
        self._new.append(f'["frame",{name},{location}]')
        return name

    def _group(self, event: CommEvent) -> str:
        key = (event.group, event.ranks)
        if key not in self._groups:
            number = str(next(self._numbers))
            name = f"{_text(event.group)},{_text(event.ranks)}"
            self._new.append(f'["group",{number},{name}]')
            self._groups[key] = number
        return self._groups[key]

    def _take_new(self) -> Iterator[str]:
        try:
            while self._new:
                yield self._new.pop(0)
        except IndexError:  # another thread was faster
            return

    def _write(self, line: str) -> None:
        if os.getpid() != self._writer:
            return
        if self._new:
            line = "\n".join([*self._take_new(), line])
        # One write a line: a reader sees whole lines, or a last one that is cut short.
        os.write(self._fd, (line + "\n").encode())


def _json(flag: bool) -> str:
    return "true" if flag else "false"


class RankJournal:
    """What the journal at `path` holds; empty if there is none. A last line cut short is left out.

    zero: when its clock began, in seconds since 1970; None if it does not say.
    whole: the rank closed its recorder without an exception.
    """

    def __init__(self, path: str | os.PathLike, rank: int):
        self.rank, self.world_size = rank, 0
        self.zero: float | None = None
        self.warnings: list[RankWarning] = []
        self.compute: list[ComputeSpan] = []
        self.labels: list[Label] = []
        self.blocks: dict[int, Block] = {}
        self.whole = False
        self._frames: dict[int, Frame] = {}
        self._groups: dict[int, tuple[str, tuple[int, ...]]] = {}
        self._issued: dict[int, CommEvent] = {}
        lines = list(_lines(Path(path)))
        for explaining in (True, False):
            for kind, *fields in lines:
                if (kind in ("frame", "group")) == explaining:
                    getattr(self, f"_{kind}")(*fields)
        self.events = [self._issued[n] for n in sorted(self._issued)]

    def _clock(self, zero: float) -> None:
        self.zero = zero

    def shift(self, seconds: float) -> None:
        """Count all times from `seconds` earlier on."""
        for event in self.events:
            event.issued += seconds
            event.waited = event.waited and event.waited + seconds
            event.done = event.done and event.done + seconds
        self.compute = [
            replace(span, start=span.start + seconds, end=span.end + seconds)
            for span in self.compute
        ]
        self.labels = [
            replace(label, start=label.start + seconds, end=label.end + seconds)
            for label in self.labels
        ]
        for block in self.blocks.values():
            block.steps[:] = [(time + seconds, nbytes, kept) for time, nbytes, kept in block.steps]

    def _rank(self, version: int, rank: int, world_size: int) -> None:
        if version != VERSION:
            raise ValueError(f"the journal has version {version}, and this code reads {VERSION}")
        self.rank, self.world_size = rank, world_size

    def _group(self, number: int, name: str, ranks: list[int]) -> None:
        self._groups[number] = (name, tuple(ranks))

    def _frame(self, number: int, file: str, line: int, function: str) -> None:
        self._frames[number] = Frame(file, line, function)

    def _issue(self, n: int, op: str, group: int, *fields: Any) -> None:
        peer, tag, size, shapes, dtype, reduce_op, blocking, native, time, *rest = fields
        where, spans, splits, thread = rest
        self._issued[n] = CommEvent(
            self.rank,
            n,
            op,
            *self._groups[group],
            peer,
            tag,
            size,
            tuple(map(tuple, shapes)),
            dtype,
            reduce_op,
            blocking,
            native,
            time,
            where=self._frames_of(where),
            spans=tuple(spans),
            splits=splits and tuple(splits),
            thread=thread,
        )

    def _wait(self, n: int, time: float) -> None:
        event = self._issued[n]
        event.waited, event.done = time, None

    def _done(self, n: int, time: float, peer: int | None) -> None:
        event = self._issued[n]
        event.done = time
        if peer is not None:
            event.peer = peer

    def _compute(self, start: float, end: float, seconds: float, spans: list[str]) -> None:
        self.compute.append(ComputeSpan(self.rank, start, end, seconds, tuple(spans)))

    def _label(self, name: str, start: float, end: float) -> None:
        self.labels.append(Label(self.rank, name, start, end))

    def _block(self, n: int, *step: Any) -> None:
        self.blocks.setdefault(n, Block(self.rank, n)).steps.append(step)

    def _kind(self, n: int, kind: str) -> None:
        self.blocks.setdefault(n, Block(self.rank, n)).kind = kind

    def _warning(self, kind: str, message: str, where: list[int], issued_at: list[int]) -> None:
        frames = self._frames_of(where), self._frames_of(issued_at)
        self.warnings.append(RankWarning(self.rank, kind, message, *frames))

    def _end(self, time: float, whole: bool) -> None:
        self.whole = whole

    def _frames_of(self, numbers: list[int]) -> tuple[Frame, ...]:
        return tuple(self._frames[number] for number in numbers)


def _lines(path: Path) -> Iterator[list]:
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return
    for line in text.split("\n")[:-1]:
        yield json.loads(line)
