"""The notebook that a check runs in, if it is one."""

import ast
import re
import sys
from collections.abc import Callable
from typing import Any


def _shell() -> Any:
    """IPython's shell, or None outside of it."""
    ipython = sys.modules.get("IPython")
    return ipython.get_ipython() if ipython else None


def offer(function: Callable) -> None:
    """Let cells use a function that a message mentions, if they have no other of that name."""
    if shell := _shell():
        shell.user_ns.setdefault(function.__name__, function)


def stale_definition(name: str) -> str:
    """Why the function of this name is an older one than the last cell that was to define it.

    A cell with a syntax error defines nothing, and what an earlier run of it defined is still
    there. "" if there is no such cell, or it could be read.
    """
    shell = _shell()
    cells = shell.user_ns.get("In", []) if shell else []
    defining = re.compile(rf"^\s*def\s+{re.escape(name)}\b", re.MULTILINE)
    source = next((cell for cell in reversed(cells) if defining.search(cell)), "")
    try:
        ast.parse(shell.transform_cell(source) if source else "")
    except SyntaxError as problem:
        return (
            f"The cell with {name} was not run: line {problem.lineno} has a syntax error "
            f"({problem.msg}). What would be checked is the function from before. Mend that line, "
            "run the cell, then check again."
        )
    return ""
