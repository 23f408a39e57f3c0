"""Which samples a rank reads in an epoch: every sample once, in a new order every epoch.

shard_indices(samples, rank, world_size, epoch, seed) -> list of indices
    The same order of all samples on every rank, shuffled by seed and epoch; this rank's part of it.
    Nothing is left out or read twice, parts differ by at most one sample, and torch's global random
    state stays as it was. No communication.
"""

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from course_lib.checks.call_answer import kind_of, plain
from course_lib.checks.contract import Contract
from course_lib.checks.exercise import Case, Exercise, Finding, Observation
from course_lib.text import counted

_EPOCHS = 3
_SAME_ORDER = "The order may depend on seed and epoch, not on the rank"


def _cases(rng: random.Random) -> list[Case]:
    shapes = [(12, 2), (25, 2), (30, 4), (17, 3), (20, 1), (2, 3)]
    return [
        Case(
            world_size,
            f"{samples} samples on {counted(world_size, 'rank')}, {_EPOCHS} epochs",
            {"samples": samples, "seed": rng.randrange(10**6)},
            "a rank without samples returns an empty list" if samples < world_size else "",
        )
        for samples, world_size in shapes
    ]


def _on_rank(answer: Callable, case: Case) -> dict[str, Any]:
    rank, n, data = dist.get_rank(), case.world_size, case.data
    torch.manual_seed(1000 + rank)  # as in real programs, ranks differ
    before = torch.get_rng_state()

    def indices(epoch: int, seed: int, rank: int = rank) -> Any:
        found = answer(data["samples"], rank, n, epoch, seed)
        return found.tolist() if isinstance(found, torch.Tensor) else plain(found)

    return {
        "epochs": [indices(epoch, data["seed"]) for epoch in range(_EPOCHS)],
        "untouched": bool(torch.equal(torch.get_rng_state(), before)),
        "again": indices(0, data["seed"]),
        "other seed": indices(0, data["seed"] + 50),
        "next rank": indices(0, data["seed"], (rank + 1) % n),
    }


def _judge(case: Case, observation: Observation) -> Finding | None:
    return (
        _form(case, observation)
        or _repeats(observation)
        or _shares(case, observation)
        or _orders(case, observation)
        or _of_arguments(observation)
        or _state(observation)
    )


def _form(case: Case, observation: Observation) -> Finding | None:
    samples = case.data["samples"]
    for rank, seen in enumerate(observation.values):
        for found in [*seen["epochs"], seen["again"], seen["other seed"], seen["next rank"]]:
            if isinstance(found, list | tuple) and any(isinstance(i, torch.Tensor) for i in found):
                likely = "a list of numbers is expected, these are tensors: tolist() makes numbers"
                return Finding(likely, rank, got=f"{found}")
            if not isinstance(found, list | tuple) or not all(type(i) is int for i in found):
                return Finding("a list of indices is expected", rank, got=kind_of(found))
            for index in found:
                if not 0 <= index < samples:
                    return Finding(
                        f"{index} is not a sample",
                        rank,
                        expected=f"0 to {samples - 1}",
                        got=f"{found}",
                    )
    return None


def _of_arguments(observation: Observation) -> Finding | None:
    """Whoever asks gets the part of the rank that is asked for."""
    n = len(observation.values)
    for rank, seen in enumerate(observation.values):
        other = (rank + 1) % n
        if seen["next rank"] != (want := observation.values[other]["epochs"][0]):
            return Finding(
                f"asked for rank {other} of {n}, on rank {rank}, it gives other samples than it "
                f"gives rank {other}: go by the arguments `rank` and `world_size`, so that it can "
                "be called anywhere",
                rank,
                expected=f"{want}",
                got=f"{seen['next rank']}",
            )
    return None


def _repeats(observation: Observation) -> Finding | None:
    for rank, seen in enumerate(observation.values):
        if seen["again"] != seen["epochs"][0]:
            return Finding(
                "called twice for the same epoch it gives two orders: it draws from torch's global "
                "random state, which differs from rank to rank. Use a generator of your own, "
                "torch.Generator().manual_seed(...)",
                rank,
                expected=f"{seen['epochs'][0]}",
                got=f"{seen['again']}",
            )
    return None


def _shares(case: Case, observation: Observation) -> Finding | None:
    samples = case.data["samples"]
    for epoch in range(_EPOCHS):
        parts = [seen["epochs"][epoch] for seen in observation.values]
        shown = "\n".join(f"rank {rank}: {list(part)}" for rank, part in enumerate(parts))
        counts = Counter(index for part in parts for index in part)
        twice = sorted(index for index, count in counts.items() if count > 1)
        missing = sorted(set(range(samples)) - set(counts))
        if twice and not missing:
            return Finding(
                f"{sum(counts.values())} indices for {samples} samples: sample {twice[0]} is read "
                "twice, to make the parts equal. Its loss would count double; let the parts differ "
                "by one",
                got=shown,
            )
        if twice:
            owners = [rank for rank, part in enumerate(parts) if twice[0] in part]
            return Finding(
                f"sample {twice[0]} is read by ranks {owners[0]} and {owners[-1]}, and sample "
                f"{missing[0]} by none: the ranks do not cut up the same order. " + _SAME_ORDER,
                got=shown,
            )
        if missing:
            return Finding(
                f"sample {missing[0]} is read by no rank: what {case.world_size} ranks cannot "
                "share equally is left over, and somebody has to read it",
                got=shown,
            )
        lengths = [len(part) for part in parts]
        if max(lengths) - min(lengths) > 1:
            return Finding(
                "the parts differ by more than one sample, so ranks wait for the longest: "
                "order[rank::world_size] shares evenly",
                expected=f"{min(lengths) + 1} at most where another rank has {min(lengths)}",
                got=f"{lengths}",
            )
    return None


def _orders(case: Case, observation: Observation) -> Finding | None:
    if case.data["samples"] < 10:
        return None  # two orders may be equal by chance
    epochs = [[seen["epochs"][e] for seen in observation.values] for e in range(_EPOCHS)]
    if all(list(part) == sorted(part) for part in epochs[0]):
        return Finding(
            "the samples come in the order of the data set: shuffle them, for example with "
            "torch.randperm(samples, generator=...)",
            0,
            got=f"{epochs[0][0]}",
        )
    for one, other in ((0, 1), (1, 2), (0, 2)):
        if epochs[one] == epochs[other]:
            return Finding(
                f"epochs {one} and {other} have the same order, so the same batches come again and "
                "again: let the seed of the generator depend on the epoch",
                0,
                got=f"{epochs[one][0]} in both",
            )
        if [set(part) for part in epochs[one]] == [set(part) for part in epochs[other]]:
            if case.world_size == 1:
                continue
            return Finding(
                f"in epochs {one} and {other} each rank has the same samples, in another order: "
                "shuffle before the parts are cut, so that every rank sees all samples in time",
                0,
                got=f"{epochs[one][0]}, then {epochs[other][0]}",
            )
    if [seen["other seed"] for seen in observation.values] == epochs[0]:
        return Finding("another seed gives the same order: use the seed as well as the epoch", 0)
    return None


def _state(observation: Observation) -> Finding | None:
    for rank, seen in enumerate(observation.values):
        if not seen["untouched"]:
            return Finding(
                "the indices are right, but torch's global random state has changed: after "
                "torch.manual_seed every rank draws the same dropout masks. Use a generator of "
                "your own, torch.Generator().manual_seed(...)",
                rank,
            )
    return None


EXERCISE = Exercise(
    module=__name__,
    signature="(samples, rank, world_size, epoch, seed)",
    cases=_cases,
    on_rank=_on_rank,
    judge=_judge,
    hints=(
        """
        Two steps: an order of all samples that is the same on every rank without a message, and
        this rank's part of it. What can all ranks know alike?
        """,
        """
        torch.Generator().manual_seed(seed + epoch) gives every rank the same random numbers, and
        leaves torch's own state alone. torch.randperm takes it as generator=. Every n-th element,
        beginning with number `rank`, is a part; parts cut like this differ by one at most.
        """,
        """
        Three lines: a generator whose seed is made of seed and epoch; an order of all samples,
        drawn with it, as a list; and of that every world_size-th, from number `rank` on.
        """,
    ),
    passed="each sample is read once per epoch, and every epoch has an order of its own",
    contract=Contract(
        agree=True,
        allowed=frozenset(),
        sends="your function sends nothing",
    ),
)
