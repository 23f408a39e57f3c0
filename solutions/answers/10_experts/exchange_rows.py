"""Known answers to exchange_rows."""

import torch
import torch.distributed as dist

from course_lib.checks.known_answers import right, wrong


def their_counts(counts):
    theirs = torch.empty_like(counts)
    dist.all_to_all_single(theirs, counts)
    return theirs


@right
def exchange_rows(rows, counts):
    theirs = their_counts(counts)
    received = rows.new_empty(int(theirs.sum()), rows.shape[1])
    dist.all_to_all_single(received, rows, theirs.tolist(), counts.tolist())
    return received, theirs


@right
def with_handles(rows, counts):
    theirs = torch.zeros(len(counts), dtype=torch.int64)
    dist.all_to_all_single(theirs, counts, async_op=True).wait()
    sizes = [int(count) for count in theirs]
    received = torch.empty((sum(sizes), rows.size(1)), dtype=rows.dtype)
    work = dist.all_to_all_single(
        received,
        rows,
        output_split_sizes=sizes,
        input_split_sizes=list(map(int, counts)),
        async_op=True,
    )
    work.wait()
    return [received, theirs]


@right
def through_flat_numbers(rows, counts):
    """Counts of numbers and not of rows."""
    theirs, width = their_counts(counts), rows.shape[1]
    received = torch.empty(int(theirs.sum()) * width, dtype=rows.dtype)
    dist.all_to_all_single(
        received, rows.flatten(), (theirs * width).tolist(), (counts * width).tolist()
    )
    return received.view(-1, width), theirs


@right
def as_bytes(rows, counts):
    """What a row is made of does not matter to those who carry it."""
    theirs = their_counts(counts)
    width = rows.shape[1] * rows.element_size()
    packed, arrived = (
        rows.view(torch.uint8),
        torch.empty(int(theirs.sum()), width, dtype=torch.uint8),
    )
    dist.all_to_all_single(arrived, packed, theirs.tolist(), counts.tolist())
    return arrived.view(rows.dtype), theirs


@right
def by_keywords(rows, counts):
    from_each = torch.full_like(counts, -1)
    dist.all_to_all_single(output=from_each, input=counts)
    result = torch.zeros((from_each.sum().item(), *rows.shape[1:]), dtype=rows.dtype)
    dist.all_to_all_single(
        output=result,
        input=rows.contiguous(),
        output_split_sizes=from_each.numpy().tolist(),
        input_split_sizes=counts.numpy().tolist(),
    )
    return result, from_each


@wrong(says="an all-to-all of the counts comes first")
def with_its_own_counts(rows, counts):
    received = torch.zeros_like(rows)
    dist.all_to_all_single(received, rows, counts.tolist(), counts.tolist())
    return received, counts.clone()


@wrong(says="first the sizes of what comes")
def sizes_in_the_other_order(rows, counts):
    theirs = their_counts(counts)
    received = rows.new_empty(int(theirs.sum()), rows.shape[1])
    dist.all_to_all_single(received, rows, counts.tolist(), theirs.tolist())
    return received, theirs


@wrong(says="Were all parts filled up to one size?")
def filled_up(rows, counts):
    """Parts of one size, as large as any may be."""
    n, most = len(counts), 8
    theirs = their_counts(counts)
    parts = rows.new_zeros(n, most, rows.shape[1])
    for part, own in zip(parts, rows.split(counts.tolist()), strict=True):
        part[: len(own)] = own
    received = torch.empty_like(parts)
    dist.all_to_all_single(received, parts)
    kept = [part[: int(count)] for part, count in zip(received, theirs, strict=True)]
    return torch.cat(kept), theirs


@wrong(says="this exercise is about doing without it")
def counts_gathered_from_all(rows, counts):
    table = [torch.empty_like(counts) for _ in counts]
    dist.all_gather(table, counts)
    theirs = torch.stack([each[dist.get_rank()] for each in table])
    received = rows.new_empty(int(theirs.sum()), rows.shape[1])
    dist.all_to_all_single(received, rows, theirs.tolist(), counts.tolist())
    return received, theirs


@wrong(says="not what it receives")
def returns_its_own_counts(rows, counts):
    received, _ = exchange_rows(rows, counts)
    return received, counts.clone()


@wrong(says="from the last rank to the first")
def backwards(rows, counts):
    received, theirs = exchange_rows(rows, counts)
    return torch.cat(received.split(theirs.tolist())[::-1]), theirs


@wrong(says="two tensors are expected")
def only_rows(rows, counts):
    return exchange_rows(rows, counts)[0]


@wrong(says="as many rows as this rank sends")
def sends_nothing(rows, counts):
    return rows.clone(), their_counts(counts)


@wrong(says="the dtype is wrong")
def as_floats(rows, counts):
    theirs = their_counts(counts)
    received = torch.empty(int(theirs.sum()), rows.shape[1])
    dist.all_to_all_single(received, rows.float(), theirs.tolist(), counts.tolist())
    return received, theirs
