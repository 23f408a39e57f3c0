"""What goes in the sandbox holds no answer, and what comes out cannot do anything."""

import dataclasses
import importlib.util
import json
import os
import pickle
import random
import sys
from pathlib import Path

import pytest
import torch

import __main__
import course_lib
from course_lib.checks import forbidden_operations, seeds
from course_lib.checks.call_answer import Call, Other
from course_lib.checks.exercise import Breach, Observation
from course_lib.checks.laws import all_laws
from course_lib.checks.registry import all_exercises
from course_lib.checks.run_answer import Job, Outcome, Trouble
from course_lib.checks.sandbox import fork_server, grader, library_copy, names, safe_serialization
from course_lib.checks.sandbox.answer_program import Piece, Program, Undefined, define
from course_lib.checks.sandbox.library_copy import write_library
from course_lib.checks.sandbox.slicing import names_of, needed_statements, statements
from course_lib.observe import CommEvent, Frame, RankWarning, Trace
from course_lib.ranks import RankTimeout
from course_lib.ranks.errors import RunRecord

EVENT = CommEvent(
    *(0, 0, "send", "world", (0, 1), 1, 0, 8, ((2,),), "float32", None, True, False, 1.5),
    where=(Frame("/answers/x/f.py", 3, "f"),),
    spans=("F0.1",),
)
WARNING = RankWarning(1, "never_waited", "a message", (Frame("/answers/x/f.py", 4, "f"),))


def outcome(*values) -> Outcome:
    values = values or (None, None)
    seen = Observation(list(values), Trace(len(values), [], []), [])
    return Outcome([seen], printed={0: "text"})


def packed(description, payload=b"") -> bytes:
    text = json.dumps(description).encode()
    return len(text).to_bytes(4, "big") + text + payload


# ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    [
        *(None, True, 3, 2**200, -1.5, float("inf"), "text", "\ud800 and \x00", [], {}, ()),
        [1, (2, [3.0]), {"a": {(1, 2): None}}, {4, 5}, frozenset({6})],
        Other("a function"),
        *(torch.tensor(3), torch.empty(0, 3), torch.arange(6.0).reshape(2, 3).t()),
        *(torch.tensor([True, False]), torch.ones(2, dtype=torch.bfloat16)),
        torch.tensor([1 + 2j]).conj(),
        Call([torch.ones(2)], torch.zeros(2), False),
    ],
    ids=repr,
)
def test_plain_values_arrive_as_they_were(value):
    (got,) = safe_serialization.load(safe_serialization.dump(outcome(value))).observations[0].values
    if isinstance(value, torch.Tensor):
        assert got.dtype == value.dtype
        assert torch.equal(got, value.resolve_conj())
    elif isinstance(value, Call):
        assert torch.equal(got.returned[0], torch.ones(2))
    else:
        assert (got, type(got)) == (value, type(value))


def test_events_traps_and_troubles_arrive_as_they_were():
    before = Outcome(
        [Observation([1, 2], Trace(2, [EVENT], [WARNING]), [WARNING], [Breach(0, "a")])]
    )
    assert safe_serialization.load(safe_serialization.dump(before)) == before
    trouble = Outcome(trouble=Trouble("stuck", "a report", [WARNING]))
    trouble.trouble.run_error = RankTimeout("a report", {}, RunRecord(2))
    got = safe_serialization.load(safe_serialization.dump(trouble))
    assert got == trouble
    assert got.trouble.run_error is None


class Evil:
    def __reduce__(self):
        return print, ("this runs as it is read",)


@pytest.mark.parametrize("value", [Evil(), print, Evil, object(), b"bytes", lambda: 0, 1j])
def test_anything_else_becomes_the_name_of_its_kind(value):
    (got,) = safe_serialization.load(safe_serialization.dump(outcome(value))).observations[0].values
    assert isinstance(got, Other)


GOOD = json.loads(safe_serialization.dump(outcome(1))[4:])
FORGED = {
    "nothing": b"",
    "a pickle": pickle.dumps(outcome(1)),
    "no json": b"\x00\x00\x00\x05hello",
    "a number": packed(5),
    "deep": b"\x00\x03\x0d\x40" + b"[" * 200_000,
    "another class": packed({"tag": "record", "type": ["os", "system"], "fields": []}),
    "a function of the checks": packed(
        {"tag": "record", "type": ["course_lib.checks.call_answer", "plain"], "fields": []}
    ),
    "no such module": packed(
        {"tag": "record", "type": ["course_lib.checks.evil", "X"], "fields": []}
    ),
    "a record without fields": packed(GOOD | {"fields": []}),
    "an unknown tag": packed({"tag": "pickle", "items": []}),
    "a tensor without elements": packed({"tag": "tensor", "dtype": "float32", "shape": [10**9]}),
    "a tensor of a negative size": packed({"tag": "tensor", "dtype": "float32", "shape": [-1]}),
    "a tensor of an odd dtype": packed({"tag": "tensor", "dtype": "qint8", "shape": []}),
    "an endless int": packed(0).replace(b"\x00\x00\x00\x01" + b"0", b"\x00\x00\x27\x10")
    + b"9" * 10_000,
}


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_message_is_refused(name):
    with pytest.raises(ValueError):  # noqa: PT011 - whichever it is, the grader says one thing
        safe_serialization.load(FORGED[name])


@pytest.mark.parametrize(
    "bad",
    [
        Outcome(),
        Outcome([Observation([1], Trace(2, [], []))]),
        Outcome([Observation([1], Trace(1, [EVENT], []))]),
        Outcome([Observation([1, 2], Trace(2, ["an event"], []))]),
        Outcome([Observation([], Trace(0, [], []))]),
        Outcome(trouble="trouble"),
        Outcome(trouble=Trouble(5, "report")),
        Outcome(trouble=Trouble("failed", "report"), printed={0: 5}),
    ],
)
def test_an_outcome_that_makes_no_sense_is_refused(bad):
    with pytest.raises(ValueError, match=r"."):
        safe_serialization.load(safe_serialization.dump(bad))


def test_a_frame_cannot_name_a_file_of_the_graders():
    frames = [Frame("/etc/passwd", 1, "f"), Frame("/x/course_lib/techniques/zero1.py", 1, "f")]
    trouble = Trouble("failed", "", [RankWarning(0, "kind", "message", tuple(frames))])
    got = (
        safe_serialization.load(safe_serialization.dump(Outcome(trouble=trouble)))
        .trouble.warnings[0]
        .where
    )
    assert [f.file for f in got] == ["/elsewhere/passwd", "/course_lib/techniques/zero1.py"]


# ---------------------------------------------------------------------------------------------


def test_a_task_holds_nothing_that_tells_right_from_wrong():
    for exercise in all_exercises().values():
        cases = exercise.cases(seeds.hidden(exercise.name, "a secret"))
        laws = tuple(law for law in all_laws() if law.applies(exercise.contract))
        job = Job(exercise, tuple(cases), laws)
        task = grader._packed(exercise, Program(exercise.name, ()), [job])
        assert b"_judge" not in task, exercise.name
        assert exercise.hints[2].strip()[:40].encode() not in task, exercise.name


def test_the_library_of_a_run_has_no_check_and_only_named_techniques(tmp_path):
    bare = write_library(tmp_path, [])
    assert not (bare / "course_lib/checks/exercises").exists()
    assert not list(bare.rglob("judging.py"))
    imports = ["from course_lib.techniques.schedules import Op, validate"]
    copy = write_library(tmp_path, imports)
    text = "\n".join(p.read_text() for p in (copy / "course_lib/techniques").rglob("*.py"))
    assert "class Op" in text
    assert "def validate" in text
    assert "def gpipe" not in text
    assert write_library(tmp_path, imports) == copy


def test_hidden_cases_are_others_than_public_ones():
    exercise = all_exercises()["broadcast_by_sends"]
    drawn = [
        [case.data["inputs"][0].flatten()[:1].tolist() for case in exercise.cases(rng)]
        for rng in (seeds.public(exercise.name), random.Random(1), random.Random(2))
    ]
    assert drawn[0] != drawn[1] != drawn[2]


def test_what_the_safeguards_know_by_name_is_there():
    """Nothing may be moved or renamed so that a safeguard looks for it in vain."""
    package = importlib.util.find_spec(names.TECHNIQUES)
    (folder,) = package.submodule_search_locations
    files = sorted(Path(folder).rglob("*.py"))
    assert len(files) > 20
    for file in files:
        kept = names.technique_file(str(file))
        assert kept.startswith(f"/{names.TECHNIQUES.replace('.', '/')}/"), file
        frame = safe_serialization._harmless(str(file))
        event = dataclasses.replace(EVENT, where=(Frame(frame, 1, "f"),))
        assert forbidden_operations.course_answer(Trace(2, [event], [])), file
    shared = library_copy.modules_of_every_run()
    assert {
        fork_server.__name__,
        "course_lib.checks.call_answer",
        "course_lib.ranks.rank_process",
    } <= shared
    kept_out = {module.__name__ for module in grader._staying()}
    staying = {forbidden_operations.__name__, "course_lib.checks.registry", grader.__name__}
    assert staying <= kept_out
    assert not kept_out & shared
    assert {type(outcome(1)).__module__, Frame.__module__} <= {
        name for name in sys.modules if name.startswith(safe_serialization._ROOMS)
    }


def test_no_two_runs_on_a_machine_have_the_same_user(monkeypatch):
    monkeypatch.setattr(grader, "FIRST_USER", 2**21 + 256 * os.getpid())
    monkeypatch.setattr(grader, "_USERS", 2)
    with grader._user_of_its_own() as first, grader._user_of_its_own() as second:
        assert second == first + 1
        with (
            pytest.raises(grader.SandboxError, match="all 2 users"),
            grader._user_of_its_own(),
        ):
            pass
    with grader._user_of_its_own() as again:
        assert again == first


# ---------------------------------------------------------------------------------------------


def test_names_that_a_source_binds_and_needs():
    found = names_of("import a.b\nfrom c import d as e\ndef f(x, y=z):\n    g = h(x)\n    return g")
    assert found.bound == {"a", "e", "f"}
    assert found.needed == {"z", "h"}


def test_only_the_statements_that_are_needed_stay():
    source = "import a\nimport b\nX = b.c\n@b.d\ndef f():\n    return g()\ndef g(): return X\n"
    assert len(statements(source)) == 5
    assert needed_statements(source, {"g"}).split("\n") == [
        *("import b", "X = b.c", "def g(): return X", "")
    ]


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("def f(x)\n    pass", "line 1 of its cell raises SyntaxError"),
        ("\n1 / 0\ndef f(): pass", "line 2 of its cell raises ZeroDivisionError: division by"),
        ("import sys\nsys.exit(0)", "raises SystemExit: 0"),
        ("def g(): pass", "no function of the name f"),
        ("f = 5", "f is int, and not a function"),
        ("class f: pass", "f is type, and not a function"),
    ],
)
def test_why_there_is_no_function(source, words):
    try:
        with pytest.raises(Undefined) as caught:
            define(Program("f", (Piece("/answers/x/f.py", source),)))
    finally:  # it is meant for a process of its own, and takes the names of this one
        sys.modules["__main__"] = __main__
        for name in ("check", "hint"):
            vars(course_lib).pop(name)
    assert words in str(caught.value)
