"""Running and judging are separate: the verdict needs only the outcome, in any process."""

import pickle
import subprocess
import sys

import pytest

from course_lib.checks import seeds
from course_lib.checks.exercise import Case, Clue
from course_lib.checks.judging import judge_case, judge_trouble
from course_lib.checks.known_answers import known_answers
from course_lib.checks.registry import all_exercises
from course_lib.checks.run_answer import Job, Outcome, Trouble, collect_job
from course_lib.checks.verdict import Failure

RIGHT = known_answers(all_exercises()["ring_all_reduce"])[0].answer
JUDGE = """
import pickle, sys
from course_lib.checks import seeds
from course_lib.checks.judging import judge_case
from course_lib.checks.registry import all_exercises

name, outcome = pickle.load(sys.stdin.buffer)
exercise = all_exercises()[name]
case = exercise.cases(seeds.hidden(name, "a secret"))[0]
finding = judge_case(exercise, case, outcome.observations[0])
print(finding.likely if finding else "right")
"""


def forged(tensor, group=None):
    """Prints what a passing check prints, and tampers with the checks in its own process."""
    import course_lib.checks.judging as judging

    print("ring_all_reduce: passed.")
    judging.judge_case = lambda *_: None
    return tensor


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [
        (RIGHT, "right"),
        (forged, "this is still the rank's own input, with nothing added"),
    ],
)
def test_the_verdict_is_taken_in_a_process_that_never_ran_the_answer(answer, verdict):
    exercise = all_exercises()["ring_all_reduce"]
    case = exercise.cases(seeds.hidden(exercise.name, "a secret"))[0]
    outcome = collect_job(answer, Job(exercise, (case,)))
    judged = subprocess.run(
        [sys.executable, "-c", JUDGE],
        input=pickle.dumps((exercise.name, outcome)),
        capture_output=True,
        check=True,
        timeout=60,
    )
    assert judged.stdout.decode().strip() == verdict


def test_a_right_outcome_is_wrong_for_other_inputs():
    """Negative control: public outcomes are no use against hidden inputs."""
    exercise = all_exercises()["ring_all_reduce"]
    public = exercise.cases(seeds.public(exercise.name))[1]
    hidden = exercise.cases(seeds.hidden(exercise.name, "a secret"))[1]
    outcome = collect_job(RIGHT, Job(exercise, (public,)))
    assert judge_case(exercise, public, outcome.observations[0]) is None
    assert judge_case(exercise, hidden, outcome.observations[0]) is not None


@pytest.mark.parametrize(("kind", "told"), [("stuck", True), ("killed", True), ("failed", False)])
def test_the_clue_of_a_case_is_told_where_no_rank_says_itself_what_happened(kind, told):
    case = Case(2, "a case", {}, clue="sizes that do not fit")
    finding = judge_trouble(case, Trouble(kind, "a report"))
    assert finding.likely == ("sizes that do not fit" if told else "")


CLUE = Clue("one rank has no neighbour", "ZeroDivisionError")


@pytest.mark.parametrize(
    ("clue", "error", "others_passed", "says"),
    [
        (CLUE, "ZeroDivisionError: division by zero", True, f"about this one: {CLUE}"),
        (CLUE, "ZeroDivisionError: division by zero", False, ""),
        (CLUE, "NameError: name 'tensro' is not defined", True, "look at what is new in this one"),
        (str(CLUE), "ZeroDivisionError: division by zero", True, "look at what is new in this one"),
    ],
)
def test_the_clue_of_a_case_is_told_of_an_error_only_if_that_comes_of_it(
    clue, error, others_passed, says
):
    trouble = Trouble("failed", "a report", errors=[error])
    finding = judge_trouble(Case(1, "a case", {}, clue=clue), trouble, others_passed)
    assert finding.likely.endswith(says)
    assert bool(finding.likely) == bool(says)


def test_what_is_still_waiting_when_a_rank_raises_tells_no_clue():
    trouble = Trouble("stuck", "a report", errors=["KeyError: 3"])
    assert judge_trouble(Case(2, "a case", {}, clue="sizes that do not fit"), trouble).likely == ""


@pytest.mark.parametrize("others_passed", [False, True])
def test_advice_that_knows_nothing_of_what_is_special_about_a_case_is_left_out(others_passed):
    report = (
        "deadlock\n\nWhy: it waits.\nTry: Receive into a tensor\n     of the same shape.\n\nMore."
    )
    case, trouble = Case(2, "a case", {}, clue="a frozen parameter"), Trouble("stuck", report)
    finding = judge_trouble(case, trouble, others_passed)
    shown = Failure(case, finding, Outcome(trouble=trouble)).report
    assert shown == ("deadlock\n\nWhy: it waits.\n\nMore." if others_passed else report)
