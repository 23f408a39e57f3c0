"""nbval for notebooks that may hang or kill their kernel: a name for each exercise, and limits.

As a pytest plugin (`-p course_lib.classroom.nbval_plugin`) it calls the cell of a check by its
exercise, fails a cell at once when its kernel has died (nbval waits for the cell's time-out),
runs the cells after one that was interrupted, and ends the whole run after `--nbval-run-timeout`
seconds. `validate` runs pytest with all of that on a learner's notebook.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from queue import Empty

import pytest
from nbval.kernel import RunningKernel
from nbval.plugin import IPyNbCell, IPyNbFile

from .cell_ids import checked_exercise

_TICK = 1.0  # seconds between two looks at the kernel
_get_message = RunningKernel.get_message
_collect = IPyNbFile.collect


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--nbval-run-timeout",
        type=float,
        default=0.0,
        metavar="SECONDS",
        help="the most that all cells together may take (0: no limit)",
    )


def pytest_configure(config: pytest.Config) -> None:
    RunningKernel.get_message = _get_message_of_the_living
    IPyNbFile.collect = _collect_by_name


def _get_message_of_the_living(self: RunningKernel, stream: str, timeout: float | None = None):
    """`get_message` that does not wait for a kernel that has died."""
    deadline = None if timeout is None else time.monotonic() + timeout
    while True:
        left = _TICK if deadline is None else min(_TICK, deadline - time.monotonic())
        try:
            return _get_message(self, stream, max(left, 0.01))
        except Empty:
            if not self.is_alive():
                raise RuntimeError("the kernel has died in this cell") from None
            if deadline is not None and time.monotonic() >= deadline:
                raise


def _collect_by_name(self: IPyNbFile) -> Iterator[IPyNbCell]:
    """The cells, with a check's called by its exercise."""
    for item in _collect(self):
        identity = item.cell.get("id", "")
        if exercise := checked_exercise(identity):
            item = IPyNbCell.from_parent(
                self,
                name=f"exercise {exercise}",
                cell_num=item.cell_num,
                cell=item.cell,
                options=item.options,
            )
        yield item


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Run the cells after one that was interrupted: nbval itself gives them all up."""
    if isinstance(item, IPyNbCell):
        item.parent.timed_out = False


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    """Give a cell what is left of the time for all."""
    options = item.config.option
    if not options.nbval_run_timeout or not isinstance(item, IPyNbCell):
        return
    run = item.config.stash.setdefault(_RUN, (time.monotonic(), options.nbval_cell_timeout))
    begun, for_a_cell = run
    left = options.nbval_run_timeout - (time.monotonic() - begun)
    if left <= 0:
        pytest.fail(f"not run: the {options.nbval_run_timeout:g} s for all cells are over", False)
    options.nbval_cell_timeout = min(for_a_cell, left)


_RUN = pytest.StashKey[tuple[float, float]]()


def validate(notebooks: Sequence[Path], for_a_cell: float, for_all: float, junit: str = "") -> int:
    """Run notebooks under nbval; each check is a result named by its exercise.

    A check that does not pass raises, and so fails; other outputs are not compared, since they are
    the learner's own. Returns pytest's exit code, or 124 if the run had to be stopped from outside.
    """
    command = [
        *(sys.executable, "-m", "pytest", "--nbval-lax", "--nbval-current-env", "-v", "--tb=line"),
        *("-p", "course_lib.classroom.kernels", "-p", "course_lib.classroom.nbval_plugin"),
        *(
            "-p",
            "no:cacheprovider",
            "-c",
            os.devnull,
            "--rootdir",
            os.path.commonpath([p.parent for p in notebooks]),
        ),
        *(f"--nbval-cell-timeout={for_a_cell:g}", f"--nbval-run-timeout={for_all:g}"),
        *([f"--junitxml={junit}"] if junit else []),
        *map(str, notebooks),
    ]
    run = subprocess.Popen(command, start_new_session=True)
    try:
        return run.wait(timeout=for_all + 60)  # what starting and stopping takes
    except subprocess.TimeoutExpired:
        return 124
    finally:
        if run.poll() is None:
            os.killpg(run.pid, signal.SIGKILL)
            run.wait()
