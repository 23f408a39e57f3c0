"""The room's front door: names that stay, and what loads torch."""

import subprocess
import sys

import pytest

from course_lib import techniques


def load_in_new_process(statement: str) -> set[str]:
    """The modules that are there after `statement`, in a process that had none of them."""
    code = f"import sys\n{statement}\nprint(*sys.modules)"
    command = [sys.executable, "-c", code]
    return set(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split())


@pytest.mark.parametrize("name", ["schedules", "mesh"])
def test_plain_data_loads_without_torch(name: str) -> None:
    loaded = load_in_new_process(f"from course_lib.techniques import {name}")
    assert f"course_lib.techniques.{name}" in loaded
    assert "torch" not in loaded


def test_the_room_itself_loads_nothing() -> None:
    loaded = load_in_new_process("import course_lib.techniques")
    assert {m for m in loaded if m.startswith("course_lib.techniques.")} == set()


def test_names_that_stay() -> None:
    import course_lib.techniques.zero1
    from course_lib.techniques import (  # noqa: F401
        activation_checkpointing,
        collectives,
        data_parallel,
        mesh,
        offload,
        parameter_server,
        pipeline,
        schedules,
        tensor_parallel,
        zero,
        zero2,
        zero3,
    )
    from course_lib.techniques.schedules import gpipe

    assert schedules.gpipe is gpipe
    assert course_lib.techniques.zero1.Zero1 is zero.Zero1
    assert zero2.Zero2 is zero.Zero2
    assert zero3.Zero3 is zero.Zero3


def test_the_table_of_contents_names_every_package(root) -> None:
    room = root / "course_lib/techniques"
    names = {p.stem for p in room.iterdir() if p.name[0] not in "_."}
    listed = {line.split()[0] for line in techniques.__doc__.splitlines() if line[:4] == " " * 4}
    assert listed == names - {"zero1", "zero2", "zero3"}
