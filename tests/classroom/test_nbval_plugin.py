"""nbval with limits: each exercise is a result by its name, and nothing waits for the dead."""

from xml.etree import ElementTree

import nbformat
import pytest

from course_lib.classroom.nbval_plugin import validate


def write(path, *cells: tuple[str, str]):
    notebook = nbformat.v4.new_notebook()
    for identity, source in cells:
        notebook.cells.append(nbformat.v4.new_code_cell(source, id=identity))
    nbformat.write(notebook, path)
    return path


@pytest.fixture
def results(tmp_path):
    """Validates cells; gives {name: what failed, or ""}."""

    def run(*cells, for_a_cell=30.0, for_all=60.0):
        path = write(tmp_path / "cells.ipynb", *cells)
        report = tmp_path / "report.xml"
        validate([path], for_a_cell, for_all, str(report))
        cases = ElementTree.parse(report).iter("testcase")
        return {
            case.get("name"): "skipped"
            if case.find("skipped") is not None
            else case.findtext("failure", "")
            for case in cases
        }

    return run


def test_a_dead_kernel_fails_its_cell_and_the_rest_at_once(results):
    failures = results(
        ("one", "print(1)"),
        ("check-first", "import os\nos._exit(1)"),
        ("check-second", "print(2)"),
        for_a_cell=300.0,
        for_all=300.0,
    )
    assert list(failures) == ["Cell 0", "exercise first", "exercise second"]
    assert failures["Cell 0"] == ""
    assert "the kernel has died in this cell" in failures["exercise first"]
    assert "dead on test start" in failures["exercise second"]


def test_an_endless_loop_costs_its_own_limit(results):
    failures = results(
        ("check-first", "while True:\n    pass"), ("check-second", "print(2)"), for_a_cell=2.0
    )
    assert "Timeout of 2 seconds" in failures["exercise first"]
    assert failures["exercise second"] == ""


def test_all_cells_together_have_a_limit(results):
    cells = [(f"check-{n}", "import time\ntime.sleep(1.5)") for n in range(4)]
    failures = results(*cells, for_all=2.0)
    assert [bool(failure) for failure in failures.values()] == [False, True, True, True]
    assert "the 2 s for all cells are over" in failures["exercise 3"]
