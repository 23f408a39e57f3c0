"""Workers as the server saw them: when they computed, when they waited, and how far ahead."""

from types import SimpleNamespace

import pytest

from course_lib.views.parameter_server_timelines import parameter_server_timelines, tasks_of
from tests.views.reading import boxes

# Worker 1 takes 3 for a task, worker 0 takes 1; at bound 1 worker 0 waits for it after two tasks.
STARTS = [(0, 0, 0, 0), (1, 0, 0, 0), (0, 1, 1, 0), (0, 2, 1, 1), (1, 1, 0, 0), (0, 3, 1, 2)]
STEPS = [(0, 0, 0), (0, 1, 0), (1, 0, 2), (0, 2, 1), (1, 1, 1), (0, 3, 1)]


def report() -> SimpleNamespace:
    starts = [
        SimpleNamespace(worker=worker, task=task, lead=lead, waited=waited)
        for worker, task, lead, waited in STARTS
    ]
    steps = [SimpleNamespace(worker=w, task=task, staleness=late) for w, task, late in STEPS]
    return SimpleNamespace(starts=starts, steps=steps)


def cost(worker: int) -> int:
    return 3 if worker == 1 else 1


def test_a_task_begins_when_its_worker_has_waited_and_ends_when_it_has_cost():
    tasks = tasks_of(report(), cost)
    assert [(t.worker, t.begin, t.end) for t in tasks] == [
        (0, 0, 1), (1, 0, 3), (0, 1, 2), (0, 3, 4), (1, 3, 6), (0, 6, 7),
    ]  # fmt: skip
    assert [task.staleness for task in tasks] == [0, 2, 0, 1, 1, 1]


@pytest.mark.parametrize(
    ("says", "numbers", "most", "drawn"),
    [
        ("lead", ("0 1 1", "0 0"), "at most 1 task ahead", "00110"),
        ("staleness", ("0 0 1", "2 1"), "pushes at most 2 steps stale", "02011"),
    ],
)
def test_boxes_and_words_say_the_same(says, numbers, most, drawn):
    view = parameter_server_timelines({"bound 1": (report(), cost)}, says, until=6)
    head, _, *rows = view.text.splitlines()
    assert head == f"bound 1: 25% of the time spent waiting, {most}"
    assert [row.split(maxsplit=3) for row in rows] == [
        ["worker", "0", "3", numbers[0]],
        ["worker", "1", "2", numbers[1]],
    ]
    computes, waits = boxes(view, "computes"), boxes(view, "waits")
    assert "".join(box.word for box in computes) == drawn
    unit = computes[0].wide + 1  # less the gap
    assert sum(box.wide for box in waits) == pytest.approx(3 * unit, abs=0.1)


def test_where_nobody_is_ahead_it_is_said_so():
    even = SimpleNamespace(
        starts=[SimpleNamespace(worker=w, task=0, lead=0, waited=0) for w in range(2)],
        steps=[SimpleNamespace(worker=w, task=0, staleness=0) for w in range(2)],
    )
    runs = {"equal": (even, lambda worker: 1)}
    assert "0% of the time spent waiting, nobody ahead" in (
        parameter_server_timelines(runs, "lead", until=1).text
    )
    assert ", no push stale" in parameter_server_timelines(runs, "staleness", until=1).text


def test_what_cannot_be_shown_is_refused():
    with pytest.raises(ValueError, match="'lead' or 'staleness'"):
        parameter_server_timelines({"a": (report(), cost)}, "age", until=6)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="no run"):
        parameter_server_timelines({}, "lead", until=6)
