"""Known answers to start_equal."""

import torch
import torch.distributed as dist
from torch import nn

from course_lib.checks.known_answers import right, wrong
from course_lib.techniques.collectives import broadcast_state


@right
def start_equal(model):
    for module in model.modules():
        for holder in (module._parameters, module._buffers):
            for tensor in holder.values():
                if tensor is not None and not getattr(tensor, "_sent", False):
                    dist.broadcast(tensor.data, 0)
                    tensor._sent = True  # a shared weight is in two modules


@right
def start_equal_flat(model):
    """One broadcast for each dtype."""
    tensors = [t.detach() for t in (*model.parameters(), *model.buffers())]
    for dtype in sorted({t.dtype for t in tensors}, key=str):
        alike = [t for t in tensors if t.dtype == dtype]
        flat = torch.cat([t.reshape(-1) for t in alike])
        dist.broadcast(flat, src=0)
        torch._foreach_copy_(
            alike,
            [
                p.view_as(t)
                for p, t in zip(flat.split([t.numel() for t in alike]), alike, strict=True)
            ],
        )


@right
def start_equal_all_under_way(model):
    tensors = [*model.parameters(), *model.buffers()]
    for work in [dist.broadcast(t.detach(), src=0, async_op=True) for t in tensors]:
        work.wait()


@right
def start_equal_through_copies(model):
    """By name, each memory once, and copied back without a gradient."""
    held = dict([*model.named_parameters(), *model.named_buffers()])
    with torch.no_grad():
        for tensor in {tensor.data_ptr(): tensor for tensor in held.values()}.values():
            copy = tensor.clone(memory_format=torch.contiguous_format)
            dist.broadcast(copy, 0)
            tensor.copy_(copy)


@right
def start_equal_by_apply(model):
    sent = set()

    def send(module):
        for tensor in (*module.parameters(recurse=False), *module.buffers(recurse=False)):
            if tensor not in sent:
                sent.add(tensor)
                dist.broadcast(tensor.data, src=0)

    model.apply(send)


def send_all(tensors, src=0):
    for tensor in tensors:
        dist.broadcast(tensor.detach(), src=src)


@wrong(says="See `for name in {*names}:`: go by a list, a dict or sorted(...)")
def in_the_order_of_a_set_of_names(model):
    names = dict([*model.named_parameters(), *model.named_buffers()])
    for name in {*names}:
        dist.broadcast(names[name].detach(), src=0)


@wrong(says="buffer 'norm.running_mean' is not rank 0's: it is still the rank's own")
def parameters_alone(model):
    send_all(model.parameters())


@wrong(says="frozen parameter 'last.bias' is not rank 0's: it is still the rank's")
def what_is_trained_alone(model):
    send_all([*(p for p in model.parameters() if p.requires_grad), *model.buffers()])


@wrong(says="buffer 'mask' is not rank 0's")
def what_is_saved_alone(model):
    send_all({id(t): t for t in model.state_dict(keep_vars=True).values()}.values())


@wrong(says="is a shared weight sent under both of its names?")
def shared_weights_under_both_names(model):
    send_all(p for _, p in model.named_parameters(remove_duplicate=False))
    send_all(model.buffers())


@wrong(says="parameter 'first.weight' is a new object: an optimizer")
def new_parameters(model):
    for module in model.modules():
        for name, parameter in list(module.named_parameters(recurse=False)):
            value = parameter.detach().clone()
            dist.broadcast(value, src=0)
            setattr(module, name, nn.Parameter(value, requires_grad=parameter.requires_grad))
    send_all(model.buffers())


@wrong(says="it is rank 1's")
def from_the_last_rank(model):
    send_all([*model.parameters(), *model.buffers()], src=dist.get_world_size() - 1)


@wrong(says="your ranks ran all_reduce")
def average_of_the_starts(model):
    for parameter in model.parameters():
        dist.all_reduce(parameter.detach())
        parameter.detach().div_(dist.get_world_size())


@wrong(says="parameter 'first.weight' is not rank 0's: it is still the rank's own")
def a_seed_and_no_message(model):
    torch.manual_seed(0)


@wrong(says="a leaf Variable that requires grad")
def without_detach(model):
    for parameter in model.parameters():
        copy = parameter.detach().clone()
        dist.broadcast(copy, src=0)
        parameter.copy_(copy)


@wrong(says="your function calls course_lib.techniques")
def the_courses_own_start(model):
    broadcast_state(model)


@wrong(says="lies in other memory than before the call")
def memory_of_its_own(model):
    for tensor in (*model.parameters(), *model.buffers()):
        value = tensor.detach().clone()
        dist.broadcast(value, src=0)
        tensor.data = value


@wrong(says="does not have the same")  # size or dtype, as it comes
def in_the_order_of_a_set(model):
    """A set of tensors goes by their addresses, which are others in every process."""
    for tensor in {*model.parameters(), *model.buffers()}:
        dist.broadcast(tensor.detach(), 0)


@wrong(says="some travel as float64, which none of them is")
def all_as_doubles(model):
    for tensor in [*model.parameters(), *model.buffers()]:
        copy = tensor.detach().double()
        dist.broadcast(copy, src=0)
        tensor.detach().copy_(copy)


@wrong(says="is not rank 0's")
def counters_as_doubles(model):
    """A counter has more digits than a double holds."""
    for tensor in [*model.parameters(), *model.buffers()]:
        copy = tensor.detach()
        copy = copy if copy.is_floating_point() or copy.dtype is torch.bool else copy.double()
        dist.broadcast(copy, src=0)
        tensor.detach().copy_(copy)
