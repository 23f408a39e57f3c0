"""What the source of an answer shows to be wrong, once it has failed."""

import ast
import inspect
import textwrap
from collections.abc import Callable, Collection


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
    """On a function that is made in a loop, runs later and reads a name of the loop; "" else."""
    for loop in ast.walk(_tree(answer)):
        if not isinstance(loop, ast.For | ast.While):
            continue
        variables = _names_of_a_round(loop)
        functions = {f.name: f for f in ast.walk(loop) if isinstance(f, ast.FunctionDef)}
        for call in ast.walk(loop):
            if isinstance(call, ast.Call) and _name_of(call.func).endswith(_RUN_LATER):
                for argument in call.args:
                    made = functions.get(_name_of(argument), argument)
                    if late := sorted(variables & _read_late(made)):
                        return (
                            f"a function that is made in a loop reads `{late[0]}` when it runs, "
                            "and by then it has the value of the last round: bind it where the "
                            f"function is made, with a default ({late[0]}={late[0]}) or by a "
                            "function that makes it"
                        )
    return ""


def never_emptied(answer: Callable) -> str:
    """On a list that one inner function fills and another goes through, and nobody empties."""
    inner = [f for f in ast.walk(_tree(answer)) if isinstance(f, ast.FunctionDef | ast.Lambda)][1:]
    filled = {name: f for f in inner for name in _called_on(f, ("append", "extend"))}
    read = {name: f for f in inner for name in _looped_over(f)}
    emptied = set().union(*(_emptied(f) for f in inner)) if inner else set()
    for name in sorted(filled.keys() & read.keys() - emptied):
        if filled[name] is not read[name]:
            return (
                f"`{name}` gets more in every step and is never emptied, so what is left of the "
                f"steps before is gone through again: {name}.clear() when all is done"
            )
    return ""


def _called_on(function: ast.AST, methods: Collection[str]) -> set[str]:
    """The names on which a function calls one of these methods."""
    calls = (n.func for n in ast.walk(function) if isinstance(n, ast.Call))
    found = (f for f in calls if isinstance(f, ast.Attribute) and f.attr in methods)
    return {f.value.id for f in found if isinstance(f.value, ast.Name)}


def _looped_over(function: ast.AST) -> set[str]:
    """The names of a function's `for ... in name`, in loops and comprehensions."""
    loops = (n for n in ast.walk(function) if isinstance(n, ast.For | ast.comprehension))
    return {loop.iter.id for loop in loops if isinstance(loop.iter, ast.Name)}


def _emptied(function: ast.AST) -> set[str]:
    """The names that a function empties, in part or whole, or gives another value."""
    found = _called_on(function, ("clear", "pop", "popleft", "popitem", "remove"))
    for node in ast.walk(function):
        if isinstance(node, ast.Assign | ast.Delete):
            for target in node.targets:
                value = target.value if isinstance(target, ast.Subscript) else target
                found |= {value.id} if isinstance(value, ast.Name) else set()
    return found


_RUN_LATER = ("hook", "checkpoint", "append")  # what calls end with that keep a function


def _names_of_a_round(loop: ast.For | ast.While) -> set[str]:
    """The loop's variable, and what its body sets anew in every round."""
    found = _names(loop.target, ast.Store) if isinstance(loop, ast.For) else set()
    for statement in loop.body:
        if isinstance(statement, ast.Assign):
            found = found.union(*(_names(target, ast.Store) for target in statement.targets))
        elif isinstance(statement, ast.AugAssign) and isinstance(loop, ast.While):
            found |= _names(statement.target, ast.Store)
    return found


def _read_late(function: ast.AST) -> set[str]:
    """The names that a lambda or an inner function looks up outside of itself when it runs."""
    if not isinstance(function, ast.Lambda | ast.FunctionDef):
        return set()
    given = function.args
    own = {a.arg for a in (*given.posonlyargs, *given.args, *given.kwonlyargs)}
    body = function.body if isinstance(function.body, list) else [function.body]
    own = own.union(*(_names(part, ast.Store) for part in body))
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
