"""What the pages for readers say of the repository is true: rooms, imports, files, links."""

import ast
import io
import re
import tokenize
import tomllib
from pathlib import Path

import pytest
import yaml

from tests.repository.import_rules import room_graph

PAGES = sorted(
    page.relative_to(root).as_posix()
    for root in [Path(__file__).resolve().parents[2]]
    for page in (*root.glob("*.md"), *root.glob("docs/*.md"))
)
_LINK = re.compile(r"\]\(([^)#\s]+)[^)]*\)|(?:src|srcset)=\"([^\"]+)\"")
_CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)
_MODULE = re.compile(r"(?<![\w.*])(?:[\w]+/)*(\w+\.py)\b")
_FILES_OF_OTHERS = {  # of Megatron-LM, DeepSpeed and nbgrader
    "arguments.py", "bf16_optimizer.py", "p2p_communication.py", "stage3.py", "stage_1_and_2.py",
    "theoretical_memory_usage.py", "nbgrader_config.py",
}  # fmt: skip
_FILE = re.compile(r"`([\w./-]+(?:\.(?:py|ipynb|md|txt|toml|yml|zip)|/))`")


def test_the_pages_are_found():
    assert {"README.md", "TEACHING.md", "docs/architecture.md"} <= set(PAGES)


def test_the_rooms_import_what_the_table_says(root):
    text = (root / "docs" / "architecture.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \|.*\|([^|]*)\|$", text, re.MULTILINE)
    table = {room: set(re.findall(r"`(\w+)`", imported)) for room, imported in rows}
    graph = room_graph(root / "course_lib")
    del graph["__init__"]  # the package itself, which loads rooms as their names are used
    assert table == graph


@pytest.mark.parametrize("page", PAGES)
def test_every_link_leads_somewhere(root, page):
    text = _CODE.sub("", (root / page).read_text(encoding="utf-8"))
    links = {a or b for a, b in _LINK.findall(text)}
    inside = [link for link in links if not re.match(r"https?:|mailto:", link)]
    assert [link for link in inside if not ((root / page).parent / link).exists()] == []


@pytest.mark.parametrize(
    "page", ["README.md", "docs/architecture.md", "CONTRIBUTING.md", "AGENTS.md"]
)
def test_every_file_that_is_named_exists(root, page):
    named = set(_FILE.findall((root / page).read_text(encoding="utf-8")))
    assert named
    lost = [
        n for n in named if not any((base / n).exists() for base in (root, root / "course_lib"))
    ]
    assert [name for name in lost if "NN_" not in name] == []


def test_every_file_that_the_library_speaks_of_exists(root):
    there = {
        file.name
        for room in ("course_lib", "solutions", "tests")
        for file in (root / room).rglob("*.py")
    }
    lost = []
    for path in sorted((root / "course_lib").rglob("*.py")):
        named = set(_MODULE.findall(_said(path.read_text(encoding="utf-8")))) - _FILES_OF_OTHERS
        lost += [f"{path.relative_to(root)}: {name}" for name in sorted(named - there)]
    assert lost == []


def test_what_is_said_is_found_in_docstrings_and_comments_only():
    source = '"""See `a.py`."""\n\n# And b/c.py.\nopen("d.py")\n\ndef f():\n    "Or e.py."\n'
    assert sorted(_MODULE.findall(_said(source))) == ["a.py", "c.py", "e.py"]


def _said(source: str) -> str:
    """Docstrings and comments."""
    nodes = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    said = [ast.get_docstring(n) or "" for n in ast.walk(ast.parse(source)) if isinstance(n, nodes)]
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return "\n".join([*said, *(t.string for t in tokens if t.type == tokenize.COMMENT)])


def test_every_page_is_reached_from_the_readme(root):
    reached, todo = set(), {root / "README.md"}
    while todo:
        page = todo.pop()
        reached.add(page)
        text = _CODE.sub("", page.read_text(encoding="utf-8"))
        linked = {(page.parent / (a or b)).resolve() for a, b in _LINK.findall(text)}
        todo |= {p for p in linked if p.suffix == ".md" and p.is_file()} - reached
    assert {(root / page).resolve() for page in PAGES} <= reached


def test_the_readme_can_be_read_in_one_go(root):
    assert len((root / "README.md").read_text(encoding="utf-8").splitlines()) <= 125


def test_version_and_licence_are_the_same_everywhere(root):
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    cited = yaml.safe_load((root / "CITATION.cff").read_text(encoding="utf-8"))
    (author,) = project["authors"]
    assert cited["version"] == project["version"]
    assert cited["license"] == project["license"] == "MIT"
    assert cited["authors"] == [author]
    licence = (root / "LICENSE").read_text()
    assert licence.startswith("MIT License\n")
    assert f"Copyright (c) {cited['date-released'].year} {author['name']}\n" in licence
    changes = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"## {project['version']}, {cited['date-released']}\n" in changes


@pytest.mark.parametrize("name", ["test", "pages", "grade"])
def test_workflows_are_read_only_unless_a_job_says_so_and_end(root, name):
    flow = yaml.safe_load((root / ".github" / "workflows" / f"{name}.yml").read_text())
    assert flow["permissions"] == {"contents": "read"}
    for job in flow["jobs"].values():
        assert job["timeout-minutes"] <= 60
        for step in job["steps"]:
            if step.get("uses", "").startswith("actions/checkout"):
                assert step["with"] == {"persist-credentials": False}


def test_the_workflow_tries_every_python_on_both_systems(root):
    from course_lib import doctor

    flow = yaml.safe_load((root / ".github" / "workflows" / "test.yml").read_text())
    matrix = flow["jobs"]["test"]["strategy"]["matrix"]
    (major, low), (_, beyond) = doctor.PYTHONS
    assert matrix["python"] == [f"{major}.{minor}" for minor in range(low, beyond)]
    assert matrix["os"] == ["ubuntu-latest", "macos-latest"]
