"""The group of ranks among which sequences are cut, and the sequences that are under way.

A model is called with the tokens of its rank only. What its attention and its positions have to
know beside these is kept here, and set before the model is called.
"""

from collections.abc import Callable

import torch
import torch.distributed as dist

from course_lib.techniques.collectives.members import Members

from .attention import Attention
from .packed_documents import positions_in_documents
from .ring_attention import ring_attention
from .split import TokenSplit, zigzag_split

MakeSplit = Callable[[int, int], TokenSplit]


class ContextAxis:
    """make_split: from a number of tokens and of ranks; attention: as `ring_attention`."""

    def __init__(
        self,
        group: dist.ProcessGroup | None = None,
        *,
        make_split: MakeSplit = zigzag_split,
        attention: Attention = ring_attention,
    ) -> None:
        self.group, self.make_split, self.attention = group, make_split, attention
        self.members = Members.of(group)
        self.split: TokenSplit | None = None
        self.documents: torch.Tensor | None = None

    def begin(self, tokens: int, documents: torch.Tensor | None = None) -> None:
        """What comes now are parts of sequences of so many tokens.

        documents: (B, T) or (T,), of the whole sequences; see masks.py.
        """
        self.split = self.make_split(tokens, len(self.members))
        self.documents = documents

    def own(self, whole: torch.Tensor) -> torch.Tensor:
        """This rank's tokens (B, T_r, ...) of whole sequences (B, T, ...)."""
        return self._split().of(whole, self.members.rank)

    def positions(self, device: torch.device | str | None = None) -> torch.Tensor:
        """Of this rank's tokens, (1 or B, T_r): in their documents where there are some."""
        split = self._split()
        if self.documents is None:
            return split.positions(self.members.rank, device).unsqueeze(0)
        within = positions_in_documents(torch.atleast_2d(self.documents)).to(device)
        return split.of(within, self.members.rank)

    def attend(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """Causal attention of this rank's tokens to those of all ranks."""
        return self.attention(q, k, v, self._split(), self.group, documents=self.documents)

    def _split(self) -> TokenSplit:
        if self.split is None:
            raise ValueError("nobody has said how long the sequences are: call begin first")
        return self.split

    def __deepcopy__(self, memo: dict) -> "ContextAxis":
        # A copied module stays in the same group of processes; a group itself cannot be copied.
        return self
