"""An equal start: rank 0's parameters and buffers on every rank.

start_equal(model)
    Overwrites, in place, every parameter (frozen ones too) and every buffer with rank 0's, each
    once. The parameters stay the same objects, so an optimizer that was made before still holds
    them.
"""

import random
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from course_lib.checks.call_answer import plain
from course_lib.checks.contract import Contract
from course_lib.checks.exercise import Case, Exercise, Finding, Observation
from course_lib.checks.format_tensor import glimpse
from course_lib.checks.rank_inputs import by_rank
from course_lib.text import counted

FROZEN, BUFFERS, TIED, MASK = "frozen", "buffers", "tied", "mask"


_TRAITS = {
    FROZEN: "a frozen parameter",
    BUFFERS: "batch normalisation",
    TIED: "a weight shared by two layers",
    MASK: "a buffer that is not saved in state_dict",
}


class Model(nn.Module):
    """Never run; `options` decide what it holds."""

    def __init__(self, options: list[str]):
        super().__init__()
        self.first = nn.Linear(3, 4)
        self.last = nn.Linear(4, 2, bias=FROZEN in options)
        if FROZEN in options:
            self.last.bias.requires_grad_(False)
        if BUFFERS in options:
            self.norm = nn.BatchNorm1d(4)
        if TIED in options:
            self.again = nn.Linear(3, 4)
            self.again.weight = self.first.weight
        if MASK in options:
            self.register_buffer("mask", torch.zeros(5), persistent=False)

    def held(self) -> dict[str, torch.Tensor]:
        """Parameters and buffers by name, each shared one once."""
        return {**dict(self.named_parameters()), **dict(self.named_buffers())}


def _cases(rng: random.Random) -> list[Case]:
    return [
        _case(rng, 2, []),
        _case(rng, 3, [FROZEN]),
        _case(rng, 2, [BUFFERS]),
        _case(rng, 3, [TIED, MASK]),
        _case(rng, 1, [TIED]),
        _case(rng, 4, [FROZEN, BUFFERS, TIED, MASK]),
    ]


def _case(rng: random.Random, world_size: int, options: list[str]) -> Case:
    generator = torch.Generator().manual_seed(rng.getrandbits(63))
    values = [
        {
            name: torch.randn(t.shape, generator=generator)
            if t.is_floating_point()
            else torch.randint(2**53, 2**60, t.shape, generator=generator)
            for name, t in Model(options).held().items()
        }
        for _ in range(world_size)
    ]
    traits = f", with {', '.join(_TRAITS[option] for option in options)}" if options else ""
    ranks = f"{counted(world_size, 'rank')}"
    return Case(world_size, f"a model on {ranks}{traits}", {"options": options, "values": values})


def _on_rank(answer: Callable, case: Case) -> dict[str, Any]:
    model = Model(case.data["options"])
    before = dict(model.named_parameters(remove_duplicate=False))
    with torch.no_grad():
        for name, tensor in model.held().items():
            tensor.copy_(case.data["values"][dist.get_rank()][name])
    answer(model)
    after = dict(model.named_parameters(remove_duplicate=False))
    return {
        "held": plain(model.held()),
        "same": {name: after.get(name) is parameter for name, parameter in before.items()},
        "trainable": [name for name, p in model.named_parameters() if p.requires_grad],
    }


def _judge(case: Case, observation: Observation) -> Finding | None:
    return _values(case, observation) or _objects(case, observation) or _bytes(case, observation)


def _values(case: Case, observation: Observation) -> Finding | None:
    model, values = Model(case.data["options"]), case.data["values"]
    parameters = dict(model.named_parameters())
    for rank, seen in enumerate(observation.values):
        for name, want in values[0].items():
            got = seen["held"].get(name)
            if got is not None and torch.equal(got, want):
                continue
            kind = "buffer" if name not in parameters else "parameter"
            if kind == "parameter" and not parameters[name].requires_grad:
                kind = "frozen parameter"
            return Finding(
                f"{kind} {name!r} is not rank 0's: {_instead(got, name, rank, case)}",
                rank,
                expected=glimpse(want),
                got="nothing" if got is None else glimpse(got),
            )
    return None


def _instead(got: torch.Tensor | None, name: str, rank: int, case: Case) -> str:
    values = [of_rank[name] for of_rank in case.data["values"]]
    if got is None:
        return "it is gone"
    if torch.equal(got, values[rank]):
        return "it is still the rank's own"
    for other, value in enumerate(values):
        if torch.equal(got, value):
            return f"it is rank {other}'s"
    total = torch.stack(values).double().sum(0)
    for text, like in (("the average of", total / len(values)), ("the sum of", total)):
        if torch.allclose(got.double(), like, rtol=1e-4, atol=1e-4):
            return f"it is {text} all ranks, and an average of random starts is a poor start"
    return "it is something else"


def _objects(case: Case, observation: Observation) -> Finding | None:
    trainable = [n for n, p in Model(case.data["options"]).named_parameters() if p.requires_grad]
    for rank, seen in enumerate(observation.values):
        for name, same in seen["same"].items():
            if not same:
                return Finding(
                    f"the values are right, but parameter {name!r} is a new object: an optimizer "
                    "that was made before still steps the old one. Overwrite it in place, for "
                    "example dist.broadcast(parameter.detach(), src=0)",
                    rank,
                )
        if seen["trainable"] != trainable:
            return Finding(
                "the values are right, but requires_grad of a parameter has changed",
                rank,
                expected=f"trainable: {', '.join(trainable)}",
                got=f"trainable: {', '.join(seen['trainable'])}",
            )
    return None


def _bytes(case: Case, observation: Observation) -> Finding | None:
    """Every tensor travels once."""
    tensors = case.data["values"][0].values()
    once = sum(tensor.nbytes for tensor in tensors)
    dtypes = {str(tensor.dtype).removeprefix("torch.") for tensor in tensors}
    for rank in range(case.world_size):
        events = observation.trace.of(rank)
        nbytes = sum(event.nbytes for event in events)
        if nbytes != once and case.world_size > 1:
            others = sorted({event.dtype.removeprefix("torch.") for event in events} - dtypes)
            why = ": is a shared weight sent under both of its names?" if nbytes > once else ""
            if others:
                why = f": some travel as {others[0]}, which none of them is"
            return Finding(
                f"the values are right, but not every tensor was broadcast exactly once{why}",
                rank,
                expected=f"{once} bytes broadcast",
                got=f"{nbytes} bytes",
            )
    return None


EXERCISE = Exercise(
    module=__name__,
    signature="(model)",
    cases=_cases,
    on_rank=_on_rank,
    own={"values": by_rank},
    judge=_judge,
    hints=(
        """
        What does a model hold besides its weights? model.parameters() and model.buffers() list
        everything, each shared tensor once.
        """,
        """
        dist.broadcast(tensor, src=0) writes into the tensor that it is given, on every rank but 0.
        A parameter that requires a gradient refuses that; parameter.detach() is the same memory
        without the objection.
        """,
        """
        for tensor in [*model.parameters(), *model.buffers()]: dist.broadcast(tensor.detach(),
        src=0). Frozen parameters and integer buffers are in these lists too.
        """,
    ),
    passed="every parameter and buffer is rank 0's, and travelled once",
    contract=Contract(
        changes=("model",),
        takes="any model: parameters frozen or shared, buffers of any dtype",
        allowed=frozenset({"broadcast"}),
        sends="every parameter and buffer travels once",
    ),
)
