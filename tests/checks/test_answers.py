"""Right answers pass; wrong ones hear why they do not."""

import ast
from collections import Counter

import pytest

from course_lib.checks import known_answers, seeds
from course_lib.checks.__main__ import main
from course_lib.checks.check_in_kernel import run_check
from course_lib.checks.known_answers import KnownAnswer, Rejection, all_known_answers, reject
from course_lib.checks.registry import all_exercises
from tests.sampling import EVERY

EXERCISES = all_exercises()
KNOWN = all_known_answers()


def tried(known: list[KnownAnswer]) -> list[KnownAnswer]:
    """Some, since all take ten minutes. That each exercise takes a right answer, nbval shows."""
    return known[::EVERY]


def parameters(known: list[KnownAnswer]) -> pytest.MarkDecorator:
    """The answers as parameters of a test.

    pytest-xdist keeps those tests on one worker whose ids are alike up to the last "::", so with
    these ids it may deal out the exercises, not just the files.
    """
    ids = [f"{EXERCISES[k.exercise].notebook}::{k.exercise}::{k.name}" for k in known]
    return pytest.mark.parametrize("known", known, ids=ids)


@parameters(tried([known for known in KNOWN if known.right]))
def test_a_right_answer_passes(known):
    # On hidden inputs: on the public ones nbval runs the solutions.
    rng = seeds.hidden(known.exercise, "a secret")
    verdict = run_check(EXERCISES[known.exercise], known.answer, rng)
    assert verdict.passed, str(verdict)


@parameters(tried([known for known in KNOWN if not known.right]))
def test_a_wrong_answer_is_rejected_by_the_expected_message(known):
    rejection = reject(known)
    assert rejection.rejected, "it passed"
    assert rejection.as_expected, rejection.message


def test_every_exercise_has_a_right_answer_and_five_wrong_ones_with_messages_of_their_own():
    said = {name: {k.says for k in KNOWN if k.exercise == name} for name in EXERCISES}
    assert {name for name, texts in said.items() if "" not in texts or len(texts) < 6} == set()


def test_no_answer_takes_the_name_of_another():
    """In a file the second would quietly replace the first."""
    for file in known_answers.ANSWERS.glob("*/*.py"):
        body = ast.parse(file.read_text()).body
        names = Counter(node.name for node in body if isinstance(node, ast.FunctionDef))
        assert [name for name, count in names.items() if count > 1] == [], file


def test_answers_to_no_exercise_are_an_error(monkeypatch, tmp_path):
    (tmp_path / "02_ring_all_reduce").mkdir()
    (tmp_path / "02_ring_all_reduce" / "ring_al_reduce.py").write_text("")
    monkeypatch.setattr(known_answers, "ANSWERS", tmp_path)
    with pytest.raises(ValueError, match="and there is no such exercise"):
        all_known_answers()


def test_a_package_without_the_answers_says_so(tmp_path):
    with pytest.raises(FileNotFoundError, match="run this in the course's folder"):
        known_answers.known_answers(EXERCISES["ring_all_reduce"], tmp_path / "answers")


def test_a_message_other_than_the_expected_one_does_not_count():
    known = KnownAnswer("ring_all_reduce", lambda tensor: tensor, "you averaged a sum")
    assert not Rejection(known, True, "something else is wrong").as_expected
    assert not Rejection(known, False, "passed, though you averaged a sum").as_expected
    assert Rejection(known, True, "exactly half: you\n            averaged a sum").as_expected


def test_a_wrong_answer_needs_its_message():
    with pytest.raises(ValueError, match="needs the words"):
        known_answers.wrong(says="")


def test_the_score_table(capsys, monkeypatch):
    monkeypatch.setattr("sys.argv", ["checks", "crossover_bytes"])
    assert main() == 0
    *_, heading, row, total = capsys.readouterr().out.splitlines()
    assert heading.split("  ")[0] == "exercise"
    count = sum(known.exercise == "crossover_bytes" and not known.right for known in KNOWN)
    assert row.split() == ["crossover_bytes", *[str(count)] * 3]
    assert total.split() == ["all", *[str(count)] * 3]
