"""Which room may import what, and where a source file breaks that.

The rooms stay apart so that each can be read alone: techniques know nothing of the course, the
oracle of a check is never the answer itself, and only views draw.
"""

import ast
import sys
from dataclasses import dataclass
from pathlib import PurePosixPath


@dataclass(frozen=True)
class Arrows:
    """What a room may import besides itself and the standard library.

    rooms: modules of this course, with all that is inside them.
    packages: other people's packages.
    forbidden: parts of the standard library that would make the room something else.
    """

    rooms: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    forbidden: tuple[str, ...] = ()


PROCESSES = ("multiprocessing", "subprocess", "threading", "socket")
# Schedules are plain data, and so are their text form and the rules that a schedule obeys.
SCHEDULES = tuple(
    f"course_lib.techniques.{module}" for module in ("schedules", "schedule_text", "schedule_rules")
)

ARROWS = {
    "techniques": Arrows(packages=("torch",), forbidden=PROCESSES),
    "models": Arrows(packages=("torch",), forbidden=PROCESSES),
    "observe": Arrows(("course_lib.techniques.schedule_text",), ("torch",)),
    "ranks": Arrows(("course_lib.observe",), ("torch", "cloudpickle", "IPython")),
    "simulate": Arrows(("course_lib.observe", *SCHEDULES), ("numpy",), PROCESSES),
    "views": Arrows(
        ("course_lib.observe", "course_lib.simulate", *SCHEDULES),
        ("numpy", "matplotlib", "ipywidgets", "IPython"),
        PROCESSES,
    ),
    "checks": Arrows(
        ("course_lib.ranks", "course_lib.observe", "course_lib.simulate", "course_lib.models"),
        ("torch", "IPython", "cloudpickle"),
    ),
    "classroom": Arrows(
        ("course_lib.checks",),
        ("nbformat", "jupytext", "jupyter_client", "nbclient", "nbval", "pytest"),
    ),
    "train": Arrows(("course_lib.techniques", "course_lib.models"), ("torch",)),
    # Modules beside the rooms. The package itself loads rooms only when their names are used.
    "__init__": Arrows(("course_lib.ranks", "course_lib.checks")),
    "doctor": Arrows(packages=("torch",)),
    "text": Arrows(),
}
# Words and tables, open to every room but techniques, which know nothing of the course.
COMMON = "course_lib.text"


def room_of(path: PurePosixPath) -> str:
    """The room of a file given relative to course_lib/."""
    return path.parts[0] if len(path.parts) > 1 else path.stem


def imports(source: str, package: str) -> list[tuple[int, str]]:
    """(line, module) of everything imported: statements at any depth, and import_module("...").

    package: the dotted name of the package the file is in, for relative imports.
    """
    found = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                found += [(node.lineno, alias.name) for alias in names]
            case ast.ImportFrom(module=module, names=names, level=level):
                base = package.split(".")[: len(package.split(".")) - level + 1] if level else []
                stem = ".".join([*base, *([module] if module else [])])
                # `from course_lib import views` imports a room as well as a name.
                found += [(node.lineno, f"{stem}.{alias.name}") for alias in names]
            case ast.Call(
                func=ast.Name(id="import_module") | ast.Attribute(attr="import_module"),
                args=[ast.Constant(value=str(module)), *_],
            ):
                found.append((node.lineno, module))
    return found


def violations(source: str, path: PurePosixPath) -> list[str]:
    """Sentences about the imports in `source` (at `path`, relative to course_lib/) not allowed."""
    room = room_of(path)
    if room not in ARROWS:
        return [f"{path}: the table of rooms does not know {room!r}"]
    arrows = ARROWS[room]
    own = f"course_lib.{room}"
    common = () if room == "techniques" else (COMMON,)
    package = ".".join(["course_lib", *path.parent.parts])
    bad = []
    for line, module in imports(source, package):
        if _inside(module, (own, *common, *arrows.rooms, *arrows.packages)):
            continue
        top = module.split(".")[0]
        if top in sys.stdlib_module_names and top not in arrows.forbidden:
            continue
        bad.append(f"{path}:{line}: {room} may not import {module}")
    return bad


def _inside(module: str, allowed: tuple[str, ...]) -> bool:
    return any(module == name or module.startswith(f"{name}.") for name in allowed)
