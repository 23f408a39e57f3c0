"""A stage that sleeps notes what it did in order, and has the gradients of a product."""

import torch

from course_lib.models.sleeping_stage import SleepingStage


def test_it_notes_each_pass_with_at_least_the_time_that_it_sleeps():
    stage = SleepingStage(forward=0.001, backward=0.002)
    x = torch.arange(3.0, requires_grad=True)
    outputs = [stage(x) for _ in range(2)]
    for output in outputs:
        assert torch.equal(output, x)
        output.sum().backward()
    assert [slept.kind for slept in stage.log] == ["F", "F", "B", "B"]
    for slept in stage.log:
        assert slept.end - slept.start >= stage.seconds[slept.kind]
    assert torch.equal(x.grad, torch.full((3,), 2.0))
    assert stage.scale.grad.item() == 2 * (0 + 1 + 2)
