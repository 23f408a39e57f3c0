"""Checkpoints of ZeRO: saved and loaded at different world sizes and stages, whole or refused."""

import copy
import json
import os
import shutil
from pathlib import Path

import pytest
import torch.distributed as dist

from course_lib.models import NASTY_MODELS
from course_lib.ranks import RankError, collect
from course_lib.techniques.checkpoints import sharded
from course_lib.techniques.checkpoints.consolidated import consolidate, load_whole
from course_lib.techniques.checkpoints.sharded import MANIFEST, Saved, load, save
from course_lib.techniques.zero1 import Zero1
from course_lib.techniques.zero2 import Zero2
from course_lib.techniques.zero3 import Zero3
from tests.techniques.zero_cases import (
    OPTIMIZERS,
    data,
    differences,
    mine,
    mse,
    one_process,
    two_groups,
    whole,
)

NAMES = list(NASTY_MODELS)
HALF = 4


def make(stage: type, name: str, optimizer: str = "adamw"):
    model = NASTY_MODELS[name](7 + dist.get_rank())  # other values than those saved
    return stage(model, OPTIMIZERS[optimizer], param_groups=two_groups(model))


def train(zero, first: int, last: int) -> None:
    for x, y in data(last)[first:]:
        zero.zero_grad()
        mse(zero.model, mine(x), mine(y)).backward()
        zero.step()


def first_half(folder: Path, stage: type, optimizer: str) -> None:
    for name in NAMES:
        model = NASTY_MODELS[name](0)
        zero = stage(model, OPTIMIZERS[optimizer], param_groups=two_groups(model))
        train(zero, 0, HALF)
        save(zero, folder / name)


def second_half(folder: Path, stage: type, optimizer: str) -> dict:
    after = {}
    for name in NAMES:
        zero = make(stage, name, optimizer)
        load(zero, folder / name)
        train(zero, HALF, 2 * HALF)
        after[name] = whole(zero)
    return after


MOVES = [
    (Zero1, 1, Zero3, 4, "adamw"),
    (Zero3, 3, Zero1, 2, "adamw"),
    (Zero2, 4, Zero2, 5, "sgd"),
    (Zero3, 5, Zero3, 3, "sgd"),
]


@pytest.mark.parametrize(("before", "from_ranks", "after", "to_ranks", "optimizer"), MOVES)
def test_goes_on_at_another_world_size(
    tmp_path, before, from_ranks, after, to_ranks, optimizer
) -> None:
    args = (tmp_path, before, optimizer)
    collect(first_half, from_ranks, args, observe=False, timeout=60)
    args = (tmp_path, after, optimizer)
    for found in collect(second_half, to_ranks, args, observe=False, timeout=60):
        for name in NAMES:
            steps = one_process(
                NASTY_MODELS[name](0), OPTIMIZERS[optimizer], grouped=True, steps=2 * HALF
            )
            worst = max(differences([found[name]], list(steps)[-1:]))
            assert worst[0] < 1e-10, (name, worst)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_one_process_goes_on_from_it_and_back(tmp_path, optimizer: str) -> None:
    collect(first_half, 3, (tmp_path, Zero3, optimizer), observe=False, timeout=60)
    states = {}
    for name in NAMES:
        model = NASTY_MODELS[name](7)
        plain = OPTIMIZERS[optimizer](two_groups(model))
        state = consolidate(tmp_path / name)
        model.load_state_dict(state["model"])
        plain.load_state_dict(state["optimizer"])
        found = list(one_process(model, optimizer=plain, steps=2 * HALF, first=HALF))
        oracle = one_process(
            NASTY_MODELS[name](0), OPTIMIZERS[optimizer], grouped=True, steps=2 * HALF
        )
        assert max(differences(found, list(oracle)[HALF:]))[0] < 1e-10
        states[name] = {"model": model.state_dict(), "optimizer": plain.state_dict()}

    def back():
        after = {}
        for name, state in states.items():
            zero = make(Zero3, name, optimizer)
            load_whole(zero, state)
            train(zero, 2 * HALF, 3 * HALF)
            after[name] = whole(zero)
        return after

    for found in collect(back, 2, observe=False, timeout=60):
        for name in NAMES:
            steps = one_process(
                NASTY_MODELS[name](0), OPTIMIZERS[optimizer], grouped=True, steps=3 * HALF
            )
            assert max(differences([found[name]], list(steps)[-1:]))[0] < 1e-10, name


def test_without_groups_parameters_are_in_the_models_order_at_every_stage(tmp_path) -> None:
    """One process numbers the optimizer's state by that order, and stages compare it."""
    batch = data(1)

    def save_and_load():
        zero = Zero2(NASTY_MODELS["odd"](0), OPTIMIZERS["adamw"], bucket_bytes=1)
        mse(zero.model, *map(mine, batch[0])).backward()
        zero.step()
        save(zero, tmp_path)
        other = Zero3(NASTY_MODELS["odd"](1), OPTIMIZERS["adamw"])
        load(other, tmp_path)
        return whole(zero), whole(other)

    for saved, loaded in collect(save_and_load, 2, observe=False):
        assert max(differences([saved], [loaded]))[0] == 0
    model = NASTY_MODELS["odd"](7)
    plain = OPTIMIZERS["adamw"](model.parameters())
    plain.load_state_dict(consolidate(tmp_path)["optimizer"])
    assert [plain.state[p]["exp_avg"].shape for p in model.parameters()] == [
        p.shape for p in model.parameters()
    ]


def save_one(folder: Path) -> dict:
    zero = make(Zero2, "odd")
    train(zero, 0, 1)
    save(zero, folder)
    return whole(zero)


def load_one(folder: Path, name: str = "odd") -> dict:
    zero = make(Zero3, name)
    load(zero, folder)
    return whole(zero)


@pytest.mark.parametrize(("function", "rank"), [("own_state", 1), ("_replace", 0)])
def test_an_interrupted_save_leaves_the_last_one_whole(tmp_path, function: str, rank: int) -> None:
    def power_cut(*_):
        os._exit(3)

    def interrupted():
        zero = make(Zero2, "odd")
        train(zero, 0, 2)
        if dist.get_rank() == rank:
            setattr(sharded, function, power_cut)
        save(zero, tmp_path)

    saved = collect(save_one, 2, (tmp_path,), observe=False, timeout=60)[0]
    with pytest.raises(RankError):
        collect(interrupted, 2, observe=False, timeout=60)
    assert len(list(tmp_path.glob("step-*"))) == 2  # it had begun
    found = collect(load_one, 3, (tmp_path,), observe=False, timeout=60)[2]
    assert max(differences([found], [saved]))[0] == 0
    collect(save_one, 2, (tmp_path,), observe=False, timeout=60)
    assert len(list(tmp_path.glob("step-*"))) == 1  # the next one tidies up


def test_damaged_and_foreign_checkpoints_are_refused(tmp_path) -> None:
    good = tmp_path / "good"
    collect(save_one, 2, (good,), observe=False, timeout=60)
    manifest = json.loads((good / MANIFEST).read_text())
    part = Path(manifest["folder"], "__1_0.distcp")

    def damaged(name: str) -> Path:
        return Path(shutil.copytree(good, tmp_path / name))

    short, gone, foreign, cut = map(damaged, ("short", "gone", "foreign", "cut"))
    with (short / part).open("r+b") as file:
        file.truncate(100)
    (gone / part).unlink()
    (foreign / MANIFEST).write_text('{"weights": "model.safetensors"}')
    (cut / MANIFEST).write_text((good / MANIFEST).read_text()[:50])
    (tmp_path / "empty").mkdir()
    expected = {
        "short": r"__1_0.distcp has 100 bytes, and had \d+ when it was saved",
        "gone": r"__1_0.distcp is missing, and had \d+ when it was saved",
        "foreign": "is of format None, and not 'pieces of flat shards",
        "cut": "is damaged: it is not JSON",
        "empty": "is not a checkpoint: it has no checkpoint.json",
    }
    for name, message in expected.items():
        with pytest.raises(ValueError, match=message):
            Saved.open(tmp_path / name)
        with pytest.raises(ValueError, match=message):
            consolidate(tmp_path / name)
    assert Saved.open(good).manifest == manifest
    with pytest.raises(
        RankError, match=r"inner.weight: the checkpoint has shape \[1, 6\], and the"
    ):
        collect(load_one, 2, (good, "frozen"), observe=False, timeout=60)


def test_a_rank_goes_on_from_its_own_state_and_no_other() -> None:
    def on_ranks(stage: type):
        zero = make(stage, "tied")
        train(zero, 0, 2)
        state = copy.deepcopy(zero.state_dict())
        train(zero, 2, 4)
        twin = make(stage, "tied")
        twin.load_state_dict(state)
        train(twin, 2, 4)
        difference = max(differences([whole(twin)], [whole(zero)]))[0]
        state["rank"] += 1
        with pytest.raises(ValueError, match=f"rank = {state['rank']} and this rank"):
            twin.load_state_dict(state)
        return difference

    for stage in (Zero1, Zero3):
        assert list(collect(on_ranks, 2, (stage,), observe=False, timeout=60)) == [0, 0]
