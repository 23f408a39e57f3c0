"""ZeRO stage 2: every rank owns an n-th of the optimizer and of the gradients.

zero2(model, make_optimizer) -> step
    As zero1, for ranks that start equal; a gradient leaves as soon as backward has made it, its
    rank's n-th stays, and .grad is None again.
"""

from functools import partial

from course_lib.checks.contract import Waits
from course_lib.checks.exercise import Case, Exercise, Finding, Observation
from course_lib.checks.exercises._training import TIED
from course_lib.checks.rank_inputs import along, by_rank

from ._partitioned import SIZE, cases, contract, sizes_of, wrong_state, wrong_traffic
from ._spying import (
    during_training,
    train_on_rank,
    wrong_training,
)


def _judge_zero2(case: Case, observation: Observation) -> Finding | None:
    seen = during_training(observation)
    return (
        wrong_training(case, observation)
        or wrong_state(case, observation)
        or _left(case, observation)
        or wrong_traffic(case, seen)
        or _under_way(case, seen)
    )


def _left(case: Case, observation: Observation) -> Finding | None:
    """No .grad is left after backward, and within it no more than two at a time."""
    most = SIZE * sum(sorted(sizes_of(case))[-2:])
    parts = SIZE * sum(-(-size // case.world_size) for size in sizes_of(case))
    for rank, seen in enumerate(observation.values):
        if seen["left"]:
            likely = (
                "the parameters are right, but after backward gradients are still there: "
                "set .grad to None in the hook, as soon as it is sent"
            )
            if seen["too_early"]:
                likely = (
                    "the parameters are right, but a hook of p.register_hook runs before backward "
                    "writes .grad, so it cannot free it: p.register_post_accumulate_grad_hook runs "
                    "after it"
                )
            return Finding(
                likely,
                rank,
                expected="0 bytes in .grad after backward",
                got=f"{seen['left']} bytes",
            )
        if seen["parts"] > parts:
            return Finding(
                "the parameters are right, but the gradients of the shards keep more than their "
                "own memory: one that is a view into the row keeps all of the row",
                rank,
                expected=f"at most {parts} bytes behind the shards' .grad after backward",
                got=f"{seen['parts']} bytes",
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


def _under_way(case: Case, observation: Observation) -> Finding | None:
    """A gradient that is being sent is still held: so only a few may be under way at once."""
    n = case.world_size
    largest = sum(sorted(-(-size // n) * n for size in sizes_of(case))[-2:])
    most = SIZE * largest
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


EXERCISE = Exercise(
    module=__name__,
    signature="(model, make_optimizer)",
    cases=partial(cases, alone=TIED, equal_start=True),
    on_rank=train_on_rank,
    own={"states": by_rank, "x": along(1), "y": along(1)},
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
    contract=contract(
        "equal",
        ", an n-th of the parameters and of the optimizer's state, and no gradient",
        gradients=False,
        waits=(Waits(op="reduce_scatter", begins="backward"),),
    ),
    points=2,
    timeout=40,
)
