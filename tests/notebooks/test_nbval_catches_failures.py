"""nbval on cells that go wrong: it must name exactly those, and never wait for a dead kernel."""

import os
import subprocess
import sys
from xml.etree import ElementTree

import nbformat
import pytest

PREPARE = """\
import os, signal
from course_lib import run_ranks

def on_one_rank(act):
    import torch.distributed as dist
    if dist.get_rank() == 1:
        act()
    dist.barrier()
"""
ENDS = {
    "leaves": "lambda: os._exit(1)",
    "aborts": "lambda: os.abort()",
    "is killed, as by a system out of memory": "lambda: os.kill(os.getpid(), signal.SIGKILL)",
    "leaves as if all were well": "lambda: os._exit(0)",
}


@pytest.fixture
def nbval(tmp_path, root):
    """Runs nbval, strict, on cells given as (source, what they printed); name -> passed?"""

    def run(*cells: tuple[str, str]) -> dict[str, bool]:
        notebook = nbformat.v4.new_notebook()
        for count, (source, printed) in enumerate(cells, start=1):
            outputs = [nbformat.v4.new_output("stream", text=printed)] if printed else []
            cell = nbformat.v4.new_code_cell(source, outputs=outputs, execution_count=count)
            notebook.cells.append(cell)
        nbformat.write(notebook, tmp_path / "cells.ipynb")
        (tmp_path / "pytest.ini").write_text("[pytest]\n")
        options = [
            "--nbval",
            "--nbval-current-env",
            "--nbval-cell-timeout=30",
            "-pno:cacheprovider",
            "-pcourse_lib.classroom.kernels",
        ]
        subprocess.run(
            [sys.executable, "-m", "pytest", *options, "--junitxml=report.xml", "cells.ipynb"],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": str(root)},
            capture_output=True,
            timeout=150,
            check=False,
        )
        cases = ElementTree.parse(tmp_path / "report.xml").iter("testcase")
        return {case.get("name"): case.find("failure") is None for case in cases}

    return run


def test_ranks_that_die_fail_their_cell_and_no_other(nbval):
    cells = [(PREPARE, "")]
    for act in ENDS.values():
        cells += [(f"run_ranks(on_one_rank, 2, {act})", ""), ("print('after')", "after\n")]
    passed = nbval(*cells)
    assert [passed[f"Cell {number}"] for number in range(len(cells))] == [
        True,
        *(number % 2 == 1 for number in range(2 * len(ENDS))),
    ]


def test_an_output_that_differs_fails_its_cell(nbval):
    passed = nbval(("print(2 * 21)", "42\n"), ("print(2 * 21)", "41\n"), ("print(1)", "1\n"))
    assert list(passed.values()) == [True, False, True]
