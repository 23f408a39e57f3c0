"""The idea of data parallelism: parts of a batch, a copy of the model for each, one average."""

from course_lib.text import counted, table

from .palette import COLLECTIVE, QUIET, RANKS, Fill
from .svg_drawing import SMALL, Picture
from .view import View

_LEFT, _ROW, _HIGH = 64, 60, 45  # pixels: left of the batch, from rank to rank, and of a box
_WIDE = {"rows": 100, "model": 120, "gradient": 150, "all-reduce": 110, "step": 120}
_GAP = 38
_HEADS = {
    "rows": "the batch",
    "model": "copies of a model",
    "gradient": "gradients differ",
    "all-reduce": "one all-reduce",
    "step": "the same step",
}


def replicas(ranks: int = 4, rows: int = 12) -> View:
    """A step of 1 to 8 ranks, each with an equal part of the batch; ranks divide the rows."""
    if not 1 <= ranks <= len(RANKS):
        raise ValueError(f"the picture holds 1 to {len(RANKS)} ranks, not {ranks}")
    if rows < ranks or rows % ranks:
        raise ValueError(f"{rows} rows cannot be shared equally by {counted(ranks, 'rank')}")
    title = (
        f"{counted(ranks, 'rank')}: a copy of the model on each, {rows // ranks} of {rows} rows, "
        "and the average of all gradients"
    )
    lines: list[list[object]] = [["rank", "rows", "gradient", "step"]]
    lines += [[rank, _part(rank, rows // ranks), "its own", "the same"] for rank in range(ranks)]
    return View(_draw(ranks, rows, title), "\n".join([title, table(lines, left=0)]))


# ------------------------------------------------------------------------------------------------


def _part(rank: int, share: int) -> str:
    """ "3 to 5"."""
    first, last = rank * share, (rank + 1) * share - 1
    return f"{first} to {last}" if last > first else str(first)


def _draw(ranks: int, rows: int, title: str) -> Picture:
    picture, share = Picture(title), rows // ranks
    starts, x = {}, float(_LEFT)
    for name, wide in _WIDE.items():
        starts[name] = x
        picture.text(x + wide / 2, picture.height + 10, _HEADS[name], SMALL, "middle", ink="soft")
        x += wide + _GAP
    top = picture.height + 26

    def box(name: str, y: float, high: float, fill: Fill, word: str) -> None:
        picture.box(starts[name], y, _WIDE[name], high, fill, word, word, key=name)

    for rank in range(ranks):
        y, fill = top + _ROW * rank, RANKS[rank]
        picture.text(_LEFT - 8, y + _HIGH / 2, f"rank {rank}", SMALL, "end")
        for row in range(share):
            high = _HIGH / share
            box("rows", y + high * row, high - 1, fill, f"row {rank * share + row}")
        box("model", y, _HIGH, QUIET, "the model")
        box("gradient", y, _HIGH, fill, f"of rows {_part(rank, share)}")
        box("step", y, _HIGH, QUIET, "update")
        for before, after in zip(_WIDE, list(_WIDE)[1:], strict=False):
            start = starts[before] + _WIDE[before] + 5
            picture.arrow((start, y + _HIGH / 2), (starts[after] - 4, y + _HIGH / 2), "soft")
    box("all-reduce", top, _ROW * (ranks - 1) + _HIGH, COLLECTIVE, "average")
    picture.height = top + _ROW * ranks
    return picture
