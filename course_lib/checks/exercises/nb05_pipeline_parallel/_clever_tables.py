"""What the exercises interleaved_schedule and zero_bubble_schedule share."""

from collections.abc import Sequence

from course_lib.checks.exercise import Finding

from ._tables import (
    shown,
)


def too_much(most: list[int], held: list, rule: str, table: Sequence) -> Finding | None:
    for rank, (got, allowed) in enumerate(zip(held, most, strict=True)):
        if got > allowed:
            return Finding(
                f"as fast as it should be, but rank {rank} holds more than it has to: it puts off "
                "work that frees memory for longer than it needs",
                rank,
                expected=f"at most {rule} = {most} on the ranks",
                got=f"{held}\n{shown(table)}",
            )
    return None
