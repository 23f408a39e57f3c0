"""Small changes to right answers: which there are, and that the checks notice a sample of them."""

import ast
import functools
import re
from pathlib import Path

import pytest

from course_lib.checks.registry import all_exercises
from tests.mutants.__main__ import main
from tests.mutants.changes import changes
from tests.mutants.equivalent import SAME
from tests.mutants.score import Fate, Mutant, fates, mutants, put_to_the_check

BLAME = all_exercises()["blame"]
SAMPLED = list(all_exercises())[2::5]  # about twenty, from all over the course


def one_of(name: str) -> Mutant:
    """A mutant of the answer to an exercise, always the same one."""
    found = mutants(all_exercises()[name])
    return found[len(found) // 2]


@pytest.fixture(scope="module")
def three() -> list[Mutant]:
    return [one_of(name) for name in SAMPLED[:3]]


@pytest.fixture(scope="module")
def every() -> list[Mutant]:
    """Made here, not above: it takes seconds, and each process that runs tests reads the file."""
    return [mutant for exercise in all_exercises().values() for mutant in mutants(exercise)]


def after(body: str) -> set[str]:
    """The bodies of f(a, b) that one small change makes of this one."""
    source = f"def f(a, b):\n    '''Words.'''\n    {body}\n"
    found = changes(source, "f")
    return {ast.unparse(ast.parse(change.source).body[0].body[-1]) for change in found}


@pytest.mark.parametrize(
    ("body", "mutants"),
    [
        ("return a + b", {"pass", "return a - b"}),
        ("return a < b", {"pass", "return a <= b"}),
        ("return a and b", {"pass", "return a or b"}),
        ("return not a", {"pass", "return a"}),
        ("return a % 3", {"pass", "return a", "return a % 4", "return a % 2"}),
        ("return a.mean()", {"pass", "return a.sum()"}),
        ("return a.clone()", {"pass", "return a"}),
        ("return a", {"pass", "return a.detach()"}),
        ("return g(a, b)", {"pass", "return g(b, a)"}),
        ("return g(a, group=b)", {"pass", "return g(a)"}),
        ("return max(a, b)", {"pass", "return min(a, b)"}),
        ("return zip(a, strict=True)", {"pass"}),
        ("return range(a)", {"pass", "return range(a + 1)", "return range(a - 1)"}),
        ("return a[b:]", {"pass", "return a[:]"}),
        ("return dist.get_rank(b)", {"pass", "return 0"}),
        (
            "return a if b else 2.5",
            {"pass", "return a if True else 2.5", "return a if False else 2.5"},
        ),
        ("a.wait()", {"pass"}),
    ],
)
def test_the_small_changes_of(body, mutants):
    assert after(body) == mutants


def test_statements_inside_others_are_changed_as_well():
    source = "def f(a):\n    for step in range(a):\n        if step:\n            a += step\n"
    keys = {change.key for change in changes(source, "f")}
    assert {"a += step -> (left out)", "a += step -> a -= step"} <= keys
    assert "if step: -> if True:" in keys


def test_a_change_keeps_the_rest_of_the_source_and_knows_its_line():
    source = "import torch\n\ndef f(a):\n    b = a + 1\n    return b\n"
    (found,) = (c for c in changes(source, "f") if c.after == "b = a - 1")
    assert found.line == 4
    assert found.source == ast.unparse(ast.parse(source)).replace("a + 1", "a - 1")


@pytest.mark.parametrize("name", SAMPLED)
def test_a_mutant_is_rejected_or_explained(name):
    mutant = one_of(name)
    fate = put_to_the_check(mutant)
    assert not fate.survived, f"line {mutant.change.line}: {mutant.change.key}"


def test_every_explanation_is_of_a_mutant_that_there_is(every):
    known = {(mutant.exercise, mutant.change.key) for mutant in every}
    explained = {(name, key) for name, reasons in SAME.items() for key in reasons}
    assert explained <= known
    assert all(reason for reasons in SAME.values() for reason in reasons.values())


def test_the_readme_says_how_many_there_are(every):
    """As a round number, which holds while answers are edited."""
    readme = " ".join((Path(__file__).parents[2] / "README.md").read_text("utf-8").split())
    found = re.search(r"all ([\d,]+) or so .* but for some (\d+)", readme)
    assert found, "the README no longer says how many mutants there are"
    count, same = (int(number.replace(",", "")) for number in found.groups())
    assert count == pytest.approx(len(every), rel=0.1)
    assert same == pytest.approx(sum(map(len, SAME.values())), rel=0.15)


def test_what_was_tried_is_not_tried_again(three, tmp_path, monkeypatch):
    tried = []

    def put(mutant: Mutant, timeout: float | None) -> Fate:
        tried.append(mutant)
        return Fate(mutant, False, "no")

    monkeypatch.setattr("tests.mutants.score.put_to_the_check", put)
    kept = tmp_path / "mutants.json"
    first = list(fates(three, 1, kept))
    assert [fate.mutant for fate in first] == tried == three
    assert list(fates(three, 1, kept)) == first
    assert len(tried) == 3


def test_who_runs_out_of_a_little_time_gets_all_of_it_at_the_end(three, monkeypatch):
    tried = []

    def put(mutant: Mutant, timeout: float | None) -> Fate:
        tried.append((mutant, timeout is None))
        slow = mutant is three[0] and timeout is not None
        return Fate(mutant, False, "no", out_of_time=slow)

    monkeypatch.setattr("tests.mutants.score.put_to_the_check", put)
    found = list(fates(three[:2], 1, None))
    assert tried == [(three[0], False), (three[1], False), (three[0], True)]
    assert [fate.mutant for fate in found] == [three[1], three[0]]
    assert not any(fate.out_of_time for fate in found)


def test_what_is_explained_is_tried_only_where_its_exercise_is_named(monkeypatch, capsys):
    tried = []

    def put(mutant: Mutant, timeout: float | None) -> Fate:
        tried.append(mutant)
        return Fate(mutant, False, "no")

    monkeypatch.setattr("tests.mutants.score.put_to_the_check", put)
    monkeypatch.setattr("tests.mutants.__main__.fates", functools.partial(fates, kept=None))
    monkeypatch.setattr("tests.mutants.__main__.all_exercises", lambda: {"blame": BLAME})
    monkeypatch.setattr("tests.mutants.__main__.SAME", {"blame": {}})
    assert main(["--jobs", "1"]) == 0
    assert tried == [mutant for mutant in mutants(BLAME) if not mutant.why_same]
    assert "equivalent.py" not in capsys.readouterr().out
    tried.clear()
    assert main(["blame", "--jobs", "1"]) == 0
    assert tried == mutants(BLAME)
    assert "equivalent.py" in capsys.readouterr().out


def test_what_passed_is_tried_again_when_the_library_has_changed(three, tmp_path, monkeypatch):
    tried = []

    def put(mutant: Mutant, timeout: float | None) -> Fate:
        tried.append(mutant)
        return Fate(mutant, mutant is three[0], "")

    monkeypatch.setattr("tests.mutants.score.put_to_the_check", put)
    kept = tmp_path / "mutants.json"
    list(fates(three[:2], 1, kept))
    monkeypatch.setattr("tests.mutants.score._library", lambda: "another")
    list(fates(three[:2], 1, kept))
    assert tried == [three[0], three[1], three[0]]
