"""Vector clocks for ranges of keys: what of which worker is already in a value.

A vector clock says for each worker up to which of its tasks its pushes have arrived. One for every
key would take n m numbers for n workers and m keys. But keys that are pushed together have the same
clock, so one for every *range* does. An update of a range cuts at most two of the ranges that are
there, into three parts at most in the case of one:

    before    [ 0 ......................... 100 )   {0: 4, 1: 3}
    update    [ 30, 50 )  by worker 1, task 4
    after     [ 0 .. 30 )  [ 30 .. 50 )  [ 50 .. 100 )
               {0: 4, 1: 3} {0: 4, 1: 4}  {0: 4, 1: 3}

What they are for: a worker whose server died does not know whether its last push was copied in
time. It sends it again, and the clock tells whether it is there already. Li et al., OSDI 2014,
section 4.1.
"""

import itertools
from collections.abc import Iterable, Iterator

from .key_ranges import KeyRange, overlaps

NEVER = -1  # before task 0
Clock = dict[int, int]  # worker -> newest task whose push arrived


class RangeClocks:
    """The vector clocks of all keys of `ranges`, kept range by range."""

    def __init__(self, ranges: Iterable[KeyRange], workers: Iterable[int]) -> None:
        never = dict.fromkeys(workers, NEVER)
        self.parts: list[tuple[KeyRange, Clock]] = [(keys, dict(never)) for keys in ranges]

    def update(self, ranges: Iterable[KeyRange], worker: int, task: int) -> None:
        """The push of `ranges` by `worker` in its `task` has arrived."""
        ranges, parts, first = sorted(ranges), [], 0
        for part, clock in self.parts:
            newer = {**clock, worker: max(task, clock[worker])}
            done = part.start
            for both in _within(part, ranges, first):
                if done < both.start:
                    parts.append((KeyRange(done, both.start), clock))
                parts.append((both, newer))
                done = both.stop
            if done < part.stop:
                parts.append((KeyRange(done, part.stop), clock))
            while first < len(ranges) and ranges[first].stop <= part.stop:
                first += 1
        self.parts = _joined(parts)

    def has(self, ranges: Iterable[KeyRange], worker: int, task: int) -> bool:
        """Whether the push of all of `ranges` by `worker` in its `task` has arrived."""
        older = (part for part, clock in self.parts if clock[worker] < task)
        return not overlaps(ranges, older)


def _within(part: KeyRange, ranges: list[KeyRange], first: int) -> Iterator[KeyRange]:
    """What of `ranges`, from number `first` on, lies in `part`."""
    for keys in itertools.islice(ranges, first, None):
        if keys.start >= part.stop:
            return
        if len(both := part.overlap(keys)):
            yield both


def _joined(parts: list[tuple[KeyRange, Clock]]) -> list[tuple[KeyRange, Clock]]:
    """Neighbours with the same clock become one range again."""
    joined = parts[:1]
    for keys, clock in parts[1:]:
        before, other = joined[-1]
        if before.stop == keys.start and clock == other:
            joined[-1] = KeyRange(before.start, keys.stop), clock
        else:
            joined.append((keys, clock))
    return joined
