"""The rooms import each other only as the rules say, in one style, and in no circle."""

import importlib.util
from pathlib import Path, PurePosixPath

import pytest

from course_lib.checks.sandbox.answer_program import without_magics
from tests.repository.import_rules import (
    RULES,
    circle,
    imports,
    module_graph,
    room_graph,
    violations,
)


def test_every_import_follows_the_rules(root):
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
        for found in imports(file.read_text(encoding="utf-8"), "solutions"):
            module = found.module
            if module.startswith("course_lib") and any(p[0] == "_" for p in module.split(".")):
                bad.append(f"{file.name}:{found.line}: {module}")
    assert not bad, "\n".join(bad)


def test_every_folder_of_the_library_has_a_rule(root):
    folders = {p.name for p in Path(root / "course_lib").iterdir() if any(p.glob("*.py"))}
    assert folders <= set(RULES)


def test_the_rules_allow_no_circle_of_rooms():
    # Schedules and their text are plain data below all rooms, though they lie in techniques.
    allowed = {
        room: {rule.split(".")[1] for rule in rules.rooms if rule.count(".") == 1}
        for room, rules in RULES.items()
    }
    assert circle(allowed) == []


def test_no_rooms_import_each_other_in_a_circle(root):
    graph = room_graph(root / "course_lib")
    assert {"ranks", "observe"} <= graph["checks"]
    assert circle(graph) == []


def test_no_files_load_each_other_in_a_circle(root):
    graph = module_graph(root / "course_lib")
    assert "course_lib.ranks.run_ranks" in graph
    assert circle(graph) == []


def test_a_circle_is_named_from_its_start_to_its_start():
    found = circle({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}})
    assert found[0] == found[-1]
    assert set(found) == {"a", "b", "c"}


def test_what_a_function_loads_closes_no_circle(tmp_path):
    package = tmp_path / "room"
    package.mkdir()
    (package / "first.py").write_text("from .second import x")
    (package / "second.py").write_text("def f():\n    from .first import y")
    assert circle(module_graph(tmp_path)) == []
    (package / "second.py").write_text("from .first import y")
    assert set(circle(module_graph(tmp_path))) == {
        "course_lib.room.first",
        "course_lib.room.second",
    }


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("techniques/zero1.py", "from course_lib.observe import Trace"),
        ("techniques/zero1.py", "from course_lib.text import joined"),
        ("techniques/zero1.py", "import numpy"),
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
        ("text.py", "import torch"),
        ("newroom/thing.py", "import os"),
    ],
)
def test_an_import_against_the_rules_is_found(path, source):
    assert len(violations(source, PurePosixPath(path))) == 1


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("techniques/zero/zero1.py", "from course_lib.techniques.zero.shards import Shards"),
        ("techniques/zero/__init__.py", "import course_lib.techniques.zero.zero1"),
        ("views/gantt.py", "from course_lib.views import palette"),
        ("views/gantt.py", "def f():\n    from course_lib.views.palette import RED"),
    ],
)
def test_the_same_package_by_its_full_name_is_found(path, source):
    (sentence,) = violations(source, PurePosixPath(path))
    assert "from the same package, import ." in sentence


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("techniques/zero2.py", "import torch.distributed as dist\nimport math"),
        ("techniques/zero2.py", "from .flat_params import flatten"),
        ("techniques/zero/zero2.py", "from course_lib.techniques.flat_params import flatten"),
        ("simulate/replay.py", "from course_lib.techniques.schedules import Op"),
        ("simulate/replay.py", "from course_lib.techniques import schedules"),
        ("simulate/replay.py", "from course_lib.text import joined"),
        ("views/gantt.py", "import matplotlib.pyplot as plt\nfrom course_lib.simulate import Span"),
        ("ranks/run_ranks.py", "import multiprocessing, cloudpickle"),
    ],
)
def test_an_import_by_the_rules_is_fine(path, source):
    assert violations(source, PurePosixPath(path)) == []


def test_what_lessons_import_from_the_library_is_there(root):
    missing = []
    for file in sorted((root / "solutions").rglob("*.py")):
        source = without_magics(file.read_text(encoding="utf-8"))
        missing += [
            f"{file.name}:{found.line}: {found.module}"
            for found in imports(source, "solutions")
            if found.module.startswith("course_lib.") and not _there(found.module)
        ]
    assert not missing, "\n".join(missing)


def _there(name: str) -> bool:
    module, _, attribute = name.rpartition(".")
    try:
        return hasattr(importlib.import_module(module), attribute) or bool(
            importlib.util.find_spec(name)
        )
    except ModuleNotFoundError:
        return False
