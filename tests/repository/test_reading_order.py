"""Each package says what is in it: its docstring names every file."""

import ast
import re
from pathlib import Path

import pytest

LIBRARY = Path(__file__).parents[2] / "course_lib"
# Their files are found by themselves, each named after what it is about.
COLLECTIONS = ("checks/exercises", "checks/laws")
PACKAGES = sorted(
    package
    for file in LIBRARY.glob("*/**/__init__.py")
    if not (package := file.parent.relative_to(LIBRARY).as_posix()).startswith(COLLECTIONS)
)


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_names_its_files(package):
    folder = LIBRARY / package
    docstring = ast.get_docstring(ast.parse((folder / "__init__.py").read_text(encoding="utf-8")))
    files = [*folder.glob("*.py"), *(file.parent for file in folder.glob("*/__init__.py"))]
    named = set(re.findall(r"\w+", docstring or ""))
    assert [f.stem for f in files if f.stem not in named and not f.stem.startswith("_")] == []
