"""Known answers to vocab_embedding."""

import torch
import torch.distributed as dist
import torch.nn.functional as F

from course_lib.checks.known_answers import right, wrong

from ._common import Sum, Tokens, g, local_rows
from .megatron_g import megatron_g


@right
def vocab_embedding(tokens, rows):
    start = dist.get_rank() * len(rows)
    padded = torch.cat([rows, torch.zeros_like(rows[:1])])
    local = tokens - start
    local = torch.where((local >= 0) & (local < len(rows)), local, len(rows))
    return megatron_g(padded[local])


@wrong(says="puts zeros where the symbol is not its own")
def no_zeros(tokens, rows):
    local, _ = local_rows(tokens, len(rows))
    return g(F.embedding(local, rows))


@wrong(says="modulo is no way round")
def modulo_rows(tokens, rows):
    return g(F.embedding(tokens % len(rows), rows))


@wrong(says="what this rank has rows for: g is missing")
def rows_not_added(tokens, rows):
    local, other = local_rows(tokens, len(rows))
    return F.embedding(local, rows).masked_fill(other.unsqueeze(-1), 0)


@wrong(says="exactly t = 2 times the reference")
def rows_added_both_ways(tokens, rows):
    local, other = local_rows(tokens, len(rows))
    return Sum.apply(F.embedding(local, rows).masked_fill(other.unsqueeze(-1), 0), True, True)


@wrong(says="your ranks ran all_gather")
def whole_table_gathered(tokens, rows):
    return F.embedding(tokens, Tokens.apply(rows, True))


@wrong(says="one all-reduce puts the rows of all ranks together")
def whole_table_added_up(tokens, rows):
    rank, t, size = dist.get_rank(), dist.get_world_size(), len(rows)
    return F.embedding(tokens, g(F.pad(rows, (0, 0, rank * size, (t - 1 - rank) * size))))


@right
def by_one_hot_rows(tokens, rows):
    own = torch.arange(len(rows)) + dist.get_rank() * len(rows)
    return g((tokens[..., None] == own).to(rows.dtype) @ rows)


@right
def filled_in_where_it_is_ours(tokens, rows):
    local, other = local_rows(tokens, len(rows))
    found = rows.new_zeros(*tokens.shape, rows.shape[1])
    found[~other] = rows[local[~other]]
    return g(found)


@right
def times_a_mask(tokens, rows):
    local, other = local_rows(tokens, len(rows))
    return g(rows[local] * other.logical_not().unsqueeze(-1))


@wrong(says="not its first row")
def row_0_for_all_others(tokens, rows):
    local, other = local_rows(tokens, len(rows))
    return g(F.embedding(local.masked_fill(other, 0), rows))


@wrong(says="the gradient of rows is not")
def row_0_as_padding(tokens, rows):
    local, other = local_rows(tokens, len(rows))
    return g(F.embedding(local, rows, padding_idx=0).masked_fill(other.unsqueeze(-1), 0))


@wrong(says="tokens was written to: others may still need it")
def tokens_shifted_in_place(tokens, rows):
    tokens -= dist.get_rank() * len(rows)
    other = (tokens < 0) | (tokens >= len(rows))
    tokens[other] = 0
    return g(F.embedding(tokens, rows).masked_fill(other.unsqueeze(-1), 0))


@right
def with_index_select(tokens, rows):
    """The rows of this rank's symbols, put at their places in a table of zeros."""
    flat = tokens.reshape(-1) - len(rows) * dist.get_rank()
    places = torch.nonzero((flat >= 0) & (flat < len(rows))).squeeze(-1)
    found = torch.zeros(len(flat), rows.shape[-1], dtype=rows.dtype)
    found = found.index_add(0, places, rows.index_select(0, flat[places]))
    return megatron_g(found.view(*tokens.shape, -1))


@wrong(says="an index into the whole counts from where the part begins")
def whole_symbols_looked_up(tokens, rows):
    return g(F.embedding(tokens, rows))


@wrong(says="some are another rank's: look up one that is here for these")
def shifted_and_not_masked(tokens, rows):
    return g(rows[tokens - dist.get_rank() * len(rows)])


@wrong(says="a table of all rows is made here")
def fills_the_whole_table(tokens, rows):
    t, rank = dist.get_world_size(), dist.get_rank()
    table = rows.new_zeros(t * len(rows), rows.shape[1])
    table[rank * len(rows) : (rank + 1) * len(rows)] = rows
    return g(table[tokens])
