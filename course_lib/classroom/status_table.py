"""How a learner's status looks: in a terminal, and as a small table at the top of a notebook."""

import html
from dataclasses import dataclass, field

PASSED, CHANGED, BEGUN, OPEN = "passed", "passed before, changed since", "begun", "not attempted"
_MARKS = {PASSED: "✓", CHANGED: "~", BEGUN: "●", OPEN: "○"}
_LEGEND = " · ".join(f"{mark} {state}" for state, mark in _MARKS.items())


@dataclass(frozen=True)
class Step:
    """An exercise: its name, its state and since when it has been passed."""

    exercise: str
    state: str
    since: str = ""


@dataclass(frozen=True)
class Status:
    """Steps of each lesson, in the order of the notebooks; in a notebook it draws itself.

    missing: lessons whose notebook is not there, or cannot be read.
    """

    lessons: dict[str, list[Step]] = field(repr=False)
    missing: tuple[str, ...] = ()

    @property
    def next(self) -> tuple[str, Step] | None:
        """The first exercise, and its lesson, that is not passed as it stands."""
        for lesson, steps in self.lessons.items():
            for step in steps:
                if step.state != PASSED:
                    return lesson, step
        return None

    @property
    def passed(self) -> int:
        return sum(step.state == PASSED for steps in self.lessons.values() for step in steps)

    @property
    def total(self) -> int:
        return sum(map(len, self.lessons.values()))

    def __str__(self) -> str:
        lines = [self._count()]
        for lesson, steps in self.lessons.items():
            marks = "".join(_MARKS[step.state] for step in steps)
            lines += ["", f"{lesson:<28} {marks}  {_share(steps)}"]
            width = max((len(step.exercise) for step in steps), default=0)
            lines += [
                f"  {_MARKS[s.state]} {s.exercise:<{width}}  {s.state}"
                + (f" ({s.since})" if s.since else "")
                for s in steps
            ]
        return "\n".join([*lines, "", *self._advice()])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        rows = []
        for lesson, steps in self.lessons.items():
            marks = " ".join(
                f'<span title="{html.escape(f"{s.exercise}: {s.state}")}">{_MARKS[s.state]}</span>'
                for s in steps
            )
            name = html.escape(lesson)
            cells = (f'<a href="{name}.ipynb">{name}</a>', marks, _share(steps))
            left = "".join(f'<td style="text-align: left">{cell}</td>' for cell in cells)
            rows.append(f"<tr>{left}</tr>")
        said = "<br>".join(map(html.escape, self._advice()))
        return (
            f"<p><b>{self._count()}</b><br>{said}</p>"
            f"<table>{''.join(rows)}</table><p><small>{_LEGEND}</small></p>"
        )

    def _count(self) -> str:
        return f"{self.passed} of {self.total} exercises passed"

    def _advice(self) -> list[str]:
        said = []
        if self.next is not None:
            lesson, step = self.next
            said += [
                f'Next: {step.exercise} in {lesson}. If you are stuck: hint("{step.exercise}")'
            ]
        elif self.total:
            said += ["All passed."]
        if self.missing:
            said += [f"Not found in this folder, or not readable: {', '.join(self.missing)}"]
        return said


@dataclass(frozen=True)
class Remark:
    """Said instead of a status that cannot be had."""

    text: str

    def __repr__(self) -> str:
        return self.text


def _share(steps: list[Step]) -> str:
    return f"{sum(step.state == PASSED for step in steps)} of {len(steps)}"
