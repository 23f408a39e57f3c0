"""Known answers to master_weights."""

from copy import deepcopy

import torch
from torch import nn

from course_lib.checks.known_answers import right, wrong

from ._common import learning, masters, written_back


@right
def master_weights(model, make_optimizer):
    masters = {p: nn.Parameter(p.detach().float()) for p in model.parameters() if p.requires_grad}
    optimizer = make_optimizer(masters.values())

    def step():
        for p, master in masters.items():
            master.grad = p.grad.to(torch.float32)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        for p, master in masters.items():
            p.data.copy_(master.data)

    return step


@right
def master_weights_flat(model, make_optimizer):
    """All copies in one tensor."""
    own = [p for p in model.parameters() if p.requires_grad]
    flat = nn.Parameter(torch.cat([p.detach().float().view(-1) for p in own]))
    optimizer = make_optimizer([flat])

    def step():
        flat.grad = torch.cat([p.grad.view(-1) for p in own]).float()
        optimizer.step()
        flat.grad = None
        written_back(flat, own)

    return step


@right
def master_weights_in_a_class(model, make_optimizer):
    class Masters:
        def __init__(self):
            self.pairs = [
                (p, nn.Parameter(p.detach().to(torch.float32, copy=True)))
                for p in filter(lambda p: p.requires_grad, model.parameters())
            ]
            self.optimizer = make_optimizer([{"params": [copy]} for _, copy in self.pairs])

        @torch.no_grad()
        def __call__(self):
            for p, copy in self.pairs:
                copy.grad = torch.zeros_like(copy).add_(p.grad)
            self.optimizer.step()
            self.optimizer.zero_grad()
            for p, copy in self.pairs:
                p[...] = copy

    return Masters()


@right
def master_weights_foreach(model, make_optimizer):
    own = list({id(p): p for p in model.parameters() if p.requires_grad}.values())
    copies = [p.detach().float().requires_grad_() for p in own]
    optimizers = [make_optimizer([copy]) for copy in copies]

    def step():
        for p, copy, optimizer in zip(own, copies, optimizers, strict=True):
            copy.grad = p.grad.float()
            optimizer.step()
            copy.grad = None
        torch._foreach_copy_([p.data for p in own], [copy.data for copy in copies])

    return step


@right
def master_weights_freeing_gradients(model, make_optimizer):
    """One gradient in fp32 at a time, and the model's own are dropped as well."""
    optimizers = {}
    for p in model.parameters():
        if p.requires_grad:
            copy = nn.Parameter(p.data.clone().type(torch.float))
            optimizers[p] = copy, make_optimizer([copy])

    def step():
        for p, (copy, optimizer) in optimizers.items():
            copy.grad, p.grad = p.grad.to(copy.dtype), None
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            p.data.copy_(copy.data.bfloat16())

    return step


@wrong(says="more is kept in memory than is due")
def gradient_buffers_made_once(model, make_optimizer):
    buffers = {}

    def down(p):
        buffers.setdefault(p, torch.zeros(p.shape)).copy_(p.grad)
        return buffers[p]

    return masters(model, make_optimizer, down=down)


@wrong(says="more is kept in memory than is due")
def a_copy_of_the_whole_model(model, make_optimizer):
    twin = deepcopy(model).float()
    optimizer = make_optimizer(learning(twin))

    def step():
        for p, q in zip(learning(model), learning(twin), strict=True):
            q.grad = p.grad.float()
        optimizer.step()
        optimizer.zero_grad()
        for p, q in zip(learning(model), learning(twin), strict=True):
            p.data.copy_(q)

    return step


@wrong(says="more is kept in memory than is due")
def gradients_in_a_list(model, make_optimizer):
    last = []

    def down(p):
        if len(last) == len(learning(model)):
            last.clear()
        last.append(p.grad.float())
        return last[-1]

    return masters(model, make_optimizer, down=down)


@wrong(says="A copy that is to take fp32 gradients has to be fp32 itself")
def copies_in_bfloat16(model, make_optimizer):
    own = learning(model)
    copies = [nn.Parameter(p.detach().clone()) for p in own]
    optimizer = make_optimizer(copies)

    def step():
        for p, copy in zip(own, copies, strict=True):
            copy.grad = p.grad.float()
        optimizer.step()

    return step


@wrong(says="had no gradient in any step")
def gradients_not_taken_over(model, make_optimizer):
    return masters(model, make_optimizer, down=lambda p: None)


def _with_end(model, make_optimizer, end):
    own = learning(model)
    copies = [nn.Parameter(p.detach().float()) for p in own]
    optimizer = make_optimizer(copies)

    def step():
        for p, master in zip(own, copies, strict=True):
            master.grad = p.grad.float()
        optimizer.step()
        optimizer.zero_grad()
        for p, master in zip(own, copies, strict=True):
            end(p, master)

    return step


@wrong(says="only gives the name to another tensor")
def parameter_rebound(model, make_optimizer):
    def end(p, master):
        p = master.bfloat16()

    return _with_end(model, make_optimizer, end)


@wrong(says="p.data = copy.data gives it the copy's memory")
def data_without_a_cast(model, make_optimizer):
    def end(p, master):
        p.data = master.data

    return _with_end(model, make_optimizer, end)


@wrong(says="Does step() call optimizer.step()?")
def optimizer_never_steps(model, make_optimizer):
    own = learning(model)
    copies = [nn.Parameter(p.detach().float()) for p in own]
    make_optimizer(copies)

    def step():
        for p, master in zip(own, copies, strict=True):
            p.data.copy_(master)

    return step


@wrong(says="has not moved in 60 steps")
def bfloat16_alone(model, make_optimizer):
    return make_optimizer(learning(model)).step


@wrong(says="has not moved in 60 steps")
def copies_made_anew(model, make_optimizer):
    return masters(model, make_optimizer, anew=True)


@wrong(says="that makes 20 bytes per parameter of 16")
def fp32_gradients_stay(model, make_optimizer):
    return masters(model, make_optimizer, keep=True)


@wrong(says="is no longer bfloat16")
def all_in_fp32(model, make_optimizer):
    model.float()
    return masters(model, make_optimizer)


@wrong(says="does not step on fp32 copies")
def float64_copies(model, make_optimizer):
    own = learning(model)
    copies = [nn.Parameter(p.detach().double()) for p in own]
    optimizer = make_optimizer(copies)

    def step():
        for p, copy in zip(own, copies, strict=True):
            copy.grad = p.grad.double()
        optimizer.step()
        optimizer.zero_grad()
        for p, copy in zip(own, copies, strict=True):
            p.data.copy_(copy)

    return step


@wrong(says="more fp32 copies than parameters that learn")
def copies_of_the_frozen(model, make_optimizer):
    return masters(
        model,
        make_optimizer,
        down=lambda p: None if p.grad is None else p.grad.float(),
        choose=lambda model: list(model.parameters()),
    )


@wrong(says="return the function step itself")
def no_step(model, make_optimizer):
    masters(model, make_optimizer)


def _stepping(model, make_optimizer, put_back):
    """put_back(own, i, copy): what a step does with a finished copy."""
    own = [p for p in model.parameters() if p.requires_grad]
    copies = [nn.Parameter(p.detach().float()) for p in own]
    optimizer = make_optimizer(copies)

    def step():
        for p, copy in zip(own, copies, strict=True):
            copy.grad = p.grad.float()
        optimizer.step()
        for i, copy in enumerate(copies):
            put_back(own, i, copy)
            copy.grad = None

    return step


@wrong(says="another tensor that took a parameter's place in your list")
def parameters_of_the_list_replaced(model, make_optimizer):
    def put_back(own, i, copy):
        own[i] = nn.Parameter(copy.detach().bfloat16())

    return _stepping(model, make_optimizer, put_back)


@wrong(says="of the model is another parameter: whoever holds the old one")
def parameters_of_the_model_replaced(model, make_optimizer):
    names = [name for name, p in model.named_parameters() if p.requires_grad]

    def put_back(own, i, copy):
        module, _, name = names[i].rpartition(".")
        setattr(model.get_submodule(module), name, nn.Parameter(copy.detach().bfloat16()))

    return _stepping(model, make_optimizer, put_back)


@wrong(says="lies in other memory than before the call")
def parameters_in_other_memory(model, make_optimizer):
    def put_back(own, i, copy):
        own[i].data = copy.detach().bfloat16()

    return _stepping(model, make_optimizer, put_back)


@wrong(says="is not within one rounding of the fp32 copy")
def cut_off_and_not_rounded(model, make_optimizer):
    def put_back(own, i, copy):
        cut = (copy.data.view(torch.int32) & -(2**16)).view(torch.float32)
        own[i].data.copy_(cut)

    return _stepping(model, make_optimizer, put_back)
