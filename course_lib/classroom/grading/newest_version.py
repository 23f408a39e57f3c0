"""One submission, sorted out: which notebook counts for which lesson, and what was odd about it."""

from collections.abc import Mapping

from .assignment import Assignment
from .extract_answers import Answers, Unreadable, read_cells, read_script, take_answers
from .submissions import Found, Submission


class Sorted:
    """A submission: answers by lesson, and what was odd."""

    def __init__(self, submission: Submission, assignments: Mapping[str, Assignment]):
        self.student = submission.student
        self.answers: dict[str, Answers] = {}
        self.changed: dict[str, float] = {}  # lesson -> when its notebook was written
        self.broken: dict[str, str] = {}  # lesson -> why its notebook cannot be read
        self.odd: list[tuple[str, str, bytes | None]] = [(p, r, None) for p, r in submission.odd]
        self.notes: list[str] = []
        found: dict[str, list[tuple[Found, Answers]]] = {}
        for notebook in submission.notebooks:
            try:
                read = read_script if notebook.script else read_cells
                cells = read(notebook.content)
            except Unreadable as problem:
                self.odd.append((notebook.path, str(problem), notebook.content))
                if lesson := _by_name(notebook.stem, assignments):
                    self.broken[lesson] = str(problem)
                continue
            taken = {name: take_answers(cells, a) for name, a in assignments.items()}
            called = _by_name(notebook.stem, assignments)
            lesson = max(taken, key=lambda name: (len(taken[name].sources), name == called))
            if called and not taken[lesson].sources:
                lesson = called
            if called and called != lesson:
                reason = f"is named like {called}, and answers {lesson}"
                self.odd.append((notebook.path, reason, notebook.content))
            if not taken[lesson].sources and not called:
                reason = "is no notebook of this course: none of its cells answers an exercise"
                self.odd.append((notebook.path, reason, notebook.content))
                continue
            found.setdefault(lesson, []).append((notebook, taken[lesson]))
        for lesson, versions in found.items():
            self._choose(lesson, versions)
        if not submission.notebooks:
            self.notes.append("no notebook was handed in")

    def _choose(self, lesson: str, versions: list[tuple[Found, Answers]]) -> None:
        """The version that counts: the newest notebook; of equally old ones, the plainest name.

        Code that was exported counts where there is no notebook, and a person is told of it.
        """
        versions.sort(key=lambda v: (not v[0].script, v[0].changed, v[0].stem == lesson, v[0].path))
        notebook, answers = versions[-1]
        self.answers[lesson] = answers
        self.changed[lesson] = notebook.changed
        if notebook.script:
            reason = "is Python code and no notebook: taken as if it were one"
            self.odd.append((notebook.path, reason, notebook.content))
        if len(versions) > 1:
            others = ", ".join(other.path for other, _ in versions[:-1])
            self.notes.append(f"{lesson}: {notebook.path} counts, the newest; not {others}")
        for exercise, notes in answers.notes.items():
            for note in notes:
                reason = f"{exercise}: {note}" if exercise else note
                self.odd.append((notebook.path, reason, notebook.content))


def _by_name(stem: str, assignments: Mapping[str, Assignment]) -> str | None:
    lowered = stem.lower()
    return next((name for name in assignments if name.lower() in lowered), None)
