"""Words that this course does not use, and what it says instead: docs/style.md.

Each kind was found in a text once. What is looked at is all that somebody reads: pages, lessons,
hints, messages, docstrings and comments.
"""

import re
import subprocess

import pytest

_UNIT = (
    "parameter|second|minute|hour|day|step|rank|device|layer|token|student|microbatch|node|machine|"
    "GPU|stage|weight|sequence|line|iteration|epoch|bucket|worker|element|chunk|group|expert"
)
_COUNTED = (
    r"\d(?: (?:bytes|numbers|tensors|tokens|operations))?"
    "|numbers|[GM]B|points|seconds|once|twice|times|reports"
)
_NO_VERB = (
    r"(?!'s| (?:sends|has|holds|needs|receives|takes|of|that|is|runs|gets|gives|owns|keeps|computes"
    r"|in|to|and|on|waits|with|while|may|reports)\b)"
)
KINDS = {
    "per, not a": rf"(?:{_COUNTED}) an? (?:{_UNIT})\b{_NO_VERB}",
    "one per": r"\b(?:[Aa]n?|one) (?:folder|page|notebook|bar|JSON) an? \w+",
    "instead of": r"\bin place of\b",
    "should be": r"(?<!What )(?<!what )\b(?:is|are) to (?:be|have|hold)\b",
    "even": r"\balso (?:if|when|where) (?!.{0,30}\bif\b)",
    "for example": r", as that the\b|, as sending\b",
    "reversed": r"\bturned round\b",
    "one after the other": r"\bone behind the other\b",
    "has its name": r"\bcalled like it\b",
    "in random order": r"\bdrawn by lot\b",
    "expected": r"\bgradients? (?:is|are) asked\b|\bnumbers are asked\b",
    "only": r"this rank's(?: own)? \w+ alone\b(?! ha)",
    "are stuck": r"\bdo not get on\b",
    "differ from": r"\bothers than those\b",
    "a different": r"\b(?:every|each) \w+ has another\b|\bwould be another number\b",
}
_EXEMPT = ("docs/style.md", "docs/exercises.md", "tests/repository/test_words.py")


@pytest.fixture(scope="module")
def texts(root):
    listed = ["git", "ls-files", "*.md", "*.py"]
    files = subprocess.run(listed, cwd=root, capture_output=True, text=True, check=True)
    return {
        name: plain((root / name).read_text())
        for name in files.stdout.split()
        if name not in _EXEMPT
    }


def plain(source: str) -> str:
    """In one line, without the marks of comments and of strings that go on in the next line."""
    source = re.sub(r"\"\n\s*f?\"", "", source)
    return re.sub(r"\n\s*(?:# ?)?", " ", source)


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_said_that_we_say_in_other_words(texts, kind):
    found = [
        f"{name}: ... {text[max(0, match.start() - 40) : match.end() + 20]} ..."
        for name, text in texts.items()
        for match in re.finditer(KINDS[kind], text)
    ]
    assert found == [], f"say: {kind}"


@pytest.mark.parametrize(
    "text",
    [
        "it holds 16 bytes a parameter",
        "twice a step",
        "a folder a student",
        "4 numbers in place of one",
        "it is to be causal",
        "call it, also when there is nothing",
        "promises, as that the arguments stay",
        "two numbers are asked",
        "this rank's keys alone",
    ],
)
def test_each_kind_is_found(text):
    assert any(re.search(pattern, text) for pattern in KINDS.values())


@pytest.mark.parametrize(
    "text",
    [
        "how many bytes a rank sends",
        "once a step of the ring is over",
        "What is to be written",
        "The output alone is not enough",
        "two numbers per token",
    ],
)
def test_other_sentences_are_left_alone(text):
    assert not any(re.search(pattern, text) for pattern in KINDS.values())
