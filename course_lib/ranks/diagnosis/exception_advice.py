"""What to do about exceptions that say what is wrong in words which only torch understands."""

import re

import torch.distributed as dist

from course_lib.observe import Frame
from course_lib.ranks.errors import Failure
from course_lib.ranks.source_location import text_of

_NO_KEYBOARD = "A rank has no keyboard: pass what it needs as an argument, run_ranks(fn, n, value)."
_ADVICE = {
    r"trying to initialize the default process group twice": (
        "run_ranks has already called init_process_group: leave that call out here, and keep it in "
        "the script that torchrun starts."
    ),
    r"Default process group has not been initialized": (
        "The process group was destroyed before this line: run_ranks does that itself at the end."
    ),
    r"EOFError: EOF when reading a line": _NO_KEYBOARD,
    r"BdbQuit": (
        "A rank has no keyboard, so no debugger can be asked anything there: print what you want "
        "to see."
    ),
    r"NameError: name 'dist' is not defined": (
        "Run the cell with `import torch.distributed as dist` first."
    ),
    r"UnboundLocalError: .*'dist'": (
        "This function gives the name `dist` to something of its own, so that name does not reach "
        "torch.distributed anywhere inside it: call the other thing differently."
    ),
    r"'NoneType' object has no attribute 'wait'": (
        "There is something to wait for only with async_op=True, or from isend and irecv: without, "
        "the call has waited already."
    ),
    r"before it came to the function|Resource temporarily unavailable": (
        "A limit of this machine is the likely cause: of processes and threads (ulimit -u), or of "
        "memory."
    ),
    r"\[Errno 28\]": (
        "A disk is full. What ranks print and record is kept in the temporary folder while they "
        "run: make room there, or set TMPDIR to another folder before the kernel starts."
    ),
    r"Invalid destination rank": "A rank cannot send to itself: copy the tensor instead.",
}
_IN_PLACE = (
    r"(\w+) *= *dist\.((?:all_reduce|broadcast|reduce|scatter|gather|all_gather|reduce_scatter"
    r"|all_to_all|send)\w*)\("
)
_LINES_ABOVE = 30


def advice(failure: Failure) -> list[str]:
    """Sentences for the failure of a rank that raised; most have none."""
    found = [said for sign, said in _ADVICE.items() if re.search(sign, failure.what)]
    found += filter(None, [_shadowed(failure), _result_of_in_place(failure), _arguments(failure)])
    return found


def _shadowed(failure: Failure) -> str:
    """Another thing was given the name `dist`."""
    sign = re.match(r"AttributeError: '(\w+)' object has no attribute '(\w+)'", failure.what)
    if not sign or sign[1] == "NoneType" or not hasattr(dist, sign[2]):
        return ""
    return (
        f"The name before `.{sign[2]}` stands for a {sign[1]} here, and not for torch.distributed: "
        "some line gave it to something else. Rename that, and run the import again."
    )


def _result_of_in_place(failure: Failure) -> str:
    """`x = dist.all_reduce(x)` some lines above the one that could not use None."""
    if "NoneType" not in failure.what or "'wait'" in failure.what or not failure.where:
        return ""
    last = failure.where[0]
    for number in range(last.line, max(0, last.line - _LINES_ABOVE), -1):
        text = text_of(Frame(last.file, number, last.function))
        if (sign := re.search(_IN_PLACE, text)) and "async_op" not in text:
            return (
                f"dist.{sign[2]} in line {number} writes into the tensors that it gets and returns "
                f"None: leave out `{sign[1]} =` there."
            )
        if text.startswith("def "):
            break
    return ""


def _arguments(failure: Failure) -> str:
    """The learner's function did not get the arguments it needs: none of its lines ran."""
    if failure.where or not re.match(r"TypeError: .*\(\) (missing|takes|got)", failure.what):
        return ""
    return "run_ranks(fn, n, a, b) calls fn(a, b) on each of n ranks: its arguments come after n."
