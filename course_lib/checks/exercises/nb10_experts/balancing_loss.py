"""The loss that spreads tokens over experts, for a batch that lies on several ranks.

balancing_loss(logits, experts) -> this rank's part of the loss, a number in autograd's graph
    logits (T, E) and experts (T, k) int64 are this rank's; all ranks have as many tokens. The loss
    of the batch is E sum_e f_e P_e: f_e is expert e's share of all choices of all ranks, P_e the
    mean over all tokens of its probability (softmax). The parts' mean over the ranks is that loss,
    and so for gradients. (Fedus, Zoph & Shazeer 2021, section 2.2.)
"""

import random
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.profiler import record_function

from course_lib.checks import compare_tensors
from course_lib.checks.call_answer import kind_of, plain
from course_lib.checks.case_inputs import normal
from course_lib.checks.contract import Contract
from course_lib.checks.exercise import Case, Exercise, Finding, Observation
from course_lib.checks.profiler_labels import BACKWARD
from course_lib.checks.rank_inputs import by_rank
from course_lib.text import counted

_ROUNDING = 1e-6  # counts over counts are float32


def _cases(rng: random.Random) -> list[Case]:
    return [
        _case(rng, n, tokens, number, k)
        for n, tokens, number, k in (
            (2, 3, 3, 1),
            (3, rng.randint(3, 6), 4, 2),
            (2, 4, 5, 2),
            (1, 5, 3, 1),
        )
    ]


def _case(rng: random.Random, n: int, tokens: int, number: int, k: int) -> Case:
    label = f"{tokens} tokens, {number} experts, k = {k}, {counted(n, 'rank')}"
    while True:
        logits = normal(rng, *[(tokens, number)] * n)
        for rank, each in enumerate(logits):
            each[:, rank % number] += 2  # each rank's tokens prefer an expert of their own
        case = Case(n, label, {"logits": logits, "k": k})
        f, _, _ = _parts(case)
        if f.max() > f.min() + 1e-6:  # an even spread is where there is no gradient
            return case


def _experts(case: Case, rank: int) -> torch.Tensor:
    return case.data["logits"][rank].topk(case.data["k"], 1).indices


def _on_rank(answer: Callable, case: Case) -> dict[str, Any]:
    rank = dist.get_rank()
    logits = case.data["logits"][rank].clone().requires_grad_()
    loss = answer(logits, _experts(case, rank))
    if isinstance(loss, torch.Tensor) and loss.requires_grad and loss.numel() == 1:
        with record_function(BACKWARD):
            loss.backward()
    return {"loss": plain(loss), "gradient": plain(logits.grad)}


def _parts(case: Case) -> tuple[torch.Tensor, list[torch.Tensor], list[torch.Tensor]]:
    """f of the batch; f and P of each rank."""
    number = case.data["logits"][0].shape[1]
    counts = [
        torch.bincount(_experts(case, r).flatten(), minlength=number).double()
        for r in range(case.world_size)
    ]
    shares = [each / each.sum() for each in counts]
    return torch.stack(shares).mean(0), shares, [p.softmax(1).mean(0) for p in case.data["logits"]]


def _first_choices(case: Case) -> torch.Tensor:
    """f, of only the first choice of each token."""
    number = case.data["logits"][0].shape[1]
    first = torch.cat([_experts(case, rank)[:, 0] for rank in range(case.world_size)])
    return torch.bincount(first, minlength=number) / len(first)


def _judge(case: Case, observation: Observation) -> Finding | None:
    n, number, k = case.world_size, case.data["logits"][0].shape[1], case.data["k"]
    f, shares, means = _parts(case)
    for rank, seen in enumerate(observation.values):
        loss, p = seen["loss"], means[rank]
        if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
            return Finding("a tensor with one number is expected", rank, got=kind_of(loss))
        want = number * (f * p).sum()
        whole = number * (f * torch.stack(means).mean(0)).sum()
        looks = {
            "made of only this rank's choices. The product of two means over the ranks is not the "
            "mean of the products: f is that of all ranks": number * (shares[rank] * p).sum(),
            "the sum without the factor E: with it, an even spread gives 1": want / number,
            "the loss of the whole batch, on every rank: that needs P of all ranks, and this "
            "rank's part with its own P is expected": whole,
            "made of counts, not of shares: an expert's share of the T k choices of all ranks": (
                want * len(case.data["logits"][0]) * k * n
            ),
            "made of this rank's counts over all ranks' choices, or of shares that are divided by "
            "the ranks once too often": want / n,
            "n times too much: shares of all ranks were added up, and their mean is expected": want
            * n,
            "summed over the tokens: P is the mean over them": (want * len(case.data["logits"][0])),
            "made of a softmax over the tokens: the router chooses among the experts of a token": (
                number * (f * case.data["logits"][rank].softmax(0).mean(0)).sum()
            ),
            "made of first choices only: f counts all k of them": (
                number * (_first_choices(case) * p).sum()
            ),
            "k times too much: each of a token's k choices is 1/k of it": want * k,
            "made of only f: one factor is a share, the other a mean probability": (
                number * (f * f).sum()
            ),
            "made of only P: one factor is a share, the other a mean probability": (
                number * (p * p).sum()
            ),
        }
        looks = {
            name: each
            for name, each in looks.items()
            if not compare_tensors.alike(each, want, _ROUNDING)
        }
        if finding := compare_tensors.computed(loss.reshape(()), want, rank, looks, _ROUNDING):
            return finding
    for rank, seen in enumerate(observation.values):
        if finding := _wrong_gradient(case, seen["gradient"], rank, f):
            return finding
    return _bytes(observation, n, number)


def _wrong_gradient(case: Case, got: Any, rank: int, f: torch.Tensor) -> Finding | None:
    logits = case.data["logits"][rank].clone().requires_grad_()
    (logits.shape[1] * (f * logits.softmax(1).mean(0)).sum()).backward()
    title = "the loss is right, its gradient is not"
    if got is None:
        return Finding(
            f"{title}: there is none. Counts have no gradient; that of P is what moves the router",
            rank,
            got="None",
        )
    assert logits.grad is not None
    return compare_tensors.titled(
        title, compare_tensors.computed(got, logits.grad, rank, {}, _ROUNDING)
    )


def _bytes(observation: Observation, n: int, number: int) -> Finding | None:
    if n == 1:
        return None
    for rank in range(n):
        events = [e for e in observation.trace.of(rank) if e.op == "all_reduce"]
        nbytes = sum(event.nbytes for event in events)
        if nbytes > 8 * number or any(BACKWARD in event.spans for event in events):
            return Finding(
                "the loss is right, but not what is sent: one all-reduce of E numbers in the "
                "forward pass",
                rank,
                expected=f"at most {8 * number} bytes, and nothing backward",
                got=f"{nbytes} bytes in {counted(len(events), 'all-reduce')}",
            )
    return None


EXERCISE = Exercise(
    module=__name__,
    signature="(logits, experts)",
    cases=_cases,
    on_rank=_on_rank,
    own={"logits": by_rank},
    judge=_judge,
    hints=(
        """
        f and P are both means over all tokens. The loss is linear in P, so every rank can take its
        own and the mean comes out right. Why is that not so if both are the rank's own?
        """,
        """
        Count the choices (bincount with minlength), add the counts up over the ranks, divide by
        their sum: that is f, and it has no gradient. P is the mean of the softmax over this rank's
        tokens, and it has one.
        """,
        """
        counts = torch.bincount(experts.flatten(), minlength=E); dist.all_reduce(counts);
        f = counts / counts.sum(); return E * (f * logits.softmax(-1).mean(0)).sum().
        """,
    ),
    passed="f of all ranks, P of one: the mean of the parts is the loss of the batch",
    contract=Contract(
        takes="logits (T, E) and experts (T, k), T the same on all ranks",
        allowed=frozenset({"all_reduce"}),
        sends="forward there is one, of E numbers of at most 8 bytes each; backward there is none",
    ),
)
