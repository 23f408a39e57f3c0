"""What honest students hand in, from whichever program: points for what is right, or a flag.

A flag is something that the teacher is told by name: the student is among those with something odd.
"""

import bz2
import io
import json
import tarfile
import uuid
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from course_lib.classroom.grading.batch import grade
from course_lib.classroom.grading.points import Report
from course_lib.classroom.grading.settings import Settings
from course_lib.classroom.untouched_notebooks import untouched
from tests.classroom import tiny

ALL = 7
ANSWER = "answer-double"


def cells(notebook: dict) -> list[dict]:
    return notebook["cells"]


def cell(notebook: dict, identity: str = ANSWER) -> dict:
    return next(c for c in cells(notebook) if c.get("id") == identity)


def new(source: str, **more) -> dict:
    return {"cell_type": "code", "metadata": {}, "outputs": [], "source": source} | more


def answer(source: str) -> Callable[[dict], None]:
    def change(notebook: dict) -> None:
        cell(notebook)["source"] = source

    return change


def above(*sources: str) -> Callable[[dict], None]:
    """Cells of the student's own above the answer, which is the last of these sources."""

    def change(notebook: dict) -> None:
        place = cells(notebook).index(cell(notebook))
        cell(notebook)["source"] = sources[-1]
        cells(notebook)[place:place] = [new(source) for source in sources[:-1]]

    return change


def every(change: Callable[[dict], object]) -> Callable[[dict], None]:
    def change_all(notebook: dict) -> None:
        for each in cells(notebook):
            change(each)

    return change_all


def colab(each: dict) -> None:
    del each["id"]
    each["metadata"] = {"id": uuid.uuid4().hex[:12], "colab": {"base_uri": "https://x"}}
    each["source"] = each["source"].splitlines(keepends=True)


def vscode(each: dict) -> None:
    each["id"] = uuid.uuid4().hex[:8]
    each["metadata"] = {"vscode": {"languageId": "python"}}


def kaggle(notebook: dict) -> None:
    every(lambda each: each.pop("id"))(notebook)
    every(lambda each: each.update(metadata={"trusted": True}))(notebook)
    cells(notebook).insert(
        0, new("import numpy as np\nimport os\nfor d, _, f in os.walk('/x'):\n    print(d)")
    )


def databricks(each: dict) -> None:
    each["metadata"] = {"application/vnd.databricks.v1+cell": {"nuid": str(uuid.uuid4())}}
    del each["id"]
    if each["cell_type"] == "code":
        each["source"] = "%python\n" + each["source"]


def helper_in_the_imports(notebook: dict) -> None:
    """The student wrote into a cell of the lesson that is no answer."""
    first = next(c for c in cells(notebook) if c["cell_type"] == "code")
    first["source"] += "\nimport operator\n\ndef plus(a, b):\n    return operator.add(a, b)"
    cell(notebook)["source"] = "def double(x):\n    return plus(x, x)"


def helper_in_a_later_answer(notebook: dict) -> None:
    cell(notebook)["source"] = "def double(x):\n    return twice(x)"
    later = cell(notebook, "answer-quadruple")
    later["source"] = "def twice(x):\n    return x + x\n\n" + later["source"]


def older_release(notebook: dict) -> None:
    """Another text, a helper that is now called otherwise, and ids of that time."""
    for number, each in enumerate(cells(notebook)):
        if not each["id"].startswith(("answer-", "check-")):
            each["id"] = f"old-{number}"
            each["source"] = each["source"].replace("added", "summed")
    cell(notebook)["source"] = "def double(x):\n    return summed(x, x)"


def older_stub(notebook: dict) -> None:
    older_release(notebook)
    cell(notebook)["source"] = 'def double(x, how="?"):\n    """Old text."""\n    return x * 2'


def renamed(notebook: dict) -> None:
    cell(notebook)["source"] = "def dobule(x):\n    return x + x"


def twice(notebook: dict) -> None:
    cells(notebook).append(new("def double(x):\n    return x + x", id="mine"))


RIGHT = "def double(x):\n    return x + x"
# Changes of a notebook whose answers are all right -> the points that are left, a flag if not all.
NOTEBOOKS: dict[str, tuple[Callable[[dict], object], int]] = {
    "colab": (every(colab), ALL),
    "vs code": (every(vscode), ALL),
    "kaggle": (kaggle, ALL),
    "databricks": (every(databricks), ALL),
    "ids null": (every(lambda each: each.update(id=None)), ALL),
    "ids numbers": (every(lambda each: each.update(id=5)), ALL),
    "one id for all": (every(lambda each: each.update(id="same")), ALL),
    "metadata a list": (every(lambda each: each.update(metadata=[])), ALL),
    "no cell types": (every(lambda each: each.pop("cell_type")), ALL),
    "raw cell": (lambda n: cell(n).update(cell_type="raw"), ALL),
    "cell magic above": (answer(f"%%time\n{RIGHT}"), ALL),
    "line magics above": (answer(f"%load_ext autoreload\n%autoreload 2\n{RIGHT}"), ALL),
    "shell above": (answer(f"!pip install numpy\nfiles = !ls\nwho = %who_ls\n{RIGHT}"), ALL),
    "help around": (answer(f"?print\n{RIGHT}\ndouble?\nprint??"), ALL),
    "indented magic": (answer(f"if True:\n    %matplotlib inline\n{RIGHT}"), ALL),
    "percent in a text": (
        answer('def double(x):\n    """\n%d times two\n!"""\n    return x + x'),
        ALL,
    ),
    "import in a cell": (
        above("import operator", "def double(x):\n    return operator.add(x, x)"),
        ALL,
    ),
    "star import in a cell": (
        above("from operator import *", "def double(x):\n    return add(x, x)"),
        ALL,
    ),
    "constant in a cell": (above("TWO = 2", "def double(x):\n    return TWO * x"), ALL),
    "helper of a helper": (
        above(
            "def one(x): return x",
            "def two(x): return one(x) + one(x)",
            "def double(x): return two(x)",
        ),
        ALL,
    ),
    "helper in the imports": (helper_in_the_imports, ALL),
    "helper in a later answer": (helper_in_a_later_answer, ALL),
    "class as a helper": (
        above("class Two:\n    n = 2", "def double(x):\n    return Two.n * x"),
        ALL,
    ),
    "callable object": (
        answer("class D:\n    def __call__(self, x): return x + x\ndouble = D()"),
        ALL,
    ),
    "lambda": (answer("double = lambda x: x + x"), ALL),
    "partial": (
        answer("import functools, operator\ndouble = functools.partial(operator.mul, 2)"),
        ALL,
    ),
    "decorated": (answer(f"import functools\n@functools.lru_cache\n{RIGHT}"), ALL),
    "annotated name": (answer("double: 'Callable' = lambda x: x + x"), ALL),
    "unknown annotations": (
        answer("def double(x: Tensor, *, n: Optional[int] = 2) -> Result:\n    return n * x"),
        ALL,
    ),
    "inside an if": (answer("if True:\n    def double(x):\n        return x + x"), ALL),
    "defined twice in its cell": (answer(f"def double(x):\n    return 0\n\n{RIGHT}"), ALL),
    "defined again below": (twice, ALL),
    "byte order mark in a cell": (answer(f"\ufeff{RIGHT}"), ALL),
    "half a character": (answer(f"# \ud83d\n{RIGHT}"), ALL),
    "carriage returns": (answer(RIGHT.replace("\n", "\r")), ALL),
    "tabs and form feeds": (answer("\x0c\ndef double(x):\n\treturn x + x"), ALL),
    "names in other letters": (answer("def double(ж):\n    сумма = ж + ж\n    return сумма"), ALL),
    "older release": (older_release, ALL),
    "older stub": (older_stub, ALL),
    "function renamed": (renamed, ALL - 1),
    "two arguments asked": (answer("def double(x, y):\n    return x + x"), ALL - 1),
    "smart quotes": (answer("def double(x):\n    “twice”\n    return x + x"), ALL - 1),
}


def version_2(text: str) -> bytes:
    old = [
        {
            "cell_type": c["cell_type"],
            "input" if c["cell_type"] == "code" else "source": c["source"],
        }
        for c in json.loads(text)["cells"]
    ]
    return json.dumps({"nbformat": 2, "worksheets": [{"cells": old}, {"cells": []}]}).encode()


def script(text: str, separator: str) -> bytes:
    code = [c["source"] for c in json.loads(text)["cells"] if c["cell_type"] == "code"]
    return "".join(f"{separator}\n{source}\n\n" for source in code).encode()


def zipped(files: dict[str, bytes]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return file.getvalue()


def tarred(files: dict[str, bytes], mode: str = "w:gz") -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode=mode) as archive:  # type: ignore[call-overload]
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
        link = tarfile.TarInfo("link.ipynb")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    return file.getvalue()


NAME = "01_tiny.ipynb"
# The files of a student, made of the text of a right notebook -> points, a flag if not all.
FILES: dict[str, tuple[Callable[[str], dict[str, bytes]], int]] = {
    "version 2": (lambda t: {NAME: version_2(t)}, ALL),
    "windows lines": (lambda t: {NAME: t.replace("\n", "\r\n").encode()}, ALL),
    "utf-16 without a mark": (lambda t: {NAME: t.encode("utf-16-le")}, ALL),
    "utf-16, big end first": (lambda t: {NAME: b"\xfe\xff" + t.encode("utf-16-be")}, ALL),
    "utf-32": (lambda t: {NAME: t.encode("utf-32")}, ALL),
    "percent script": (lambda t: {"01_tiny.py": script(t, "# %%")}, ALL),
    "nbconvert script": (
        lambda t: {"x.py": b"#!/usr/bin/env python\n" + script(t, "# In[ ]:")},
        ALL,
    ),
    "databricks script": (lambda t: {"x.py": script(t, "# COMMAND ----------")}, ALL),
    "plain script": (lambda t: {"answers.py": script(t, "")}, ALL),
    "script beside the notebook": (
        lambda t: {NAME: t.encode(), "01_tiny.py": b"def double(x): 0"},
        ALL,
    ),
    "saved as text": (lambda t: {"01_tiny.ipynb.txt": t.encode()}, ALL),
    "saved as json": (lambda t: {"homework.json": t.encode()}, ALL),
    "downloaded again": (lambda t: {"01_tiny.ipynb (1)": t.encode()}, ALL),
    "capital ending": (lambda t: {"01_TINY.IPYNB": t.encode()}, ALL),
    "tar": (lambda t: {"all.tar.gz": tarred({f"a/b/{NAME}": t.encode()})}, ALL),
    "tar in zip": (lambda t: {"all.zip": zipped({"in.tar": tarred({NAME: t.encode()}, "w")})}, ALL),
    "zip in tar": (lambda t: {"all.tgz": tarred({"in.zip": zipped({NAME: t.encode()})})}, ALL),
    "cyrillic and emoji": (lambda t: {"домашка 🙂/задание №1.ipynb": t.encode()}, ALL),
    "zip with cyrillic": (
        lambda t: {"работа.zip": zipped({"Иванов/ноутбук 🎉.ipynb": t.encode()})},
        ALL,
    ),
    "wrong lesson's name": (lambda t: {"02_something.ipynb": t.encode()}, ALL),
    "with rubbish around": (
        lambda t: {NAME: t.encode(), ".DS_Store": b"x", "Thumbs.db": b"x", "a/.git/x.ipynb": b"{}"},
        ALL,
    ),
    "seven zip": (lambda t: {"all.7z": b"7z\xbc\xaf'\x1c rest"}, 0),
    "rar": (lambda t: {"all.rar": b"Rar!\x1a\x07"}, 0),
    "page": (lambda t: {"01_tiny.html": b"<html>"}, 0),
    "cut tar": (lambda t: {"all.tar.gz": tarred({NAME: t.encode()})[:60]}, 0),
    "compressed": (lambda t: {"01_tiny.ipynb.bz2": bz2.compress(t.encode())}, 0),
    "conflict": (lambda t: {NAME: b"<<<<<<< HEAD\n" + t.encode() + b"=======\n>>>>>>> main\n"}, 0),
    "two in one file": (lambda t: {NAME: t.encode() + t.encode()}, 0),
    "only a poem": (lambda t: {"poem.docx": b"PK"}, 0),
}


@pytest.fixture(scope="module")
def reports(one_grader_for_all, tmp_path_factory) -> dict[str, Report]:
    folder = tmp_path_factory.mktemp("fairness")
    course = tiny.write_course(folder / "course")
    right = json.dumps(tiny.answered(course.root, **tiny.ANSWERS), indent=1)
    for name, files in _all_files(right):
        for path, content in files.items():
            file = folder / "in" / name / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
    (folder / "in" / "José").mkdir()
    (folder / "in" / "José" / "old.ipynb").write_text(right.replace("x + x", "0"))
    (folder / "in" / "Jose\u0301.zip").write_bytes(zipped({NAME: right.encode()}))
    graded = grade(
        folder / "in",
        folder / "report",
        untouched(course.root),
        tiny.EXERCISES,
        Settings(["01_tiny"]),
    )
    return {report.student: report for report in graded.reports}


def _all_files(right: str) -> Iterator[tuple[str, dict[str, bytes]]]:
    for name, (change, _) in NOTEBOOKS.items():
        notebook = json.loads(right)
        change(notebook)
        yield name, {NAME: json.dumps(notebook).encode()}
    for name, (make, _) in FILES.items():
        yield name, make(right)


@pytest.mark.parametrize("name", [*NOTEBOOKS, *FILES])
def test_points_for_what_is_right_or_a_flag(reports, name):
    report = reports[name]
    points = {**NOTEBOOKS, **FILES}[name][1]
    assert report.points == points, [(r.exercise, r.status, r.message) for r in report.results]
    assert report.maximum == ALL
    if points < ALL:
        assert report.notes or report.odd


def test_names_that_look_the_same_are_one_student(reports):
    report = reports["José"]
    assert report.points in (ALL, ALL - 1)
    assert any("counts, the newest" in note for note in report.notes)


def test_there_are_enough_of_them():
    assert len(NOTEBOOKS) + len(FILES) >= 40


def test_the_folder_is_only_read(reports, tmp_path_factory):
    assert not list(Path(tmp_path_factory.getbasetemp()).rglob("link.ipynb"))
