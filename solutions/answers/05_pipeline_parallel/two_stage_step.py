"""Known answers to two_stage_step."""

import torch
import torch.distributed as dist

from course_lib.checks.known_answers import right, wrong


@right
def two_stage_step(module, inputs, targets, loss):
    crossing = torch.empty_like(inputs)
    if dist.get_rank() == 0:
        output = module(inputs)
        work = dist.isend(output.detach(), 1)
        dist.recv(crossing, 1)
        work.wait()
        torch.autograd.backward([output], [crossing])
        return None
    dist.recv(crossing, 0)
    crossing.requires_grad_()
    value = loss(module(crossing), targets)
    parameters = [p for p in module.parameters() if p.requires_grad]
    back, *gradients = torch.autograd.grad(value, [crossing, *parameters])
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = gradient
    dist.send(back, 0)
    return value.item()


def two_stages(
    module,
    inputs,
    targets,
    loss,
    start=lambda value: value,
    back=lambda x: x.grad,
    room=torch.empty_like,
):
    crossing = room(inputs)
    if dist.get_rank() == 0:
        output = module(inputs)
        dist.send(output.detach(), 1)
        dist.recv(crossing, 1)
        output.backward(crossing)
        return None
    dist.recv(crossing, 0)
    crossing.requires_grad_()
    value = loss(module(crossing), targets)
    start(value).backward()
    dist.send(back(crossing), 0)
    return value.detach()


@wrong(says="element 0 of tensors does not require grad")
def no_gradient_for_what_arrives(module, inputs, targets, loss):
    for parameter in module.parameters():
        parameter.requires_grad_(dist.get_rank() == 0)
    crossing = torch.empty_like(inputs)
    if dist.get_rank() == 0:
        dist.send(module(inputs).detach(), 1)
        dist.recv(crossing, 1)
    else:
        dist.recv(crossing, 0)
        loss(module(crossing), targets).backward()
        dist.send(crossing.grad, 0)


@wrong(says="on rank 0: there is none. Does backward run on this rank")
def rank_0_never_goes_back(module, inputs, targets, loss):
    crossing = torch.empty_like(inputs)
    if dist.get_rank() == 0:
        dist.send(module(inputs).detach(), 1)
        dist.recv(crossing, 1)
        return None
    dist.recv(crossing, 0)
    crossing.requires_grad_()
    value = loss(module(crossing), targets)
    value.backward()
    dist.send(crossing.grad, 0)
    return value.detach()


@wrong(says="on rank 0: all zeros")
def sends_zeros_of_the_right_shape(module, inputs, targets, loss):
    return two_stages(module, inputs, targets, loss, back=lambda x: torch.zeros_like(x))


@wrong(says="on rank 1: exactly 4 times the reference")
def sum_for_mean(module, inputs, targets, loss):
    return two_stages(module, inputs, targets, loss, start=lambda value: 4 * value)


@wrong(says="on rank 0: the sign is wrong")
def a_step_for_a_gradient(module, inputs, targets, loss):
    return two_stages(module, inputs, targets, loss, back=lambda x: -x.grad)


@wrong(says="rank 0 sends its activation, once, and nothing else")
def inputs_come_along(module, inputs, targets, loss):
    if dist.get_rank() == 0:
        dist.send(inputs, 1)
    else:
        dist.recv(torch.empty_like(inputs), 0)
    return two_stages(module, inputs, targets, loss)


@wrong(says="rank 0 never sees the loss")
def loss_on_both(module, inputs, targets, loss):
    value = two_stages(module, inputs, targets, loss)
    return 0.0 if value is None else value


@wrong(says="rank 1 returns the loss of the batch")
def forgets_to_return(module, inputs, targets, loss):
    two_stages(module, inputs, targets, loss)


@wrong(says="your ranks ran broadcast")
def by_broadcast(module, inputs, targets, loss):
    crossing = torch.empty_like(inputs)
    output = module(inputs) if dist.get_rank() == 0 else None
    if dist.get_rank() == 0:
        crossing.copy_(output.detach())
    dist.broadcast(crossing, 0)
    if dist.get_rank() == 0:
        dist.broadcast(crossing, 1)
        output.backward(crossing)
        return None
    crossing.requires_grad_()
    value = loss(module(crossing), targets)
    value.backward()
    dist.broadcast(crossing.grad, 1)
    return value.detach()


@wrong(says="Your ranks did not finish")
def both_receive_first(module, inputs, targets, loss):
    crossing = torch.empty_like(inputs)
    dist.recv(crossing, 1 - dist.get_rank())
    return two_stages(module, inputs, targets, loss)


@right
def by_a_product_with_the_gradient(module, inputs, targets, loss):
    """The gradient of (h * g).sum() is g, so no tensor is handed to backward."""
    crossing = torch.zeros_like(inputs)
    if dist.get_rank() == 0:
        output = module(inputs)
        sending = dist.isend(output.detach().contiguous(), 1)
        dist.irecv(crossing, 1).wait()
        sending.wait()
        (output * crossing).sum().backward()
        return None
    dist.irecv(crossing, 0).wait()
    start = torch.nn.Parameter(crossing)
    value = loss(module(start), targets)
    value.backward()
    dist.isend(start.grad, 0).wait()
    return value


@right
def by_one_batch_of_messages(module, inputs, targets, loss):
    def exchange(operation, tensor, peer):
        for work in dist.batch_isend_irecv([dist.P2POp(operation, tensor, peer)]):
            work.wait()

    crossing = torch.empty_like(inputs)
    if dist.get_rank() == 0:
        output = module(inputs)
        exchange(dist.isend, output.detach(), 1)
        exchange(dist.irecv, crossing, 1)
        output.backward(gradient=crossing)
        return None
    exchange(dist.irecv, crossing, 0)
    crossing.requires_grad = True
    value = loss(module(crossing), targets)
    value.backward()
    exchange(dist.isend, crossing.grad, 0)
    return float(value)


@right
def with_a_hook_that_sends(module, inputs, targets, loss):
    if dist.get_rank() == 0:
        output = module(inputs)
        dist.send(output.detach(), 1)
        gradient = output.new_empty(output.shape)
        dist.recv(gradient, src=1)
        torch.autograd.backward(output, gradient)
        return None
    arrived = inputs.new_empty(inputs.shape)
    dist.recv(arrived, src=0)
    arrived.requires_grad_().register_hook(lambda gradient: dist.send(gradient.contiguous(), 0))
    value = loss(module(arrived), targets)
    value.backward()
    return value.detach().clone()


@wrong(says="call requires_grad_() on what has arrived")
def what_arrives_asks_for_no_gradient(module, inputs, targets, loss):
    return two_stages(lambda x: module(x.detach()), inputs, targets, loss)


@wrong(says="this is that of the mean squared error")
def always_the_squared_error(module, inputs, targets, loss):
    return two_stages(module, inputs, targets, torch.nn.functional.mse_loss)


@wrong(says="this is that of loss(targets, output)")
def targets_first(module, inputs, targets, loss):
    return two_stages(module, inputs, targets, lambda output, y: loss(y, output))


@wrong(says="5 sequences in float64")
def room_for_float32(module, inputs, targets, loss):
    return two_stages(module, inputs, targets, loss, room=lambda x: torch.empty(x.shape))


@wrong(says="the module ran more than once forward and once backward")
def forward_once_more_for_backward(module, inputs, targets, loss):
    if dist.get_rank() == 0:
        module(inputs)
    return two_stages(module, inputs, targets, loss)


@wrong(says="Only rank 0 has the inputs and only the last rank the targets")
def rank_1_reads_the_inputs(module, inputs, targets, loss):
    return two_stages(
        lambda x: module(x if dist.get_rank() == 0 else x + inputs), inputs, targets, loss
    )


@wrong(says="the step is the optimizer's, and comes later")
def a_step_at_the_end(module, inputs, targets, loss):
    value = two_stages(module, inputs, targets, loss)
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.grad is not None:
                parameter -= 0.1 * parameter.grad
    return value


@right
def each_stage_by_its_own_function(module, inputs, targets, loss):
    def first():
        output = module(inputs)
        dist.send(tensor=output.data, dst=1)
        gradient = inputs.new_empty(inputs.shape)
        dist.recv(tensor=gradient, src=1)
        torch.autograd.backward(output, gradient)

    def second():
        arrived = inputs.new_zeros(inputs.shape).requires_grad_()
        with torch.no_grad():
            dist.recv(arrived, src=0)
        mean = loss(module(arrived), targets)
        arrived.register_hook(lambda gradient: kept.append(gradient))
        kept = []
        mean.backward()
        dist.send(kept[0].contiguous(), dst=0)
        return mean.detach().clone()

    return (first, second)[dist.get_rank()]()
