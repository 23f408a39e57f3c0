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


@right
def offload_in_threes(model, make_optimizer, to_host, to_device):
    """Records instead of lists, an optimizer for each, parameters that come up one by one."""
    own = [p for p in model.parameters() if p.requires_grad]
    masters = {p: to_host(p.data).to(torch.float32).requires_grad_() for p in own}
    optimizers = {p: make_optimizer([master]) for p, master in masters.items()}

    def step():
        for p, master in masters.items():
            (gradient,), p.grad = (to_host(p.grad[None]),), None
            master.grad = gradient[0].float()
            optimizers[p].step()
            optimizers[p].zero_grad()
            p.data[:] = to_device(master.data.to(p.dtype))

    return step


@right
def offload_down_then_up(model, make_optimizer, to_host, to_device):
    own = list(filter(lambda p: p.requires_grad, model.parameters()))
    masters = list(map(nn.Parameter, (to_host(p).float() for p in own)))
    optimizer = make_optimizer(iter(masters))

    @torch.no_grad()
    def step():
        gradients = [to_host(p.grad) for p in own]
        model.zero_grad(set_to_none=True)
        while gradients:
            masters[len(gradients)].grad = gradients.pop().float()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        for p, master in zip(own, masters, strict=True):
            p.copy_(to_device(master.type_as(p)))

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

    return masters(model, make_optimizer, take, lambda copy: up(copy, to_device), begin=to_host)


@wrong(says="more is kept in memory than is due")
def device_gradients_in_a_list(model, make_optimizer, to_host, to_device):
    last = []

    def down(grad, to_host):
        last[:] = [*last[-4:], grad]
        return to_host(grad).float()

    return over_the_bus(model, make_optimizer, to_host, to_device, down=down)


@wrong(says="the fp32 copies begin without to_host")
def masters_on_the_device(model, make_optimizer, to_host, to_device):
    own = [p for p in model.parameters() if p.requires_grad]
    copies = [nn.Parameter(p.detach().float()) for p in own]
    optimizer = make_optimizer(copies)

    def step():
        for p, copy in zip(own, copies, strict=True):
            copy.grad, p.grad = to_host(p.grad).float(), None
        optimizer.step()
        for p, copy in zip(own, copies, strict=True):
            p.data.copy_(to_device(copy.detach().bfloat16()))
            copy.grad = None

    return step


@wrong(says="begin with more bytes over the bus than needed")
def masters_that_cross_in_fp32(model, make_optimizer, to_host, to_device):
    def down(p):
        p.grad, gradient = None, to_host(p.grad)
        return gradient.float()

    def up(copy):
        return to_device(copy.bfloat16())

    return masters(model, make_optimizer, down, up, begin=lambda p: to_host(p.float()))


@wrong(says="steps with the device's own gradients")
def gradients_copied_and_not_used(model, make_optimizer, to_host, to_device):
    own = [p for p in model.parameters() if p.requires_grad]
    copies = [nn.Parameter(to_host(p.detach()).float()) for p in own]
    optimizer = make_optimizer(copies)

    def step():
        for p, copy in zip(own, copies, strict=True):
            to_host(p.grad)
            copy.grad, p.grad = p.grad.float(), None
        optimizer.step()
        for p, copy in zip(own, copies, strict=True):
            p.data.copy_(to_device(copy.detach().bfloat16()))
            copy.grad = None

    return step


@wrong(says="the model gets the host's own numbers")
def parameters_copied_and_not_used(model, make_optimizer, to_host, to_device):
    own = [p for p in model.parameters() if p.requires_grad]
    copies = [nn.Parameter(to_host(p.detach()).float()) for p in own]
    optimizer = make_optimizer(copies)

    def step():
        for p, copy in zip(own, copies, strict=True):
            copy.grad, p.grad = to_host(p.grad).float(), None
        optimizer.step()
        for p, copy in zip(own, copies, strict=True):
            to_device(copy.detach().bfloat16())
            p.data.copy_(copy)
            copy.grad = None

    return step


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


@right
def offload_as_an_object(model, make_optimizer, to_host, to_device):
    class Host:
        def __init__(self):
            learning = [p for p in model.parameters() if p.requires_grad]
            self.pairs = [(p, nn.Parameter(to_host(p.data).double().float())) for p in learning]
            self.optimizer = make_optimizer([copy for _, copy in self.pairs])

        def __call__(self):
            for p, copy in self.pairs:
                copy.grad = torch.empty_like(copy).copy_(to_host(p.grad))
                p.grad = None
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
            with torch.no_grad():
                for p, copy in self.pairs:
                    p.copy_(to_device(copy.to(p.dtype)))

    return Host()


@wrong(says="float16 ends at 65,504")
def rounded_to_float16(model, make_optimizer, to_host, to_device):
    return offload(model, make_optimizer, to_host, lambda t: to_device(t.half()))
