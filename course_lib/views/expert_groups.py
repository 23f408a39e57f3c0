"""Ranks that share a set of experts, and ranks that hold the same ones: a row and a column each.

Tokens travel along a row, gradients of experts along a column. All other gradients are averaged
over every rank.
"""

from course_lib.techniques.mesh import Mesh
from course_lib.text import counted, listed

from .palette import RANKS, Fill
from .svg_drawing import SMALL, WIDTH, Picture
from .view import View

_LARGEST = 4  # ranks in a row, and in a column
_HIGH, _GAP, _LEFT = 62.0, 34.0, 12.0  # pixels: a rank, below it, left of all
_RANK = Fill("#88888822", ink="ink")


def expert_groups(mesh: Mesh, experts: int) -> View:
    """The ranks of the data axis, `mesh.expert` of them in a row, which hold all `experts`.

    Raises `ValueError` where another axis has more than one rank, and for what has no room.
    """
    across = mesh.expert
    down = mesh.data // across
    if mesh.world_size != mesh.data:
        raise ValueError(f"the picture has {mesh.data} ranks of one axis, and {mesh} has more")
    if not (across <= _LARGEST and down <= _LARGEST and 1 <= experts <= len(RANKS)):
        raise ValueError(
            f"{experts} experts, {down} x {across} ranks: there is room for {len(RANKS)} and"
            f" {_LARGEST} x {_LARGEST}"
        )
    if experts % across:
        raise ValueError(f"{experts} experts cannot be spread evenly over {across} ranks")
    title = f"{mesh.data} ranks, {experts} experts in {counted(down, 'copy', 'copies')}"
    lines = [
        "along a row (expert group), tokens go to their experts: "
        + _ranks([mesh.group("expert", row * across) for row in range(down)]),
        "along a column (replicas), gradients of the experts are added up: "
        + _ranks([mesh.group("expert_data", column) for column in range(across)]),
        f"attention, router and norms are on all ranks: gradients over all {mesh.data}",
    ]
    return View(_draw(mesh, experts, title, lines), "\n".join([title, *lines]))


# ------------------------------------------------------------------------------------------------


def _ranks(groups: list[list[int]]) -> str:
    return "ranks " + "; ".join(listed(group) for group in groups)


def _draw(mesh: Mesh, experts: int, title: str, lines: list[str]) -> Picture:
    picture = Picture(title)
    for line in lines:
        picture.height = picture.paragraph(4, picture.height + 8, line, WIDTH - 8) - 4
    across, share = mesh.expert, experts // mesh.expert
    apart = 110.0 if across > 1 else 0.0
    wide = min(230.0, (WIDTH - 2 * _LEFT - (across - 1) * apart) / across)
    top = picture.height + 16
    for rank in range(mesh.data):
        row, column = divmod(rank, across)
        x, y = _LEFT + column * (wide + apart), top + row * (_HIGH + _GAP)
        mine = range(column * share, (column + 1) * share)
        hint = f"rank {rank}: experts {listed(mine)}; attention, router, norms"
        picture.box(x, y, wide, _HIGH, _RANK, hint, key="rank")
        picture.text(x + 8, y + 14, f"rank {rank}", SMALL, bold=True)
        picture.text(x + wide - 8, y + 14, "attention, router, norms", 10, "end", ink="soft")
        each = (wide - 16) / share
        for place, expert in enumerate(mine):
            left = x + 8 + place * each
            word = f"expert {expert}" if each > 60 else str(expert)
            picture.box(
                left, y + 30, each - 4, 22, RANKS[expert], f"expert {expert} on rank {rank}", word,
                key="expert",
            )  # fmt: skip
        if column + 1 < across:
            _both_ways(
                picture, (x + wide + 6, y + _HIGH / 2), (x + wide + apart - 6, y + _HIGH / 2)
            )
            picture.text(x + wide + apart / 2, y + _HIGH / 2 - 12, "tokens", SMALL, "middle")
        if rank + across < mesh.data:
            middle = x + wide / 2
            _both_ways(picture, (middle, y + _HIGH + 4), (middle, y + _HIGH + _GAP - 4))
            words = f"gradients of {'experts' if share > 1 else 'expert'} {listed(mine)}"
            picture.text(middle + 10, y + _HIGH + _GAP / 2, words, SMALL)
        picture.height = y + _HIGH + 8
    return picture


def _both_ways(picture: Picture, start: tuple[float, float], end: tuple[float, float]) -> None:
    picture.arrow(start, end, "soft")
    picture.arrow(end, start, "soft")
