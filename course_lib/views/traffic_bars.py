"""Who sends how much: one bar per rank, runs side by side."""

from collections.abc import Callable, Mapping

from course_lib.observe import Traffic

from .charts import Field, round_numbers
from .palette import SERIES
from .svg_drawing import SMALL, Picture, width
from .units import size_text
from .view import View


def traffic_bars(traffic: Mapping[str, Traffic], per_tensor: int | None = None) -> View:
    """Bytes sent by every rank in each of the named runs, all of the same world size.

    With `per_tensor`, the bytes of the tensor that was reduced, amounts are counted in tensors.
    """
    if not 1 <= len(traffic) <= len(SERIES):
        raise ValueError(f"1 to {len(SERIES)} runs can be told apart, not {len(traffic)}")
    unit = per_tensor or 1
    sent = {name: [amount / unit for amount in run.sent] for name, run in traffic.items()}
    label = "tensors sent" if per_tensor else "bytes sent"
    text = "{:.3g}".format if per_tensor else size_text
    return View(_draw(sent, label, text), _text(sent, label))


def _text(sent: dict[str, list[float]], label: str) -> str:
    width = max(len(label), *(len(name) for name in sent))
    ranks = range(len(next(iter(sent.values()))))
    rows = [f"{label:<{width}}" + "".join(f"{f'rank {rank}':>10}" for rank in ranks)]
    rows += [
        f"{name:<{width}}" + "".join(f"{amount:>10.4g}" for amount in amounts)
        for name, amounts in sent.items()
    ]
    return "\n".join(rows)


def _draw(sent: dict[str, list[float]], label: str, text: Callable[[float], str]) -> Picture:
    name = max(sent, key=lambda name: max(sent[name]))
    rank, most = max(enumerate(sent[name]), key=lambda item: item[1])
    shown = f"{text(most)} tensors" if label.startswith("tensors") else text(most)
    picture = Picture(f"{name}: rank {rank} sends most, {shown}")
    count = len(next(iter(sent.values())))
    highest = 1.12 * most or 1
    field = Field(picture, 70, picture.height + 24, 756, 220, (0, count), (0, highest))
    field.marks_left(round_numbers(0, highest, 6, text), label, grid=True)
    field.marks_below({rank + 0.5: f"rank {rank}" for rank in range(count)})
    fills = dict(zip(sent, SERIES, strict=False))
    wide = 0.8 / len(sent)
    for index, (name, amounts) in enumerate(sent.items()):
        for rank, amount in enumerate(amounts):
            left = field.across(rank + 0.1 + index * wide)
            right, top = field.across(rank + 0.1 + (index + 1) * wide), field.up(amount)
            hint = f"{name}, rank {rank}: {text(amount)}"
            picture.box(left, top, right - left - 2, field.bottom - top, fills[name], hint,
                        key=name)  # fmt: skip
            if width(text(amount), SMALL) < right - left + 6:
                picture.text((left + right) / 2, top - 8, text(amount), SMALL, "middle")
    picture.key(fills)
    return picture
