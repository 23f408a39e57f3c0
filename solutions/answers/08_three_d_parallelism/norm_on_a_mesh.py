"""Known answers to norm_on_a_mesh."""

import math

import torch
import torch.distributed as dist

from course_lib.checks.known_answers import right, wrong

from ._common import sum_over


@right
def norm_on_a_mesh(gradients, split, groups):
    """In one sum over tensor and pipeline, with copies weighted by how many there are."""
    copies = dist.get_world_size(groups["tensor"])
    total = torch.zeros((), dtype=torch.float64)
    for gradient, part in zip(gradients, split, strict=True):
        total += gradient.pow(2).sum() / (1 if part else copies)
    for axis in ("tensor", "pipeline"):
        dist.all_reduce(total, group=groups[axis])
    return float(total) ** 0.5


def squares(tensors):
    return sum((t.square().sum() for t in tensors), torch.zeros((), dtype=torch.float64))


def parts_and_copies(gradients, split):
    parts = [g for g, s in zip(gradients, split, strict=True) if s]
    copies = [g for g, s in zip(gradients, split, strict=True) if not s]
    return squares(parts), squares(copies)


@wrong(says="the norm of only this rank's gradients")
def norm_of_this_rank(gradients, split, groups):
    return squares(gradients).sqrt()


@wrong(says="counted once for each: add their squares on one")
def copies_once_a_rank(gradients, split, groups):
    total = sum_over(squares(gradients), groups["tensor"])
    return sum_over(total, groups["pipeline"]).sqrt()


@wrong(says="everything is counted for each rank that has it")
def over_all_ranks(gradients, split, groups):
    return sum_over(squares(gradients), None).sqrt()


@wrong(says="the data axis is summed over as well")
def replicas_add_up(gradients, split, groups):
    parts, copies = parts_and_copies(gradients, split)
    total = sum_over(parts, groups["tensor"]) + copies
    total = sum_over(total, groups["pipeline"])
    return sum_over(total, groups["data"]).sqrt()


@wrong(says="the norm of this stage's gradients")
def forgets_the_pipeline(gradients, split, groups):
    parts, copies = parts_and_copies(gradients, split)
    return (sum_over(parts, groups["tensor"]) + copies).sqrt()


@wrong(says="take the root at the end")
def no_root(gradients, split, groups):
    parts, copies = parts_and_copies(gradients, split)
    return sum_over(sum_over(parts, groups["tensor"]) + copies, groups["pipeline"])


@wrong(says="norms do not add up, their squares do")
def adds_norms(gradients, split, groups):
    total = sum_over(squares(gradients).sqrt(), groups["tensor"])
    return sum_over(total, groups["pipeline"])


@wrong(says="this rank sent too much")
def gathers_all_gradients(gradients, split, groups):
    parts, copies = parts_and_copies(gradients, split)
    everyone = torch.cat([torch.zeros(4096, dtype=torch.float64), *gradients])
    longest = torch.tensor(float(len(everyone)), dtype=torch.float64)
    dist.all_reduce(longest, dist.ReduceOp.MAX)
    padded = torch.zeros(int(longest), dtype=torch.float64)
    padded[: len(everyone)] = everyone
    dist.all_reduce(padded)
    return sum_over(sum_over(parts, groups["tensor"]) + copies, groups["pipeline"]).sqrt()


@wrong(says="right to the digits that float32 has")
def added_up_in_float32(gradients, split, groups):
    parts, copies = (t.float() for t in parts_and_copies(gradients, split))
    dist.all_reduce(parts, group=groups["tensor"])
    total = parts + copies
    dist.all_reduce(total, group=groups["pipeline"])
    return total.sqrt()


@right
def parts_first_and_copies_then(gradients, split, groups):
    parts, copies = parts_and_copies(gradients, split)
    dist.all_reduce(parts, group=groups["tensor"])
    whole = parts + copies
    dist.all_reduce(whole, group=groups["pipeline"])
    return whole.sqrt()


@right
def copies_on_the_first_rank_only(gradients, split, groups):
    first = dist.get_rank(groups["tensor"]) == 0
    counted = [g for g, part in zip(gradients, split, strict=True) if part or first]
    square = torch.cat([torch.zeros(1).double(), *(g.reshape(-1) for g in counted)]).square().sum()
    for axis in ("pipeline", "tensor"):
        dist.all_reduce(square, op=dist.ReduceOp.SUM, group=groups[axis])
    return torch.sqrt(square)


@right
def both_in_one_message(gradients, split, groups):
    """Two numbers travel over the pipeline, and the first of them over the tensor axis."""
    both = torch.stack(parts_and_copies(gradients, split))
    dist.all_reduce(both, group=groups["pipeline"])
    gathered = [torch.empty_like(both) for _ in range(groups["tensor"].size())]
    dist.all_gather(gathered, both, group=groups["tensor"])
    return math.sqrt(sum(float(part) for part, _ in gathered) + float(both[1]))


@right
def norms_of_norms(gradients, split, groups):
    def norm(tensors):
        zero = torch.zeros((), dtype=torch.float64)
        return torch.stack([zero, *(torch.linalg.vector_norm(t) for t in tensors)]).norm()

    def norm_over(value, axis):
        every = value.new_empty(dist.get_world_size(groups[axis]))
        dist.all_gather_into_tensor(every, value.reshape(1), group=groups[axis])
        return norm(every)

    parts = norm(g for g, part in zip(gradients, split, strict=True) if part)
    copies = norm(g for g, part in zip(gradients, split, strict=True) if not part)
    return norm_over(norm([norm_over(parts, "tensor"), copies]), "pipeline")
