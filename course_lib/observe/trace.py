"""What all ranks did, read from their journals; kept in a file, or asked questions."""

import dataclasses
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .chrome_trace import chrome_events
from .events import Block, CommEvent, ComputeSpan, Frame, Label, RankWarning
from .journal import RankJournal
from .matching import Matching, match
from .measured_timeline import measured
from .memory_curves import Memory
from .timeline import Timeline
from .traffic import Traffic

_FORMAT, _VERSION = "course_lib.observe.Trace", 2


@dataclasses.dataclass
class Trace:
    """The record of one run.

    events: of rank 0 in order of issue, then of rank 1, and so on.
    warnings: what went silently wrong, by rank.
    compute: what the ranks computed, by rank and in order.
    labels: torch.profiler.record_function, by rank, in the order in which they ended.
    blocks: what lay in memory, by rank; empty unless memory was observed.
    """

    world_size: int
    events: list[CommEvent] = dataclasses.field(default_factory=list)
    warnings: list[RankWarning] = dataclasses.field(default_factory=list)
    compute: list[ComputeSpan] = dataclasses.field(default_factory=list)
    labels: list[Label] = dataclasses.field(default_factory=list)
    blocks: list[Block] = dataclasses.field(default_factory=list)

    def of(self, rank: int) -> list[CommEvent]:
        """The events of one rank, in order of issue."""
        return [event for event in self.events if event.rank == rank]

    def unfinished(self, rank: int) -> list[CommEvent]:
        """What the rank has issued and is not known to be complete."""
        return [event for event in self.of(rank) if event.done is None]

    def waiting(self, rank: int) -> CommEvent | None:
        """What the rank is waiting in, if that is the last thing it is known to have done.

        An operation of C++ code, whose wait is not seen, counts from its issue. What a helper
        thread waits in counts if the rank's main thread has done nothing since: most likely it
        waits for the helper.
        """
        events = self.of(rank)
        for thread in sorted({event.thread for event in events}):
            own = [event for event in events if event.thread in (0, thread)]
            waited = [(e.waited, e) for e in own if e.thread == thread and e.waited is not None]
            since, last = max(waited, key=lambda each: each[0], default=(0.0, None))
            if last and last.done is None and not any(_later(e, since) for e in own):
                return last
        return next((e for e in events if e.native and e.done is None), None)

    def traffic(self) -> Traffic:
        """Bytes and messages between the ranks."""
        return Traffic(self.world_size, self.events)

    def memory(self) -> Memory:
        """Bytes that the ranks held, by what they are for."""
        if not self.blocks:
            raise ValueError(
                "memory was not observed in this run, since that slows it down: ask for it with "
                'run_ranks(..., observe="memory"), or Recorder(..., memory=True)'
            )
        return Memory(self.world_size, self.blocks)

    def timeline(self) -> Timeline:
        """When each rank computed and communicated, on a device of its own (`measured`)."""
        return measured(self.world_size, self.events, self.compute, self.match())

    def within(self, label: str) -> "Trace":
        """The part inside a torch.profiler.record_function label, which all ranks must have."""
        events = [event for event in self.events if label in event.spans]
        compute = [span for span in self.compute if label in span.spans]
        labels = [each for each in self.labels if each.name == label]
        for rank in range(self.world_size):
            if all(each.rank != rank for each in labels):
                raise ValueError(f"rank {rank} has no label {label!r}")
        blocks = self._blocks_within(labels)
        return Trace(self.world_size, events, self.warnings, compute, labels, blocks)

    def _blocks_within(self, labels: list[Label]) -> list[Block]:
        """What lay in memory from the first begin of a rank's labels to their last end."""
        spans = {}
        for rank in range(self.world_size):
            own = [label for label in labels if label.rank == rank]
            spans[rank] = (min(each.start for each in own), max(each.end for each in own))
        cut = (block.between(*spans[block.rank]) for block in self.blocks)
        return [block for block in cut if block.steps]

    def match(self) -> Matching:
        """Which send belongs to which recv, and where collectives do not line up."""
        return match(self.events)

    def to_chrome(self, path: str | os.PathLike) -> None:
        """Write a file for Perfetto or chrome://tracing (`course_lib.observe.chrome_trace`)."""
        content = {"traceEvents": chrome_events(self), "displayTimeUnit": "ms"}
        Path(path).write_text(json.dumps(content), encoding="utf-8")

    def save(self, path: str | os.PathLike) -> None:
        """Write the trace to a file that `load` reads."""
        content = {
            "format": _FORMAT,
            "version": _VERSION,
            "world_size": self.world_size,
            "events": [dataclasses.asdict(event) for event in self.events],
            "warnings": [dataclasses.asdict(warning) for warning in self.warnings],
            "compute": [dataclasses.astuple(span) for span in self.compute],
            "labels": [dataclasses.astuple(label) for label in self.labels],
            "blocks": [dataclasses.astuple(block) for block in self.blocks],
        }
        Path(path).write_text(json.dumps(content), encoding="utf-8")

    @classmethod
    def load(cls, path: str | os.PathLike) -> "Trace":
        """Read what `save` wrote; ValueError for any other file, saying what is wrong with it."""
        try:
            content = json.loads(Path(path).read_text(encoding="utf-8"))
        except ValueError as problem:
            raise ValueError(f"{path} is not a trace, or was cut short: {problem}") from None
        if not isinstance(content, dict) or content.get("format") != _FORMAT:
            raise ValueError(f"{path} is not a trace: it does not say format {_FORMAT!r}")
        if content.get("version") != _VERSION:
            raise ValueError(
                f"{path} is a trace of version {content.get('version')}; "
                f"this course_lib reads version {_VERSION}"
            )
        try:
            events = [CommEvent(**_tuples(fields)) for fields in content["events"]]
            warnings = [RankWarning(**_tuples(fields)) for fields in content["warnings"]]
            compute = [
                ComputeSpan(rank, start, end, seconds, tuple(spans))
                for rank, start, end, seconds, spans in content.get("compute", [])
            ]
            labels = [Label(*fields) for fields in content.get("labels", [])]
            blocks = [
                Block(rank, n, kind, [tuple(step) for step in steps])
                for rank, n, kind, steps in content.get("blocks", [])
            ]
            return cls(content["world_size"], events, warnings, compute, labels, blocks)
        except (KeyError, TypeError) as problem:
            raise ValueError(f"{path} is a damaged trace: {problem}") from None


def read_trace(paths: Mapping[int, str | os.PathLike] | str | os.PathLike) -> Trace:
    """The trace of the ranks whose journals are at `paths`, {rank: path}, or are all in one folder.

    In a folder they are the files named *.journal, and each says its rank itself. A journal that is
    missing or cut short gives what there is: an operation whose end was not written has `done`
    None. Ranks on other machines count seconds from another zero; their times are brought to the
    first rank's, as exactly as the machines agree on the time of day.
    """
    if not isinstance(paths, Mapping):
        paths = _ranks_in(Path(paths))
    journals = [RankJournal(path, rank) for rank, path in sorted(paths.items())]
    _same_clock(journals)
    world_size = max([0, *(j.world_size for j in journals), *(rank + 1 for rank in paths)])
    events = [event for journal in journals for event in journal.events]
    warnings = [warning for journal in journals for warning in journal.warnings]
    compute = [span for journal in journals for span in journal.compute]
    labels = [label for journal in journals for label in journal.labels]
    blocks = [block for journal in journals for block in journal.blocks.values()]
    return Trace(world_size, events, warnings, compute, labels, blocks)


def _ranks_in(folder: Path) -> dict[int, Path]:
    """{rank: journal} of a folder."""
    found: dict[int, Path] = {}
    for path in sorted(folder.glob("*.journal")):
        journal = RankJournal(path, -1)
        if journal.rank in found:
            raise ValueError(f"{path} and {found[journal.rank]} are both of rank {journal.rank}")
        if journal.rank >= 0:  # it came so far as to say so
            found[journal.rank] = path
    if not found:
        raise ValueError(f"{folder} has no *.journal in which a recorder has written its rank")
    return found


def _same_clock(journals: list[RankJournal]) -> None:
    zeros = [journal.zero for journal in journals if journal.zero is not None]
    for journal in journals:
        # Less than a second is the time of day being set, on one and the same machine.
        if journal.zero is not None and abs(journal.zero - zeros[0]) > 1:
            journal.shift(journal.zero - zeros[0])


def _later(event: CommEvent, time: float) -> bool:
    return event.issued > time or (event.done is not None and event.done > time)


def _tuples(fields: dict[str, Any]) -> dict[str, Any]:
    """Lists become tuples again, and frames frames."""
    changed: dict[str, Any] = {}
    for name, value in fields.items():
        if name in ("where", "issued_at"):
            changed[name] = tuple(Frame(**frame) for frame in value)
        elif name == "shapes":
            changed[name] = tuple(tuple(shape) for shape in value)
        else:
            changed[name] = tuple(value) if isinstance(value, list) else value
    return changed
