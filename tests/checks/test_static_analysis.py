"""What the source of an answer shows to be wrong."""

import functools

import pytest

from course_lib.checks.static_analysis import late_binding, never_emptied


def hooks_of_the_loops_variable(parameters, send):
    for p in parameters:
        p.register_post_accumulate_grad_hook(lambda _: send(p))  # noqa: B023


def hooks_of_what_a_round_sets(parameters, send):
    for i in range(len(parameters)):
        own = parameters[i]

        def hook(_):
            send(own)  # noqa: B023

        own.register_hook(hook)


def segments_of_a_while(layers, x, k, checkpoint):
    start = 0
    while start < len(layers):
        x = checkpoint(lambda h: sum(layers[start:], h), x)  # noqa: B023
        start += k
    return x


def functions_in_a_list(layers):
    made = []
    for layer in layers:
        made.append(lambda h: layer(h))  # noqa: B023, PERF401
    return made


def bound_by_a_default(parameters, send):
    for p in parameters:
        p.register_post_accumulate_grad_hook(lambda _, p=p: send(p))


def bound_by_partial(parameters, send):
    for p in parameters:
        p.register_post_accumulate_grad_hook(functools.partial(send, p))


def names_of_its_own(parameters, works):
    for p in parameters:

        def hook(q):
            work = q.grad
            works.append(work)

        p.register_post_accumulate_grad_hook(hook)


def a_counter(parameters):
    count = 0
    for p in parameters:
        count += 1
        p.register_post_accumulate_grad_hook(lambda _: count)  # noqa: B023
    return count


@pytest.mark.parametrize(
    ("answer", "name"),
    [
        (hooks_of_the_loops_variable, "p"),
        (hooks_of_what_a_round_sets, "own"),
        (segments_of_a_while, "start"),
        (functions_in_a_list, "layer"),
    ],
)
def test_a_name_that_is_looked_up_too_late(answer, name):
    assert f"made in a loop reads `{name}` when it runs" in late_binding(answer)


@pytest.mark.parametrize(
    "answer", [bound_by_a_default, bound_by_partial, names_of_its_own, a_counter]
)
def test_names_that_are_bound(answer):
    assert late_binding(answer) == ""


def filled_for_ever(model):
    works = []
    model.register_hook(lambda p: works.append(p))

    def synchronize():
        for work in works:
            work.wait()

    return synchronize


def filled_and_cleared(model):
    works = []
    model.register_hook(lambda p: works.append(p))

    def synchronize():
        for work in works:
            work.wait()
        works.clear()

    return synchronize


def filled_and_cut(model):
    works = []
    model.register_hook(lambda p: works.append(p))

    def synchronize():
        for work in works:
            work.wait()
        del works[:]

    return synchronize


def filled_and_gone_through_in_one_call(row):
    def run():
        sending = []
        for op in row:
            work = op.start()
            sending.append(work)
        return [work.wait() for work in sending]

    return run


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (filled_for_ever, "works.clear() when all is done"),
        (filled_and_cleared, ""),
        (filled_and_cut, ""),
        (filled_and_gone_through_in_one_call, ""),
    ],
)
def test_a_list_that_nobody_empties(answer, says):
    assert says in never_emptied(answer)
    assert bool(never_emptied(answer)) == bool(says)
