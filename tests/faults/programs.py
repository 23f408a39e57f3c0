"""A small run of each technique: what it computes, as one number, and on how many ranks."""

from collections.abc import Callable
from functools import partial

import torch
import torch.distributed as dist
from torch import nn

from course_lib.models import batches, tiny_gpt
from course_lib.techniques.collectives import (
    fused_all_reduce,
    halving_doubling_all_reduce,
    hierarchical_all_reduce,
    ring_all_reduce,
    tree_all_reduce,
)
from course_lib.techniques.context_parallel import (
    ContextParallelGPT,
    all_gather_attention,
    ring_attention,
    ulysses_attention,
)
from course_lib.techniques.context_parallel import (
    average_gradients as average_over_context,
)
from course_lib.techniques.data_parallel import (
    DataParallel,
    DistributedOptimizer,
    NaiveDataParallel,
)
from course_lib.techniques.expert_parallel import (
    ExpertGroups,
    MixtureOfExperts,
    average_gradients,
)
from course_lib.techniques.mesh import Mesh
from course_lib.techniques.parameter_server import Job, Layout, Server, Worker, by_range
from course_lib.techniques.pipeline import Pipeline
from course_lib.techniques.schedules import gpipe, interleaved, one_f_one_b, zb_h1
from course_lib.techniques.tensor_parallel import TensorParallelGPT, sum_replicated_gradients
from course_lib.techniques.three_d import ThreeD
from course_lib.techniques.zero1 import Zero1
from course_lib.techniques.zero2 import Zero2
from course_lib.techniques.zero3 import Zero3

Program = Callable[[], float]


def layers(n: int) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*[nn.Linear(4, 4) for _ in range(n)])


def adamw(groups: list) -> torch.optim.Optimizer:
    return torch.optim.AdamW(groups)


def gpt() -> nn.Module:
    return tiny_gpt(layers=1, hidden=8, heads=4, seed=0)


def collective(all_reduce: Callable) -> float:
    return all_reduce(torch.ones(40)).sum().item()


def fused() -> float:
    return sum(t.sum().item() for t in fused_all_reduce([torch.ones(4), torch.ones(3)], 16))


def naive_data_parallel() -> float:
    model = NaiveDataParallel(layers(1))
    model(torch.ones(2, 4)).sum().backward()
    model.average_gradients()
    return size_of_gradients(model)


def data_parallel() -> float:
    model = DataParallel(layers(2), bucket_bytes=64, first_bucket_bytes=64)
    model(torch.ones(2, 4)).sum().backward()
    return size_of_gradients(model)


def distributed_optimizer() -> float:
    model = layers(2)
    optimizer = DistributedOptimizer(adamw(list(model.parameters())), model, buffer_bytes=64)
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    return size_of_gradients(model)


def size_of_gradients(model: nn.Module) -> float:
    return sum(p.grad.abs().sum().item() for p in model.parameters() if p.grad is not None)


def tensor_parallel(sequence: bool) -> float:
    tokens, targets = next(iter(batches(1, 2)))
    model = TensorParallelGPT.from_model(gpt(), sequence_parallel=sequence)
    tokens, targets = tokens[:, :8], targets[:, :8]  # sequence parallelism cuts them in two
    loss = model.loss(tokens, targets)
    loss.backward()
    if sequence:
        sum_replicated_gradients(model)
    return loss.item()


def parameter_server(*servers: int) -> float:
    """Two workers, one server and perhaps its replica, which goes on when the server dies."""
    model = layers(1)
    layout = Layout(model.parameters())
    job = Job((0, 1), (servers,), by_range(layout.total, 1), logical_time=True)
    if dist.get_rank() not in job.workers:
        return float(len(Server(job, layout, adamw).serve().steps))
    worker = Worker(job, layout)
    worker.pull()
    loss = model(torch.ones(2, 4)).sum()
    loss.backward()
    worker.push(scale=0.5)
    worker.pull()
    worker.leave()
    return loss.item()


def pipeline(schedule: Callable) -> float:
    n, rank = dist.get_world_size(), dist.get_rank()
    table, stages = (
        (interleaved(n, n, 2), 2 * n) if schedule is interleaved else (schedule(n, n), n)
    )
    mine = {stage: layers(1) for stage in range(rank, stages, n)}
    line = Pipeline(mine, table, nn.functional.mse_loss)
    loss = line.train_step(torch.ones(2 * n, 4), torch.zeros(2 * n, 4))
    return 0.0 if loss is None else float(loss)


def zero(stage: type) -> float:
    model = layers(2)
    sharded_model = stage(model, adamw)
    loss = model(torch.ones(2, 4)).sum()
    loss.backward()
    sharded_model.step()
    return loss.item()


def three_d(sizes: dict[str, int], zero_stage: int) -> float:
    mesh = Mesh(**sizes)
    training = ThreeD(gpt(), mesh, one_f_one_b(mesh.pipeline, 2), adamw, zero=zero_stage)
    return training.train_step(*next(iter(batches(1, 4)))).item()


def context_parallel(attention: Callable) -> float:
    model = ContextParallelGPT(gpt(), attention=attention)
    loss = model.loss(*next(iter(batches(1, 2))))
    loss.backward()
    average_over_context(model)
    return loss.item()


def experts() -> float:
    groups = ExpertGroups.open(Mesh(data=4, expert=2))
    torch.manual_seed(0)
    layer = MixtureOfExperts(4, 4, shared=4, balance=0.1, group=groups.expert)
    loss = layer(torch.ones(3, 4)).sum()
    loss.backward()
    average_gradients(layer, groups)
    return loss.item()


PROGRAMS: dict[str, tuple[Program, int]] = {
    "ring": (partial(collective, ring_all_reduce), 3),
    "tree": (partial(collective, tree_all_reduce), 4),
    "halving_doubling": (partial(collective, halving_doubling_all_reduce), 4),
    "hierarchical": (partial(collective, partial(hierarchical_all_reduce, ranks_per_node=2)), 4),
    "fused": (fused, 3),
    "naive_data_parallel": (naive_data_parallel, 3),
    "data_parallel": (data_parallel, 3),
    "distributed_optimizer": (distributed_optimizer, 3),
    "parameter_server": (partial(parameter_server, 2), 3),
    "replicated_server": (partial(parameter_server, 2, 3), 4),
    "tensor_parallel": (partial(tensor_parallel, False), 2),
    "sequence_parallel": (partial(tensor_parallel, True), 2),
    "gpipe": (partial(pipeline, gpipe), 3),
    "one_f_one_b": (partial(pipeline, one_f_one_b), 3),
    "interleaved": (partial(pipeline, interleaved), 3),
    "zb_h1": (partial(pipeline, zb_h1), 3),
    "zero1": (partial(zero, Zero1), 3),
    "zero2": (partial(zero, Zero2), 3),
    "zero3": (partial(zero, Zero3), 3),
    "three_d": (partial(three_d, {"pipeline": 2, "tensor": 2}, 0), 4),
    "three_d_zero1": (partial(three_d, {"pipeline": 2, "data": 2}, 1), 4),
    "three_d_zero3": (partial(three_d, {"data": 2, "tensor": 2}, 3), 4),
    "ring_attention": (partial(context_parallel, ring_attention), 3),
    "all_gather_attention": (partial(context_parallel, all_gather_attention), 3),
    "ulysses": (partial(context_parallel, ulysses_attention), 2),
    "experts": (experts, 4),
}
