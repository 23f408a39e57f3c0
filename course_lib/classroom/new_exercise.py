"""The three places of a new exercise, as stubs: its check, its known answers, the lesson's cells.

All three say that they are not finished: the check rejects every answer, the answers raise, and so
does the answer cell. Where they go is what the course finds by itself.
"""

import ast
import keyword
from collections.abc import Collection
from pathlib import Path

from course_lib.checks import exercises

_CHECK = '''\
"""One sentence that says what is to be written.

{name}{signature} -> tensor
    What it returns on each rank, and what it may do to its arguments.
"""

import random
from collections.abc import Callable
from typing import Any

import torch.distributed as dist

from course_lib.checks import case_inputs, compare_tensors, reference, traffic_limits
from course_lib.checks.call_answer import plain
from course_lib.checks.contract import POINT_TO_POINT, Contract
from course_lib.checks.exercise import Case, Exercise, Finding, Observation
from course_lib.checks.rank_inputs import by_rank


def _cases(rng: random.Random) -> list[Case]:
    """Several numbers of ranks, odd sizes."""
    sizes = [(3, 4), (2, 1), (4, rng.randrange(5, 50))]
    return [
        Case(n, f"{{n}} ranks, {{size}} numbers", {{"inputs": case_inputs.spread(rng, n, size)}})
        for n, size in sizes
    ]


def _on_rank(answer: Callable, case: Case) -> Any:
    """Runs on every rank: calls the answer, returns plain values."""
    return plain(answer(case.data["inputs"][dist.get_rank()].clone()))


def _judge(case: Case, observation: Observation) -> Finding | None:
    """The values first, then what was sent for them; each finding names the likely cause."""
    tensors = case.data["inputs"]
    for rank, got in enumerate(observation.values):
        want = reference.moved(tensors[rank])
        if finding := compare_tensors.mismatch(got, want, rank, {{}}):
            return finding
        if finding := traffic_limits.messages(observation, rank, 1, "each rank sends one message"):
            return finding
    return Finding("its check is not written yet")


EXERCISE = Exercise(
    module=__name__,
    signature="{signature}",
    cases=_cases,
    on_rank=_on_rank,
    own={{"inputs": by_rank}},
    judge=_judge,
    hints=(
        "A nudge.",
        "The way.",
        "Nearly the answer.",
    ),
    passed="the property that was shown",
    contract=Contract(
        anew=True,
        allowed=POINT_TO_POINT,
        sends="each rank sends what, how much, to whom",
    ),
)
'''
_ANSWERS = '''\
"""Known answers to {name}."""

from course_lib.checks.known_answers import right, wrong


@right
def as_it_is_meant{signature}:
    raise NotImplementedError("not written yet")


@wrong(says="the words of the message that rejects it")
def forgets_something{signature}:
    raise NotImplementedError("not written yet")


@wrong(says="the words of another message")
def does_too_much{signature}:
    raise NotImplementedError("not written yet")
'''
_CELLS = '''\
# %% [markdown]
# ### Exercise: `{name}` (● 10 minutes)
#
# What is asked, and why.


# %% exercise="{name}"
def {name}{signature}:
    """What it returns."""
    ### BEGIN SOLUTION
    raise NotImplementedError("not written yet")
    ### END SOLUTION


# %% check="{name}"
check({name})
'''


def write_stubs(
    root: Path, lesson: str, name: str, signature: str, known: Collection[str], after: str = ""
) -> list[Path]:
    """Write the check, the answers and the cells of exercise `name`; returns the three files.

    The cells go behind those of the exercise `after`, by default behind the lesson's last check.
    known: the exercises that there are. Raises `ValueError`, and writes nothing, where the name is
    taken or no name, the signature is none, or the lesson has no such place.
    """
    _require_usable(name, signature, known)
    source = root / "solutions" / f"{lesson}.py"
    if not source.is_file():
        raise ValueError(f"there is no lesson {lesson}: no {source}")
    names = {"name": name, "signature": signature}
    text = _with_cells(source.read_text(encoding="utf-8"), _CELLS.format(**names), after)
    package = root.joinpath(*exercises.__name__.split("."), f"nb{lesson}")
    check = package / f"{name}.py"
    answers = root / "solutions" / "answers" / lesson / f"{name}.py"
    for file in (check, answers):
        if file.exists():
            raise ValueError(f"{file} is there already")
    for file in (check, answers):
        file.parent.mkdir(parents=True, exist_ok=True)
    if not (package / "__init__.py").exists():
        (package / "__init__.py").write_text(f'"""The exercises of {lesson}."""\n')
    check.write_text(_CHECK.format(**names), encoding="utf-8")
    answers.write_text(_ANSWERS.format(**names), encoding="utf-8")
    source.write_text(text, encoding="utf-8")
    return [check, answers, source]


def _require_usable(name: str, signature: str, known: Collection[str]) -> None:
    if not name.isidentifier() or keyword.iskeyword(name):
        raise ValueError(f"{name!r} cannot be the name of a function")
    if name in known:
        raise ValueError(f"there is an exercise {name} already")
    try:
        (function,) = ast.parse(f"def stub{signature}: ...").body
    except (SyntaxError, ValueError):
        function = None
    if not isinstance(function, ast.FunctionDef) or not signature.startswith("("):
        raise ValueError(f"{signature!r} is no signature, such as (tensor, group=None)")


def _with_cells(source: str, cells: str, after: str) -> str:
    """The lesson with the cells behind the check of `after`, or behind its last check."""
    lines = source.splitlines(keepends=True)
    starts = [number for number, line in enumerate(lines) if line.startswith("# %%")]
    wanted = f'check="{after}"' if after else 'check="'
    checks = [number for number in starts if wanted in lines[number]]
    if not checks:
        missing = f"no check of {after}" if after else "no check yet: add its first cells by hand"
        raise ValueError(f"the lesson has {missing}")
    end = next((number for number in starts if number > checks[-1]), len(lines))
    before, behind = "".join(lines[:end]).rstrip("\n"), "".join(lines[end:])
    return f"{before}\n\n{cells}" + (f"\n{behind}" if behind else "")
