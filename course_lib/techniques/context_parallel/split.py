"""Which tokens of a sequence each rank holds.

Eight tokens over two ranks, by the number of the rank:

    plain      0 0 0 0 1 1 1 1
    zigzag     0 0 1 1 1 1 0 0
    striped    0 1 0 1 0 1 0 1

With a causal mask the query at position i sees i + 1 keys. Of T tokens over n ranks, the last rank
of a plain split computes 2n - 1 times as many pairs as the first, and all wait for the last. Zigzag
cuts 2n chunks and gives rank r the r-th from the front and the r-th from the end, which makes the
work the same everywhere (Llama 3, arXiv 2407.21783, section 3.3.2). Stripes do almost the same:
Brandon et al., "Striped attention", arXiv 2311.09431 (2023).

Where n does not divide T, the ranks' numbers of tokens differ by one at most.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, pairwise

import torch

Pieces = tuple[range, ...]


@dataclass(frozen=True)
class TokenSplit:
    """For each rank its runs of positions, in the order in which it holds them.

    Every position from 0 to T - 1 is in exactly one of them.
    """

    ranks_pieces: tuple[Pieces, ...]

    @property
    def ranks(self) -> int:
        return len(self.ranks_pieces)

    @property
    def tokens(self) -> int:
        """T, the length of the whole sequence."""
        return sum(self.sizes)

    @property
    def sizes(self) -> list[int]:
        """How many tokens each rank has."""
        return [self.size(rank) for rank in range(self.ranks)]

    def size(self, rank: int) -> int:
        return sum(len(piece) for piece in self.ranks_pieces[rank])

    def positions(self, rank: int, device: torch.device | str | None = None) -> torch.Tensor:
        """Where in the sequence the tokens of `rank` stand: (T_r,), int64."""
        return torch.cat([positions_of(p, device) for p in self.ranks_pieces[rank]])

    def order(self, device: torch.device | str | None = None) -> torch.Tensor:
        """The positions of rank 0's tokens, then of rank 1's, ...: (T,), int64."""
        return torch.cat([self.positions(rank, device) for rank in range(self.ranks)])

    def of(self, tensor: torch.Tensor, rank: int, dim: int = 1) -> torch.Tensor:
        """The tokens of `rank` of a whole `tensor`, along `dim`: a copy."""
        if tensor.shape[dim] != self.tokens:
            raise ValueError(f"the split is of {self.tokens} tokens, not of {tensor.shape[dim]}")
        return tensor.index_select(dim, self.positions(rank, tensor.device))

    def join(self, parts: Sequence[torch.Tensor], dim: int = 1) -> torch.Tensor:
        """The whole tensor from the parts of all ranks, in their order: the inverse of `of`."""
        found = [part.shape[dim] for part in parts]
        if found != self.sizes:
            raise ValueError(f"the ranks hold {self.sizes} tokens, and the parts have {found}")
        arrived = torch.cat(list(parts), dim)
        return arrived.index_select(dim, self.order(arrived.device).argsort())


def plain_split(tokens: int, ranks: int) -> TokenSplit:
    """Rank r holds the r-th run of about T/n tokens."""
    return TokenSplit(tuple((run,) for run in _runs(_even_sizes(tokens, ranks))))


def zigzag_split(tokens: int, ranks: int) -> TokenSplit:
    """Rank r holds the r-th run from the front and the r-th from the end."""
    sizes = _even_sizes(tokens, ranks)
    behind = [size // 2 for size in sizes]
    front = [size - half for size, half in zip(sizes, behind, strict=True)]
    runs = _runs([*front, *reversed(behind)])
    pairs = zip(runs[:ranks], reversed(runs[ranks:]), strict=True)
    return TokenSplit(tuple(tuple(run for run in pair if run) for pair in pairs))


def striped_split(tokens: int, ranks: int) -> TokenSplit:
    """Rank r holds every n-th token, from the r-th on."""
    _even_sizes(tokens, ranks)
    return TokenSplit(tuple((range(rank, tokens, ranks),) for rank in range(ranks)))


def split_by_positions(ranks_positions: Sequence[torch.Tensor]) -> TokenSplit:
    """Rank r holds the tokens at `ranks_positions[r]`, (T_r,), in this order.

    Raises a `ValueError` if these are not all positions from 0 to T - 1, each once, or if a rank
    holds none.
    """
    if empty := [rank for rank, positions in enumerate(ranks_positions) if not len(positions)]:
        raise ValueError(f"rank {empty[0]} of {len(ranks_positions)} holds no token")
    everywhere = sorted(chain(*(positions.tolist() for positions in ranks_positions)))
    wrong = [at for at, position in enumerate(everywhere) if at != position]
    if wrong:
        raise ValueError(
            f"of {len(everywhere)} positions in all, number {wrong[0]} in order is "
            f"{everywhere[wrong[0]]}: each from 0 to {len(everywhere) - 1} is needed once"
        )
    return TokenSplit(tuple(map(_as_ranges, ranks_positions)))


def positions_of(piece: range, device: torch.device | str | None = None) -> torch.Tensor:
    """(len(piece),), int64."""
    return torch.arange(piece.start, piece.stop, piece.step, device=device)


def _even_sizes(tokens: int, ranks: int) -> list[int]:
    if ranks < 1 or tokens < ranks:
        raise ValueError(f"{tokens} tokens are too few for {ranks} ranks")
    return [(rank + 1) * tokens // ranks - rank * tokens // ranks for rank in range(ranks)]


def _as_ranges(positions: torch.Tensor) -> Pieces:
    """One range if their distance is constant and positive, else those that follow one another."""
    steps = positions.diff()
    if len(steps) and bool((steps == steps[0]).all()) and steps[0] > 0:
        return (range(int(positions[0]), int(positions[-1]) + 1, int(steps[0])),)
    ends = [0, *((steps != 1).nonzero().flatten() + 1).tolist(), len(positions)]
    return tuple(range(int(positions[a]), int(positions[b - 1]) + 1) for a, b in pairwise(ends))


def _runs(sizes: Sequence[int]) -> list[range]:
    return [range(start, stop) for start, stop in pairwise(accumulate(sizes, initial=0))]
