"""A program for torchrun: train a few steps with each technique, from a copy of its package alone.

    torchrun --nproc-per-node 2 train_alone.py FOLDER       FOLDER/NAME/course_lib/techniques/...

Imports nothing but torch and what the copies hold.
"""

import importlib
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

STEPS = 4
Losses = list[float]


def layers() -> list[nn.Module]:
    torch.manual_seed(0)
    return [nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 8), nn.Linear(8, 2)]


def part() -> tuple[torch.Tensor, torch.Tensor]:
    """This rank's rows: inputs (8, 4), targets (8, 2)."""
    rows = torch.Generator().manual_seed(dist.get_rank())
    x = torch.randn(8, 4, generator=rows)
    return x, x[:, :2] - x[:, 2:]


def sgd(groups) -> torch.optim.Optimizer:
    return torch.optim.SGD(groups, lr=0.1)


def over_ranks(loss: torch.Tensor) -> float:
    mean = loss.detach().clone()
    dist.all_reduce(mean)
    return mean.item() / dist.get_world_size()


def steps(model: nn.Module, optimizer, after: Callable[[], object] = bool) -> Losses:
    """The mean losses over the ranks; `after` is called after each backward pass."""
    x, y = part()
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        after()
        optimizer.step()
        losses.append(over_ranks(loss))
    return losses


# -------------------------------------------------------------------------------------------------
# A program for each package; its name is the package's
# -------------------------------------------------------------------------------------------------


def parameter_server() -> list[Losses]:
    from course_lib.techniques.parameter_server import Job, Layout, Server, Worker, by_range

    model = nn.Sequential(*layers())
    layout = Layout(model.parameters())
    job = Job(workers=(0,), servers=((1,),), placement=by_range(layout.total, 1))
    if dist.get_rank() == 1:
        Server(job, layout, sgd).serve()
        return []
    worker, (x, y), losses = Worker(job, layout), part(), []
    for _ in range(STEPS):
        worker.pull()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        worker.push()
        losses.append(loss.item())
    worker.leave()
    return [losses]


def collectives() -> list[Losses]:
    from course_lib.techniques.collectives import broadcast_state, ring_all_reduce

    model = nn.Sequential(*layers())
    broadcast_state(model)

    def average() -> None:
        for parameter in model.parameters():
            ring_all_reduce(parameter.grad)
            parameter.grad /= dist.get_world_size()

    return [steps(model, sgd(model.parameters()), average)]


def data_parallel() -> list[Losses]:
    from course_lib.techniques.data_parallel import (
        DataParallel,
        DistributedOptimizer,
        NaiveDataParallel,
    )

    naive, overlapped = (
        kind(nn.Sequential(*layers())) for kind in (NaiveDataParallel, DataParallel)
    )
    plain = nn.Sequential(*layers())
    return [
        steps(naive, sgd(naive.parameters()), naive.average_gradients),
        steps(overlapped, sgd(overlapped.parameters())),
        steps(plain, DistributedOptimizer(sgd(plain.parameters()), plain)),
    ]


def tensor_parallel() -> list[Losses]:
    from course_lib.techniques.tensor_parallel import TensorParallelGPT

    torch.manual_seed(0)
    model = TensorParallelGPT(11, 6, layers=1, hidden=8, heads=2)
    optimizer, losses = torch.optim.Adam(model.parameters(), lr=0.01), []
    tokens = torch.arange(24).view(4, 6) % 11
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = model.loss(tokens, (tokens + 1) % 11)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return [losses]


def expert_parallel() -> list[Losses]:
    from course_lib.techniques.expert_parallel import (
        ExpertGroups,
        MixtureOfExperts,
        average_gradients,
    )
    from course_lib.techniques.mesh import Mesh

    groups = ExpertGroups.open(Mesh(data=2, expert=2))
    first, *_, last = layers()
    mixture = MixtureOfExperts(8, experts=4, balance=0.01, group=groups.expert)
    model = nn.Sequential(first, mixture, last)
    return [steps(model, sgd(model.parameters()), lambda: average_gradients(model, groups))]


def schedules() -> list[Losses]:
    from course_lib.techniques.schedules import BY_NAME, validate

    for make in BY_NAME.values():
        validate(make(2, 4, 2), 4)
    return []


def pipeline() -> list[Losses]:
    from course_lib.techniques.pipeline import Pipeline
    from course_lib.techniques.schedules import one_f_one_b

    rank, whole = dist.get_rank(), layers()
    stage = nn.Sequential(*(whole[:2] if rank == 0 else whole[2:]))
    line = Pipeline({rank: stage}, one_f_one_b(2, 4), F.mse_loss)
    optimizer, losses = sgd(line.parameters()), []
    torch.manual_seed(1)
    x = torch.randn(8, 4)
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = line.train_step(x, x[:, :2] - x[:, 2:])
        optimizer.step()
        losses += [] if loss is None else [loss.item()]
    return [losses] if losses else []


def zero() -> list[Losses]:
    from course_lib.techniques.zero import Zero1, Zero2, Zero3

    trainings = [kind(nn.Sequential(*layers()), sgd) for kind in (Zero1, Zero2, Zero3)]
    return [steps(training.model, training) for training in trainings]


def mixed_precision() -> list[Losses]:
    from course_lib.techniques.mixed_precision import MixedPrecision

    model = nn.Sequential(*layers())
    mixed = MixedPrecision(model, sgd)
    x, y = part()
    losses = []
    for _ in range(STEPS):
        mixed.zero_grad()
        loss = F.mse_loss(model(x.bfloat16()).float(), y)
        mixed.backward(loss)
        mixed.step()
        losses.append(loss.item())
    return [losses]


def offload() -> list[Losses]:
    from course_lib.techniques.offload import OffloadedOptimizer

    model = nn.Sequential(*layers())
    return [steps(model, OffloadedOptimizer([{"params": list(model.parameters())}], sgd))]


def activation_checkpointing() -> list[Losses]:
    from course_lib.techniques.activation_checkpointing import checkpoint_every

    model = nn.Sequential(*checkpoint_every(2, layers()))
    return [steps(model, sgd(model.parameters()))]


def mesh() -> list[Losses]:
    from course_lib.techniques.mesh import Mesh

    opened = Mesh(data=2).open()
    assert dist.get_process_group_ranks(opened.get_group("data")) == [0, 1]
    return []


def three_d() -> list[Losses]:
    from course_lib.techniques.mesh import Mesh
    from course_lib.techniques.schedules import one_f_one_b
    from course_lib.techniques.three_d import ThreeD

    tokens = torch.arange(24).view(4, 6) % 11
    found = []
    for sizes in ({"pipeline": 2}, {"tensor": 2}, {"context": 2}, {"data": 2}):
        chosen = Mesh(**sizes)
        training = ThreeD(one_process_gpt(), chosen, one_f_one_b(chosen.pipeline, 2), adam, zero=1)
        found.append([training.train_step(tokens, (tokens + 1) % 11).item() for _ in range(STEPS)])
    return found


def context_parallel() -> list[Losses]:
    from course_lib.techniques.context_parallel import ContextParallelGPT, average_gradients

    model = ContextParallelGPT(one_process_gpt())
    optimizer, losses = adam(model.parameters()), []
    tokens = torch.arange(24).view(4, 6) % 11
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = model.loss(tokens, (tokens + 1) % 11)
        loss.backward()
        average_gradients(model)
        optimizer.step()
        losses.append(loss.item())
    return [losses]


def checkpoints() -> list[Losses]:
    from course_lib.techniques.checkpoints import load, save
    from course_lib.techniques.zero import Zero2, Zero3

    folder = [tempfile.mkdtemp() if dist.get_rank() == 0 else ""]
    dist.broadcast_object_list(folder)
    before = Zero2(nn.Sequential(*layers()), sgd)
    first = steps(before.model, before)
    save(before, folder[0])
    after = Zero3(nn.Sequential(*layers()), sgd)  # at another stage
    load(after, folder[0])
    return [first + steps(after.model, after)]


def adam(groups) -> torch.optim.Optimizer:
    return torch.optim.Adam(groups, lr=0.01)


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.heads = 2
        self.query, self.key, self.value, self.out = (nn.Linear(8, 8) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        heads = (
            part(x).unflatten(-1, (2, -1)).transpose(1, 2)
            for part in (self.query, self.key, self.value)
        )
        mixed = F.scaled_dot_product_attention(*heads, is_causal=True)
        return self.out(mixed.transpose(1, 2).flatten(-2))


class MLP(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(8, 32), nn.Linear(32, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(F.gelu(self.up(x)))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm_attention, self.attention = nn.LayerNorm(8), Attention()
        self.norm_mlp, self.mlp = nn.LayerNorm(8), MLP()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm_attention(x))
        return x + self.mlp(self.norm_mlp(x))


class Embedding(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(11, 8), nn.Embedding(6, 8)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.tokens(tokens) + self.positions.weight


class Head(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.projection = nn.LayerNorm(8), nn.Linear(8, 11, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.projection(self.norm(x))


def one_process_gpt() -> nn.Module:
    """A GPT whose parts have the names by which `ThreeD` finds them."""
    torch.manual_seed(0)
    model = nn.Module()
    model.embedding, model.blocks, model.head = Embedding(), nn.ModuleList([Block()]), Head()
    return model


# -------------------------------------------------------------------------------------------------


def run(name: str, folder: Path) -> None:
    """The program of `name` with only its copy on the path; raises unless all losses fall."""
    for module in [m for m in sys.modules if m.split(".")[0] == "course_lib"]:
        del sys.modules[module]
    importlib.invalidate_caches()
    sys.path.insert(0, str(folder))
    try:
        for losses in globals()[name]():
            assert all(loss == loss for loss in losses), f"{name}: {losses}"
            assert losses[-1] < losses[0], f"{name}: {losses}"
    finally:
        sys.path.remove(str(folder))
    for module, loaded in sys.modules.items():
        if module.startswith("course_lib") and loaded.__file__ is not None:
            assert Path(loaded.__file__).is_relative_to(folder), loaded.__file__
    print(f"{name} trained", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    for copied in sorted(Path(sys.argv[1]).iterdir()):
        run(copied.name, copied)
    dist.destroy_process_group()
