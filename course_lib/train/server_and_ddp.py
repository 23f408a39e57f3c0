"""The tiny GPT trained by two workers: with a parameter server, and with PyTorch's DDP.

The same model, the same halves of the same batches, the same plain SGD: for lesson 01 and for
whoever wants to see how little there is between the two.
"""

from collections.abc import Callable
from functools import partial

import torch
import torch.distributed as dist
from torch import nn

from course_lib.models import batches, tiny_gpt
from course_lib.models.tiny_gpt import TinyGPT
from course_lib.techniques.parameter_server import SEQUENTIAL, Job, Layout, Server, Worker, by_range

Batch = tuple[torch.Tensor, torch.Tensor]
WORKERS, SERVER, SAMPLES = 2, 2, 8  # how many workers; the server's rank; samples of a batch
_sgd: Callable[..., torch.optim.Optimizer] = partial(torch.optim.SGD, lr=0.3)


def model() -> TinyGPT:
    """What is trained, the same on every rank."""
    return tiny_gpt(layers=2, hidden=32, seed=0)


def model_bytes() -> int:
    """Bytes of its parameters."""
    return sum(parameter.nbytes for parameter in model().parameters())


def train_with_server(steps: int) -> list[float]:
    """One rank's part, of three: its losses on a worker, an empty list on the server."""
    trained = model()
    layout = Layout(trained.parameters())
    # The workers; each server with its replicas (none here); who has which keys; the bound.
    job = Job((0, 1), ((SERVER,),), by_range(layout.total, 1), SEQUENTIAL)
    if dist.get_rank() == SERVER:
        Server(job, layout, _sgd).serve()
        return []
    worker, losses = Worker(job, layout), []
    for tokens, targets in map(_half, batches(steps, SAMPLES)):
        worker.pull()
        loss = trained.loss(tokens, targets)
        loss.backward()
        losses.append(loss.item())
        worker.push(scale=1 / WORKERS)
    worker.leave()
    return losses


def train_with_ddp(steps: int) -> list[float]:
    """One rank's part, of two: its losses."""
    from torch.nn.parallel import DistributedDataParallel

    replica, losses = DistributedDataParallel(model()), []
    optimizer = _sgd(replica.parameters())
    for tokens, targets in map(_half, batches(steps, SAMPLES)):
        optimizer.zero_grad()
        logits = replica(tokens)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def _half(batch: Batch) -> Batch:
    """This worker's samples."""
    tokens, targets = batch
    part = SAMPLES // WORKERS
    mine = slice(dist.get_rank() * part, (dist.get_rank() + 1) * part)
    return tokens[mine], targets[mine]
