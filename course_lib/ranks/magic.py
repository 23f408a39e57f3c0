"""`%%ranks 4`: run the body of a cell on every rank, and show what each printed and its last value.

The cell sees the notebook's names. What it assigns stays on the ranks; `-o NAME` keeps the last
values, as `RankResults`, in the notebook.
"""

import ast
import builtins
import linecache
import sys
from types import FrameType
from typing import Any

from IPython.core.error import UsageError
from IPython.core.magic_arguments import argument, magic_arguments, parse_argstring

from . import captured_output
from .errors import RankError, RankInterrupt
from .recorder_warnings import show_warnings
from .run_ranks import collect


def register(shell: Any) -> None:
    """Give `shell` the cell magic."""
    shell.register_magic_function(_ranks_for(shell), "cell", "ranks")


def _ranks_for(shell: Any) -> Any:
    @magic_arguments()
    @argument("world_size", type=int, help="number of ranks")
    @argument("-t", "--timeout", type=float, default=20.0, help="seconds (default 20)")
    @argument("-d", "--device", default="auto", help="auto, cpu or cuda")
    @argument("-o", "--out", default=None, help="keep the results under this name")
    def ranks(line: str, cell: str) -> None:
        """%%ranks N: run this cell on N ranks."""
        if not line.strip():
            raise UsageError("say how many ranks: %%ranks 4")
        options = parse_argstring(ranks, line)
        # The magic's own line and blank ones (which IPython drops) count, so that reports name the
        # line that the learner sees.
        blank = next((i for i, text in enumerate(cell.splitlines()) if text.strip()), 0)
        source = "\n" * (1 + blank) + shell.transform_cell(cell)
        file = shell.compile.cache(source, _number(shell))
        used = _names(ast.parse(source, file))
        namespace = {
            name: shell.user_ns[name]
            for name in used & shell.user_ns.keys() - shell.user_ns_hidden.keys()
        }
        try:
            results = collect(
                run_cell,
                options.world_size,
                (source, file, namespace),
                timeout=options.timeout,
                device=options.device,
            )
        except (RankError, RankInterrupt) as error:
            captured_output.show(error.output, error.remarks)
            raise
        if options.out:
            shell.user_ns[options.out] = results
        shown = {rank: _shown(text, results[rank]) for rank, text in results.output.items()}
        captured_output.show(shown, results.remarks)
        show_warnings(results.warnings)

    return ranks


def _number(shell: Any) -> int:
    """Of the cell that is running. IPython's own counter may stand at the next one already."""
    frame: FrameType | None = sys._getframe()
    while frame:
        if number := shell.compile._filename_map.get(frame.f_code.co_filename):
            return number
        frame = frame.f_back
    return shell.execution_count


def _shown(printed: str, value: Any) -> str:
    lines = printed.splitlines()
    return "\n".join(lines if value is None else [*lines, f"→ {value!r}"])


def run_cell(source: str, file: str, namespace: dict[str, Any]) -> Any:
    """Execute a cell as a notebook would; the value of its last expression is returned."""
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    tree = ast.parse(source, file)
    last = None
    if tree.body and isinstance(expression := tree.body[-1], ast.Expr):
        last = ast.Expression(expression.value)
        tree.body.pop()
    scope = {"__name__": "__main__", **namespace}
    exec(compile(tree, file, "exec"), scope)
    return eval(compile(last, file, "eval"), scope) if last else None


def _names(tree: ast.AST) -> set[str]:
    """Every name that the cell reads or writes; what is not the notebook's is the cell's own."""
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    return names - set(vars(builtins))
