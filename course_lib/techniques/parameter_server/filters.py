"""The significantly-modified filter: small changes stay at home until they have added up.

    gradient     0.30  0.01  0.02  0.00      0.10  0.01 -0.02  0.00
    kept         0.30  0.01  0.02  0.00      0.10  0.02  0.00  0.00
    threshold 0.05:  sends 0.30              sends 0.10
    left over    0.00  0.01  0.02  0.00      0.00  0.02  0.00  0.00

Nothing is lost: what is not sent now is added to what comes next. Each value is late instead, which
is one more kind of staleness. Li et al., OSDI 2014, section 3.6: "entries that have changed by more
than a threshold since they were last synchronized".
"""

from collections.abc import Sequence

import torch

from .key_ranges import KeyRange


class SignificantlyModified:
    """Passes on what has changed by more than `threshold` since it was last passed on."""

    def __init__(self, total: int, threshold: float, dtype: torch.dtype = torch.float32) -> None:
        if threshold < 0:
            raise ValueError(
                f"the threshold is 0 (whatever is not zero passes) or more, not {threshold}"
            )
        self.threshold = threshold
        self.unsent = torch.zeros(total, dtype=dtype)  # by key

    def __call__(
        self, ranges: Sequence[KeyRange], values: torch.Tensor
    ) -> tuple[list[KeyRange], torch.Tensor]:
        """The ranges and values to send instead of `values` for `ranges`."""
        offset, passed, sent = 0, [], [values.new_empty(0)]
        for keys in ranges:
            unsent = self.unsent[keys.start : keys.stop]
            unsent += values[offset : offset + len(keys)]
            offset += len(keys)
            significant = unsent.abs() > self.threshold
            passed += runs(significant, keys.start)
            sent.append(unsent[significant])
            unsent[significant] = 0
        return passed, torch.cat(sent)


def runs(mask: torch.Tensor, first: int = 0) -> list[KeyRange]:
    """The runs of True in `mask`, whose element 0 is the key `first`."""
    edges = torch.diff(mask.int(), prepend=mask.new_zeros(1).int(), append=mask.new_zeros(1).int())
    starts, stops = ((edges == step).nonzero().reshape(-1) + first for step in (1, -1))
    return [KeyRange(*pair) for pair in zip(starts.tolist(), stops.tolist(), strict=True)]
