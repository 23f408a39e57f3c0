"""Known answers to ring_attention."""

import torch
import torch.distributed as dist

from course_lib.checks.known_answers import right, wrong

from ._common import INF, blocks, exchange, merge, partial, sees


@right
def running_sums(q, k, v, positions):
    """As FlashAttention does it: a running maximum, a running sum, one division at the end."""
    scale = q.shape[-1] ** -0.5
    most = q.new_full(q.shape[:-1], -INF)
    total, out = torch.zeros_like(most), torch.zeros_like(q)
    for owner, keys, values in blocks(k, v):
        scores = (q @ keys.mT * scale).masked_fill(~sees(positions, owner), -INF)
        larger = torch.maximum(most, scores.amax(-1))
        weights = (scores - larger[..., None]).exp()
        shrink = (most - larger).exp()
        total = total * shrink + weights.sum(-1)
        out = out * shrink[..., None] + weights @ values
        most = larger
    return out / total[..., None], most + total.log()


@right
def posted_ahead(q, k, v, positions):
    """The next block travels while this one is worked on; keys and values are one message."""
    n, rank = dist.get_world_size(), dist.get_rank()
    block = torch.stack([k, v])
    result = None
    for step in range(n):
        owner = (rank - step) % n
        works = []
        if step < n - 1:
            coming = torch.empty_like(block)
            works = [dist.isend(block, (rank + 1) % n), dist.irecv(coming, (rank - 1) % n)]
        part = partial(q, block[0], block[1], sees(positions, owner))
        result = part if result is None else merge(*result, *part)
        for work in works:
            work.wait()
        if works:
            block = coming
    return result


@right
def skipping_what_nobody_sees(q, k, v, positions):
    out, lse = partial(q, k, v, sees(positions, dist.get_rank()))
    for owner, keys, values in blocks(k, v):
        visible = sees(positions, owner)
        if owner != dist.get_rank() and visible.any():
            out, lse = merge(out, lse, *partial(q, keys, values, visible))
    return [out, lse]


class Running:
    """A softmax to which keys are added."""

    def __init__(self, q):
        self.q, self.largest = q, q.new_full((*q.shape[:3], 1), -INF)
        self.total, self.out = torch.zeros_like(self.largest), torch.zeros_like(q)

    def see(self, k, v, hidden):
        scores = torch.einsum("bhtd,bhkd->bhtk", self.q, k).div_(self.q.shape[-1] ** 0.5)
        scores.masked_fill_(hidden, -INF)
        largest = torch.max(self.largest, scores.amax(-1, keepdim=True))
        self.out *= torch.exp(self.largest - largest)
        self.total *= torch.exp(self.largest - largest)
        scores.sub_(largest).exp_()
        self.total += scores.sum(-1, keepdim=True)
        self.out += scores @ v
        self.largest = largest

    def result(self):
        return self.out / self.total, (self.largest + self.total.log()).squeeze(-1)


@right
def with_a_class(q, k, v, positions):
    """Its own block first, as the statement says: there every query sees at least itself."""
    n, rank = dist.get_world_size(), dist.get_rank()
    softmax = Running(q)
    softmax.see(k, v, positions[rank][None, :] > positions[rank][:, None])
    for owner in ((rank - step) % n for step in range(1, n)):
        k, v = exchange((k, v))
        softmax.see(k, v, positions[owner][None, :] > positions[rank][:, None])
    return softmax.result()


@right
def batched_messages(q, k, v, positions):
    n, rank = dist.get_world_size(), dist.get_rank()
    out, lse = partial(q, k, v, sees(positions, rank))
    here, there = [k, v], [torch.empty_like(k), torch.empty_like(v)]
    for step in range(1, n):
        ops = [dist.P2POp(dist.isend, x.contiguous(), (rank + 1) % n) for x in here]
        ops += [dist.P2POp(dist.irecv, x, (rank - 1) % n) for x in there]
        for work in dist.batch_isend_irecv(ops):
            work.wait()
        here, there = there, [torch.empty_like(x) for x in there]
        out, lse = merge(out, lse, *partial(q, *here, sees(positions, (rank - step) % n)))
    return out, lse


def ring(q, k, v, positions, mask=sees, join=merge, scale=None, which=lambda step, n: True):
    n, rank = dist.get_world_size(), dist.get_rank()
    result = None
    for owner, keys, values in blocks(k, v):
        if which((rank - owner) % n, n) or n == 1:
            part = partial(q, keys, values, mask(positions, owner), scale)
            result = part if result is None else join(*result, *part)
    return result


@wrong(says="only this rank's own keys")
def own_keys_only(q, k, v, positions):
    return partial(q, k, v, sees(positions, dist.get_rank()))


@wrong(says="make it causal, by positions")
def later_keys_too(q, k, v, positions):
    return ring(q, k, v, positions, lambda p, owner: torch.ones(len(p[0]), len(p[0])).bool())


@wrong(says="causal by the places in the blocks")
def causal_by_places(q, k, v, positions):
    return ring(q, k, v, positions, lambda p, owner: torch.ones(len(p[0]), len(p[0])).tril().bool())


@wrong(says="added up without their weights")
def added_up(q, k, v, positions):
    def join(out_a, lse_a, out_b, lse_b):
        return out_a + out_b, torch.logaddexp(lse_a, lse_b)

    return ring(q, k, v, positions, join=join)


@wrong(says="not rank + s")
def owners_the_wrong_way_round(q, k, v, positions):
    n, rank = dist.get_world_size(), dist.get_rank()
    return ring(q, k, v, positions, lambda p, owner: sees(p, (2 * rank - owner) % n))


@wrong(says="without the last block that arrives")
def one_step_too_few(q, k, v, positions):
    return ring(q, k, v, positions, which=lambda step, n: step < n - 1)


@wrong(says="without this rank's own block")
def own_block_forgotten(q, k, v, positions):
    n, rank = dist.get_world_size(), dist.get_rank()
    out, lse = torch.zeros_like(q), q.new_full(q.shape[:-1], -INF)
    if n == 1:
        return partial(q, k, v, sees(positions, rank))
    for step in range(1, n):
        k, v = exchange([k, v])
        out, lse = merge(out, lse, *partial(q, k, v, sees(positions, (rank - step) % n)))
    return out, lse


@wrong(says="without the division of the scores by the root of D")
def ring_without_scale(q, k, v, positions):
    return ring(q, k, v, positions, scale=1.0)


@wrong(says="subtract the largest score first")
def sums_of_exponentials(q, k, v, positions):
    """Right as long as no exponential overflows."""
    total, out = torch.zeros_like(q[..., 0]), torch.zeros_like(q)
    for owner, keys, values in blocks(k, v):
        scores = (q @ keys.mT * q.shape[-1] ** -0.5).masked_fill(~sees(positions, owner), -INF)
        total, out = total + scores.exp().sum(-1), out + scores.exp() @ values
    return out / total[..., None], total.log()


@wrong(says="this rank sent too much")
def one_step_too_many(q, k, v, positions):
    result = ring(q, k, v, positions)
    if dist.get_world_size() > 1:
        exchange([k, v])
    return result


@wrong(says="let go of it")
def all_blocks_at_once(q, k, v, positions):
    found = list(blocks(k, v))
    keys, values = (torch.cat([block[i] for block in found], 2) for i in (1, 2))
    visible = torch.cat([sees(positions, block[0]) for block in found], 1)
    return partial(q, keys, values, visible)


@wrong(says="this exercise is about doing without it")
def gathered(q, k, v, positions):
    n = dist.get_world_size()
    keys, values = ([torch.empty_like(each) for _ in range(n)] for each in (k, v))
    dist.all_gather(keys, k)
    dist.all_gather(values, v)
    result = partial(q, keys[0], values[0], sees(positions, 0))
    for owner in range(1, n):
        part = partial(q, keys[owner], values[owner], sees(positions, owner))
        result = merge(*result, *part)
    return result


@wrong(says="2 tensors, (out, lse) are expected")
def without_lse(q, k, v, positions):
    return ring(q, k, v, positions)[0]


@wrong(says="lse: this is that of this rank's own keys")
def lse_of_own_keys(q, k, v, positions):
    _, lse = partial(q, k, v, sees(positions, dist.get_rank()))
    return ring(q, k, v, positions)[0], lse


@wrong(says="blocks stay in memory after they were used")
def all_blocks_in_a_list(q, k, v, positions):
    result = None
    for owner, keys, values in list(blocks(k, v)):
        part = partial(q, keys, values, sees(positions, owner))
        result = part if result is None else merge(*result, *part)
    return result
