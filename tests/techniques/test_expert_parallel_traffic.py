"""What expert parallelism sends, to the byte, and what is computed while rows travel."""

import pytest
import torch
import torch.distributed as dist

from course_lib.ranks import collect
from course_lib.techniques.expert_parallel import (
    MixtureOfExperts,
    all_to_all_bytes,
    plan_dispatch,
)

WIDTH, EXPERTS, TOP_K, ELEMENT = 8, 12, 2, 4


def layer_pass(shared=0):
    """Forward and backward of a layer with as many tokens as no other rank; its plan's sizes."""
    torch.manual_seed(0)
    layer = MixtureOfExperts(WIDTH, EXPERTS, top_k=TOP_K, shared=shared)
    torch.manual_seed(dist.get_rank())
    x = torch.randn(3 * dist.get_rank() + 1, WIDTH, requires_grad=True)
    layer(x).sum().backward()
    plan = plan_dispatch(layer.routing.experts, EXPERTS)
    return plan.send, plan.receive


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_four_all_to_alls_of_the_rows_and_one_of_the_counts(ranks):
    results = collect(layer_pass, ranks)
    for rank, (send, receive) in enumerate(results):
        events = [event for event in results.trace.of(rank) if event.op == "all_to_all"]
        there = sum(send) * WIDTH * ELEMENT
        home = sum(receive) * WIDTH * ELEMENT
        counts = 8 * EXPERTS
        # dispatch, combine, combine's backward, dispatch's; then the plan that the test made.
        assert [e.nbytes for e in events] == [counts, there, home, there, home, counts]
        out = all_to_all_bytes(send, rank, WIDTH, ELEMENT)
        back = all_to_all_bytes(receive, rank, WIDTH, ELEMENT)
        told = 2 * counts * (ranks - 1) // ranks
        assert results.trace.traffic().sent[rank] == 2 * (out + back) + told
        assert out == (sum(send) - send[rank]) * WIDTH * ELEMENT
    assert set(results.trace.traffic().by_operation) == {"all_to_all"}
    assert not results.trace.warnings


# ------------------------------------------------------------------------------------------------


class Noted:
    """A message that notes when it is waited for."""

    def __init__(self, work, log):
        self.work, self.log = work, log

    def wait(self):
        self.log.append("wait")
        self.work.wait()


def order_of_things():
    """What a rank does in turn: messages of rows, and the shared expert's two matrices."""
    log = []
    plain = dist.all_to_all_single

    def noted(*args, **options):
        work = plain(*args, **options)
        if not options.get("async_op"):
            return work
        log.append("send")
        return Noted(work, log)

    dist.all_to_all_single = noted
    layer = MixtureOfExperts(WIDTH, EXPERTS, top_k=TOP_K, shared=16)
    for name in ("up", "down"):
        part = getattr(layer.shared, name)
        part.register_forward_hook(lambda *_, name=name: log.append(name))
        part.weight.register_hook(lambda _, name=name: log.append(f"{name}'s gradient"))
    layer(torch.randn(5, WIDTH, requires_grad=True)).sum().backward()
    return log


def test_the_shared_expert_is_computed_while_rows_travel():
    for log in collect(order_of_things, 2):
        assert log == [
            *("send", "up", "wait"),  # dispatch
            *("send", "down", "wait"),  # combine
            *("send", "down's gradient", "wait"),
            *("send", "up's gradient", "wait"),
        ]
