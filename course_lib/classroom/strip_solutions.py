"""Where an answer stands in a cell, and what a learner finds there instead.

    def double(x):                        def double(x):
        ### BEGIN SOLUTION                    raise NotImplementedError("not attempted yet")
        return 2 * x
        ### END SOLUTION

    ### BEGIN SOLUTION                    guess = ...
    guess = 4
    ### END SOLUTION

The markers are nbgrader's, so that nbgrader finds the answers as well.
"""

import ast
import textwrap

BEGIN = "### BEGIN SOLUTION"
END = "### END SOLUTION"
NOT_ATTEMPTED = 'raise NotImplementedError("not attempted yet")'


def answers(source: str) -> list[str]:
    """The texts between the markers of a cell, dedented, in order."""
    return [textwrap.dedent(answer) for _, answer in _pieces(source) if answer is not None]


def with_stubs(source: str) -> str:
    """The cell with every answer replaced by a line that raises `NotImplementedError`."""
    return _refilled(source, lambda answer: NOT_ATTEMPTED)


def with_blanks(source: str) -> str:
    """The cell with every answer, assignments to names, replaced by the same ones of `...`.

    Raises `ValueError` if an answer holds anything but assignments to single names.
    """
    return _refilled(source, _blank)


def _blank(answer: str) -> str:
    names = []
    for statement in ast.parse(textwrap.dedent(answer)).body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)]):
                names.append(name)
            case _:
                shown = ast.unparse(statement).splitlines()[0]
                raise ValueError(
                    f"a prediction assigns to single names, and this does not: {shown}"
                )
    return "\n".join(f"{name} = ..." for name in names)


def _refilled(source: str, hole) -> str:
    lines = []
    for visible, answer in _pieces(source):
        if answer is None:
            lines.append(visible)
        else:
            lines.append(textwrap.indent(hole(answer), visible))
    return "\n".join(lines)


def _pieces(source: str):
    """(line, None) for every line outside the markers, (indentation, answer) for every answer.

    Raises `ValueError` where markers do not pair up.
    """
    inside: list[str] | None = None
    indentation = ""
    for line in source.split("\n"):
        if line.strip() == BEGIN:
            if inside is not None:
                raise ValueError(f"{BEGIN!r} stands inside another answer")
            inside, indentation = [], line[: line.index("#")]
        elif line.strip() == END:
            if inside is None:
                raise ValueError(f"{END!r} without {BEGIN!r}")
            yield indentation, "\n".join(inside)
            inside = None
        elif inside is not None:
            inside.append(line)
        else:
            yield line, None
    if inside is not None:
        raise ValueError(f"{BEGIN!r} without {END!r}")
