"""What the source of an answer shows to be wrong, once it has failed."""

import ast
import inspect
import textwrap
from collections.abc import Callable


def recv_for_its_tensor(answer: Callable) -> str:
    """On `x = dist.recv(x, ...)`, which puts a number where the tensor was; "" without it."""
    for node in ast.walk(_tree(answer)):
        if isinstance(node, ast.Assign) and _is_recv(node.value):
            line = ast.unparse(node)
            return (
                f"`{line}` puts a number where a tensor is expected: dist.recv returns the rank of "
                f"the sender, and fills the tensor that it is given. Write "
                f"`{ast.unparse(node.value)}` without the assignment"
            )
    return ""


def late_binding(answer: Callable) -> str:
    """On a hook that is made in a loop and reads the loop's variable; "" without one."""
    for loop in ast.walk(_tree(answer)):
        if not isinstance(loop, ast.For):
            continue
        variables = _names(loop.target, ast.Store)
        functions = {f.name: f for f in ast.walk(loop) if isinstance(f, ast.FunctionDef)}
        for call in ast.walk(loop):
            if isinstance(call, ast.Call) and _name_of(call.func).endswith("hook"):
                for argument in call.args:
                    hook = functions.get(_name_of(argument), argument)
                    if late := sorted(variables & _read_late(hook)):
                        return (
                            f"a hook that is made in the loop over `{late[0]}` reads `{late[0]}` "
                            "when it runs, and then it is that of the last round for all of them: "
                            f"bind it where the hook is made, with a default ({late[0]}={late[0]}) "
                            "or by a function that makes the hook"
                        )
    return ""


def _read_late(function: ast.AST) -> set[str]:
    """The names that a lambda or an inner function looks up outside of itself when it runs."""
    if not isinstance(function, ast.Lambda | ast.FunctionDef):
        return set()
    given = function.args
    own = {a.arg for a in (*given.posonlyargs, *given.args, *given.kwonlyargs)}
    body = function.body if isinstance(function.body, list) else [function.body]
    return set().union(*(_names(part, ast.Load) for part in body)) - own


def _names(node: ast.AST, context: type[ast.expr_context]) -> set[str]:
    found = (n for n in ast.walk(node) if isinstance(n, ast.Name))
    return {name.id for name in found if isinstance(name.ctx, context)}


def _tree(answer: Callable) -> ast.AST:
    try:
        return ast.parse(textwrap.dedent(inspect.getsource(answer)))
    except (OSError, TypeError, SyntaxError):
        return ast.Module(body=[], type_ignores=[])


def _name_of(function: ast.AST) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _is_recv(value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and _name_of(value.func) == "recv"
