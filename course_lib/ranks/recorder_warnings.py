"""What the recorder warns of, told once for each line and not once for each rank."""

from course_lib.observe import RankWarning

from .report_width import wrapped
from .wording import ranks_text


def once_each(warnings: list[RankWarning]) -> list[tuple[RankWarning, list[int]]]:
    """The first warning of each line, with all ranks that have it."""
    alike: dict[tuple, list[RankWarning]] = {}
    for warning in warnings:
        key = (warning.kind, warning.where[:1], warning.issued_at[:1])
        alike.setdefault(key, []).append(warning)
    return [(same[0], sorted({warning.rank for warning in same})) for same in alike.values()]


def show_warnings(warnings: list[RankWarning]) -> None:
    """Print them below what the ranks printed."""
    for warning, ranks in once_each(warnings):
        more = f" ({ranks_text(ranks)}; told for rank {warning.rank})" if len(ranks) > 1 else ""
        print(wrapped("warning: ", warning.message + more))
