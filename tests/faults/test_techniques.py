"""One rank of a technique fails at one of its calls: the report names it, nothing is left.

`make faults` goes through every line that communicates, on every rank, at the first and the last
time that it is passed; `make test` takes a sample.
"""

import functools
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import torch.distributed as dist

from course_lib.ranks import RankError, RankTimeout, collect
from course_lib.ranks.launcher_client import running_launcher
from course_lib.ranks.run_ranks import import_ahead
from tests.faults.fault_injection import Calls, run
from tests.faults.programs import PROGRAMS
from tests.ranks.leaping_clock import SECONDS, leap_when, only_one_runs

ALL = bool(os.environ.get("FAULTS"))
SAMPLE = ["ring", "one_f_one_b", "zero3"]
NAMES = list(PROGRAMS) if ALL else SAMPLE
KINDS = ["killed", "raised", "stalled"]


@pytest.fixture
def runs(tmp_path, monkeypatch) -> Iterator[Path]:
    """Where runs keep their files; then none is left, nor a process, and a run goes well."""
    folder = tmp_path / "runs"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield folder
    assert list(folder.iterdir()) == []
    assert psutil.Process(running_launcher().process.pid).children(recursive=True) == []
    assert list(collect(dist.get_rank, 2)) == [0, 1]


@functools.cache
def healthy(name: str) -> list[tuple[float, Calls]]:
    """What each rank returns without a fault, and where its calls come from."""
    import_ahead(run.__module__)
    return list(collect(run, PROGRAMS[name][1], (name,), timeout=60))


def places(name: str) -> list[tuple[int, int]]:
    """(victim, number of its call): of each line two, or one in the middle of the last rank's."""
    calls = [calls for _, calls in healthy(name)]
    if not ALL:
        return [(len(calls) - 1, len(calls[-1]) // 2)]
    found = []
    for rank, lines in enumerate(calls):
        first = {line: at for at, line in reversed([*enumerate(lines)])}
        last = {line: at for at, line in enumerate(lines)}
        found += [(rank, at) for at in sorted({*first.values(), *last.values()})]
    return found


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("fault", KINDS)
def test_a_fault_is_laid_at_the_right_door(name, fault, runs) -> None:
    for victim, at in places(name):
        fails(name, fault, victim, at, runs)


def fails(name: str, fault: str, victim: int, at: int, runs: Path) -> None:
    stalled = runs.parent / f"{name}-{fault}-{victim}-{at}"
    job = (name, fault, victim, at, str(stalled))
    with pytest.MonkeyPatch.context() as patch:
        leap_when(patch, lambda: stalled.exists() and only_one_runs(runs))
        with pytest.raises(RankError) as caught:
            collect(run, PROGRAMS[name][1], job, timeout=SECONDS)
    report, place = caught.value.report, f"{fault} at call {at} of rank {victim}"
    if fault == "stalled":
        assert isinstance(caught.value, RankTimeout), (place, report)
        running = re.findall(r"^  rank (\d+)  is still running", report, re.MULTILINE)
        assert running == [str(victim)], (place, report)
    else:
        kinds = {rank: failure.kind for rank, failure in caught.value.failures.items()}
        said = "was killed by SIGKILL" if fault == "killed" else r"raised .*ValueError: injected"
        assert re.match(rf"rank {victim} {said}", report), (place, report)
        assert [rank for rank in kinds if kinds[rank] == fault] == [victim], (place, report)


@pytest.mark.parametrize("name", NAMES)
def test_a_late_rank_changes_nothing(name, runs) -> None:
    for victim in range(PROGRAMS[name][1]) if ALL else [0]:
        late = collect(run, PROGRAMS[name][1], (name, "late", victim), timeout=60)
        assert list(late) == healthy(name), victim
