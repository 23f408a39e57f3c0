"""The benchmark's own logic, without measuring anything: pairs, limits, runs, what is published."""

import json
import os
import subprocess
import sys

import psutil
import pytest

from tests.bench import __main__ as command
from tests.bench import _launchers, _publishing, measurement
from tests.bench._growth import growing, why
from tests.bench._runs import as_json, side_by_side
from tests.bench.measurement import Measurement, Row, paired

EMPTY = "# Course\n\n<!-- bench -->\nold\n<!-- end of bench -->\n\nThe end.\n"
PAGES = (_publishing.PAGE, "README.md")


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands still until it is set on."""
    now = [0.0]
    monkeypatch.setattr(measurement.time, "perf_counter", lambda: now[0])

    def advance(seconds: float) -> None:
        now[0] += seconds

    return advance


def test_two_things_take_turns_and_are_compared_pair_by_pair(clock):
    called = []
    slower = iter((1, 1, 1, 1, 1, 1, 2, 2, 3, 3))  # the machine, from call to call

    def thing(name, seconds):
        called.append(name)
        clock(seconds * next(slower))

    ratios = paired(lambda: thing("a", 3.0), lambda: thing("b", 2.0), pairs=4, warm_up=1)
    assert "".join(called) == "ab" + "ab" + "ba" + "ab" + "ba"
    assert ratios == (1.5, 1.5, 1.5, 1.5)


def test_median_quartiles_and_limit():
    measured = Measurement("x", (5.0, 1.0, 2.0, 3.0, 4.0), limit=3.0)
    assert (measured.median, measured.quartiles, measured.met) == (3.0, (2.0, 4.0), True)
    assert not Measurement("x", (1.2,), limit=1.0).met
    assert Measurement("x", (1.2,)).quartiles == (1.2, 1.2)
    assert Measurement("x", (9.0,)).met  # nothing was asked
    assert not Measurement("x", limit=1.0, note="the other one is not installed").met


def test_a_floor_is_measured_only_under_a_missed_limit():
    measured = iter([(0.8,)])
    missed, met = (
        Measurement("x", (ratio,), 1.0).or_floor("only its parts", lambda: next(measured))
        for ratio in (1.2, 0.9)
    )
    assert (missed.floor, met.floor) == (Measurement("only its parts", (0.8,)), None)


def test_a_growing_table_compares_each_line_with_the_one_above():
    first, second = growing([("1", {"ms": 2.0, "MB": 1}), ("2", {"ms": 5.0, "MB": 1})])
    assert first.note == "2 ms, 1 MB"
    assert second.note == "5 ms, 1 MB; ms 2.50 times the one above"


@pytest.fixture
def course(tmp_path):
    (tmp_path / "tests/bench").mkdir(parents=True)
    (tmp_path / "docs").mkdir()
    for page in PAGES:
        (tmp_path / page).write_text(EMPTY)
    return tmp_path


def texts(course) -> list[str]:
    return [(course / page).read_text() for page in PAGES]


def ring(ratio: float, what: str = "4 MB") -> Measurement:
    return Measurement(what, (ratio,) * 3, 1.0).or_floor("only messages", lambda: (0.5, 0.7))


GROWTH = [*growing([("1", {"s": 1.0}), ("2", {"s": 2.5})]), why("more to do")]
ROWS = [Row("ring", "ours against theirs", list), Row("growth", "time by ranks", lambda: GROWTH)]
RUNS = [
    {"ring": [ring(1.25), ring(0.5, "64 MB")], "growth": GROWTH},
    {"ring": [ring(0.75), ring(0.5, "64 MB")]},
]


def test_both_runs_stand_on_the_page_between_its_markers(course):
    _publishing.publish(ROWS, RUNS, course)
    text, _ = texts(course)
    assert text.startswith("# Course\n\n<!-- bench -->\n| what is compared | run 1 | run 2 |")
    assert "[All numbers](../tests/bench/results.json)." in text
    assert "(benchmarks.png)\n" in text
    assert text.endswith("\n<!-- end of bench -->\n\nThe end.\n")
    for line in (
        "| **ours against theirs** |  |  |  |  |",
        "| 4 MB | 1.25 (missed) | 0.75 | 0.75 to 1.25 | 1.00 |",
        "| 64 MB | 0.50 | 0.50 | 0.50 to 0.50 | 1.00 |",
        "- ours against theirs, 4 MB: 0.60 (0.55 to 0.65) for only messages",
        "| time by ranks | 1, 2 | s: 1, 2.5 | more to do |",
    ):
        assert f"\n{line}\n" in text
    assert "old" not in text
    assert (course / _publishing.FIGURE).read_bytes().startswith(b"\x89PNG")
    numbers = json.loads((course / _publishing.NUMBERS).read_text())
    assert [len(found["runs"]) for found in numbers["rows"].values()] == [2, 1]


def test_the_readme_has_the_range_of_a_rows_medians_over_all_runs(course):
    _publishing.publish(ROWS, RUNS, course)
    _, readme = texts(course)
    assert readme == EMPTY.replace(
        "old",
        "| time, ours to theirs | medians |\n| --- | --- |\n| ours against theirs | 0.50 to 1.25 |",
    )


def test_the_rows_that_the_readme_tells_of_exist():
    assert set(_publishing._HEADLINES) <= {r.name for r in command.all_rows()}


def test_publishing_again_changes_nothing_else(course):
    _publishing.publish(ROWS, RUNS, course)
    once = texts(course)
    _publishing.publish(ROWS, RUNS, course)
    assert texts(course) == once


def test_where_every_limit_is_met_nothing_is_said_of_floors(course):
    _publishing.publish(ROWS, [RUNS[1]], course)
    assert "missed" not in texts(course)[0].split("benchmarks.png")[0]


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("text", ["# Course\n", EMPTY + EMPTY])
def test_where_a_page_has_not_one_place_for_the_table_nothing_is_written(course, page, text):
    (course / page).write_text(text)
    before = texts(course)
    with pytest.raises(ValueError, match=f"has {text.count('<!-- bench')} places"):
        _publishing.publish(ROWS, RUNS, course)
    assert texts(course) == before
    assert not (course / _publishing.FIGURE).exists()


def test_a_limit_is_met_when_every_run_meets_it():
    missed, met = side_by_side(ROWS[0], RUNS)
    assert (missed.met, met.met) == (False, True)
    assert missed.pooled.ratios == (1.25,) * 3 + (0.75,) * 3
    assert (missed.floor.ratios, met.floor) == ((0.5, 0.7), None)


def test_the_numbers_name_their_machine():
    found = json.loads(as_json(ROWS, RUNS))
    assert "torch" in found["machine"]
    first, second = found["rows"]["ring"]["runs"]
    assert first[0] == {
        "what": "4 MB",
        "median": 1.25,
        "quartiles": [1.25, 1.25],
        "limit": 1.0,
        "met": False,
        "ratios": [1.25, 1.25, 1.25],
        "floor": {
            "what": "only messages",
            "median": 0.6,
            "quartiles": [0.55, 0.65],
            "limit": None,
            "met": True,
            "ratios": [0.5, 0.7],
        },
    }
    assert second[0]["met"]
    assert found["rows"]["growth"]["runs"][0][1]["values"] == {"s": 2.5}


@pytest.fixture
def bench(monkeypatch, course):
    """The command with rows that only count how often they are measured."""
    measured = []

    def row_of(name: str, *found: Measurement) -> Row:
        return Row(name, f"about {name}", lambda: measured.append(name) or list(found))

    rows = [row_of("fast", ring(0.5)), row_of("slow", ring(2.0)), row_of("growth", *GROWTH)]
    monkeypatch.setattr(command, "all_rows", lambda: rows)
    monkeypatch.setattr(command, "publish", lambda *given: _publishing.publish(*given, course))
    return measured


def test_the_exit_code_says_whether_all_limits_were_met(bench, capsys):
    assert command.main(["--only", "fast", "--only", "growth"]) == 0
    assert command.main(["--only", "slow"]) == 1
    assert bench == ["fast", "growth", "slow"]
    *_, row_line, floor_line = capsys.readouterr().out.splitlines()
    assert row_line.split() == ["4", "MB", "2.00", "2.00", "2.00", "1.00", "missed"]
    assert floor_line.split() == ["only", "messages", "0.60", "0.55", "0.65"]


def test_to_publish_comparisons_are_made_twice_and_nothing_else(bench, course):
    command.main(["--publish"])
    assert bench == ["fast", "slow", "growth", "fast", "slow"]
    assert "| run 2 |" in texts(course)[0]


def test_a_wrong_name_is_told_the_names(bench, capsys):
    with pytest.raises(SystemExit):
        command.main(["--only", "rong"])
    assert "'fast', 'slow', 'growth'" in capsys.readouterr().err


def test_a_part_is_not_published(bench, capsys):
    with pytest.raises(SystemExit):
        command.main(["--only", "fast", "--publish"])
    assert "leave out --only" in capsys.readouterr().err
    assert not bench


def test_rows_have_names_of_their_own():
    rows = command.all_rows()
    assert len({r.name for r in rows}) == len({r.title for r in rows}) == len(rows) > 15


def test_what_a_fresh_process_leaves_running_is_ended():
    sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
    ours, other = (
        subprocess.Popen(sleep, env={**os.environ, _launchers._MARK: mark}) for mark in "ab"
    )
    try:
        _launchers._end_marked("a")
        assert ours.wait(timeout=20) != 0
        assert psutil.Process(other.pid).is_running()
    finally:
        for process in (ours, other):
            process.kill()
            process.wait()
