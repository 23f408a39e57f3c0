"""Collectives that pass though they were not meant for each other: swapped, or of another shape.

Torch pairs the k-th call of a group on one rank with the k-th on every other. Two all-reduces of
equal size in another order on some rank therefore add up the wrong tensors, without an error. Only
the lines tell: both ranks pass both of them, the other way round. That is no mistake where they
are branches of one `if`, which ranks take in turns.
"""

import ast
import functools
import linecache
from collections.abc import Iterable, Iterator

from course_lib.observe import CommEvent, Frame, RankWarning
from course_lib.observe.event_wording import location
from course_lib.observe.matching import GroupCalls

# A root takes turns with the others by design, and a barrier has nothing to mix up.
_SYMMETRIC = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
_ONE_SHAPE = ("all_reduce", "reduce", "broadcast", "all_gather", "reduce_scatter")


def swapped_calls(groups: Iterable[GroupCalls]) -> Iterator[RankWarning]:
    """At most one warning for each group whose calls agree in size, operation and number."""
    for group in groups:
        if group.divergence is None:
            first, *others = group.ranks
            found = (_between(group.calls[first], group.calls[rank]) for rank in others)
            yield from list(filter(None, found))[:1]


def _between(calls: list[CommEvent], others: list[CommEvent]) -> RankWarning | None:
    lines, other_lines = {e.where for e in calls}, {e.where for e in others}
    for one, other in zip(calls, others, strict=True):
        if one.done is None or other.done is None:
            return None
        if one.op in _ONE_SHAPE and _looks_transposed(one, other):
            return _warning(one, other, _SHAPES.format(one=one, other=other, **_places(one, other)))
        if (
            one.where != other.where
            and one.op in _SYMMETRIC
            and one.where in other_lines
            and other.where in lines
            and (apart := _where_they_part(one.where, other.where))
            and not _branches_of_one_if(*apart)
        ):
            here, there = (location((frame,)) for frame in apart)
            return _warning(
                one, other, _SWAPPED.format(one=one, other=other, here=here, there=there)
            )
    return None


_SWAPPED = (
    "rank {one.rank}'s {one.op} from {here} was paired with rank {other.rank}'s from {there}: both "
    "ranks pass both lines, but in another order. The sizes are equal, so nothing fails, and the "
    "wrong tensors are put together. Call them in the same order on every rank"
)
_SHAPES = (
    "rank {one.rank}'s {one.op} of shape {one.shapes[0]} in {here} was paired with rank "
    "{other.rank}'s of shape {other.shapes[0]} in {there}: they have the same number of elements, "
    "so nothing fails, and elements meet that do not belong together. The tensors need the same "
    "shape on every rank"
)


def _places(one: CommEvent, other: CommEvent) -> dict[str, str]:
    return {"here": location(one.where), "there": location(other.where)}


def _warning(one: CommEvent, other: CommEvent, message: str) -> RankWarning:
    return RankWarning(one.rank, "mismatched_collective", message, one.where, other.where)


def _looks_transposed(one: CommEvent, other: CommEvent) -> bool:
    """Whether the shapes differ by more than a tensor that was laid out flat."""
    if one.splits or other.splits or len(one.shapes) != 1 or len(other.shapes) != 1:
        return False
    shapes = [[n for n in event.shapes[0] if n != 1] for event in (one, other)]
    return shapes[0] != shapes[1] and min(map(len, shapes)) > 1


def _where_they_part(
    one: tuple[Frame, ...], other: tuple[Frame, ...]
) -> tuple[Frame, Frame] | None:
    """The outermost lines that differ, if they are of one function."""
    for mine, theirs in zip(reversed(one), reversed(other), strict=False):
        if mine != theirs:
            same = (mine.file, mine.function) == (theirs.file, theirs.function)
            return (mine, theirs) if same else None
    return None


def _branches_of_one_if(one: Frame, other: Frame) -> bool:
    """Whether only one of the lines runs at a time; True if the source cannot be had."""
    branches = _branches(one.file)
    return branches is None or any(
        (one.line in body and other.line in instead) or (other.line in body and one.line in instead)
        for body, instead in branches
    )


@functools.lru_cache(maxsize=32)
def _branches(file: str) -> list[tuple[range, range]] | None:
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except SyntaxError:
        return None
    if not tree.body:
        return None
    return [
        (_lines(node.body), _lines(node.orelse))
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and node.orelse
    ]


def _lines(statements: list[ast.stmt]) -> range:
    last = statements[-1]
    return range(statements[0].lineno, (last.end_lineno or last.lineno) + 1)
