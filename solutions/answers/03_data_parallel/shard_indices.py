"""Known answers to shard_indices."""

import math
import random

import numpy
import torch
import torch.distributed as dist

from course_lib.checks.known_answers import right, wrong


@right
def shard_indices(samples, rank, world_size, epoch, seed):
    """Consecutive parts of a shuffled order."""
    import random

    order = list(range(samples))
    random.Random(seed * 1_000_003 + epoch).shuffle(order)
    ends = [samples * r // world_size for r in range(world_size + 1)]
    return order[ends[rank] : ends[rank + 1]]


@right
def shard_indices_tensor(samples, rank, world_size, epoch, seed):
    generator = torch.Generator()
    generator.manual_seed(seed + epoch)
    return torch.randperm(samples, generator=generator).tensor_split(world_size)[rank]


@right
def shard_indices_of_numpy(samples, rank, world_size, epoch, seed):
    order = numpy.random.default_rng([seed, epoch]).permutation(samples)
    return list(order[rank::world_size])


@right
def shard_indices_in_a_fork(samples, rank, world_size, epoch, seed):
    """Torch's own generator, put back afterwards; a tuple."""
    with torch.random.fork_rng():
        torch.manual_seed(1000 * seed + epoch)
        return tuple(torch.randperm(samples).tolist()[rank::world_size])


def shuffled(samples, seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.randperm(samples, generator=generator).tolist()


@wrong(says="epochs 0 and 1 have the same order")
def without_the_epoch(samples, rank, world_size, epoch, seed):
    return shuffled(samples, seed)[rank::world_size]


@wrong(says="the ranks do not cut up the same order")
def an_order_for_each_rank(samples, rank, world_size, epoch, seed):
    return shuffled(samples, seed + epoch + 100 * rank)[rank::world_size]


@wrong(says="called twice for the same epoch it gives two orders")
def torchs_global_state(samples, rank, world_size, epoch, seed):
    return torch.randperm(samples).tolist()[rank::world_size]


@wrong(says="is read twice, to make the parts equal")
def padded(samples, rank, world_size, epoch, seed):
    order = shuffled(samples, seed + epoch)
    order += order[: -samples % world_size]
    return order[rank::world_size]


@wrong(says="is read by no rank: what 2 ranks cannot share equally is left over")
def remainder_dropped(samples, rank, world_size, epoch, seed):
    each = samples // world_size
    return shuffled(samples, seed + epoch)[rank * each : (rank + 1) * each]


@wrong(says="the samples come in the order of the data set")
def not_shuffled(samples, rank, world_size, epoch, seed):
    return list(range(rank, samples, world_size))


@wrong(says="torch's global random state has changed")
def seeds_everything(samples, rank, world_size, epoch, seed):
    torch.manual_seed(seed + epoch)
    return torch.randperm(samples).tolist()[rank::world_size]


@wrong(says="the parts differ by more than one sample")
def the_last_rank_takes_the_rest(samples, rank, world_size, epoch, seed):
    each, order = math.ceil(samples / world_size), shuffled(samples, seed + epoch)
    return order[rank * each : (rank + 1) * each]


@wrong(says="in epochs 0 and 1 each rank has the same samples, in another order")
def shuffled_after_the_cut(samples, rank, world_size, epoch, seed):
    mine = list(range(rank, samples, world_size))
    return [mine[i] for i in shuffled(len(mine), seed + epoch)]


@wrong(says="another seed gives the same order")
def without_the_seed(samples, rank, world_size, epoch, seed):
    return shuffled(samples, epoch)[rank::world_size]


@wrong(says="the same on all ranks. In this run it is not, as on a cluster (PYTHONHASHSEED)")
def seeded_by_the_hash_of_a_text(samples, rank, world_size, epoch, seed):
    return shuffled(samples, hash(f"{seed}, epoch {epoch}") % 2**31)[rank::world_size]


@wrong(says="the state of numpy's random generator is not as it was before")
def numpys_global_state(samples, rank, world_size, epoch, seed):
    numpy.random.seed(seed + epoch)
    return numpy.random.permutation(samples)[rank::world_size]


@wrong(says="these are tensors: tolist() makes numbers")
def a_list_of_tensors(samples, rank, world_size, epoch, seed):
    return [torch.tensor(i) for i in shuffled(samples, seed + epoch)[rank::world_size]]


@wrong(says="another seed gives the same order")
def seed_times_epoch(samples, rank, world_size, epoch, seed):
    return shuffled(samples, seed * epoch)[rank::world_size]


@right
def shard_indices_by_a_key(samples, rank, world_size, epoch, seed):
    """Sorted by the random number that every sample draws for itself."""
    draw = random.Random(f"{seed}, {epoch}")
    keys = [draw.random() for _ in range(samples)]
    order = sorted(range(samples), key=keys.__getitem__)
    return [sample for place, sample in enumerate(order) if place % world_size == rank]


@wrong(says="go by the arguments `rank` and `world_size`")
def asks_who_it_is(samples, rank, world_size, epoch, seed):
    generator = torch.Generator().manual_seed(seed + epoch)
    order = torch.randperm(samples, generator=generator).tolist()
    return order[dist.get_rank() :: dist.get_world_size()]
