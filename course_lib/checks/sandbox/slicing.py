"""Which statements of some source are needed to define a few of its names."""

import ast
import symtable
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple


class Names(NamedTuple):
    """The names that some source gives to its module, and those it takes from there."""

    bound: frozenset[str]
    needed: frozenset[str]


@lru_cache(maxsize=512)
def names_of(source: str) -> Names:
    """The names of a whole source; what it binds and uses itself is in both."""
    module = symtable.symtable(source, "<names>", "exec")
    bound = {s.get_name() for s in module.get_symbols() if s.is_assigned() or s.is_imported()}
    needed = {s.get_name() for s in module.get_symbols() if s.is_referenced()}
    tables = list(module.get_children())
    while tables:
        table = tables.pop()
        tables += table.get_children()
        for symbol in table.get_symbols():
            if symbol.is_global() and symbol.is_referenced():
                needed.add(symbol.get_name())
            if symbol.is_declared_global() and symbol.is_assigned():
                bound.add(symbol.get_name())
    return Names(frozenset(bound), frozenset(needed))


def statements(source: str) -> list[str]:
    """The top-level statements of a source, each with its decorators and its own indentation."""
    lines = source.split("\n")
    found = []
    for node in ast.parse(source).body:
        first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", ()))])
        found.append("\n".join(lines[first - 1 : node.end_lineno]))
    return found


def needed_statements(source: str, names: Iterable[str]) -> str:
    """The part of a module that is needed to define `names`: every binding, and what those need."""
    parts = statements(source)
    wanted, kept = set(names), set()
    while new := {
        index
        for index, part in enumerate(parts)
        if index not in kept and names_of(part).bound & wanted
    }:
        kept |= new
        wanted |= {name for index in new for name in names_of(parts[index]).needed}
    future = {i for i, part in enumerate(parts) if part.startswith("from __future__")}
    return "\n".join(parts[index] for index in sorted(kept | future)) + "\n"
