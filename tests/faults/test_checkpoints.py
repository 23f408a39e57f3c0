"""A disk that is full at a write of a checkpoint: its rank is named, the save before stays."""

import builtins
import io
import itertools
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from course_lib.models import batches
from course_lib.ranks import RankError, collect
from course_lib.ranks.run_ranks import import_ahead
from course_lib.techniques.checkpoints import consolidated, resumable, sharded
from course_lib.techniques.mesh import Mesh
from course_lib.techniques.schedules import one_f_one_b
from course_lib.techniques.three_d import ThreeD
from course_lib.techniques.zero3 import Zero3
from tests.faults.programs import adamw, gpt, layers
from tests.faults.test_techniques import ALL

RANKS = 2
FULL = "No space left on device"
Save = Callable[[Path, int], None]


def save_sharded(folder: Path, step: int) -> None:
    model = layers(2)
    with torch.no_grad():
        model[0].bias.fill_(step)
    sharded.save(Zero3(model, adamw), folder)


def save_resumable(folder: Path, step: int) -> None:
    mesh = Mesh(pipeline=RANKS)
    training = ThreeD(gpt(), mesh, one_f_one_b(RANKS, 2), adamw)
    training.train_step(*next(iter(batches(1, 4))))
    resumable.save(training, folder, step)


def saved_sharded(folder: Path) -> int:
    """The step of the checkpoint that one process finds there."""
    return int(consolidated.consolidate(folder)["model"]["0.bias"][0])


SAVES: dict[str, tuple[Save, Callable[[Path], int]]] = {
    "sharded": (save_sharded, saved_sharded),
    "resumable": (save_resumable, resumable.newest),
}


def save_twice(save: Save, folder: Path, victim: int, at: int) -> list[str]:
    """Save step 1, then step 2 with no room on rank `victim` for its write number `at`.

    Returns the names of the files that were written to, one for each opening and each write.
    """
    save(folder, 1)
    written: list[str] = []

    def need_room(file: str) -> None:
        written.append(Path(file).name)
        if len(written) - 1 == at and dist.get_rank() == victim:
            raise OSError(28, FULL)

    opening = io.open

    def on_a_full_disk(file, mode="r", *args, **kwargs):
        if "w" not in mode or not str(file).startswith(str(folder)):
            return opening(file, mode, *args, **kwargs)
        need_room(file)
        stream = opening(file, mode, *args, **kwargs)
        write = stream.write

        def checked(data):
            need_room(file)
            return write(data)

        stream.write = checked
        return stream

    io.open = builtins.open = on_a_full_disk
    save(folder, 2)
    return written


@pytest.mark.parametrize("kind", SAVES)
def test_a_full_disk_is_named_by_the_rank_that_has_it(tmp_path, kind) -> None:
    import_ahead(sharded.__name__, resumable.__name__, adamw.__module__)
    save, saved = SAVES[kind]
    writes = list(collect(save_twice, RANKS, (save, tmp_path / "whole", 0, -1), timeout=60))
    assert saved(tmp_path / "whole") == 2
    assert all(writes)
    for victim, at in places(writes):
        folder = tmp_path / f"{victim}-{at}"
        with pytest.raises(RankError) as caught:
            collect(save_twice, RANKS, (save, folder, victim, at), timeout=60)
        report = caught.value.report
        assert report.startswith(f"rank {victim} raised "), report
        assert FULL in report.splitlines()[0], report
        assert saved(folder) == 1, (victim, at)


def places(writes: list[list[str]]) -> list[tuple[int, int]]:
    """(victim, number): each file's opening, first, middle and last write; or one, as a sample."""
    found = []
    for rank, files in enumerate(writes):
        start = 0
        for _, same in itertools.groupby(files):
            end = start + len(list(same))
            found += [(rank, at) for at in sorted({start, start + 1, (start + end) // 2, end - 1})]
            start = end
    return found if ALL else found[-2:-1]
