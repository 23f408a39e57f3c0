"""ZeRO stage 1: every rank owns an n-th of the optimizer.

zero1(model, make_optimizer) -> step
    All ranks begin with rank 0's parameters. step(), called after each backward, averages the
    gradients over the ranks, updates and leaves the new parameters everywhere. Of the optimizer's
    state a rank holds an n-th. make_optimizer(parameters) makes the optimizer to use.
"""

from functools import partial

from course_lib.checks.exercise import Case, Exercise, Finding, Observation
from course_lib.checks.exercises._training import FROZEN
from course_lib.checks.rank_inputs import along, by_rank

from ._partitioned import cases, contract, wrong_state, wrong_traffic
from ._spying import (
    during_training,
    train_on_rank,
    wrong_training,
)


def _judge_zero1(case: Case, observation: Observation) -> Finding | None:
    return (
        wrong_training(case, observation)
        or wrong_state(case, observation)
        or wrong_traffic(case, during_training(observation))
    )


EXERCISE = Exercise(
    module=__name__,
    signature="(model, make_optimizer)",
    cases=partial(cases, alone=FROZEN, equal_start=False),
    on_rank=train_on_rank,
    own={"states": by_rank, "x": along(1), "y": along(1)},
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
        views, so flat itself is filled.
        """,
    ),
    passed="the parameters of one process, an n-th of the state, and the traffic of an all-reduce",
    contract=contract(
        "unequal",
        " and its gradients, an n-th of the parameters and of the optimizer's state, and no "
        "gradient of its own",
        gradients=True,
    ),
    points=2,
    timeout=40,
)
