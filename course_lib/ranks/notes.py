"""What the recorder noted, told once for each line and not once for each rank."""

from course_lib.observe import Trap

from .layout import wrapped
from .wording import ranks_text


def once_each(notes: list[Trap]) -> list[tuple[Trap, list[int]]]:
    """The first note of each line, with all ranks that have it."""
    alike: dict[tuple, list[Trap]] = {}
    for trap in notes:
        alike.setdefault((trap.kind, trap.where[:1], trap.issued_at[:1]), []).append(trap)
    return [(traps[0], sorted({trap.rank for trap in traps})) for traps in alike.values()]


def show(notes: list[Trap]) -> None:
    """Print them below what the ranks printed."""
    for trap, ranks in once_each(notes):
        more = f" ({ranks_text(ranks)}; told for rank {trap.rank})" if len(ranks) > 1 else ""
        print(wrapped("note: ", trap.message + more))
