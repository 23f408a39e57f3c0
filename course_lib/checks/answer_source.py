"""What the source of an answer shows to be wrong, once it has failed."""

import ast
import inspect
import textwrap
from collections.abc import Callable


def recv_for_its_tensor(answer: Callable) -> str:
    """On `x = dist.recv(x, ...)`, which puts a number where the tensor was; "" without it."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(answer)))
    except (OSError, TypeError, SyntaxError):
        return ""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and _is_recv(node.value):
            line = ast.unparse(node)
            return (
                f"`{line}` puts a number where a tensor is expected: dist.recv returns the rank of "
                f"the sender, and fills the tensor that it is given. Write "
                f"`{ast.unparse(node.value)}` without the assignment"
            )
    return ""


def _is_recv(value: ast.expr) -> bool:
    if not isinstance(value, ast.Call):
        return False
    function = value.func
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    return name == "recv"
