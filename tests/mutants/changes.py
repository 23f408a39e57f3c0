"""All small changes to a function: the mistakes of a tired hand.

Each change replaces one node of the syntax tree by what people mix it up with: < and <=, + and -,
sum and mean, one argument and the next, a step too many.
"""

import ast
import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass

_OPERATORS: dict[type, type] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Div,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.And: ast.Or,
    ast.Or: ast.And,
}
_NAMES = {
    "sum": "mean",
    "mean": "sum",
    "SUM": "AVG",
    "AVG": "SUM",
    "max": "min",
    "min": "max",
    "amax": "amin",
    "floor": "ceil",
    "ceil": "floor",
    "all_reduce": "broadcast",
    "isend": "irecv",
}
_DROPPED = (
    "clone",
    "detach",
    "contiguous",
    "flatten",
    "view",
    "reshape",
    "requires_grad_",
    "float",
)
_EITHER_WAY = frozenset({"max", "min", "maximum", "minimum", "gcd", "isclose", "transpose"})
"""Functions whose first two arguments may change places (of `x.transpose`, two dimensions)."""
_SAYS_NOTHING = frozenset({"strict"})
"""Options that change nothing where a program is right, as `zip`'s."""
_CONSTANTS = {"get_rank": 0, "get_world_size": 2}


@dataclass(frozen=True)
class Change:
    """One change: its line, the statement before and after, and the whole source that comes out."""

    line: int
    before: str
    after: str
    source: str

    @property
    def key(self) -> str:
        """The change without its line number, by which it is known when lines have moved."""
        return f"{self.before} -> {self.after}"


def changes(source: str, function: str) -> list[Change]:
    """Every change at one place inside `function`, its signature and docstring left as they are."""
    tree = ast.parse(source)
    found: dict[str, Change] = {}
    for at, old, new in _replacements(_body(tree, function)):
        altered = _replaced(tree, old, new)
        text = ast.unparse(altered)
        if text not in found and text != ast.unparse(tree):
            found[text] = Change(at.lineno, _shown(at), _shown_change(at, old, new), text)
    return list(found.values())


def _body(tree: ast.Module, function: str) -> list[ast.stmt]:
    node = next(n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == function)
    return node.body[1:] if ast.get_docstring(node) is not None else node.body


_New = ast.AST | None  # None: a statement left out
_Replacement = tuple[ast.stmt, ast.AST, _New]


def _replacements(body: list[ast.stmt]) -> Iterator[_Replacement]:
    """(the innermost statement around it, what is replaced, by what)."""
    for statement in body:
        if not _is_text(statement):
            yield statement, statement, None
        for node in _inside(statement):
            for new in _instead(node):
                yield statement, node, new
        for field in ("body", "orelse", "finalbody"):
            yield from _replacements(getattr(statement, field, []))


def _inside(statement: ast.stmt) -> Iterator[ast.AST]:
    """The expressions of a statement, without those of the statements in it."""
    nodes: list[ast.AST] = [statement]
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.keyword) and node.arg in _SAYS_NOTHING:
            continue
        yield node
        if isinstance(node, ast.FunctionDef):
            continue  # a nested function's defaults and annotations say little
        nodes += [child for child in ast.iter_child_nodes(node) if not isinstance(child, ast.stmt)]


def _instead(node: ast.AST) -> Iterator[ast.AST]:
    for kind in _KINDS:
        yield from kind(node)


# ---------------------------------------------------------------------------------------------
# The kinds of change
# ---------------------------------------------------------------------------------------------


def _operator(node: ast.AST) -> Iterator[ast.AST]:
    """+ for -, < for <=, and for or; a % left out; a sign or a `not` left out."""
    if isinstance(node, ast.BinOp | ast.AugAssign | ast.BoolOp) and type(node.op) in _OPERATORS:
        yield _with(node, op=_OPERATORS[type(node.op)]())
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
        yield node.left
    if isinstance(node, ast.Compare) and type(node.ops[0]) in _OPERATORS:
        yield _with(node, ops=[_OPERATORS[type(node.ops[0])](), *node.ops[1:]])
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub):
        yield node.operand


def _constant(node: ast.AST) -> Iterator[ast.AST]:
    """One more and one less; True for False; the rank and the world size as fixed numbers."""
    if isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield ast.Constant(not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int):
        yield ast.Constant(node.value + 1)
        yield ast.Constant(node.value - 1)
    if isinstance(node, ast.Call) and (value := _CONSTANTS.get(_called(node))) is not None:
        yield ast.Constant(value)


def _name(node: ast.AST) -> Iterator[ast.AST]:
    """A function's or an option's nearest relative: sum and mean, max and min, ceil and floor."""
    if isinstance(node, ast.Attribute) and node.attr in _NAMES:
        yield _with(node, attr=_NAMES[node.attr])
    if isinstance(node, ast.Name) and node.id in ("max", "min"):
        yield _with(node, id=_NAMES[node.id])


def _call(node: ast.AST) -> Iterator[ast.AST]:
    """Arguments swapped, a keyword left out, a copy not made, a range one longer or shorter."""
    if not isinstance(node, ast.Call):
        return
    swaps = len(node.args) >= 2 and _called(node) not in _EITHER_WAY
    if swaps and not any(isinstance(a, ast.Starred) for a in node.args[:2]):
        yield _with(node, args=[node.args[1], node.args[0], *node.args[2:]])
    for i, keyword in enumerate(node.keywords):
        if keyword.arg in _SAYS_NOTHING:
            continue
        yield _with(node, keywords=node.keywords[:i] + node.keywords[i + 1 :])
    if isinstance(node.func, ast.Attribute) and node.func.attr in _DROPPED:
        yield node.func.value
    if _called(node) == "range" and node.args:
        end = 0 if len(node.args) == 1 else 1
        for operator in (ast.Add(), ast.Sub()):
            longer = ast.BinOp(node.args[end], operator, ast.Constant(1))
            yield _with(node, args=[*node.args[:end], longer, *node.args[end + 1 :]])


def _condition(node: ast.AST) -> Iterator[ast.AST]:
    """A branch that is always taken, or never."""
    if isinstance(node, ast.If | ast.IfExp):
        for value in (True, False):
            yield _with(node, test=ast.Constant(value))


def _detach(node: ast.AST) -> Iterator[ast.AST]:
    """What is returned, cut out of the graph."""
    if isinstance(node, ast.Return) and isinstance(node.value, ast.Name):
        cut = ast.Call(ast.Attribute(node.value, "detach", ast.Load()), [], [])
        yield _with(node, value=cut)


def _slice(node: ast.AST) -> Iterator[ast.AST]:
    """A bound of a slice left out."""
    if isinstance(node, ast.Slice):
        if node.lower is not None:
            yield _with(node, lower=None)
        if node.upper is not None:
            yield _with(node, upper=None)


_KINDS: tuple[Callable[[ast.AST], Iterator[ast.AST]], ...] = (
    _operator,
    _constant,
    _name,
    _call,
    _condition,
    _detach,
    _slice,
)

# ---------------------------------------------------------------------------------------------


def _with(node: ast.AST, **fields: object) -> ast.AST:
    new = copy.copy(node)
    for name, value in fields.items():
        setattr(new, name, value)
    return new


def _called(node: ast.Call) -> str:
    if isinstance(node.func, ast.Attribute):
        return node.func.attr
    return node.func.id if isinstance(node.func, ast.Name) else ""


def _is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Pass) or (
        isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    )


def _replaced(tree: ast.AST, old: ast.AST, new: _New) -> ast.AST:
    """A copy of the tree with one node replaced."""
    if tree is old:
        return ast.Pass() if new is None else new
    fields = {}
    for name, value in ast.iter_fields(tree):
        if isinstance(value, ast.AST):
            fields[name] = _replaced(value, old, new)
        elif isinstance(value, list):
            fields[name] = [
                _replaced(item, old, new) if isinstance(item, ast.AST) else item for item in value
            ]
    return _with(tree, **fields)


def _shown(statement: ast.stmt) -> str:
    return ast.unparse(statement).splitlines()[0]


def _shown_change(statement: ast.stmt, old: ast.AST, new: _New) -> str:
    return "(left out)" if new is None else _shown(_replaced(statement, old, new))  # type: ignore[arg-type]
