"""The rooms import each other only along the arrows that were drawn."""

from pathlib import Path, PurePosixPath

import pytest

from tests.house.arrows import ARROWS, imports, violations


def test_no_room_imports_against_the_arrows(root):
    library = root / "course_lib"
    files = sorted(library.rglob("*.py"))
    assert len(files) > 20
    bad = []
    for file in files:
        path = PurePosixPath(file.relative_to(library).as_posix())
        bad += violations(file.read_text(encoding="utf-8"), path)
    assert not bad, "\n".join(bad)


def test_lessons_import_only_what_is_public(root):
    bad = []
    for file in sorted((root / "solutions").rglob("*.py")):
        for line, module in imports(file.read_text(encoding="utf-8"), "solutions"):
            if module.startswith("course_lib") and any(p[0] == "_" for p in module.split(".")):
                bad.append(f"{file.name}:{line}: {module}")
    assert not bad, "\n".join(bad)


def test_every_folder_of_the_library_is_in_the_table(root):
    folders = {p.name for p in Path(root / "course_lib").iterdir() if any(p.glob("*.py"))}
    assert folders <= set(ARROWS)


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("techniques/zero1.py", "from course_lib.observe import Trace"),
        ("techniques/zero1.py", "import numpy"),
        ("techniques/zero1.py", "from course_lib.text import table"),
        ("text.py", "import torch"),
        ("techniques/zero1.py", "def f():\n    from course_lib import ranks"),
        ("models/gpt.py", "import course_lib.techniques.zero1"),
        ("observe/trace.py", "import matplotlib.pyplot as plt"),
        ("simulate/replay.py", "import multiprocessing"),
        ("simulate/replay.py", "from course_lib.techniques import zero1"),
        ("simulate/replay.py", "import course_lib.techniques.schedules_of_old"),
        ("views/gantt.py", "from course_lib.ranks import run_ranks"),
        ("checks/judge.py", "from course_lib.techniques.collectives import ring_all_reduce"),
        ("checks/judge.py", "from importlib import import_module\nimport_module('matplotlib')"),
        ("checks/deep/er.py", "from ...views import gantt"),
        ("checks/judge.py", "from .. import views"),
        ("classroom/grade.py", "import course_lib.ranks"),
        ("doctor.py", "from course_lib.ranks import devices"),
        ("newroom/thing.py", "import os"),
    ],
)
def test_an_import_against_the_arrows_is_found(path, source):
    assert len(violations(source, PurePosixPath(path))) == 1


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("techniques/zero2.py", "import torch.distributed as dist\nimport math"),
        ("techniques/zero2.py", "from course_lib.techniques.flat_params import flatten"),
        ("techniques/zero2.py", "from .flat_params import flatten"),
        ("simulate/replay.py", "from course_lib.techniques.schedules import Op"),
        ("simulate/replay.py", "from course_lib.techniques import schedules"),
        ("views/gantt.py", "import matplotlib.pyplot as plt\nfrom course_lib.simulate import Span"),
        ("ranks/launch.py", "import multiprocessing, cloudpickle"),
        ("models/gpt.py", "from course_lib.text import table"),
    ],
)
def test_an_import_along_the_arrows_is_fine(path, source):
    assert violations(source, PurePosixPath(path)) == []
