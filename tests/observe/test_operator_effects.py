"""What operators read and write, by their schemas."""

import pytest
import torch

from course_lib.observe.operator_effects import effects

aten = torch.ops.aten


@pytest.mark.parametrize(
    ("operator", "reads", "writes"),
    [
        (aten.add.Tensor, (0, 1), ()),
        (aten.add_.Tensor, (1,), (0,)),
        (aten.copy_.default, (1,), (0,)),
        (aten.fill_.Scalar, (), (0,)),
        (aten.add.out, (0, 1), ("out",)),
        (aten.cat.default, (0,), ()),
        (aten._foreach_add_.List, (1,), (0,)),
        (aten._local_scalar_dense.default, (0,), ()),
        (aten.index_put_.default, (1, 2), (0,)),
    ],
)
def test_reads_and_writes(operator, reads, writes):
    found = effects(operator)
    assert (found.reads, found.writes) == (reads, writes)


@pytest.mark.parametrize(
    "operator",
    [
        aten.view.default,
        aten.slice.Tensor,
        aten.transpose.int,
        aten.detach.default,
        aten.empty_like.default,
        aten.new_zeros.default,
        aten.resize_.default,
        aten.squeeze_.default,
        torch.ops.c10d.send.default,
    ],
)
def test_looking_at_shapes_touches_nothing(operator):
    assert effects(operator) is None
