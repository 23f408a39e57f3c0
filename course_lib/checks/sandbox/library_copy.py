"""A copy of the course's library in which no answer can be found, for graded runs to import from.

It holds what starts and watches ranks, and of everything else what the lesson itself imports for
the exercise. The checks stay outside, since they know how to tell a right answer, and of
`course_lib.techniques`, which are the answers, only the names come along that something imports,
with what these need.
"""

import ast
import hashlib
import importlib.util
import shutil
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path, PurePosixPath

from course_lib.ranks import rank_process, spawn_ranks

from . import fork_server
from .names import CHECKS, COURSE, TECHNIQUES
from .slicing import needed_statements

LIBRARY = Path(__file__).resolve().parents[2]
# What a run needs. The packages' own files import all their rooms, and are left empty.
_RUN = (COURSE, fork_server.__name__, spawn_ranks.__name__, rank_process.__name__)
_EMPTY = (CHECKS,)
_ALL, _NOTHING = "*", ""  # in the place of a name: the whole module; the module, and no name of it


def write_library(folder: Path, imports: Iterable[str]) -> Path:
    """Write the copy for a lesson that needs these import statements; returns its folder.

    Copies that are alike share a folder, named by its content, inside `folder`.
    """
    files = _closure(tuple(sorted({*_course_imports(imports)})))
    text = "".join(f"{name}\0{source}\0" for name, source in sorted(files.items()))
    library = folder / hashlib.sha256(text.encode()).hexdigest()[:16]
    if not library.exists():
        unfinished = library.with_suffix(".part")
        shutil.rmtree(unfinished, ignore_errors=True)
        for name, source in files.items():
            path = unfinished / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(source, encoding="utf-8")
        unfinished.rename(library)
    return library


def _course_imports(imports: Iterable[str]) -> Iterator[tuple[str, str]]:
    for statement in imports:
        yield from _imported(ast.parse(statement), COURSE)


@lru_cache(maxsize=256)
def _closure(wanted: tuple[tuple[str, str], ...]) -> dict[str, str]:
    """Path -> source of all modules that are needed to import these (module, name)."""
    names: dict[str, set[str]] = {}
    waiting = [*((module, _ALL) for module in _RUN), *wanted]
    while waiting:
        module, name = waiting.pop()
        if name not in (_ALL, _NOTHING) and _file_of(f"{module}.{name}"):
            waiting += [(f"{module}.{name}", _ALL), (module, _NOTHING)]
            continue
        if not (path := _file_of(module)) or name in names.setdefault(module, set()):
            continue
        if name != _ALL and not _is_technique(module):
            waiting.append((module, _ALL))
            continue
        names[module].add(name)
        package, _, _ = module.rpartition(".")
        waiting += [(package, _NOTHING)] if package else []
        tree = ast.parse(_source(module, path, frozenset({name})))
        waiting += _imported(tree, module if path.name == "__init__.py" else package)
    files = {}
    for module, imported in names.items():
        if path := _file_of(module):
            file = path.relative_to(LIBRARY.parent).as_posix()
            files[file] = _source(module, path, frozenset(imported))
    return files


def modules_of_every_run() -> frozenset[str]:
    """The modules that any run can import, whatever its lesson."""
    stems = (PurePosixPath(file).with_suffix("") for file in _closure(()))
    return frozenset(".".join(stem.parts).removesuffix(".__init__") for stem in stems)


def _source(module: str, path: Path, names: frozenset[str]) -> str:
    if module in _EMPTY:
        return ""
    source = path.read_text(encoding="utf-8")
    if _is_technique(module) and _ALL not in names:
        return needed_statements(source, names)
    return source


def _is_technique(module: str) -> bool:
    return f"{module}.".startswith(f"{TECHNIQUES}.")


def _imported(tree: ast.AST, package: str) -> Iterator[tuple[str, str]]:
    """(module, name) of all that is imported from the course."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == COURSE:
                    yield alias.name, _ALL
        elif isinstance(node, ast.ImportFrom):
            name = "." * node.level + (node.module or "")
            module = importlib.util.resolve_name(name, package) if node.level else name
            if module.split(".")[0] == COURSE:
                for alias in node.names:
                    yield module, alias.name


def _file_of(module: str) -> Path | None:
    """The file of a module of the course; None if there is none."""
    stem = LIBRARY.parent.joinpath(*module.split("."))
    for path in (stem / "__init__.py", stem.with_suffix(".py")):
        if path.is_file():
            return path
    return None
