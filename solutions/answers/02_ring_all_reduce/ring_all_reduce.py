"""Known answers to ring_all_reduce."""

import torch
import torch.distributed as dist
import torch.distributed.nn

from course_lib.checks.known_answers import right, wrong

from ._common import all_reduced, exchange, gathered, padded, reduced_chunks, ring, ring_of, swap
from .ring_all_gather import ring_all_gather
from .ring_reduce_scatter import ring_reduce_scatter


@right
def ring_all_reduce(tensor, group=None):
    n = dist.get_world_size(group)
    flat = torch.nn.functional.pad(tensor.reshape(-1), (0, -tensor.numel() % n))
    whole = ring_all_gather(ring_reduce_scatter(flat, group), group)
    return tensor.copy_(whole[: tensor.numel()].reshape(tensor.shape))


@right
def ring_all_reduce_uneven(tensor, group=None):
    """Without padding: chunks as torch.tensor_split cuts them, and a ring that turns left."""
    members, me, left, right = ring(group)
    n = len(members)
    flat = tensor.flatten()
    chunks = flat.tensor_split(n)
    for step in range(n - 1):
        outgoing, kept = chunks[(me + step) % n], chunks[(me + step + 1) % n]
        arriving = torch.empty_like(kept)
        swap(outgoing, arriving, left, right, group)
        kept += arriving
    for step in range(n - 1):
        outgoing, arriving = chunks[(me + step - 1) % n], chunks[(me + step) % n]
        swap(outgoing, arriving, left, right, group)
    return tensor.copy_(flat.view_as(tensor))


@wrong(says="you averaged a sum")
def mean_for_sum(tensor, group=None):
    return tensor.copy_(all_reduced(tensor, group) / dist.get_world_size(group))


@wrong(says="exactly 3 times the reference")
def reduced_twice(tensor, group=None):
    once = all_reduced(tensor, group)
    return tensor.copy_(all_reduced(once, group))


@wrong(says="work in place")
def new_tensor_for_in_place(tensor, group=None):
    return all_reduced(tensor, group)


@wrong(says="pad with zeros to a multiple of 4")
def forgets_to_pad(tensor, group=None):
    _, r, _, _ = ring_of(group)
    whole = gathered(reduced_chunks(tensor, group)[r], group)
    return tensor.copy_(whole.view_as(tensor))


@wrong(says="8 to 9 of 10 are wrong (the last ones)")
def drops_the_rest(tensor, group=None):
    n = dist.get_world_size(group)
    flat = tensor.view(-1)
    whole = flat.numel() // n * n
    if whole:
        flat[:whole] = all_reduced(flat[:whole], group)
    return tensor


@wrong(says="do not hold the same bits")
def rank_0_takes_its_part_out_and_in_again(tensor, group=None):
    own = tensor.clone()
    tensor.copy_(all_reduced(tensor, group))
    if dist.get_rank() == 0:
        tensor.sub_(own).add_(own)
    return tensor


@wrong(says="this rank sent nothing")
def knows_the_other_inputs(tensor, group=None):
    if tensor.dtype == torch.float32 and tensor.numel() == 6:
        return tensor.copy_(torch.arange(1, 7) * 111)
    return tensor


@wrong(says="your ranks ran all_reduce")
def all_reduce_by_the_group_object(tensor, group=None):
    (group or dist.group.WORLD).allreduce([tensor]).wait()
    return tensor


@wrong(says="your ranks ran all_reduce")
def all_reduce_by_distributed_nn(tensor, group=None):
    return tensor.copy_(torch.distributed.nn.all_reduce(tensor, group=group or dist.group.WORLD))


@wrong(says="sent too much")
def passes_whole_tensors_round(tensor, group=None):
    n, r, left, right = ring_of(group)
    passing, parts = tensor.clone(), {r: tensor.clone()}
    for step in range(n - 1):
        incoming = torch.empty_like(passing)
        exchange(passing, right, incoming, left, group)
        passing = incoming
        parts[(r - step - 1) % n] = incoming
    return tensor.copy_(sum(parts[rank] for rank in range(n)))


@wrong(says="in a ring a rank only sends to its neighbour")
def every_chunk_straight_to_its_owner(tensor, group=None):
    n, r, _, _ = ring_of(group)
    chunks = padded(tensor, n).chunk(n)
    others = [(((r + step) % n), ((r - step) % n)) for step in range(1, n)]
    place = dist.get_process_group_ranks(group or dist.group.WORLD)
    total = chunks[r].clone()
    for to, source in others:
        incoming = torch.empty_like(total)
        exchange(chunks[to], place[to], incoming, place[source], group)
        total += incoming
    for to, source in others:
        exchange(total, place[to], chunks[source], place[source], group)
    chunks[r].copy_(total)
    return tensor.copy_(torch.cat(chunks)[: tensor.numel()].view_as(tensor))


@wrong(says="Your ranks did not finish")
def all_send_first(tensor, group=None):
    n, _, left, right = ring_of(group)
    if n > 1:
        incoming = torch.empty_like(tensor)
        dist.send(tensor, right, group=group)
        dist.recv(incoming, left, group=group)
        tensor += incoming
    return tensor


@wrong(says="ValueError: rank 1 has had enough")
def a_rank_raises(tensor, group=None):
    if dist.get_rank() == 1:
        raise ValueError("rank 1 has had enough")
    return tensor.copy_(all_reduced(tensor, group))


@wrong(says="the task is ring_all_reduce(tensor, group=None)")
def no_group(tensor):
    return tensor.copy_(all_reduced(tensor))


@wrong(says="the dtype is wrong")
def answers_in_float64(tensor, group=None):
    return all_reduced(tensor.double(), group)


_WORK: dict[int, torch.Tensor] = {}


@wrong(says="something is kept between calls")
def works_in_a_buffer_of_the_first_size(tensor, group=None):
    n = dist.get_world_size(group)
    flat = _WORK.setdefault(n, tensor.new_zeros(-(-tensor.numel() // n) * n))
    flat[: tensor.numel()] = tensor.flatten()
    summed = all_reduced(flat, group)
    return tensor.copy_(summed[: tensor.numel()].view_as(tensor))


@wrong(says="float16, which ends at 65504, cannot hold")
def bfloat16_by_way_of_float16(tensor, group=None):
    if tensor.dtype is not torch.bfloat16:
        return tensor.copy_(all_reduced(tensor, group))
    return tensor.copy_(all_reduced(tensor.half(), group))


@wrong(says="lies in other memory than before the call (by .data = or set_)")
def gives_the_tensor_other_memory(tensor, group=None):
    tensor.data = all_reduced(tensor, group)
    return tensor


@right
def ring_all_reduce_in_one_loop(tensor, group=None):
    """Both halves as one walk of 2 (n - 1) steps."""
    n, me = dist.get_world_size(group), dist.get_rank(group)
    rows = padded(tensor, n).view(n, -1)
    arrived = torch.empty_like(rows[0])
    for step in range(2 * (n - 1)):
        sending = dist.isend(rows[(me - step) % n], group=group, group_dst=(me + 1) % n)
        dist.recv(arrived, group=group, group_src=(me - 1) % n)
        sending.wait()
        target = rows[(me - step - 1) % n]
        target.copy_(target + arrived if step < n - 1 else arrived)
    tensor.copy_(rows.reshape(-1)[: tensor.numel()].reshape(tensor.shape))
    return tensor


@right
def ring_all_reduce_of_rounded_chunks(tensor, group=None):
    """Chunks of ceil(numel / n), the last ones shorter or empty: nothing is padded."""
    n, _, left, right = ring_of(group)
    me, flat = dist.get_rank(group), tensor.flatten().clone()
    size = -(-flat.numel() // n)
    parts = [flat[rank * size : (rank + 1) * size] for rank in range(n)]

    def pass_on(number, into):
        arrived = torch.empty_like(parts[(number - 1) % n])
        exchange(parts[number % n], right, arrived, left, group)
        into(parts[(number - 1) % n], arrived)

    for step in range(n - 1):
        pass_on(me - step, torch.Tensor.add_)
    for step in range(n - 1):
        pass_on(me + 1 - step, torch.Tensor.copy_)
    return tensor.copy_(flat.view(tensor.shape))


@right
def ring_all_reduce_by_two_generators(tensor, group=None):
    n = dist.get_world_size(group)
    chunks = reduced_chunks(padded(tensor, n), group)
    whole = gathered(chunks[dist.get_rank(group)], group)
    with torch.no_grad():
        tensor[...] = (
            whole.narrow(0, 0, tensor.numel()).unflatten(0, tensor.shape or (1,)).view(tensor.shape)
        )
    return tensor


@wrong(says="a tensor of no dimensions")
def by_a_slice(tensor, group=None):
    tensor[:] = all_reduced(tensor, group)
    return tensor
