"""Which bytes of a model are on which rank, moment by moment through a step of training.

Each rank has a bar of parameters, one of gradients and one of the optimizer's states, to scale. A
bar is cut into layers, and each layer into the shards of the ranks, in the colours of their owners.
What is not there at the moment is left white. (Rajbhandari et al., "ZeRO", SC 2020, section 5; the
bytes are those of its section 3.1, 2 + 2 + 12 for each parameter.)
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from course_lib.simulate.memory_formulas import MIXED_ADAM
from course_lib.text import counted, listed, table

from .palette import RANKS
from .svg_drawing import SMALL, WIDTH, Picture
from .units import count_text, size_text
from .view import View
from .widgets import Control, Explorer, explore

STAGES = ("DDP", "ZeRO-1", "ZeRO-2", "ZeRO-3")
# Parameters, in the round numbers by which the paper names models.
SIZES = {"GPT-2 1.5B": 1.5e9, "7.5B": 7.5e9, "GPT-3 175B": 175e9, "1T": 1e12}
LAYERS = 4
BYTES = {
    "parameters": MIXED_ADAM.parameter,
    "gradients": MIXED_ADAM.gradient,
    "optimizer": MIXED_ADAM.optimizer,
}
_LEFT, _RIGHT, _GAP = 60.0, 166.0, 12.0  # pixels: names, numbers, between bars

Cell = tuple[int, int]  # a layer, and whose shard of it


@dataclass(frozen=True)
class Moment:
    """What a rank holds at one moment: name of the bar -> cells; the same on every rank."""

    name: str
    says: str
    whole: dict[str, tuple[int, ...]]  # layers of which all shards are there
    own: dict[str, tuple[int, ...]]  # layers of which only the rank's own shard is there

    def cells(self, part: str, rank: int, ranks: int) -> list[Cell]:
        """What of a bar is on a rank."""
        whole = [(layer, owner) for layer in self.whole[part] for owner in range(ranks)]
        return sorted(whole + [(layer, rank) for layer in self.own[part]])

    def held(self, ranks: int) -> float:
        """Bytes per parameter of the model on each rank."""
        shares = (
            (len(self.whole[part]) + len(self.own[part]) / ranks) * nbytes / LAYERS
            for part, nbytes in BYTES.items()
        )
        return sum(shares)


def moments(stage: int) -> Iterator[Moment]:
    """A step of stage 0 (data parallel) to 3: forward, backward, averaging, optimizer."""
    everything = tuple(range(LAYERS))

    def moment(name: str, says: str, used: int | None, whole: tuple, own: tuple) -> Moment:
        gathered = everything if stage < 3 else () if used is None else (used,)
        return Moment(
            name,
            says,
            {
                "parameters": gathered,
                "gradients": whole,
                "optimizer": everything if stage < 1 else (),
            },
            {
                "parameters": tuple(sorted({*everything} - {*gathered})),
                "gradients": own,
                "optimizer": everything if stage >= 1 else (),
            },
        )

    yield moment("between steps", _KEPT[stage], None, (), ())
    for layer in everything:
        fetched = f"the ranks gather layer {layer}, use it and drop it again"
        says = fetched if stage == 3 else "all parameters are here; nothing is sent"
        yield moment(f"forward, layer {layer}", says, layer, (), ())
    for layer in reversed(everything):
        behind = everything[layer + 1 :]
        says = _BACKWARD[stage].format(layer=layer)
        if stage < 2:
            yield moment(f"backward, layer {layer}", says, layer, everything[layer:], ())
        else:
            yield moment(f"backward, layer {layer}", says, layer, (layer,), behind)
    left = ((), everything) if stage >= 1 else (everything, ())
    yield moment("gradients averaged", _AVERAGED[stage], None, *left)
    yield moment("optimizer", _STEPPED[stage], None, *left)


_KEPT = (
    "every rank keeps everything",
    "each rank keeps the optimizer's states of its own shards only",
    "each rank keeps the optimizer's states of its own shards only",
    "each rank keeps only its own shards, of everything",
)
_BACKWARD = (
    "the gradient of layer {layer} joins the others",
    "the gradient of layer {layer} joins the others",
    "layer {layer}'s gradient is whole for a moment; then reduce-scatter, and each keeps its shard",
    "layer {layer} is gathered again; of its gradient each keeps its shard",
)
_AVERAGED = (
    "an all-reduce: every rank has the average of all gradients",
    "a reduce-scatter: each rank has the average of its own shards, and drops the rest",
    "already done, layer by layer",
    "already done, layer by layer",
)
_STEPPED = (
    "every rank updates all parameters, and all do the same",
    "each rank updates its shards; an all-gather brings the new parameters to all",
    "each rank updates its shards; an all-gather brings the new parameters to all",
    "each rank updates its shards; the next forward gathers them",
)


def zero_step(stage: str = "ZeRO-1", ranks: int = 4, model: str = "7.5B") -> View:
    """A step of training under a stage of ZeRO on 1 to 8 ranks, as bytes of a model in SIZES."""
    if stage not in STAGES:
        raise ValueError(f"stage = {stage!r} is none of {', '.join(STAGES)}")
    if not 1 <= ranks <= len(RANKS):
        raise ValueError(f"the picture holds 1 to {len(RANKS)} ranks, not {ranks}")
    steps = list(moments(STAGES.index(stage)))
    size = SIZES[model]
    most = max(steps, key=lambda moment: moment.held(ranks))
    title = (
        f"{stage} on {counted(ranks, 'rank')}, a model of {count_text(size)} "
        f"parameters: at most {size_text(most.held(ranks) * size)} per rank, in "
        f'"{most.name}"'
    )
    return View(_draw(steps, ranks, size, title), _text(steps, ranks, size, title))


def zero_step_explorer() -> Explorer:
    """`zero_step` under controls; the moment that is shown stays from stage to stage."""
    return explore(
        zero_step,
        height=318,
        stage=Control(STAGES, "stage"),
        ranks=Control([1, 2, 4, 8], "number of ranks"),
        model=Control(list(SIZES), "model"),
    )


# ------------------------------------------------------------------------------------------------


def _text(steps: list[Moment], ranks: int, size: float, title: str) -> str:
    rows = [("", "bytes per parameter", "on each rank")]
    for moment in steps:
        held = moment.held(ranks)
        rows.append((moment.name, f"{held:.2f}", size_text(held * size)))
    says = ["", *(moment.says for moment in steps)]
    lines = zip(table(rows).splitlines(), says, strict=True)
    return "\n".join([title, _cut(ranks), *(f"{line}   {words}".rstrip() for line, words in lines)])


@dataclass(frozen=True)
class _Bars:
    """The bars of all ranks: `lefts` by name, a row for each rank from `top` on."""

    picture: Picture
    ranks: int
    top: float
    row: float
    unit: float  # pixels for a byte of each parameter
    lefts: dict[str, float]

    def frames(self) -> None:
        """What is drawn around what may be there."""
        for part, left in self.lefts.items():
            self.picture.text(left, self.top - 25, part, SMALL)
            self.picture.text(left, self.top - 11, f"{BYTES[part]:g} bytes", SMALL, ink="soft")
            right = left + BYTES[part] * self.unit
            for rank in range(self.ranks):
                y, low = self.top + rank * self.row, self.top + (rank + 1) * self.row - 6
                around = [(left, y), (right, y), (right, low), (left, low), (left, y)]
                self.picture.line(around, "line")
                for layer in range(1, LAYERS):
                    x = left + layer / LAYERS * (right - left)
                    self.picture.line([(x, y), (x, low)], "line")
        for rank in range(self.ranks):
            y = self.top + (rank + 0.5) * self.row - 3
            self.picture.text(_LEFT - 8, y, f"rank {rank}", SMALL, "end")

    def fill(self, moment: Moment, parts: Sequence[str]) -> None:
        """What of some bars is there at a moment."""
        for part, rank in itertools.product(parts, range(self.ranks)):
            wide = BYTES[part] * self.unit / LAYERS / self.ranks
            y, high = self.top + rank * self.row, self.row - 6
            layers: dict[int, list[int]] = {}
            for layer, owner in moment.cells(part, rank, self.ranks):
                layers.setdefault(owner, []).append(layer)
            for owner, there in layers.items():
                which = f"layer{'s' if len(there) > 1 else ''} {listed(there)}"
                hint = f"rank {rank} has {part} of rank {owner}'s shards, {which}"
                places = [self.lefts[part] + (k * self.ranks + owner) * wide for k in there]
                self.picture.cells(places, y, wide, high, RANKS[owner], hint, key=part)

    def words(self, moment: Moment, size: float) -> None:
        """What happens, and how many bytes each rank holds."""
        self.picture.text(4, self.top - 48, moment.name, bold=True)
        self.picture.text(170, self.top - 48, moment.says)
        held, x = moment.held(self.ranks), WIDTH - _RIGHT + 10
        for rank in range(self.ranks):
            y = self.top + (rank + 0.5) * self.row - 3
            tall = self.row > 36
            self.picture.text(x, y - (6 if tall else 0), size_text(held * size), bold=True)
            if tall:
                words = f"{held:.3g} bytes per parameter"
                self.picture.text(x, y + 8, words, SMALL, ink="soft")


def _cut(ranks: int) -> str:
    """How to read a bar."""
    into = f", each cut into {ranks} shards, one for each rank" if ranks > 1 else ""
    return f"Each bar has {LAYERS} layers{into}. What is empty is not there."


def _draw(steps: list[Moment], ranks: int, size: float, title: str) -> Picture:
    picture = Picture(title)
    picture.text(4, picture.height + 8, _cut(ranks), SMALL, ink="soft")
    top, row = picture.height + 84, min(44.0, 176 / ranks)
    unit = (WIDTH - _LEFT - _RIGHT - 2 * _GAP) / sum(BYTES.values())
    ends = itertools.accumulate(nbytes * unit + _GAP for nbytes in BYTES.values())
    lefts = dict(zip(BYTES, (_LEFT, *(_LEFT + end for end in ends)), strict=False))
    bars = _Bars(picture, ranks, top, row, unit, lefts)
    bars.frames()
    lasting = [p for p in BYTES if all(m.cells(p, 0, 2) == steps[0].cells(p, 0, 2) for m in steps)]
    passing = [part for part in BYTES if part not in lasting]
    bars.fill(steps[0], lasting)
    with picture.group("still"):
        middle = steps[1 + LAYERS + LAYERS // 2]  # in the middle of backward
        bars.fill(middle, passing)
        bars.words(middle, size)
    for moment in steps:
        with picture.group("frame", moment.name):
            bars.fill(moment, passing)
            bars.words(moment, size)
    picture.height = top + ranks * row
    picture.key({f"shard of rank {rank}": fill for rank, fill in enumerate(RANKS[:ranks])})
    return picture
