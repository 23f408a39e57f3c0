"""What a run that ended well gives back."""

from collections.abc import Iterator, Sequence
from typing import Any

from course_lib.observe import RankWarning, Trace

from .errors import RunRecord


class RankResults(Sequence):
    """What each rank returned, by rank: `results[2]`, `list(results)`, `a, b = results`.

    `.output` maps a rank to the text it printed, `.trace` is what the ranks did (an
    `observe.Trace`; None if the run was not observed), `.warnings` lists what went silently wrong.
    """

    def __init__(self, values: list[Any], record: RunRecord):
        self._values = values
        self.output: dict[int, str] = record.output
        self.remarks: list[str] = record.remarks
        self.trace: Trace | None = record.trace
        self.warnings: list[RankWarning] = record.warnings

    def __getitem__(self, rank: Any) -> Any:
        return self._values[rank]

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._values)

    def __repr__(self) -> str:
        return "\n".join(f"rank {rank}: {value!r}" for rank, value in enumerate(self._values))
