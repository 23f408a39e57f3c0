"""Known answers to norm_on_a_mesh."""

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
