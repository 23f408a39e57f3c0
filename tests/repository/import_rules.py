"""Which room may import what, how an import is written, and where a source file breaks that.

The rooms are separate so that each can be read by itself: techniques know nothing of the course,
the oracle of a check is never the answer itself, and only views draw.
"""

import ast
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path, PurePosixPath


@dataclass(frozen=True)
class Allowed:
    """What a room may import besides itself and the standard library.

    rooms: modules of this course, with all that is inside them.
    packages: other people's packages.
    forbidden: parts of the standard library that would make the room something else.
    """

    rooms: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    forbidden: tuple[str, ...] = ()


@dataclass(frozen=True)
class Import:
    """One imported name: where, its full dotted name, and how it was asked for.

    level: the dots of a relative import; 0 for the full name.
    at_once: it runs when the file is imported, not inside a function.
    """

    line: int
    module: str
    level: int = 0
    at_once: bool = True


PROCESSES = ("multiprocessing", "subprocess", "threading", "socket")
# Plain data, without torch: schedules with their text form and rules, and meshes.
SCHEDULES, MESH = "course_lib.techniques.schedules", "course_lib.techniques.mesh"
# Joined words and tables in text, which import nothing.
TEXT = "course_lib.text"
# What a notebook shows beside a text, which imports no room either.
SHOWN = "course_lib.rich_display"

RULES = {
    "text": Allowed(forbidden=PROCESSES),
    "techniques": Allowed(packages=("torch",), forbidden=PROCESSES),
    "models": Allowed((TEXT,), ("torch",), PROCESSES),
    "observe": Allowed((TEXT, SCHEDULES), ("torch",)),
    "ranks": Allowed((TEXT, SHOWN, "course_lib.observe"), ("torch", "cloudpickle", "IPython")),
    "simulate": Allowed((TEXT, "course_lib.observe", SCHEDULES, MESH), ("numpy",), PROCESSES),
    "views": Allowed(
        (TEXT, "course_lib.observe", "course_lib.simulate", SCHEDULES, MESH),
        ("numpy", "matplotlib", "ipywidgets", "IPython"),
        PROCESSES,
    ),
    "checks": Allowed(
        (
            TEXT,
            SHOWN,
            "course_lib.ranks",
            "course_lib.observe",
            "course_lib.simulate",
            "course_lib.models",
        ),
        ("torch", "IPython", "cloudpickle"),
    ),
    "classroom": Allowed(
        (TEXT, "course_lib.checks"),
        ("nbformat", "jupytext", "jupyter_client", "nbclient", "nbval", "pytest"),
    ),
    "train": Allowed((TEXT, "course_lib.techniques", "course_lib.models"), ("torch",)),
    # Modules beside the rooms. The package itself loads rooms only when their names are used.
    "__init__": Allowed(
        ("course_lib.ranks", "course_lib.checks", SHOWN, "course_lib.notebook_display")
    ),
    "rich_display": Allowed(packages=("IPython",), forbidden=PROCESSES),
    "notebook_display": Allowed(
        (SHOWN, "course_lib.ranks", "course_lib.checks", "course_lib.views")
    ),
    "doctor": Allowed((TEXT,), ("torch",)),
}


def room_of(path: PurePosixPath) -> str:
    """The room of a file given relative to course_lib/."""
    return path.parts[0] if len(path.parts) > 1 else path.stem


def imports(source: str, package: str) -> list[Import]:
    """Everything that is imported: by statements at any depth, and by import_module("...").

    package: the dotted name of the package the file is in, for relative imports.
    """
    return list(_imports(ast.parse(source), package, at_once=True))


def violations(source: str, path: PurePosixPath) -> list[str]:
    """Sentences about the imports in `source` (at `path`, relative to course_lib/) not allowed."""
    room = room_of(path)
    if room not in RULES:
        return [f"{path}: the table of rooms does not know {room!r}"]
    rules = RULES[room]
    package = _package(path)
    bad = []
    for found in imports(source, package):
        if not found.level and len(path.parts) > 1 and _inside(found.module, (package,)):
            name = found.module.removeprefix(package)
            bad.append(f"{path}:{found.line}: from the same package, import {name or '.'}")
        if _inside(found.module, (f"course_lib.{room}", *rules.rooms, *rules.packages)):
            continue
        top = found.module.split(".")[0]
        if top in sys.stdlib_module_names and top not in rules.forbidden:
            continue
        bad.append(f"{path}:{found.line}: {room} may not import {found.module}")
    return bad


def module_graph(library: Path, *, at_once: bool = True) -> dict[str, set[str]]:
    """For each module of course_lib, which others it imports.

    at_once: only those that are loaded with it, not those that a function loads when it needs them.
    """
    files = {_module(path): path for path in _files(library)}
    graph: dict[str, set[str]] = {}
    for module, path in files.items():
        source = (library / path).read_text(encoding="utf-8")
        wanted = (i for i in imports(source, _package(path)) if i.at_once or not at_once)
        graph[module] = {_known(i.module, files) for i in wanted} - {module, ""}
    return graph


def room_graph(library: Path) -> dict[str, set[str]]:
    """For each room and module beside the rooms, which others it imports, now or later."""
    graph: dict[str, set[str]] = {}
    for module, imported in module_graph(library, at_once=False).items():
        room = _room_of_module(module)
        graph.setdefault(room, set()).update(map(_room_of_module, imported))
    return {room: others - {room} for room, others in graph.items()}


def circle(graph: Mapping[str, set[str]]) -> list[str]:
    """The members of one circle, from the first to the first again; empty where there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def _imports(tree: ast.AST, package: str, at_once: bool) -> Iterator[Import]:
    for node in ast.iter_child_nodes(tree):
        match node:
            case ast.Import(names=names):
                for alias in names:
                    yield Import(node.lineno, alias.name, 0, at_once)
            case ast.ImportFrom(module=module, names=names, level=level):
                base = package.split(".")[: len(package.split(".")) - level + 1] if level else []
                stem = ".".join([*base, *([module] if module else [])])
                # `from course_lib import views` imports a room as well as a name.
                for alias in names:
                    yield Import(node.lineno, f"{stem}.{alias.name}", level, at_once)
            case ast.Call(
                func=ast.Name(id="import_module") | ast.Attribute(attr="import_module"),
                args=[ast.Constant(value=str(module)), *_],
            ):
                # By its name in a text: there is no relative way to write it.
                yield Import(node.lineno, module, 1, at_once)
        later = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        later = later or _only_for_types(node)
        yield from _imports(node, package, at_once and not later)


def _only_for_types(node: ast.AST) -> bool:
    match node:
        case ast.If(test=ast.Name(id="TYPE_CHECKING") | ast.Attribute(attr="TYPE_CHECKING")):
            return True
    return False


def _files(library: Path) -> list[PurePosixPath]:
    found = (path.relative_to(library).as_posix() for path in library.rglob("*.py"))
    return sorted(map(PurePosixPath, found))


def _package(path: PurePosixPath) -> str:
    return ".".join(["course_lib", *path.parent.parts])


def _module(path: PurePosixPath) -> str:
    stem = () if path.stem == "__init__" else (path.stem,)
    return ".".join(["course_lib", *path.parent.parts, *stem])


def _known(module: str, files: Mapping[str, PurePosixPath]) -> str:
    """The module of the course that this name is, or is in; empty for what others wrote."""
    while module and module not in files:
        module = module.rpartition(".")[0]
    return module


def _room_of_module(module: str) -> str:
    return [*module.split("."), "__init__"][1]


def _inside(module: str, allowed: tuple[str, ...]) -> bool:
    return any(module == name or module.startswith(f"{name}.") for name in allowed)
