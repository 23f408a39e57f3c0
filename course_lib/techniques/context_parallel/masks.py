"""Which keys a query sees: causal masks, padding, and documents packed into one sequence.

A query at position i sees the key at position j if

    j <= i                                  with a causal mask
    both are of the same document           with documents
    neither is padding

The documents of a batch are numbers (B, T), of the whole sequence and the same on every rank (see
packed_documents.py). They are a few bytes per token and come with the batch, so nothing has to be
sent for them.

A rank asks block by block, a piece of its queries against a piece of another rank's keys. Most
blocks are simple: all is seen, or nothing, and then nothing is computed, or a triangle, which
kernels know. Only the rest needs a mask of one element per pair.
"""

import enum
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import torch

from .split import TokenSplit, positions_of


class Seen(enum.Enum):
    """Blocks that need no mask."""

    ALL = "every query sees every key"
    TRIANGLE = "query a sees the keys 0 to a"


Mask = Seen | torch.Tensor  # or bool, (1 or B, 1, Tq, Tk)


@dataclass(frozen=True)
class Block:
    """Some queries of a rank, some keys of another, as each counts its own, and who sees whom."""

    queries: slice
    keys: slice
    mask: Mask

    def pairs(self, batch: int) -> int:
        """How many pairs of a query and a key that it sees, per head."""
        if isinstance(self.mask, torch.Tensor):
            return int(self.mask.sum()) * batch // self.mask.shape[0]
        queries, keys = (s.stop - s.start for s in (self.queries, self.keys))
        each = queries * (queries + 1) // 2 if self.mask is Seen.TRIANGLE else queries * keys
        return batch * each


@dataclass(frozen=True)
class Sight:
    """What the queries of `rank` see, under any split.

    documents: (B, T), or (T,) for all samples. Raises `ValueError` if they are of another length.
    """

    split: TokenSplit
    rank: int
    causal: bool = True
    documents: torch.Tensor | None = None

    def __post_init__(self) -> None:
        documents = self.documents
        if documents is not None and documents.shape[-1] != self.split.tokens:
            raise ValueError(
                f"documents of {documents.shape[-1]} tokens, for a sequence of {self.split.tokens}"
            )

    def blocks(self, source: int) -> Iterator[Block]:
        """The blocks of this rank's queries and the keys of `source` in which anything is seen.

        As few as possible. So with zigzag it is one per source: the own triangle, all queries and
        the front of an earlier rank's keys, or the queries behind and all keys of a later rank.
        """
        own = slice(0, self.split.size(self.rank))
        if source == self.rank and self.causal and self.documents is None and self._ascending():
            yield Block(own, own, Seen.TRIANGLE)
            return
        found = []
        for rows, queries in _slices(self.split, self.rank):
            for columns, keys in _slices(self.split, source):
                mask = self._mask(queries, keys)
                if mask is not None:
                    found.append(Block(rows, columns, mask))
        yield from _joined(_joined(found))

    def _ascending(self) -> bool:
        """Whether the rank holds its tokens in the order of the sequence."""
        return all(a[-1] < b[0] for a, b in pairwise(self.split.ranks_pieces[self.rank]))

    def _mask(self, queries: range, keys: range) -> Mask | None:
        if self.causal and queries[-1] < keys[0]:
            return None
        if self.documents is None:
            return self._causal(queries, keys, None)
        theirs, ours = (self._documents(piece) for piece in (keys, queries))
        if _one_document(ours, theirs):
            return self._causal(queries, keys, ours.device)
        seen = same_document(ours, theirs)
        if self.causal:
            seen = seen & _before(queries, keys, seen.device)
        return seen.unsqueeze(1) if seen.any() else None

    def _causal(self, queries: range, keys: range, device: torch.device | None) -> Mask:
        if not self.causal or queries[0] >= keys[-1]:
            return Seen.ALL
        same_step = queries.step == keys.step and len(queries) == len(keys)
        if same_step and 0 <= queries[0] - keys[0] < keys.step:
            return Seen.TRIANGLE
        return _before(queries, keys, device)[None, None]

    def _documents(self, piece: range) -> torch.Tensor:
        assert self.documents is not None
        found = self.documents[..., piece.start : piece.stop : piece.step]
        return found if found.dim() == 2 else found.unsqueeze(0)


def work(
    split: TokenSplit, causal: bool = True, documents: torch.Tensor | None = None
) -> list[list[int]]:
    """Pairs of a query and a key that each rank computes at each step of the ring: [rank][step].

    At step s, rank r has the keys of rank r - s. Per head, and over the batch of `documents`.
    """
    batch = 1 if documents is None else len(torch.atleast_2d(documents))

    def of_keys_of(source: int, rank: int) -> int:
        sight = Sight(split, rank, causal, documents)
        return sum(block.pairs(batch) for block in sight.blocks(source))

    ring = range(split.ranks)
    return [[of_keys_of((rank - step) % len(ring), rank) for step in ring] for rank in ring]


# -------------------------------------------------------------------------------------------------


def _slices(split: TokenSplit, rank: int) -> Iterator[tuple[slice, range]]:
    """Where among the tokens of a rank each of its pieces is."""
    start = 0
    for piece in split.ranks_pieces[rank]:
        yield slice(start, start + len(piece)), piece
        start += len(piece)


def _joined(blocks: Iterable[Block]) -> list[Block]:
    """Neighbours that are all seen as one: those with the same queries, and with the same keys."""
    found: list[Block] = []
    for block in blocks:
        last = found[-1] if found else block
        if last is not block and last.mask is block.mask is Seen.ALL:
            if last.queries == block.queries and last.keys.stop == block.keys.start:
                found[-1] = Block(block.queries, _both(last.keys, block.keys), Seen.ALL)
                continue
            if last.keys == block.keys and last.queries.stop == block.queries.start:
                found[-1] = Block(_both(last.queries, block.queries), block.keys, Seen.ALL)
                continue
        found.append(block)
    return found


def _both(first: slice, second: slice) -> slice:
    return slice(first.start, second.stop)


def _before(queries: range, keys: range, device: torch.device | None) -> torch.Tensor:
    """(Tq, Tk): the key stands at the query's position or before."""
    return positions_of(keys, device) <= positions_of(queries, device).unsqueeze(-1)


def same_document(ours: torch.Tensor, theirs: torch.Tensor) -> torch.Tensor:
    """(B, Tq, Tk): both of one document, and not padding."""
    return (ours.unsqueeze(-1) == theirs.unsqueeze(-2)) & (ours >= 0).unsqueeze(-1)


def _one_document(ours: torch.Tensor, theirs: torch.Tensor) -> bool:
    """Whether in every sample all of these tokens are of one document, and none is padding."""
    first = ours[:, :1]
    return bool(((ours == first).all() & (theirs == first).all() & (first >= 0).all()).item())
