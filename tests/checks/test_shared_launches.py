"""Variations that need the same ranks go through one launch of them."""

from dataclasses import replace

import pytest

from course_lib.checks.exercise import Case, Exercise, Finding, Observation, innermost
from course_lib.checks.run_answer import Job
from course_lib.checks.shared_launches import launches
from course_lib.observe import CommEvent, Label, Trace


def exercise(title: str) -> Exercise:
    return Exercise(
        "nb00_ranks.x",
        "(x)",
        lambda rng: [],
        lambda answer, case: None,
        lambda case, seen: Finding(f"{title}: {seen.values}, {len(seen.trace.events)} events"),
        ("", "", ""),
        "it is",
    )


def job(title: str, world_size: int = 2, may_fail: bool = False, observe: bool | str = True) -> Job:
    made = replace(exercise(title), observe=observe)
    return Job(made, (Case(world_size, title, {}),), may_fail=may_fail)


def run_order(job: Job) -> list[str]:
    """The parts' labels, in the order in which they are run."""
    parts = job.cases[0].data["parts"]
    return [parts[index].label for index in job.exercise.on_rank.order]


def test_one_launch_for_each_world_size_and_what_may_fail_comes_last():
    alone = job("alone", world_size=3)
    planned = launches([job("causal", may_fail=True), alone, job("informed"), job("third")])
    assert [len(each.job.cases) for each in planned] == [1, 1]
    assert run_order(planned[0].job) == ["informed", "third", "causal"]
    assert [each.cases[0].label for each in planned[0].apart] == ["informed", "third"]
    assert planned[0].job.may_fail
    assert planned[1].job is alone


def test_nothing_is_run_again_where_nothing_may_fail():
    (launch,) = launches([job("one"), job("other")])
    assert launch.apart == ()
    assert not launch.job.may_fail


def test_what_is_watched_in_another_way_is_launched_by_itself():
    assert len(launches([job("plain"), job("held", observe="memory")])) == 2


@pytest.mark.parametrize(("first", "says"), [("one", "one: [1, 2], 1 events")])
def test_each_part_is_judged_by_its_own_values_and_its_own_record(first, says):
    (launch,) = launches([job(first), job("other")])
    event = CommEvent(
        0, 0, "send", "0", (0, 1), 1, 0, 8, ((2,),), "float32", None, True, False, 0.5,
        spans=("check: part 0",),
    )  # fmt: skip
    spans = [Label(rank, f"check: part {i}", i, i + 0.9) for rank in (0, 1) for i in (0, 1)]
    seen = Observation([[1, 10], [2, 20]], Trace(2, [event], labels=spans))
    judged = launch.job.exercise.judge(launch.job.cases[0], seen)
    assert judged.likely == says


def test_cases_within_the_parts_are_found_as_those_of_a_law_are():
    inner = Case(2, "inner", {}), Case(2, "other", {})
    informed = Case(2, "informed", {"both": inner})
    (launch,) = launches([job("causal"), replace(job("informed"), cases=(informed,))])
    assert [case.label for case in innermost(launch.job.cases[0])] == ["causal", "inner", "other"]
