"""Workers of a parameter server as a run went, by its logical time: who waits, who runs ahead.

What is drawn was recorded by the server (`techniques/parameter_server/server.py`): when it let each
worker begin a task, how far ahead of the slowest that worker was, and how stale the push was that
ended the task.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from course_lib.text import counted, table

from .charts import Field, whole_numbers
from .palette import WAITS, Fill, shade
from .svg_drawing import SMALL, WIDTH, Picture, width
from .view import View

Says = Literal["lead", "staleness"]
_LEFT, _DONE, _ROW = 84, 76, 17  # pixels left of the time, right of it, and of a worker
_SAID = {
    "lead": "number and shade: tasks ahead of the slowest when it began",
    "staleness": "number and shade: steps of the server between its pull and its push",
}


class Start(Protocol):
    """A worker was given the values for a task, `lead` ahead of the slowest, having `waited`."""

    worker: int
    task: int
    lead: int
    waited: int


class Step(Protocol):
    """The task of a worker was pushed, `staleness` steps after it had pulled."""

    worker: int
    task: int
    staleness: int


class Report(Protocol):
    """What a server noted, in the order in which it happened."""

    starts: Sequence[Start]
    steps: Sequence[Step]


@dataclass(frozen=True)
class Task:
    """A task from `begin` to `end`, after its worker `waited`; staleness -1: was never pushed."""

    worker: int
    number: int
    waited: float
    begin: float
    end: float
    lead: int
    staleness: int


def tasks_of(report: Report, cost: Callable[[int], float]) -> list[Task]:
    """The tasks in the order in which they began; a task of a worker takes `cost(worker)`."""
    stale = {(step.worker, step.task): step.staleness for step in report.steps}
    clock: dict[int, float] = {}
    tasks = []
    for start in report.starts:
        begin = clock.get(start.worker, 0.0) + start.waited
        end = clock[start.worker] = begin + cost(start.worker)
        late = stale.get((start.worker, start.task), -1)
        tasks.append(Task(start.worker, start.task, start.waited, begin, end, start.lead, late))
    return tasks


def parameter_server_timelines(
    runs: Mapping[str, tuple[Report, Callable[[int], float]]], says: Says, until: float
) -> View:
    """The first `until` tasks of a fast worker, in each of the named runs.

    runs  {name: (what the server reports, the time that a task of a worker takes)}
    says  what stands in a task: how far ahead the worker was, or how stale its push
    """
    if says not in _SAID:
        raise ValueError(f"says = {says!r} must be 'lead' or 'staleness'")
    if not runs:
        raise ValueError("there is no run to show")
    played = {name: tasks_of(*run) for name, run in runs.items()}
    unit = min(cost(task.worker) for name, (_, cost) in runs.items() for task in played[name])
    end = until * unit
    shown = {
        name: [task for task in tasks if task.begin - task.waited < end]
        for name, tasks in played.items()
    }
    text = "\n\n".join(_text(name, tasks, says, end) for name, tasks in shown.items())
    return View(_draw(shown, says, end, unit), text)


# ------------------------------------------------------------------------------------------------


def _number(task: Task, says: Says) -> int:
    return task.lead if says == "lead" else task.staleness


def _waiting(tasks: Sequence[Task], end: float) -> float:
    """Share of the workers' time until `end` that they wait."""
    workers = len({task.worker for task in tasks})
    waits = (min(task.begin, end) - min(task.begin - task.waited, end) for task in tasks)
    return sum(waits) / (workers * end)


def _done(tasks: Sequence[Task], worker: int, end: float) -> int:
    return sum(1 for task in tasks if task.worker == worker and task.end <= end)


def _head(name: str, tasks: Sequence[Task], says: Says, end: float) -> str:
    most = max(_number(task, says) for task in tasks)
    if says == "lead":
        what = f"at most {counted(most, 'task')} ahead" if most else "nobody ahead"
    else:
        what = f"pushes at most {counted(most, 'step')} stale" if most else "no push stale"
    return f"{name}: {_waiting(tasks, end):.0%} of the time spent waiting, {what}"


def _text(name: str, tasks: Sequence[Task], says: Says, end: float) -> str:
    rows: list[Sequence[object]] = [["", "tasks done", f"{says} of each"]]
    for worker in sorted({task.worker for task in tasks}):
        own = [task for task in tasks if task.worker == worker]
        numbers = " ".join(str(_number(task, says)) for task in own if task.end <= end)
        rows.append([f"worker {worker}", _done(own, worker, end), numbers])
    return "\n".join([_head(name, tasks, says, end), table(rows)])


def _draw(shown: Mapping[str, Sequence[Task]], says: Says, end: float, unit: float) -> Picture:
    heads = [_head(name, tasks, says, end) for name, tasks in shown.items()]
    picture = Picture("")
    picture.title = "; ".join(heads)
    top, right = picture.height, WIDTH - _DONE
    most = max(_number(task, says) for tasks in shown.values() for task in tasks) or 1
    for head, tasks in zip(heads, shown.values(), strict=True):
        picture.text(4, picture.height + 10, head, bold=True)
        picture.height += 22
        _rows(picture, tasks, says, end, unit, most)
    field = Field(
        picture, _LEFT, top, right - _LEFT, picture.height - top, (0, end / unit), (0, 1)
    )  # fmt: skip
    marks = whole_numbers(0, end / unit, 8)
    field.marks_below(marks, "time; a fast worker takes 1 unit for a task")
    picture.player(_LEFT, right, top, field.bottom, f"{end / unit:g} units")
    picture.key({f"computes; {_SAID[says]}": _shade(0.5), "waits": WAITS})
    return picture


def _shade(share: float) -> Fill:
    """Who computes is seen, whatever the number."""
    return shade(0.15 + 0.85 * share)


def _rows(
    picture: Picture, tasks: Sequence[Task], says: Says, end: float, unit: float, most: int
) -> None:
    """A row for each worker, and how much it has done on the right."""
    top, pixels = picture.height, (WIDTH - _DONE - _LEFT) / end
    workers = sorted({task.worker for task in tasks})
    for row, worker in enumerate(workers):
        y, done = top + row * _ROW, _done(tasks, worker, end)
        picture.text(_LEFT - 8, y + _ROW / 2, f"worker {worker}", SMALL, "end")
        picture.text(WIDTH - _DONE + 8, y + _ROW / 2, counted(done, "task"), SMALL, ink="soft")
    for task in tasks:
        y = top + workers.index(task.worker) * _ROW
        begin, stop = min(task.begin, end), min(task.end, end)
        if task.waited:
            since = task.begin - task.waited
            hint = f"worker {task.worker} waits\n{since / unit:.3g} to {task.begin / unit:.3g}"
            x = _LEFT + since * pixels
            # Low: who computes is what the eye should find
            picture.box(x, y + 6, (begin - since) * pixels, _ROW - 12, WAITS, hint, key="waits")
        if stop <= begin:
            continue
        number, x, wide = _number(task, says), _LEFT + begin * pixels, (stop - begin) * pixels
        word = str(number) if number >= 0 and width(str(number), SMALL) < wide - 3 else ""
        late = f", {task.staleness} steps stale" if task.staleness >= 0 else ""
        hint = (
            f"worker {task.worker}, task {task.number}: began {task.lead} ahead of the slowest"
            f"{late}\n{task.begin / unit:.3g} to {task.end / unit:.3g}"
        )
        fill = _shade(max(number, 0) / most)
        picture.box(x, y + 1, wide - 1, _ROW - 2, fill, hint, word, key="computes")
    picture.height = top + len(workers) * _ROW + 8
