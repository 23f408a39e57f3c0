"""One rank of a technique fails at one of its calls: the report names it, nothing is left.

All techniques at all calls take some minutes (`make faults`); `make test` takes a sample.
"""

import functools
import os
import re
import tempfile
from collections.abc import Iterator

import psutil
import pytest
import torch.distributed as dist

from course_lib.ranks import RankError, RankTimeout, collect
from course_lib.ranks.launcher_client import running_launcher
from tests.faults.programs import PROGRAMS, full_disk, with_a_fault

RANKS = 4
ALL = bool(os.environ.get("FAULTS"))
PATIENCE = 6.0 if ALL else 20.0  # seconds; other tests may keep the machine busy
SAMPLE = ["ring", "one_f_one_b", "zero3"]


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch) -> Iterator[None]:
    """Runs keep their files in a folder of the test; at the end nothing of them is there."""
    runs = tmp_path / "runs"
    runs.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(runs))
    yield
    assert list(runs.iterdir()) == []
    assert psutil.Process(running_launcher().process.pid).children(recursive=True) == []
    assert list(collect(dist.get_rank, 2)) == [0, 1]


@functools.cache
def healthy(name: str) -> list[tuple[float, int]]:
    """What each rank returns without a fault, and how many calls it makes."""
    return list(collect(with_a_fault, RANKS, (name, "none", 0, -1), timeout=60))


def faults(name: str) -> list[tuple[int, int]]:
    """(victim, number of its call): all of them, or one in the middle of the last rank's."""
    counts = [count for _, count in healthy(name)]
    if ALL:
        return [(rank, at) for rank, count in enumerate(counts) for at in range(count)]
    return [(RANKS - 1, counts[-1] // 2)]


@pytest.mark.parametrize("name", PROGRAMS if ALL else SAMPLE)
@pytest.mark.parametrize("fault", ["killed", "raised", "stalled", "late"])
def test_a_fault_is_laid_at_the_right_door(name: str, fault: str) -> None:
    for victim, at in faults(name):
        run = (with_a_fault, RANKS, (name, fault, victim, at))
        if fault == "late":
            assert list(collect(*run, timeout=60)) == healthy(name)
            continue
        with pytest.raises(RankError) as caught:
            collect(*run, timeout=PATIENCE if fault == "stalled" else 60)
        report = caught.value.report
        if fault == "stalled":
            assert isinstance(caught.value, RankTimeout)
            running = re.findall(r"^  rank (\d+)  is still running", report, re.MULTILINE)
            assert running == [str(victim)]
        else:
            kinds = {rank: failure.kind for rank, failure in caught.value.failures.items()}
            assert kinds[victim] == fault
            assert list(kinds.values()).count(fault) == 1
            said = "was killed by SIGKILL" if fault == "killed" else "raised RuntimeError: injected"
            assert report.startswith(f"rank {victim} {said}")


def test_a_full_disk_is_named_by_the_rank_that_has_it(tmp_path) -> None:
    collect(full_disk, 2, (-1, 0, str(tmp_path / "whole")), timeout=60)
    assert list((tmp_path / "whole").iterdir())
    victims = [(0, 0), (0, 1), (1, 0)] if ALL else [(1, 0)]
    for victim, at in victims:
        folder = tmp_path / f"{victim}-{at}"
        with pytest.raises(RankError) as caught:
            collect(full_disk, 2, (victim, at, str(folder)), timeout=60)
        assert "No space left on device" in str(caught.value.failures[victim])
