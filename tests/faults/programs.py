"""A small run of each technique, and what can happen to one rank of it at one of its calls."""

import io
import itertools
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

from course_lib.observe import recorder
from course_lib.techniques.collectives import (
    halving_doubling_all_reduce,
    hierarchical_all_reduce,
    ring_all_reduce,
    tree_all_reduce,
)
from course_lib.techniques.data_parallel import DataParallel
from course_lib.techniques.expert_parallel import (
    ExpertGroups,
    MixtureOfExperts,
    average_gradients,
)
from course_lib.techniques.mesh import Mesh
from course_lib.techniques.pipeline import Pipeline
from course_lib.techniques.schedules import interleaved, one_f_one_b
from course_lib.techniques.zero1 import Zero1
from course_lib.techniques.zero2 import Zero2
from course_lib.techniques.zero3 import Zero3

LATE = 0.3  # seconds


def layers(n: int) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*[nn.Linear(4, 4) for _ in range(n)])


def adamw(groups: list) -> torch.optim.Optimizer:
    return torch.optim.AdamW(groups)


def collective(all_reduce: Callable) -> float:
    return all_reduce(torch.ones(40)).sum().item()


def pipeline(schedule: Callable) -> float:
    n, rank = dist.get_world_size(), dist.get_rank()
    table, stages = (
        (interleaved(n, 4, 2), 2 * n) if schedule is interleaved else (schedule(n, 4), n)
    )
    mine = {stage: layers(1) for stage in range(rank, stages, n)}
    line = Pipeline(mine, table, nn.functional.mse_loss)
    return line.train_step(torch.ones(8, 4), torch.zeros(8, 4)) or 0.0


def data_parallel(_: object) -> float:
    model = DataParallel(layers(3), bucket_bytes=64, first_bucket_bytes=64)
    loss = model(torch.ones(2, 4)).sum()
    loss.backward()
    return loss.item()


def zero(stage: type) -> float:
    model = layers(2)
    sharded_model = stage(model, adamw)
    loss = model(torch.ones(2, 4)).sum()
    loss.backward()
    sharded_model.step()
    return loss.item()


def experts(_: object) -> float:
    groups = ExpertGroups.open(Mesh(data=4, expert=2))
    model = nn.Sequential(layers(1), MixtureOfExperts(4, experts=4, shared=4, group=groups.expert))
    loss = model(torch.ones(3, 4)).sum()
    loss.backward()
    average_gradients(model, groups)
    return loss.item()


PROGRAMS: dict[str, tuple[Callable, object]] = {
    "ring": (collective, ring_all_reduce),
    "tree": (collective, tree_all_reduce),
    "halving_doubling": (collective, halving_doubling_all_reduce),
    "hierarchical": (collective, hierarchical_all_reduce),
    "data_parallel": (data_parallel, None),
    "one_f_one_b": (pipeline, one_f_one_b),
    "interleaved": (pipeline, interleaved),
    "experts": (experts, None),
    "zero1": (zero, Zero1),
    "zero2": (zero, Zero2),
    "zero3": (zero, Zero3),
}


def with_a_fault(name: str, fault: str, victim: int, at: int) -> tuple[float, int]:
    """Run a program; at call number `at` of rank `victim` something happens. Calls, all told."""
    numbers = itertools.count()
    communicate = recorder.Recorder._communicate

    def faulty(self, call, carry_out):
        number = next(numbers)
        if dist.get_rank() == victim and number == at:
            happen(fault)
        return communicate(self, call, carry_out)

    recorder.Recorder._communicate = faulty
    program, argument = PROGRAMS[name]
    return program(argument), next(numbers)


def happen(fault: str) -> None:
    if fault == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    elif fault == "raised":
        raise RuntimeError("injected")
    elif fault == "stalled":
        threading.Event().wait()
    elif fault == "late":
        time.sleep(LATE)


def full_disk(victim: int, at: int, folder: str) -> None:
    """Save a sharded model; on rank `victim` opening file number `at` for writing fails."""
    from course_lib.techniques.checkpoints import sharded  # slow to import

    numbers, opening = itertools.count(), io.open

    def on_a_full_disk(file, mode="r", *args, **kwargs):
        mine = "w" in mode and str(file).startswith(folder) and dist.get_rank() == victim
        if mine and next(numbers) == at:
            raise OSError(28, "No space left on device")
        return opening(file, mode, *args, **kwargs)

    model = layers(2)
    held = Zero3(model, adamw)
    io.open = on_a_full_disk
    sharded.save(held, Path(folder))
