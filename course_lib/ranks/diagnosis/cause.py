"""What looking for a cause comes to."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Cause:
    """One sentence of cause and one of remedy.

    `mismatch` tells calls that do not fit together (which gloo answers by a hang or by aborting the
    process, as it comes) from calls whose other end is missing.
    """

    why: str
    remedy: str
    mismatch: bool = False
