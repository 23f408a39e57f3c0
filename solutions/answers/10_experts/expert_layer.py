"""Known answers to expert_layer."""

import torch
import torch.distributed as dist

from course_lib.checks.known_answers import right, wrong

from ._common import dispatched, sent_and_received
from .exchange_with_gradient import exchange_with_gradient


def outputs_of(local, rows, counts):
    parts = rows.split([int(count) for count in counts])
    return torch.cat([expert(part) for expert, part in zip(local, parts, strict=True)])


def made(x, experts, local):
    rows, counts, back = dispatched(x, experts, len(local) * dist.get_world_size())
    return back(outputs_of(local, rows, counts))


@right
def expert_layer(x, experts, weights, local):
    return (made(x, experts, local) * weights[..., None]).sum(1)


@right
def without_calls_on_nothing(x, experts, weights, local):
    """Experts without rows are not called."""
    rows, counts, back = dispatched(x, experts, len(local) * dist.get_world_size())
    outputs, at = torch.zeros_like(rows), 0
    for expert, count in zip(local, counts.tolist(), strict=True):
        if count:
            where = torch.arange(at, at + count)
            outputs = outputs.index_add(0, where, expert(rows[at : at + count]))
        at += count
    return torch.einsum("tkc,tk->tc", back(outputs + 0 * rows), weights)


@right
def weights_there(x, experts, weights, local):
    """The weight travels with the row, and is multiplied where the expert is."""
    number, k = len(local) * dist.get_world_size(), experts.shape[1]
    copies = torch.cat([x.repeat_interleave(k, 0), weights.reshape(-1, 1)], dim=1)
    rows, counts, back = dispatched(copies, experts.reshape(-1, 1), number)
    outputs = outputs_of(local, rows[:, :-1], counts) * rows[:, -1:]
    return back(outputs).view(len(x), k, -1).sum(1)


@right
def in_a_loop_with_a_matrix_product(x, experts, weights, local):
    rows, counts, back = dispatched(x, experts, len(local) * dist.get_world_size())
    made, start = [], 0
    for number, expert in enumerate(local):
        end = start + int(counts[number])
        made.append(expert(rows[start:end]))
        start = end
    answers = back(torch.vstack(made))  # (T, k, C)
    return torch.bmm(weights.unsqueeze(1), answers).squeeze(1)


@right
def weighed_choice_by_choice(x, experts, weights, local):
    rows, counts, back = dispatched(x, experts, dist.get_world_size() * len(local))
    pieces = torch.split(rows, list(map(int, counts)))
    outputs = torch.cat(list(map(lambda expert, piece: expert(piece), local, pieces)))
    answers = back(outputs).unbind(1)
    return sum(weight[:, None] * answer for weight, answer in zip(weights.T, answers, strict=True))


@wrong(says="each is multiplied by its weight first")
def without_weights(x, experts, weights, local):
    return made(x, experts, local).sum(1) + 0 * weights.sum()


@wrong(says="their average")
def averages(x, experts, weights, local):
    return (made(x, experts, local) * weights[..., None]).mean(1)


@wrong(says="all k choices are added up")
def first_choice_only(x, experts, weights, local):
    return (made(x, experts, local) * weights[..., None])[:, 0]


@wrong(says="the gradient of weights is not")
def weights_cut_off(x, experts, weights, local):
    return (made(x, experts, local) * weights.detach()[..., None]).sum(1)


@wrong(says="the gradient of x is not")
def x_cut_off(x, experts, weights, local):
    return (made(x.detach(), experts, local) * weights[..., None]).sum(1)


@wrong(says="which stand in the wrong order")
def weights_of_the_other_choice(x, experts, weights, local):
    return (made(x, experts, local) * weights.flip(1)[..., None]).sum(1)


@wrong(says="which is the caller's")
def with_the_residual(x, experts, weights, local):
    return x + (made(x, experts, local) * weights[..., None]).sum(1)


@wrong(says="an expert ran more than once")
def one_call_for_each_source(x, experts, weights, local):
    number, k = len(local) * dist.get_world_size(), experts.shape[1]
    order = experts.flatten().argsort(stable=True)
    sent, received, theirs = sent_and_received(experts, number)
    rows = exchange_with_gradient(x[order // k], sent, received)
    sizes = theirs.flatten().tolist()
    outputs = [local[i % len(local)](part) for i, part in enumerate(rows.split(sizes)) if len(part)]
    outputs = torch.cat([*outputs, 0 * rows[:0]])
    returned = exchange_with_gradient(outputs, received, sent)[order.argsort()]
    return (returned.view(len(x), k, -1) * weights[..., None]).sum(1)


@wrong(says="the values differ")
def experts_backwards(x, experts, weights, local):
    return (made(x, experts, local[::-1]) * weights[..., None]).sum(1)


@wrong(says="the shape is wrong")
def not_summed(x, experts, weights, local):
    return made(x, experts, local) * weights[..., None]


@wrong(says="an expert ran on rows that are not its own")
def every_expert_on_all_rows(x, experts, weights, local):
    rows, counts, back = dispatched(x, experts, len(local) * dist.get_world_size())
    ends = counts.cumsum(0).tolist()
    outputs = [
        expert(rows)[end - count : end]
        for expert, count, end in zip(local, counts.tolist(), ends, strict=True)
    ]
    return (back(torch.cat(outputs)) * weights[..., None]).sum(1)
