"""ZeRO stages 1 and 2: every rank owns an n-th of the optimizer, then of the gradients too.

zero1(model, make_optimizer) -> step
    All ranks begin with rank 0's parameters. step(), called after each backward, averages the
    gradients over the ranks, updates and leaves the new parameters everywhere. Of the optimizer's
    state a rank holds an n-th. make_optimizer(parameters) makes the optimizer to use.

zero2(model, make_optimizer) -> step
    As zero1, for ranks that start equal; a gradient leaves as soon as backward has made it, its
    rank's n-th stays, and .grad is None again.
"""

import random

from course_lib.checks import gates
from course_lib.checks.exercise import Case, Exercise, Finding, Observation

from .networks import (
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
from .spying import (
    BACKWARD,
    during_training,
    train_on_rank,
    wrong_training,
)

_SIZE = 8  # bytes of a float64
_ALONE = "one rank owns everything: the same lines must work with nobody to talk to"
_FEW = "more ranks than elements: some ranks own nothing but padding"
_CHOSEN = (
    "a frozen parameter has no gradient and needs no state: take those with requires_grad; "
    "model.parameters() lists a shared one once"
)


def _zero1_cases(rng: random.Random) -> list[Case]:
    return [
        _case(rng, 2, MOMENTUM, [], equal_start=True),
        _case(rng, 3, ADAM, []),
        _case(rng, 4, MOMENTUM, [FROZEN, TIED], clue=_CHOSEN),
        _case(rng, 1, ADAM, [FROZEN], clue=_ALONE),
        _case(rng, 5, ADAM, [TINY], clue=_FEW),
    ]


def _zero2_cases(rng: random.Random) -> list[Case]:
    return [
        _case(rng, 2, MOMENTUM, [], equal_start=True),
        _case(rng, 3, ADAM, [], equal_start=True),
        _case(rng, 4, MOMENTUM, [FROZEN, TIED], equal_start=True, clue=_CHOSEN),
        _case(rng, 1, ADAM, [TIED], equal_start=True, clue=_ALONE),
        _case(rng, 5, ADAM, [TINY], equal_start=True, clue=_FEW),
    ]


def _case(
    rng: random.Random,
    world_size: int,
    kind: str,
    options: list[str],
    *,
    equal_start: bool = False,
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


# ---------------------------------------------------------------------------------------------


def _judge_zero1(case: Case, observation: Observation) -> Finding | None:
    return (
        wrong_training(case, observation)
        or _state(case, observation)
        or _traffic(case, during_training(observation))
    )


def _judge_zero2(case: Case, observation: Observation) -> Finding | None:
    seen = during_training(observation)
    return (
        wrong_training(case, observation)
        or _state(case, observation)
        or _left(case, observation)
        or _traffic(case, seen)
        or _early(case, seen)
        or _under_way(case, seen)
    )


def _sizes(case: Case) -> list[int]:
    return [p.numel() for p in trainable(Net(case.data["options"]))]


def _state(case: Case, observation: Observation) -> Finding | None:
    """An n-th of the optimizer's state; the padding may be of each parameter or of all in one."""
    n, sizes = case.world_size, _sizes(case)
    copies = 2 if case.data["kind"] == ADAM else 1
    most = copies * _SIZE * sum(-(-size // n) for size in sizes)
    whole = copies * _SIZE * sum(sizes)
    for rank, seen in enumerate(observation.values):
        if seen["state"] <= most:
            continue
        likely = (
            f"the parameters are right, but this rank holds more than its share of "
            f"{case.data['kind']}'s state"
        )
        if seen["state"] >= whole:
            likely += ", all of it: make the optimizer of this rank's shard alone"
        else:
            likely += ": an equal share is a cut through the elements, wherever a tensor ends"
        return Finding(
            likely,
            rank,
            expected=f"at most {most} bytes of the {whole} (with padding)",
            got=f"{seen['state']} bytes",
        )
    return None


def _traffic(case: Case, observation: Observation) -> Finding | None:
    """A reduce-scatter and an all-gather in each step: 2(n-1)/n of the model, and no more."""
    n, sizes = case.world_size, _sizes(case)
    least = 2 * sum(size - -(-size // n) for size in sizes)
    most = 2 * (n - 1) * sum(-(-size // n) for size in sizes)
    for rank in range(n):
        finding = gates.sent(
            observation,
            rank,
            STEPS * _SIZE * least,
            STEPS * _SIZE * most,
            "a reduce-scatter of the gradients and an all-gather of the parameters come to "
            "2(n-1)/n of the model in a step, what an all-reduce moves",
            "An all-reduce brings every rank all gradients, and it needs one part of them: that "
            "is the third pass which the first ZeRO-1 of DeepSpeed paid",
        )
        if finding:
            return finding
    return None


def _left(case: Case, observation: Observation) -> Finding | None:
    """No .grad is left after backward, and within it no more than two at a time."""
    most = _SIZE * sum(sorted(_sizes(case))[-2:])
    for rank, seen in enumerate(observation.values):
        if seen["left"]:
            likely = (
                "the parameters are right, but after backward gradients are still there: "
                "set .grad to None in the hook, as soon as it is sent"
            )
            return Finding(
                likely,
                rank,
                expected="0 bytes in .grad after backward",
                got=f"{seen['left']} bytes",
            )
        if seen["peak"] > most:
            return Finding(
                "the parameters are right, but gradients wait for each other in .grad: send each "
                "in its own hook and set it to None there",
                rank,
                expected=f"at most {most} bytes in .grad at any time",
                got=f"{seen['peak']} bytes",
            )
    return None


def _early(case: Case, observation: Observation) -> Finding | None:
    for rank in range(case.world_size if case.world_size > 1 else 0):
        reduced = [e for e in observation.trace.of(rank) if e.op == "reduce_scatter"]
        late = sum(BACKWARD not in event.spans for event in reduced)
        if late:
            return Finding(
                "the parameters are right, but reduce-scatters began after backward, so that all "
                "gradients had to be kept until then",
                rank,
                expected="every reduce-scatter issued inside backward",
                got=f"{late} of {len(reduced)} issued after it",
            )
    return None


def _under_way(case: Case, observation: Observation) -> Finding | None:
    """A gradient that is being sent is still held: so only a few may be under way at once."""
    n = case.world_size
    largest = sum(sorted(-(-size // n) * n for size in _sizes(case))[-2:])
    most = _SIZE * largest
    for rank in range(n):
        reduced = [e for e in observation.trace.of(rank) if e.op == "reduce_scatter"]
        for k, event in enumerate(reduced):
            flying = [e for e in reduced[: k + 1] if e.done is None or e.done > event.issued]
            held = sum(e.nbytes * n for e in flying)
            if held > most:
                return Finding(
                    "the parameters are right, and .grad is freed, but what is being sent is "
                    "memory too: wait for the reduce-scatter before this one first",
                    rank,
                    expected=f"at most {most} bytes of gradients on their way",
                    got=f"{held} bytes, in {len(flying)} reduce-scatters at once",
                )
    return None


# ---------------------------------------------------------------------------------------------

_ALLOWED = frozenset({"broadcast", "reduce", "all_reduce", "reduce_scatter", "all_gather"})

ZERO1 = Exercise(
    name="zero1",
    signature="(model, make_optimizer)",
    notebook="06_zero",
    cases=_zero1_cases,
    on_rank=train_on_rank,
    judge=_judge_zero1,
    hints=(
        """
        Two halves. Before training: broadcast every parameter, and cut out this rank's shard as a
        parameter of its own, for the optimizer. step(): reduce-scatter, update, all-gather.
        """,
        """
        shard = nn.Parameter(flatten(own, n).chunk(n)[rank].clone()), with own the parameters that
        have requires_grad. In step: shard.grad is what dist.reduce_scatter writes, given
        list(flat.chunk(n)) of the flat gradients, divided by n. After optimizer.step(),
        dist.all_gather into list(flat.chunk(n)), and unflatten into the parameters.
        """,
        """
        def step(): flat = flatten([p.grad for p in own], n); shard.grad = torch.empty_like(shard);
        dist.reduce_scatter(shard.grad, list(flat.chunk(n))); shard.grad /= n; optimizer.step();
        dist.all_gather(list(flat.chunk(n)), shard.detach()); unflatten(flat, own). The chunks are
        views, so that flat itself is filled.
        """,
    ),
    passed="the parameters of one process, an n-th of the state, and the traffic of an all-reduce",
    allowed=_ALLOWED,
    points=2,
    timeout=40,
)

ZERO2 = Exercise(
    name="zero2",
    signature="(model, make_optimizer)",
    notebook="06_zero",
    cases=_zero2_cases,
    on_rank=train_on_rank,
    judge=_judge_zero2,
    hints=(
        """
        Now every parameter is cut by itself: a shard for each. The reduce-scatter moves from
        step() into a hook on the parameter; what is left for step() is the update and the gather.
        """,
        """
        p.register_post_accumulate_grad_hook(hook) calls hook(p) when p.grad is ready. The hook
        flattens [p.grad], reduce-scatters it into the grad of p's shard, divides by n, and sets
        p.grad = None. Keep the shards in a dictionary by parameter; one optimizer has them all.
        """,
        """
        shards = {p: nn.Parameter(flatten([p], n).chunk(n)[rank].clone()) for p in own}. hook(p):
        flat = flatten([p.grad], n); p.grad = None; grad = torch.empty_like(shards[p]);
        dist.reduce_scatter(grad, list(flat.chunk(n))); shards[p].grad = grad / n. step():
        optimizer.step(), then for p, shard in shards.items(): flat = flatten([p], n);
        dist.all_gather(list(flat.chunk(n)), shard.detach()); unflatten(flat, [p]).
        """,
    ),
    passed="every gradient is sent inside backward and freed there, for no more traffic",
    allowed=_ALLOWED,
    points=2,
    timeout=40,
)
