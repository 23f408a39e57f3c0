"""What the exercises zero1 and zero2 share."""

import random

from course_lib.checks import traffic_limits
from course_lib.checks.contract import Contract, Waits
from course_lib.checks.exercise import Case, Clue, Finding, Observation
from course_lib.checks.exercises._training import (
    ADAM,
    FROZEN,
    MOMENTUM,
    STEPS,
    TIED,
    TINY,
    Net,
    trainable,
    training_data,
)

SIZE = 8  # bytes of a float64


ALONE = "one rank owns everything: the same lines must work with nobody to talk to"


FEW = Clue("more ranks than elements: some ranks own nothing but padding", "size", "IndexError")


CHOSEN = Clue(
    "a frozen parameter has no gradient and needs no state: take those with requires_grad; "
    "model.parameters() lists a shared one once",
    "NoneType",
    "register a hook",
)


def cases(rng: random.Random, alone: str, *, equal_start: bool) -> list[Case]:
    """alone: what the model has where there is one rank. equal_start: whether all ranks do."""
    return [
        _case(rng, 2, MOMENTUM, [], equal_start=True),
        _case(rng, 3, ADAM, [], equal_start=equal_start),
        _case(rng, 4, MOMENTUM, [FROZEN, TIED], equal_start=equal_start, clue=CHOSEN),
        _case(rng, 1, ADAM, [alone], equal_start=equal_start, clue=ALONE),
        _case(rng, 5, ADAM, [TINY], equal_start=equal_start, clue=FEW),
    ]


def contract(start: str, holds: str, *, gradients: bool, waits: tuple[Waits, ...] = ()) -> Contract:
    """start: how the ranks do. gradients: whether the model's own may stay between steps."""
    return Contract(
        changes=("model",),
        takes=f"ranks that start {start}; a model with frozen and shared parameters",
        allowed=ALLOWED,
        sends="in a step a rank sends 2(n-1)/n of the model, which may be padded",
        holds=f"between steps a rank holds, beside the model{holds}",
        held=lambda case, rank: held(case, gradients=gradients),
        waits=waits,
        may=frozenset({"hooks"}),
    )


def _case(
    rng: random.Random,
    world_size: int,
    kind: str,
    options: list[str],
    *,
    equal_start: bool,
    clue: str = "",
) -> Case:
    data = training_data(rng, world_size, options, equal_start)
    data["kind"] = kind
    start = "start equal" if equal_start else "start unequal"
    ranks = f"{world_size} ranks that {start}" if world_size > 1 else "1 rank"
    traits = {FROZEN: "a frozen parameter", TIED: "a weight shared by two layers"}
    traits[TINY] = "3 elements that learn and 12 that are frozen"
    having = f", with {' and '.join(traits[option] for option in options)}" if options else ""
    label = f"{STEPS} steps of {kind} on {ranks}{having}"
    return Case(world_size, label, data, clue)


def sizes_of(case: Case) -> list[int]:
    return [p.numel() for p in trainable(Net(case.data["options"]))]


def wrong_state(case: Case, observation: Observation) -> Finding | None:
    """An n-th of the optimizer's state; the padding may be of each parameter or of all in one."""
    n, sizes = case.world_size, sizes_of(case)
    copies = 2 if case.data["kind"] == ADAM else 1
    most = copies * SIZE * sum(-(-size // n) for size in sizes)
    whole = copies * SIZE * sum(sizes)
    for rank, seen in enumerate(observation.values):
        if seen["state"] <= most:
            continue
        likely = (
            f"the parameters are right, but this rank holds more than its share of "
            f"{case.data['kind']}'s state"
        )
        frozen = sum(p.numel() for p in Net(case.data["options"]).parameters()) - sum(sizes)
        if frozen and seen["state"] == copies * SIZE * -(-(sum(sizes) + frozen) // n):
            likely += ": the row has the frozen parameters, too, and only what learns needs state"
        elif seen["state"] >= whole:
            likely += ", all of it: make the optimizer of only this rank's shard"
        else:
            likely += ": an equal share is a cut through the elements, wherever a tensor ends"
        return Finding(
            likely,
            rank,
            expected=f"at most {most} bytes of the {whole} (with padding)",
            got=f"{seen['state']} bytes",
        )
    return None


def held(case: Case, gradients: bool) -> int:
    """Bytes that may live between steps: this rank's n-th of the parameters and of the state.

    gradients: the model's own, which whoever trains drops before the next backward.
    """
    sizes = sizes_of(case)
    parts = 3 if case.data["kind"] == ADAM else 2
    own = parts * sum(-(-size // case.world_size) for size in sizes)
    return SIZE * (own + (sum(sizes) if gradients else 0))


def wrong_traffic(case: Case, observation: Observation) -> Finding | None:
    """A reduce-scatter and an all-gather in each step: 2(n-1)/n of the model, and no more."""
    n, sizes = case.world_size, sizes_of(case)
    least = 2 * sum(size - -(-size // n) for size in sizes)
    most = 2 * (n - 1) * sum(-(-size // n) for size in sizes)
    for rank in range(n):
        reduced = sum(e.nbytes for e in observation.trace.of(rank) if e.op == "all_reduce")
        finding = traffic_limits.sent(
            observation,
            rank,
            STEPS * SIZE * least,
            STEPS * SIZE * most,
            "a reduce-scatter of the gradients and an all-gather of the parameters come to "
            "2(n-1)/n of the model in a step, what an all-reduce moves",
            "An all-reduce brings every rank all gradients, and it needs one part of them: that "
            "is the third pass which the first ZeRO-1 of DeepSpeed paid"
            if reduced >= STEPS * SIZE * sum(sizes)
            else "",
        )
        if finding:
            return finding
    return None


ALLOWED = frozenset({"broadcast", "reduce", "all_reduce", "reduce_scatter", "all_gather"})
