"""Lessons, hints and the library call torch by the names that the installed torch prefers."""

import re
from types import FunctionType

import torch.distributed as dist

# The one place that knows the names of all supported versions.
COMPATIBILITY = "techniques/collectives/torch_compat.py"
OLD = {
    name
    for name, value in vars(dist).items()
    if type(value) is FunctionType and hasattr(value, "__deprecated__")
}


def test_torch_says_which_names_are_old():
    assert "_all_gather_base" in OLD


def test_no_old_name_is_called(root):
    called = re.compile(rf"\b(?:dist|torch\.distributed)\.(?:{'|'.join(OLD)})\b|\bdist\.nn\.\w+\(")
    files = [
        *root.glob("course_lib/**/*.py"),
        *root.glob("solutions/*.py"),
        *root.glob("docs/*.md"),
        *root.glob("*.md"),
    ]
    found = {
        f"{file.relative_to(root)}, line {number}: {line.strip()}"
        for file in files
        if not file.as_posix().endswith(COMPATIBILITY)
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1)
        if called.search(line)
    }
    assert found == set()
