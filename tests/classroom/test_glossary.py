"""The glossary and the page of torch's calls have what the lessons use, and where they say so."""

import re

import pytest

from course_lib.checks.registry import all_exercises
from course_lib.classroom.build_notebooks import Course

# In bold for emphasis, and no terms.
EMPHASIS = {
    "adds",
    "all-gather",
    "average",
    "backward",
    "block",
    "column",
    "forward",
    "in a fixed order",
    "ranges",
    "row",
    "the big batch in one process is the truth",
    "up to a point",
    "version",
    "warm up",
    "zero1",
    "zero3",
}
INSIDE = {"destroy_process_group", "get_process_group_ranks"}  # calls that no learner writes


@pytest.fixture(scope="module")
def texts(root):
    lessons = Course(root, all_exercises()).lessons
    return {
        name: " ".join("\n".join(c.source for c in lesson.cells if c.kind == "markdown").split())
        for name, lesson in lessons.items()
    }


@pytest.fixture(scope="module")
def glossary(root):
    """Rows: words, explanation, lessons, Russian."""
    lines = (root / "docs" / "glossary.md").read_text().splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [row for row in rows if len(row) == 4 and not set(row[0]) <= {"-"}][1:]


def stem(word: str) -> str:
    return re.sub(r"(?:ed|ing|s)$", "", word.lower())


def test_words_are_sorted_and_have_a_russian_name(glossary):
    words = [row[0].lower() for row in glossary]
    assert words == sorted(words)
    assert [row[0] for row in glossary if not re.search(r"[а-яё]", row[3], re.I)] == []


def test_a_word_occurs_in_the_lessons_that_it_names(glossary, texts):
    lost = []
    for words, _, numbers, _ in glossary:
        term = re.split(r", ", words)[0]
        for number in numbers.split(", "):
            (text,) = (text for name, text in texts.items() if name.startswith(number))
            if not re.search(rf"\b{re.escape(stem(term))}", text, re.I):
                lost.append((number, term))
    assert lost == []


def test_words_that_a_lesson_sets_in_bold_are_in_the_glossary(glossary, texts):
    known = " ".join(row[0] for row in glossary).lower()
    missing = [
        (name, term)
        for name, text in texts.items()
        for term in re.findall(r"\*\*([a-z][^*|.:]{2,40})\*\*", text)
        if stem(term) not in known and term not in EMPHASIS
    ]
    assert missing == []


def test_calls_of_torch_that_lessons_use_are_on_their_page(root):
    page = (root / "docs" / "torch_calls.md").read_text()
    used = {
        call
        for name, lesson in Course(root, all_exercises()).lessons.items()
        for cell in lesson.cells
        for call in re.findall(r"\bdist\.([a-z_]+)\(", cell.source)
    }
    assert {call for call in used - INSIDE if f"{call}(" not in page} == set()
