"""Every kind of thing that a learner can do wrong, and the sentence that it gets."""

import threading

import pytest
import torch
import torch.distributed as dist

from course_lib import check, hint
from course_lib.checks import CheckFailed, NotAttempted
from course_lib.checks.known_answers import known_answers
from course_lib.checks.registry import all_exercises


def right_answer(exercise):
    return next(known.answer for known in known_answers(all_exercises()[exercise]) if known.right)


def failure(answer, name="ring_all_reduce") -> str:
    """What `check` says to `answer` under the name of an exercise."""
    answer.__name__ = name
    with pytest.raises(CheckFailed) as caught:
        check(answer)
    return str(caught.value)


def words(message: str) -> str:
    """A message without its line breaks and columns."""
    return " ".join(message.split())


# --------------------------------------------------------------------------------------------------
# What is given to check()
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (3, "This is 3, an int, and not your function. Write the function's name without"),
        (None, "This is None (what a function without return gives)"),
        (torch.ones(2, 2), "This is a Tensor, and not your function"),
        ("ring_all_reduce", "Give the function itself: check(ring_all_reduce), without the quotes"),
        ("ring_al_reduce", "no exercise 'ring_al_reduce'. Did you mean ring_all_reduce"),
        (type("ring_all_reduce", (), {}), "ring_all_reduce is a class here"),
        (lambda tensor: tensor, "A lambda has no name"),
        (torch.nn.Linear(1, 1), "A Linear object has no name"),
        (hint, "course's own, from course_lib.checks.hint, and not yours"),
        (pytest.raises, "There is no exercise 'raises'. An exercise is found by the name"),
    ],
)
def test_something_that_is_no_answer(given, says):
    with pytest.raises(CheckFailed) as caught:
        check(given)
    assert says in str(caught.value)


def test_an_answer_under_another_name_of_its_own():
    """As the `apply` of an autograd.Function, which is found by what it was bound to."""

    def apply(n, alpha, beta):
        return right_answer("crossover_bytes")(n, alpha, beta) * 2

    crossover_bytes = apply
    with pytest.raises(CheckFailed, match="crossover_bytes does not pass yet"):
        check(crossover_bytes)


def test_the_apply_of_an_autograd_function():
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return 2 * x

        @staticmethod
        def backward(ctx, gradient):
            return 2 * gradient

    megatron_f = Double.apply
    with pytest.raises(CheckFailed, match="megatron_f does not pass yet"):
        check(megatron_f)


def test_two_names_of_exercises_for_one_function():
    def apply(chunk, group=None):
        return chunk

    ring_all_gather = ring_all_reduce = apply
    with pytest.raises(CheckFailed, match="There is no exercise 'apply'"):
        check(ring_all_gather)
    assert ring_all_reduce is ring_all_gather


def test_ranks_that_take_longer_than_the_timeout_that_was_given():
    def waits(tensor, group=None):
        if dist.get_rank(group) == 0:
            dist.recv(tensor, group=group, group_src=dist.get_world_size(group) - 1)
        else:
            threading.Event().wait()  # no deadlock that can be seen before the time is up
        return tensor

    waits.__name__ = "ring_all_reduce"
    with pytest.raises(CheckFailed, match=r"(?s)did not finish.*1\.5 s"):
        check(waits, timeout=1.5)


@pytest.mark.parametrize("timeout", [0, -1, float("nan")])
def test_a_timeout_of_no_time(timeout):
    with pytest.raises(ValueError, match=f"more than 0 seconds, not {timeout}"):
        check(right_answer("crossover_bytes"), timeout=timeout)


def test_arguments_that_are_not_those_of_the_task():
    def one_argument(tensor):
        return tensor

    expected = (
        "the task is ring_all_reduce(tensor, group=None), and yours is ring_all_reduce(tensor)"
    )
    assert expected in words(failure(one_argument))


# --------------------------------------------------------------------------------------------------
# Answers that are missing
# --------------------------------------------------------------------------------------------------


def test_an_empty_hole_is_not_a_failure():
    def ring_all_reduce(tensor, group=None):
        raise NotImplementedError("not attempted yet")

    with pytest.raises(NotAttempted) as caught:
        check(ring_all_reduce)
    assert str(caught.value) == "ring_all_reduce: not attempted yet"


def test_an_empty_hole_in_a_function_that_it_calls():
    def ring_all_gather(chunk, group=None):
        raise NotImplementedError("not attempted yet")

    def ring_all_reduce(tensor, group=None):
        return ring_all_gather(tensor, group)

    with pytest.raises(NotAttempted) as caught:
        check(ring_all_reduce)
    expected = "ring_all_reduce: it calls ring_all_gather, which is not attempted yet"
    assert str(caught.value) == expected


def test_a_learners_own_not_implemented_error_is_an_error():
    def answer(tensor, group=None):
        raise NotImplementedError("only for powers of two")

    assert "NotImplementedError: only for powers of two" in failure(answer)


# --------------------------------------------------------------------------------------------------
# Answers that are wrong
# --------------------------------------------------------------------------------------------------


def test_a_failure_says_what_was_run_expected_and_got_and_where_help_is():
    def answer(tensor, group=None):
        dist.send(tensor, 1) if dist.get_rank() == 0 else None
        if dist.get_rank() == 1:
            other = torch.empty_like(tensor)
            dist.recv(other, 0)
            tensor += other
        return tensor

    assert failure(answer).splitlines() == [
        "ring_all_reduce does not pass yet. What was run: 3 ranks with a float32 tensor of 6 "
        "elements each",
        "  rank      0",
        "  input     rank 0: [1, 2, 3, 4, 5, 6]",
        "            rank 1: [10, 20, 30, 40, 50, 60]",
        "            rank 2: [100, 200, 300, 400, 500, 600]",
        "  expected  [111, 222, 333, 444, 555, 666]",
        "  got       [1, 2, 3, 4, 5, 6]",
        "  likely    this is still the rank's own input, with nothing added",
        "A hint: hint(ring_all_reduce), then hint(ring_all_reduce, 2) and hint(ring_all_reduce, 3)",
    ]


def test_an_exception_shows_the_learners_line():
    def answer(tensor, group=None):
        return tensor.no_such_method()

    message = failure(answer)
    assert "Your ranks failed." in message
    assert "no_such_method" in message
    assert "test_messages.py" in message


def test_what_the_ranks_printed_is_shown_when_they_are_wrong():
    def answer(tensor, group=None):
        for i in range(4):
            print("step", i)
        return tensor

    message = failure(answer)
    assert "  printed   [rank 0] step 0" in message
    assert message.count("[rank ") == 6
    assert "... and 6 more lines" in message


def test_a_right_result_that_is_not_returned():
    def answer(tensor, group=None):
        right_answer("ring_all_reduce")(tensor, group)

    assert "returned nothing: end it with `return tensor`" in words(failure(answer))


def test_something_else_than_a_tensor():
    def answer(chunk, group=None):
        return [chunk, chunk, chunk]

    assert "this is a list, not a tensor" in failure(answer, "ring_all_gather")


# --------------------------------------------------------------------------------------------------
# How it is shown
# --------------------------------------------------------------------------------------------------


def test_ipython_shows_the_message_and_no_traceback(capsys):
    from IPython.core.interactiveshell import InteractiveShell

    shell = InteractiveShell()
    shell.run_cell("from course_lib import check\ncheck(3)")
    shown = capsys.readouterr().out
    assert shown.strip() == (
        "This is 3, an int, and not your function. Write the function's name without calling it: "
        "check(my_function), not check(my_function(x))."
    )


@pytest.fixture
def shell():
    """IPython as a notebook has it, and nothing of it afterwards."""
    from IPython.core.interactiveshell import InteractiveShell

    InteractiveShell.clear_instance()
    yield InteractiveShell.instance()
    InteractiveShell.clear_instance()


def test_cells_may_call_hint_once_they_have_checked(shell, capsys):
    shell.run_cell("from course_lib import check\ncheck(3)")
    capsys.readouterr()
    shell.run_cell("hint('ring_all_reduce')")
    assert capsys.readouterr().out.startswith("Hint 1 of 3 to ring_all_reduce:")


def test_a_hint_of_the_learners_own_stays(shell, capsys):
    shell.run_cell("hint = 'mine'\nfrom course_lib import check\ncheck(3)")
    assert shell.user_ns["hint"] == "mine"


def test_a_cell_that_could_not_be_read_leaves_the_function_from_before(shell, capsys):
    right = "def crossover_bytes(n, alpha, beta):\n    return 1"
    shell.run_cell(right, store_history=True)
    shell.run_cell(f"{right} +", store_history=True)
    capsys.readouterr()
    shell.run_cell("from course_lib import check\ncheck(crossover_bytes)", store_history=True)
    said = words(capsys.readouterr().out)
    assert "The cell with crossover_bytes was not run: line 2 has a syntax error" in said
    assert "What would be checked is the function from before" in said
    shell.run_cell(right, store_history=True)
    shell.run_cell("check(crossover_bytes)", store_history=True)
    assert "crossover_bytes does not pass yet" in capsys.readouterr().out


def test_passing_prints_one_line(capsys):
    def crossover_bytes(n, alpha, beta):
        return right_answer("crossover_bytes")(n, alpha, beta)

    assert check(crossover_bytes) is None
    assert capsys.readouterr().out == (
        "crossover_bytes: passed. 5 cases; ring and tree take the same time at your size.\n"
    )


def test_the_line_after_passing_names_the_numbers_of_ranks(capsys):
    def ring_all_gather(chunk, group=None):
        return right_answer("ring_all_gather")(chunk, group)

    check(ring_all_gather)
    assert capsys.readouterr().out == (
        "ring_all_gather: passed. 8 cases on 1 to 5 ranks; every rank sends exactly n-1 chunks, to "
        "its neighbour.\n"
    )


@pytest.mark.parametrize("level", [1, 2, 3])
def test_hints_have_three_levels(level, capsys):
    hint("ring_all_reduce", level)
    by_name = capsys.readouterr().out
    hint(right_answer("ring_all_reduce"), level)
    assert capsys.readouterr().out == by_name
    title, *lines = by_name.splitlines()
    assert title == f"Hint {level} of 3 to ring_all_reduce:"
    assert lines
    assert all(line == line.strip() for line in lines)


def test_there_is_no_fourth_hint():
    with pytest.raises(ValueError, match="levels 1, 2 and 3, not 4"):
        hint("ring_all_reduce", 4)
    with pytest.raises(CheckFailed, match="Did you mean ring_all_reduce"):
        hint("ring_all_redduce")
