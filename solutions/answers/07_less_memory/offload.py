"""Known answers to offload."""

import torch
from torch import nn

from course_lib.checks.known_answers import right, wrong

from ._common import masters, written_back


@right
def offload(model, make_optimizer, to_host, to_device):
    own = [p for p in model.parameters() if p.requires_grad]
    masters = [nn.Parameter(to_host(p).float()) for p in own]
    optimizer = make_optimizer(masters)

    def step():
        for p, master in zip(own, masters, strict=True):
            master.grad = to_host(p.grad).float()
            p.grad = None
        optimizer.step()
        for p, master in zip(own, masters, strict=True):
            master.grad = None
            p.data.copy_(to_device(master.detach().bfloat16()))

    return step


@right
def offload_flat(model, make_optimizer, to_host, to_device):
    """One message each way."""
    own = [p for p in model.parameters() if p.requires_grad]
    master = nn.Parameter(to_host(torch.cat([p.detach().view(-1) for p in own])).float())
    optimizer = make_optimizer([master])

    def step():
        master.grad = to_host(torch.cat([p.grad.view(-1) for p in own])).float()
        for p in own:
            p.grad = None
        optimizer.step()
        master.grad = None
        written_back(to_device(master.detach().to(torch.bfloat16)), own)

    return step


def over_the_bus(
    model,
    make_optimizer,
    to_host,
    to_device,
    down=lambda grad, to_host: to_host(grad).float(),
    up=lambda copy, to_device: to_device(copy.bfloat16()),
    free=True,
):
    def take(p):
        grad = down(p.grad, to_host)
        if free:
            p.grad = None
        return grad

    return masters(model, make_optimizer, take, lambda copy: up(copy, to_device))


@wrong(says="nothing was copied to the host")
def all_on_the_device(model, make_optimizer, to_host, to_device):
    return masters(model, make_optimizer)


@wrong(says="convert after the copy")
def fp32_gradients_down(model, make_optimizer, to_host, to_device):
    def down(grad, to_host):
        return to_host(grad.float())

    return over_the_bus(model, make_optimizer, to_host, to_device, down=down)


@wrong(says="round before the copy")
def fp32_parameters_up(model, make_optimizer, to_host, to_device):
    def up(copy, to_device):
        return to_device(copy).bfloat16()

    return over_the_bus(model, make_optimizer, to_host, to_device, up=up)


@wrong(says="nothing was copied to the device")
def written_from_the_host(model, make_optimizer, to_host, to_device):
    return over_the_bus(
        model, make_optimizer, to_host, to_device, up=lambda copy, to_device: copy.bfloat16()
    )


@wrong(says="the gradients stay on the device")
def gradients_on_the_device(model, make_optimizer, to_host, to_device):
    return over_the_bus(model, make_optimizer, to_host, to_device, free=False)


@wrong(says="only what learns has to cross")
def sent_twice(model, make_optimizer, to_host, to_device):
    def down(grad, to_host):
        to_host(grad.float())
        return to_host(grad).float()

    return over_the_bus(model, make_optimizer, to_host, to_device, down=down)
