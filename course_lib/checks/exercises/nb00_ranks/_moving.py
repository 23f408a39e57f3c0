"""What the exercises that move tensors share: their inputs, and how a result is told apart."""

import random
from dataclasses import replace

import torch

from course_lib.checks import case_inputs, compare_tensors, reference, traffic_limits
from course_lib.checks.exercise import Case, Clue, Finding
from course_lib.checks.format_tensor import glimpse_inputs
from course_lib.text import counted

POINT = Clue(
    "a tensor of no dimensions: tensor[:] = ... fails on it, and tensor.copy_(...) works",
    "dim",
)
ALONE = Clue("one rank has nobody to send to, and nobody to receive from", "rank", "list")


def legible(world_size: int, numel: int, root: int = 0) -> Case:
    """Rank r holds (1, 2, 3, ...) x 10^r, as float32."""
    clue = ""
    tensors = [t.float() for t in case_inputs.by_powers_of_ten(world_size, numel)]
    if root:
        clue = Clue(
            f"the root is rank {root} here, not rank 0", "rank of the current process", "NoneType"
        )
    return _case(tensors, root, clue)


def drawn(
    rng: random.Random,
    world_size: int,
    shape: int | tuple[int, ...],
    dtype: torch.dtype = torch.float32,
    root: int = 0,
    clue: str = "",
) -> Case:
    """Random numbers on every rank."""
    return _case(case_inputs.spread(rng, world_size, shape, dtype), root, clue)


def _case(tensors: list[torch.Tensor], root: int, clue: str) -> Case:
    n, dtype = len(tensors), str(tensors[0].dtype).removeprefix("torch.")
    label = f"{counted(n, 'rank')}, {dtype} tensors of shape {tuple(tensors[0].shape)}"
    return Case(n, label, {"inputs": tensors, "root": root}, clue)


def with_root(case: Case) -> Case:
    """The case with its root in the label."""
    return replace(case, label=f"{case.label}, root = {case.data['root']}")


def nbytes(case: Case) -> int:
    """Bytes of one rank's tensor."""
    return case.data["inputs"][0].nbytes


def moved_wrongly(
    got: object, source: int, rank: int, case: Case, names: str = "rank {}'s tensor"
) -> Finding | None:
    """Why `got`, on `rank`, is not the tensor number `source` of the inputs; None if it is."""
    tensors = case.data["inputs"]
    others = {names.format(i): t for i, t in enumerate(tensors) if i not in (source, rank)}
    if rank != source:
        others["still this rank's own tensor: nothing has been received into it"] = tensors[rank]
    finding = compare_tensors.mismatch(got, reference.moved(tensors[source]), rank, others)
    if finding and type(got) is int and got == source != rank:
        likely = (
            f"{finding.likely}. It is {got}, which is what dist.recv returns: the number of the "
            "sender. The tensor is in the one that recv was given"
        )
        finding = replace(finding, likely=likely)
    return finding and replace(finding, input=glimpse_inputs(dict(enumerate(tensors))))


def received_once(
    rank: int, amount: int, rule: str, more: str, observation, case: Case
) -> Finding | None:
    """`rank` received `amount` tensors, to the byte."""
    total = amount * nbytes(case)
    return traffic_limits.received(observation, rank, total, total, rule, more)
