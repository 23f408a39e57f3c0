"""Torch's own errors, made here, and what is said of them."""

import pytest
import torch
from torch.distributed.distributed_c10d import _check_single_tensor
from torch.utils.checkpoint import checkpoint

from course_lib.checks.torch_errors import cause_of


def hooks_a_frozen_parameter():
    frozen = torch.nn.Parameter(torch.ones(2), requires_grad=False)
    frozen.register_post_accumulate_grad_hook(lambda parameter: None)


def steps_under_autograd():
    torch.nn.Parameter(torch.ones(2)).mul_(2)


def backward_of_a_constant():
    torch.ones(1).backward()


def backward_twice():
    loss = torch.ones(1, requires_grad=True).exp()
    loss.backward()
    loss.backward()


def backward_of_several_numbers():
    torch.ones(2, requires_grad=True).exp().backward()


def writes_what_backward_needs():
    y = torch.ones(2, requires_grad=True).exp()
    z = y * y
    y.add_(1)
    z.sum().backward()


def memory_in_elements():
    full = torch.zeros(4, dtype=torch.float64)
    full.untyped_storage().resize_(4)
    full[:2].clone()


def another_number_of_layers():
    layers = [torch.nn.Linear(2, 2) for _ in range(3)]

    def run(x):
        for layer in layers:
            x = layer(x)
        return x

    y = checkpoint(run, torch.ones(2, requires_grad=True), use_reentrant=False)
    layers.pop()
    y.sum().backward()


def other_sizes():
    layers = [torch.nn.Linear(2, 3)]
    x = torch.ones(2, requires_grad=True)
    y = checkpoint(lambda h: layers[-1](h).exp(), x, use_reentrant=False)
    layers.append(torch.nn.Linear(2, 5))
    y.sum().backward()


def gives_bfloat16_an_fp32_gradient():
    torch.ones(2, dtype=torch.bfloat16).requires_grad_().grad = torch.ones(2)


def sends_no_tensor():
    _check_single_tensor(None, "tensor")  # what dist.send asks before anything else


def a_product_the_other_way_round():
    torch.ones(2, 8) @ torch.ones(3, 8)


def a_product_with_a_part():
    torch.nn.functional.linear(torch.ones(2, 8), torch.ones(6, 4))


def a_part_with_the_whole():
    torch.ones(2, 4) @ torch.ones(8, 6)


def looks_up_what_is_elsewhere():
    torch.nn.functional.embedding(torch.tensor([5]), torch.ones(3, 2))


def indexes_what_is_elsewhere():
    torch.ones(3, 2)[torch.tensor([5])]


def waits_for_nothing():
    works = [None]  # as dist.all_reduce(tensor) returns
    works[0].wait()


@pytest.mark.parametrize(
    ("mistake", "says"),
    [
        (hooks_a_frozen_parameter, "take those with requires_grad"),
        (steps_under_autograd, "do it under torch.no_grad()"),
        (backward_of_a_constant, "what cuts the graph before it"),
        (backward_twice, "cut the graph between them"),
        (gives_bfloat16_an_fp32_gradient, "has to be fp32 itself"),
        (sends_no_tensor, "call requires_grad_() on what has arrived"),
        (backward_of_several_numbers, "output.backward(gradient)"),
        (writes_what_backward_needs, "was written to after the forward pass"),
        (memory_in_elements, "takes bytes, not elements"),
        (another_number_of_layers, "looks its names up when it runs"),
        (other_sizes, "looks its names up when it runs"),
        (waits_for_nothing, "there is no handle to wait for"),
        (a_product_the_other_way_round, "3 x 8, stands the other way round"),
        (a_product_with_a_part, "the second has only 4 rows: it was cut along the dimension"),
        (a_part_with_the_whole, "the second has 8 rows: the first is a part"),
        (looks_up_what_is_elsewhere, "look up one that is here for these"),
        (indexes_what_is_elsewhere, "look up one that is here for these"),
    ],
)
def test_an_error_of_torch_gets_its_cause(mistake, says):
    with pytest.raises((RuntimeError, AttributeError, TypeError, IndexError)) as caught:
        mistake()
    assert says in cause_of([f"{type(caught.value).__name__}: {caught.value}"])


def test_nothing_is_said_of_a_product_whose_shapes_have_two_causes():
    for sizes in ("2x8 and 4x8", "2x5 and 3x7"):
        assert cause_of([f"mat1 and mat2 shapes cannot be multiplied ({sizes})"]) == ""


def test_nothing_is_said_of_what_may_have_many_causes():
    assert cause_of(["KeyError: 3", "NameError: name 'x' is not defined"]) == ""
