"""Silent mistakes are told, each by its own sentence; and nothing else is."""

import pytest
import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensorMode

from course_lib.ranks import RankError, collect
from tests.observe.nested_mode import Nested


def line(function, text: str) -> int:
    """Number of the line of `function` that contains `text`."""
    with open(__file__) as file:
        lines = file.read().split("\n")
    first = function.__code__.co_firstlineno
    return next(k for k, code in enumerate(lines[first:], first + 1) if text in code)


def warnings_of(function, world_size: int = 2) -> list[tuple[int, str]]:
    """(rank, kind) of each warning, and the warnings."""
    return collect(function, world_size).warnings


# ---------------------------------------------------------------------------------------------
# refused at the call


def column():
    dist.all_reduce(torch.ones(4, 3)[:, 1])


def transposed_in_a_list():
    parts = [torch.empty(2, 3) for _ in range(dist.get_world_size())]
    dist.all_gather([parts[0], parts[1].view(3, 2).t()], torch.ones(2, 3))


def strided_send():
    if dist.get_rank() == 0:
        dist.send(torch.ones(8)[::2], 1)
    else:
        dist.recv(torch.ones(4), 0)


def one_tensor_n_times():
    dist.all_gather([torch.empty(3)] * dist.get_world_size(), torch.ones(3))


def overlapping_parts():
    room = torch.empty(5)
    dist.all_to_all([room[:3], room[2:]], [torch.ones(3), torch.ones(3)])


def past_the_last():
    dist.send(torch.ones(1), 2)


def before_the_first():
    dist.recv(torch.ones(1), -1)


def no_such_root():
    dist.broadcast(torch.ones(1), 5)


@pytest.mark.parametrize(
    ("function", "kind", "said"),
    [
        (column, "non_contiguous", ["all_reduce", "`tensor`", "(4,)", "strides (3,)", "copy_"]),
        (transposed_in_a_list, "non_contiguous", ["all_gather", "`tensor_list[1]`", "contiguous"]),
        (strided_send, "non_contiguous", ["send", "`tensor.contiguous()`"]),
        (one_tensor_n_times, "aliased_list", ["all_gather", "`tensor_list[0]`", "for _ in range"]),
        (overlapping_parts, "aliased_list", ["all_to_all", "`output_tensor_list[1]`"]),
        (past_the_last, "no_such_rank", ["send", "rank 2", "from 0 to 1", "(rank + 1) % n"]),
        (before_the_first, "no_such_rank", ["recv", "rank -1", "from 0 to 1"]),
        (no_such_root, "no_such_rank", ["broadcast", "rank 5", "from 0 to 1"]),
    ],
)
def test_garbage_is_refused_at_the_call(function, kind, said):
    with pytest.raises(RankError) as caught:
        collect(function, 2)
    warning = caught.value.warnings[0]
    assert warning.kind == kind
    for text in said:
        assert text in warning.message
    assert warning.where[0].function == function.__name__
    assert caught.value.failures[0].what == f"ValueError: {warning.message}"
    assert caught.value.trace.traffic().sent == [0, 0]


def contiguous_in_every_way():
    n = dist.get_world_size()
    matrix = torch.ones(n, 3)
    dist.all_gather(list(matrix), matrix[dist.get_rank()].clone())  # rows of one buffer
    dist.all_gather(list(torch.empty(3 * n).chunk(n)), torch.ones(3))
    dist.all_reduce(torch.ones(2, 5)[:, :][1])
    dist.all_reduce(torch.ones(4, 1).t())  # strides differ, order in memory does not
    dist.all_reduce(torch.ones(2, 3, 4, 5).to(memory_format=torch.channels_last))
    dist.all_reduce(torch.empty(0))
    dist.scatter(torch.empty(2), [torch.ones(2)] * n if dist.get_rank() == 0 else None, src=0)


def test_contiguous_views_pass():
    assert collect(contiguous_in_every_way, 2).warnings == []


# ---------------------------------------------------------------------------------------------
# buffers in flight


def refilled():
    buffer = torch.empty(4)
    if dist.get_rank() == 1:
        for _ in range(3):
            dist.recv(buffer, 0)
        return
    works = []
    for i in range(3):
        buffer.fill_(i)
        works.append(dist.isend(buffer, 1))
    for work in works:
        work.wait()


def received_over_a_send():
    x = torch.ones(4)
    other = 1 - dist.get_rank()
    work = dist.isend(x, other)
    dist.recv(x, other)
    work.wait()


def changed_while_reduced():
    x = torch.ones(8)
    work = dist.all_reduce(x, async_op=True)
    torch._foreach_mul_([torch.ones(1), x[4:]], 2)
    work.wait()


def changed_after_backward():
    weight = torch.ones(3, requires_grad=True)
    works = []

    def hook(parameter):
        works.append(dist.all_reduce(parameter.grad, async_op=True))

    weight.register_post_accumulate_grad_hook(hook)
    weight.sum().backward()
    weight.grad /= 2
    works[0].wait()


def bucket_filled_again_in_backward():
    bucket, works = torch.empty(3), []

    def hook(parameter):
        bucket.copy_(parameter.grad)
        works.append(dist.all_reduce(bucket, async_op=True))

    weights = [torch.ones(3, requires_grad=True) for _ in range(2)]
    for weight in weights:
        weight.register_post_accumulate_grad_hook(hook)
    (weights[0] * weights[1]).sum().backward()
    for work in works:
        work.wait()


def used_too_early():
    x = torch.zeros(4)
    if dist.get_rank() == 0:
        dist.send(x, 1)
        return None
    work = dist.irecv(x, 0)
    y = x.view(2, 2)[1] * 2
    work.wait()
    return y


def passed_on_too_early():
    rank, x = dist.get_rank(), torch.zeros(4)
    if rank == 0:
        dist.send(x, 1)
        dist.recv(x, 1)
        return
    work = dist.irecv(x, 0)
    sending = dist.isend(x, 0)
    work.wait()
    sending.wait()


@pytest.mark.parametrize(
    ("function", "rank", "kind", "here", "there", "said"),
    [
        (refilled, 0, "rewritten_in_flight", "fill_", "isend", "may receive the new values"),
        (received_over_a_send, 0, "rewritten_in_flight", "recv(", "isend(", "still being sent"),
        (changed_while_reduced, 0, "rewritten_in_flight", "mul_", "all_reduce", "still working"),
        (changed_after_backward, 0, "rewritten_in_flight", "/= 2", "works.append", "still working"),
        (used_too_early, 1, "read_before_wait", "* 2", "irecv(", "before its values have arrived"),
        (passed_on_too_early, 1, "read_before_wait", "isend(", "irecv(", "irecv from rank 0"),
    ],
)
def test_a_buffer_in_flight(function, rank, kind, here, there, said):
    warnings = [warning for warning in warnings_of(function) if warning.rank == rank]
    assert [warning.kind for warning in warnings] == [kind]  # once, also in a loop
    (warning,) = warnings
    here, there = line(function, here), line(function, there)
    assert (warning.where[0].line, warning.issued_at[0].line) == (here, there)
    assert f"line {here} of {function.__name__}" in warning.message
    assert f"from line {there} of " in warning.message
    assert said in warning.message


def gathered_into_whole_tensors():
    for _ in range(20):
        whole = [torch.empty(1000) for _ in range(dist.get_world_size())]
        dist.all_gather(whole, torch.ones(1000), async_op=True).wait()
        part, parts = torch.empty(1000), torch.ones(1000 * dist.get_world_size())
        dist.all_gather_into_tensor(parts, part.fill_(1), async_op=True).wait()
        dist.reduce_scatter_tensor(part, parts, async_op=True).wait()


def test_what_the_backend_itself_fills_is_not_rewritten():
    for world_size in (1, 3):
        assert not warnings_of(gathered_into_whole_tensors, world_size)


def test_a_bucket_in_flight_that_backward_fills_again():
    warnings = warnings_of(bucket_filled_again_in_backward)
    assert {warning.kind for warning in warnings} == {"rewritten_in_flight"}
    assert {warning.rank for warning in warnings} == {0, 1}
    first = warnings[0]
    assert first.issued_at[0].line == line(bucket_filled_again_in_backward, "works.append")
    assert "the all_reduce from line" in first.message


def careful():
    n, rank = dist.get_world_size(), dist.get_rank()
    right, left = (rank + 1) % n, (rank - 1) % n
    buffer = torch.ones(4 * n)
    chunks = buffer.chunk(n)
    for step in range(n - 1):  # one chunk leaves while its neighbour is filled and another changes
        sending = dist.isend(chunks[(rank - step) % n], right)
        receiving = dist.irecv(chunks[(rank - step - 1) % n], left)
        chunks[(rank - step + 1) % n].add_(1)
        receiving.wait()
        chunks[(rank - step - 1) % n].mul_(2)
        sending.wait()
    matrix = torch.ones(6, 4)
    work = dist.all_reduce(matrix[1], async_op=True)
    matrix[::2].add_(1)  # the rows in between
    shape = matrix[1].view(2, 2).shape, torch.empty_like(matrix[1])  # looks at no value
    work.wait()
    matrix[1].add_(1)
    work = dist.all_gather(list(torch.empty(n, 4)), matrix[1], async_op=True)
    seen = matrix[1].sum()  # an input may be read meanwhile
    work.wait()
    for i in range(3):  # memory is given back and used again
        x = torch.full((1000,), float(i))
        sending, y = dist.isend(x, right), torch.empty(1000)
        dist.recv(y, left)
        sending.wait()
        del x, sending
    return shape, seen


def other_ways_to_wait():
    x = torch.ones(4)
    work = dist.all_reduce(x, async_op=True)
    while not work.is_completed():
        pass
    x.add_(1)
    work = dist.all_reduce(x, async_op=True)
    work.get_future().wait()
    x.add_(1)


def with_other_modes_and_tensors():
    x = torch.ones(4)
    with Nested():
        work = dist.all_reduce(x, async_op=True)
    work.wait()
    x.add_(1)
    work = dist.all_reduce(x, async_op=True)
    with Nested(), FakeTensorMode():
        torch.ones(4).add_(1)
    torch.ones(4, device="meta").add_(1)
    (torch.eye(3).to_sparse() @ torch.eye(3)).sum()
    torch.nn.Parameter(torch.ones(3)).detach().add_(1)
    with torch.inference_mode():
        torch.ones(3).add_(1)
    with Nested():
        work.wait()
    dist.all_reduce(x)
    return torch._C._len_torch_dispatch_stack()


def test_other_modes_and_tensors_are_left_alone():
    results = collect(with_other_modes_and_tensors, 2)
    assert list(results) == [0, 0]
    assert results.warnings == []
    assert len(results.trace.of(0)) == 3


def test_no_false_accusations():
    assert collect(other_ways_to_wait, 2).warnings == []
    assert collect(careful, 3).warnings == []


# ---------------------------------------------------------------------------------------------
# waits


def never():
    x = torch.ones(4)
    if dist.get_rank() == 0:
        kept = dist.all_reduce(x, async_op=True)
        return kept is None
    dist.all_reduce(x)
    return False


def dropped():
    if dist.get_rank() == 0:
        dist.irecv(torch.ones(4), 1)


def test_a_wait_that_never_comes():
    for function, text in ((never, "all_reduce("), (dropped, "irecv(")):
        (warning,) = warnings_of(function)
        assert (warning.rank, warning.kind) == (0, "never_waited")
        assert f"line {line(function, text)} of {function.__name__}" in warning.message
        assert "work.wait()" in warning.message


def lost():
    x = torch.ones(4)
    if dist.get_rank() == 0:
        for _ in range(3):
            dist.isend(x, 1)
        dist.barrier()
    else:
        for _ in range(3):
            dist.recv(x, 0)


def test_a_lost_message_is_told_though_the_ranks_hang():
    with pytest.raises(RankError) as caught:
        collect(lost, 2, timeout=3)
    (warning,) = caught.value.warnings
    assert warning.kind == "never_waited"
    assert "isend to rank 1" in warning.message
    assert "gloo drops the message" in warning.message


def twice():
    x = torch.ones(4)
    if dist.get_rank() == 0:
        dist.send(x, 1)
        return
    work = dist.irecv(x, 0)
    work.wait()
    work.wait()


def test_a_second_wait_hangs_and_says_so():
    with pytest.raises(RankError) as caught:
        collect(twice, 2)
    (warning,) = caught.value.warnings
    assert (warning.rank, warning.kind) == (1, "waited_twice")
    assert warning.issued_at[0].line == line(twice, "irecv")
    assert caught.value.trace.waiting(1).op == "recv"


# ---------------------------------------------------------------------------------------------
# gradients


def cut_in_place():
    parameter = torch.ones(3, requires_grad=True)
    q = parameter * (dist.get_rank() + 1)
    dist.all_reduce(q)
    q.sum().backward()
    return parameter.grad


def cut_by_gathering():
    weight = torch.ones(2, requires_grad=True)
    features = weight * 2
    parts = [torch.empty(2) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, features)
    everything = torch.stack(parts).mean(0)
    return (features * everything).sum().item()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("function", [cut_in_place, cut_by_gathering])
def test_a_gradient_that_ends_at_a_collective(function):
    warnings = warnings_of(function)
    assert [(warning.rank, warning.kind) for warning in warnings] == [
        (0, "cut_gradient"),
        (1, "cut_gradient"),
    ]
    where = warnings[0].issued_at or warnings[0].where
    assert where[0].line == line(function, "dist.all_")
    assert "torch.autograd.Function" in warnings[0].message


class Reduced(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.clone()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx, gradient):
        gradient = gradient.clone()
        dist.all_reduce(gradient)
        return gradient


def gradients_in_order():
    n, rank = dist.get_world_size(), dist.get_rank()
    layer = torch.nn.Linear(2, 2)
    for parameter in layer.parameters():
        dist.broadcast(parameter, 0)
    loss = Reduced.apply(layer(torch.ones(2))).sum()
    loss.backward()
    dist.all_reduce(loss)  # to print it
    features = layer(torch.ones(2))
    parts = [torch.empty(2) for _ in range(n)]
    dist.all_gather(parts, features)
    mean = torch.stack(parts).mean().item()
    parts[rank] = features  # the usual way around: the own part keeps its gradient
    (torch.cat(parts) * 2).sum().backward()
    features, parts = layer(torch.ones(2)), [torch.empty(2) for _ in range(n)]
    with torch.no_grad():
        dist.all_gather(parts, features)
    (parts[0] * features).sum().backward()
    return float(loss), mean


@pytest.mark.filterwarnings("ignore")
def test_gradients_that_end_nowhere():
    assert warnings_of(gradients_in_order) == []
