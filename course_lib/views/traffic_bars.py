"""Who sends how much: one bar per rank, runs side by side."""

from collections.abc import Callable, Mapping

from course_lib.observe import Traffic

from .charts import Field, round_numbers
from .palette import SERIES
from .svg_drawing import SMALL, Picture, width
from .units import size_text
from .view import View


def traffic_bars(
    traffic: Mapping[str, Traffic],
    per_tensor: int | None = None,
    unit: str = "tensors",
    ranks: Mapping[int, str] | None = None,
) -> View:
    """Bytes sent by every rank in each of the named runs, all of the same world size.

    per_tensor  bytes of the tensor that was reduced: amounts are counted in such tensors
    unit        what such tensors are called, in the plural: "models"
    ranks       what ranks are called, where they have parts: {0: "the server"}
    """
    if not 1 <= len(traffic) <= len(SERIES):
        raise ValueError(f"1 to {len(SERIES)} runs can be told apart, not {len(traffic)}")
    one = per_tensor or 1
    sent = {name: [amount / one for amount in run.sent] for name, run in traffic.items()}
    count = len(next(iter(sent.values())))
    if unknown := sorted(set(ranks or {}) - set(range(count))):
        raise ValueError(f"rank {unknown[0]} has a name, and there are {count} ranks")
    names = [(ranks or {}).get(rank, f"rank {rank}") for rank in range(count)]
    label = f"{unit if per_tensor else 'bytes'} sent"
    text = "{:.3g}".format if per_tensor else size_text
    return View(_draw(sent, names, label, text), _text(sent, names, label))


def _text(sent: dict[str, list[float]], names: list[str], label: str) -> str:
    first = max(len(label), *(len(name) for name in sent))
    wide = [max(10, len(name) + 2) for name in names]
    rows = [f"{label:<{first}}" + "".join(f"{n:>{w}}" for n, w in zip(names, wide, strict=True))]
    rows += [
        f"{run:<{first}}" + "".join(f"{n:>{w}.4g}" for n, w in zip(amounts, wide, strict=True))
        for run, amounts in sent.items()
    ]
    return "\n".join(rows)


def _draw(
    sent: dict[str, list[float]], names: list[str], label: str, text: Callable[[float], str]
) -> Picture:
    run = max(sent, key=lambda run: max(sent[run]))
    rank, most = max(enumerate(sent[run]), key=lambda item: item[1])
    unit = label.removesuffix(" sent")
    shown = text(most) if unit == "bytes" else f"{text(most)} {unit}"
    picture = Picture(f"{run}: {names[rank]} sends most, {shown}")
    highest = 1.12 * most or 1
    field = Field(picture, 70, picture.height + 24, 756, 220, (0, len(names)), (0, highest))
    field.marks_left(round_numbers(0, highest, 6, text), label, grid=True)
    field.marks_below({rank + 0.5: name for rank, name in enumerate(names)})
    fills = dict(zip(sent, SERIES, strict=False))
    wide = 0.8 / len(sent)
    for index, (name, amounts) in enumerate(sent.items()):
        for rank, amount in enumerate(amounts):
            left = field.across(rank + 0.1 + index * wide)
            right, top = field.across(rank + 0.1 + (index + 1) * wide), field.up(amount)
            hint = f"{name}, {names[rank]}: {text(amount)}"
            picture.box(left, top, right - left - 2, field.bottom - top, fills[name], hint,
                        key=name)  # fmt: skip
            if width(text(amount), SMALL) < right - left + 6:
                picture.text((left + right) / 2, top - 8, text(amount), SMALL, "middle")
    picture.key(fills)
    return picture
