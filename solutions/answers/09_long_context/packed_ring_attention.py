"""Known answers to packed_ring_attention."""

import torch
import torch.distributed as dist

from course_lib.checks.known_answers import right, wrong

from ._common import INF, blocks, merge, partial, sees


def same_document(documents, owner):
    return documents[dist.get_rank()][:, None] == documents[owner][None, :]


def packed(q, k, v, positions, documents, mask, skip=True):
    result = None
    for owner, keys, values in blocks(k, v):
        visible = mask(owner)
        if result is None or not skip or visible.any():
            part = partial(q, keys, values, visible)
            result = part if result is None else merge(*result, *part)
    return result[0]


@right
def in_running_sums(q, k, v, positions, documents):
    most = q.new_full(q.shape[:-1], -INF)
    total, out = torch.zeros_like(most), torch.zeros_like(q)
    for owner, keys, values in blocks(k, v):
        visible = sees(positions, owner) & same_document(documents, owner)
        if not visible.any():
            continue
        scores = (q @ keys.mT * q.shape[-1] ** -0.5).masked_fill(~visible, -INF)
        larger = torch.maximum(most, scores.amax(-1))
        finite = larger.nan_to_num(neginf=0.0)
        weights, shrink = (scores - finite[..., None]).exp(), (most - finite).exp()
        total, out = total * shrink + weights.sum(-1), out * shrink[..., None] + weights @ values
        most = larger
    return out / total[..., None]


@right
def positions_moved_apart(q, k, v, positions, documents):
    """A key of another document is later than everything."""
    never = 1 + max(int(each.max()) for each in positions)

    def mask(owner):
        keys = torch.where(
            same_document(documents, owner), positions[owner].expand(len(positions[0]), -1), never
        )
        return positions[dist.get_rank()][:, None] >= keys

    return packed(q, k, v, positions, documents, mask)


@right
def product_of_masks(q, k, v, positions, documents):
    masks = [
        sees(positions, owner) * same_document(documents, owner)
        for owner in range(dist.get_world_size())
    ]
    return packed(q, k, v, positions, documents, lambda owner: masks[owner])


@right
def who_has_my_documents(q, k, v, positions, documents):
    """Which blocks matter is known before any of them comes."""
    rank, first = dist.get_rank(), None
    mine = set(documents[rank].tolist())
    wanted = {r for r, each in enumerate(documents) if mine & set(each.tolist())}
    for owner, keys, values in blocks(k, v):
        if owner not in wanted:
            continue
        visible = sees(positions, owner) & same_document(documents, owner)
        if not bool(visible.sum()):
            continue
        part = partial(q, keys, values, visible)
        first = part if first is None else merge(*first, *part)
    return first[0]


@right
def only_the_keys_that_somebody_sees(q, k, v, positions, documents):
    """Keys that no query of this rank sees are left out of the products."""
    most = None
    for owner, keys, values in blocks(k, v):
        visible = sees(positions, owner) & same_document(documents, owner)
        (useful,) = visible.any(0).nonzero(as_tuple=True)
        if useful.numel() == 0:
            continue
        part = partial(q, keys[:, :, useful], values[:, :, useful], visible[:, useful])
        most = merge(*most, *part) if most else part
    return most[0]


@wrong(says="a query sees nothing in one of the blocks")
def not_a_number_where_nothing_is_seen(q, k, v, positions, documents):
    result = None
    for owner, keys, values in blocks(k, v):
        visible = sees(positions, owner) & same_document(documents, owner)
        if visible.any():
            scores = (q @ keys.mT * q.shape[-1] ** -0.5).masked_fill(~visible, -INF)
            part = scores.softmax(-1) @ values, scores.logsumexp(-1)
            result = part if result is None else merge(*result, *part)
    return result[0]


@wrong(says="a token sees only its own")
def across_documents(q, k, v, positions, documents):
    return packed(q, k, v, positions, documents, lambda owner: sees(positions, owner))


@wrong(says="attention to later tokens of the document")
def whole_documents(q, k, v, positions, documents):
    return packed(q, k, v, positions, documents, lambda owner: same_document(documents, owner))


@wrong(says="the numbers should be equal")
def earlier_documents_too(q, k, v, positions, documents):
    def mask(owner):
        before = documents[dist.get_rank()][:, None] >= documents[owner][None, :]
        return sees(positions, owner) & before

    return packed(q, k, v, positions, documents, mask)


@wrong(says="in which its queries see nothing")
def everything_computed(q, k, v, positions, documents):
    def mask(owner):
        return sees(positions, owner) & same_document(documents, owner)

    return packed(q, k, v, positions, documents, mask, skip=False)


@wrong(says="only this rank's own keys")
def documents_end_at_the_rank(q, k, v, positions, documents):
    rank = dist.get_rank()
    return partial(q, k, v, sees(positions, rank) & same_document(documents, rank))[0]


@wrong(says="this rank sent nothing")
def stops_when_nothing_is_seen(q, k, v, positions, documents):
    """Every rank knows the whole mask, and the last blocks may be of use to nobody."""
    n, rank = dist.get_world_size(), dist.get_rank()
    result, used = None, 0
    for step in range(n):
        for r in range(n):
            same = documents[r][:, None] == documents[(r - step) % n][None, :]
            if (same & (positions[r][:, None] >= positions[(r - step) % n])).any():
                used = step
    for owner, keys, values in blocks(k, v):
        visible = sees(positions, owner) & same_document(documents, owner)
        if result is None or visible.any():
            part = partial(q, keys, values, visible)
            result = part if result is None else merge(*result, *part)
        if (rank - owner) % n == used:
            break
    return result[0]


@wrong(says="causal only in the rank's own block")
def by_document_and_place(q, k, v, positions, documents):
    """Causal only in the rank's own block."""

    def mask(owner):
        same = same_document(documents, owner)
        return same & sees(positions, owner) if owner == dist.get_rank() else same

    return packed(q, k, v, positions, documents, mask)


@wrong(says="let go of it")
def packed_all_at_once(q, k, v, positions, documents):
    found = list(blocks(k, v))
    keys, values = (torch.cat([block[i] for block in found], 2) for i in (1, 2))
    masks = [sees(positions, o) & same_document(documents, o) for o, *_ in found]
    return partial(q, keys, values, torch.cat(masks, 1))[0]
