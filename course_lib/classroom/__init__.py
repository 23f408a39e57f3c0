"""One source per lesson becomes the student's notebook with holes and the executed solution.

In the order in which to read, each line by itself:

    a lesson       lesson, strip_solutions, cell_ids; contract_notes for what a check enforces,
                   formulas
    notebooks      student_notebook, build_notebooks; stored_outputs, kernels, answer_leaks,
                   nbval_plugin
    learners       status, status_table, start_page
    hand out       bundle, untouched_notebooks, nbgrader_export
    hand in        grading
    new ones       new_exercise

Names load their modules when first used: a learner who asks for the status needs no builder.
"""

from importlib import import_module
from pathlib import Path
from typing import Any

_HOMES = {
    "Cell": "lesson",
    "Course": "build_notebooks",
    "Lesson": "lesson",
    "LessonError": "lesson",
    "Problem": "build_notebooks",
    "read_lesson": "lesson",
}

__all__ = ["Cell", "Course", "Lesson", "LessonError", "Problem", "read_lesson", "status_view"]


def status_view() -> Any:
    """For the top of a notebook: what is passed, and what comes next, of it and its neighbours."""
    from course_lib.checks.registry import all_exercises

    from .status import seen_from

    return seen_from(Path.cwd(), all_exercises())


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"course_lib.classroom.{_HOMES[name]}"), name)
