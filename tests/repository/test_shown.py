"""Reports and verdicts have a form in a notebook, their text elsewhere, and never an error more."""

from types import SimpleNamespace

import pytest
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

from course_lib import notebook_display, rich_display
from course_lib.checks.exercise import Case, Finding
from course_lib.checks.registry import all_exercises
from course_lib.checks.run_answer import Outcome, Trouble
from course_lib.checks.verdict import CheckFailed, Verdict
from course_lib.checks.verdict import Failure as FailedCase
from course_lib.observe import CommEvent, Trace
from course_lib.ranks import RankTimeout
from course_lib.ranks.errors import Failure, RunRecord


class Thing:
    pass


def deadlock() -> RankTimeout:
    """Two ranks that receive from each other."""
    calls = [
        CommEvent(
            rank=rank, n=0, op="recv", group="0", ranks=(0, 1), peer=1 - rank, tag=0, nbytes=4,
            shapes=((1,),), dtype="float32", reduce_op=None, blocking=True, native=False,
            issued=0.0, waited=0.0,
        )
        for rank in (0, 1)
    ]  # fmt: skip
    failures = {rank: Failure(rank, "stuck", "had not finished") for rank in (0, 1)}
    return RankTimeout("both wait", failures, RunRecord(2, trace=Trace(2, calls)))


@pytest.fixture
def kernel(monkeypatch):
    """A shell that says of itself that it is a kernel's, and forms of this test's own."""
    shell = InteractiveShell.instance()
    shell.kernel = SimpleNamespace()
    monkeypatch.setattr(rich_display, "_FORMS", {})
    yield shell
    InteractiveShell.clear_instance()


def test_without_a_notebook_or_a_form_nothing_is_shown(kernel):
    assert not rich_display.show(Thing())
    del kernel.kernel
    rich_display.register(Thing, lambda thing: "<b>a thing</b>")
    assert not rich_display.show(Thing())


def test_a_form_is_shown_once_in_a_row(kernel):
    rich_display.register(Thing, lambda thing: "<b>a thing</b>")
    thing = Thing()
    with capture_output() as captured:
        assert rich_display.show(thing, "a thing")
        assert rich_display.show(thing, "a thing")
        assert rich_display.show(Thing())
    assert [output.data for output in captured.outputs] == [
        {"text/html": "<b>a thing</b>", "text/plain": "a thing"},
        {"text/html": "<b>a thing</b>"},
    ]


def test_a_form_that_fails_leaves_the_text(kernel):
    rich_display.register(Thing, lambda thing: 1 / 0)
    assert not rich_display.show(Thing())


def test_a_deadlock_has_a_picture_beside_its_report(kernel):
    notebook_display.bind()
    error = deadlock()
    with capture_output() as captured:
        assert "both wait" in "".join(error._render_traceback_())
        error._render_traceback_()
    (output,) = captured.outputs
    assert set(output.data) == {"text/html"}
    assert "in a circle" in output.data["text/html"]
    assert notebook_display.draw_hang(RankTimeout("not observed", {}, RunRecord(2))) == ""


def test_below_a_card_the_error_sends_its_reader_there_and_without_one_it_says_all(kernel):
    exercise, case = all_exercises()["ring_all_reduce"], Case(2, "two", {})
    error = CheckFailed("ring_all_reduce does not pass yet\n  likely    a ring")
    error.verdict = Verdict(exercise, [case], FailedCase(case, Finding("a ring"), Outcome()))
    assert error._render_traceback_() == str(error).splitlines()
    notebook_display.bind()
    with capture_output():
        assert error._render_traceback_() == ["see the card above"]


def test_a_passed_verdict_is_a_card_with_the_line_of_the_text():
    exercise = all_exercises()["ring_all_reduce"]
    verdict = Verdict(exercise, [Case(2, "two", {})])
    card = notebook_display.draw_verdict(verdict)
    assert str(verdict).removeprefix("ring_all_reduce: ").split(";")[0] in card


def test_a_verdict_on_a_deadlock_has_the_same_picture_above_the_report():
    exercise, case, error = all_exercises()["ring_all_reduce"], Case(2, "two", {}), deadlock()
    trouble = Trouble("stuck", error.report)
    verdict = Verdict(
        exercise, [case], FailedCase(case, Finding("a ring"), Outcome(trouble=trouble))
    )
    text, bare = str(verdict), notebook_display.draw_verdict(verdict)
    trouble.run_error = error
    card = notebook_display.draw_verdict(verdict)
    assert card.index(notebook_display.draw_hang(error)) < card.index("both wait")
    assert "in a circle" not in bare
    assert str(verdict) == text
