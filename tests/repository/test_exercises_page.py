"""The page of all exercises is what the lessons and the contracts make."""

import re

from course_lib.checks.registry import all_exercises
from docs import exercises


def test_the_page_is_up_to_date(capsys):
    assert exercises.main(["--check"]) == 0, capsys.readouterr().out


def test_it_has_every_exercise_once_with_what_is_enforced(root):
    text = (root / "docs" / "exercises.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"^### `(\w+)\(", text, re.M)) == sorted(all_exercises())
    assert " ".join(text.split()).count("Passed means: ") == len(all_exercises())


def test_every_lesson_links_the_pages_that_are_at_hand(root):
    for lesson in sorted((root / "solutions").glob("[0-9]*.py")):
        text = lesson.read_text(encoding="utf-8")
        for page in ("glossary", "torch_calls", "exercises"):
            assert f"(../docs/{page}.md)" in text, lesson.name
            assert (root / "docs" / f"{page}.md").exists()
