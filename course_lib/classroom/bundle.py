"""What learners get: untouched notebooks, the library, and no answer anywhere else.

The techniques are in it, since later lessons import them; they are what the course is about, and
checks reject an answer that only calls them. Solutions, their wrong answers and the tests stay.
"""

import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path

import nbformat

from .answer_leaks import leaks, shown_as_code
from .build_notebooks import Course
from .untouched_notebooks import COPIES, untouched

_HANDOUT = Path(__file__).parent / "handout"
_FILES = (
    "pyproject.toml",
    "constraints.txt",
    "environment.yml",
    "Makefile",
    "LICENSE",
    ".gitignore",
    "docs/exercises.md",
    "docs/glossary.md",
    "docs/torch_calls.md",
)
_SETTINGS = ".jupyter"  # of JupyterLab, for `make lab`


def write_bundle(course: Course, out: Path) -> list[str]:
    """Write the bundle to a new folder, or to a zip file if `out` ends with .zip.

    Returns sentences about answers that would get out; then nothing is left at `out`. Raises
    `ValueError` if there is something already.
    """
    if out.exists():
        raise ValueError(f"{out} exists already")
    folder = out.with_suffix("") if out.suffix == ".zip" else out
    if folder.exists():
        raise ValueError(f"{folder} exists already")
    _copy(course.root, folder)
    if leaks := list(leaks_of(folder, course)):
        shutil.rmtree(folder)
        return leaks
    if out.suffix == ".zip":
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
            for path in sorted(folder.rglob("*")):
                archive.write(path, Path(folder.name, path.relative_to(folder)))
        shutil.rmtree(folder)
    return []


def _copy(root: Path, folder: Path) -> None:
    copies = folder / "notebooks" / COPIES
    copies.mkdir(parents=True)
    for name, notebook in untouched(root).items():
        for place in (copies, folder / "notebooks"):
            nbformat.write(notebook, place / f"{name}.ipynb")
    without = shutil.ignore_patterns("__pycache__", "handout", ".*")
    shutil.copytree(root / "course_lib", folder / "course_lib", ignore=without)
    if (root / _SETTINGS).exists():
        shutil.copytree(root / _SETTINGS, folder / _SETTINGS)
    for name in _FILES:
        if (root / name).exists():
            (folder / name).parent.mkdir(exist_ok=True)
            shutil.copy(root / name, folder / name)
    for file in _HANDOUT.iterdir():
        shutil.copy(file, folder / file.name)


def leaks_of(folder: Path, course: Course) -> Iterator[str]:
    """Every place in a bundle where an answer stands, as code or as a line of text."""
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        shown = file.relative_to(folder).as_posix()
        if shown.startswith(("solutions/", "tests/")):
            yield f"{shown} has no place in a learner's bundle"
        elif file.suffix == ".ipynb":
            notebook = nbformat.read(file, as_version=4)
            lesson = course.lessons[file.stem]
            yield from (
                f"{shown}: {leak}" for leak in leaks(notebook, lesson, course.answer_pieces)
            )
        elif file.suffix == ".py" and not shown.startswith("course_lib/techniques/"):
            source = file.read_text(encoding="utf-8")
            for name in shown_as_code(source, course.answer_pieces):
                yield f"{shown} shows the answer of {name}"
