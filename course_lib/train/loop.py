"""What every rank does: join, resume, train, log, save.

After a failure torchrun starts all ranks again. They find the newest whole checkpoint and go on
from there, with the batches that come next: at most the steps since then are done twice.

On several nodes torchrun needs TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 for that. Without it the ranks
meet in the agents' own store, under the number of the restart, and each agent counts only failures
of its own ranks: after one, some ranks look up addresses of the attempt before
(github.com/pytorch/pytorch/issues/135712).
"""

import datetime
import itertools
import os
from collections.abc import Mapping

import torch
import torch.distributed as dist

from course_lib.models import TinyGPT, batches, solved_share
from course_lib.techniques.checkpoints import resumable
from course_lib.techniques.checkpoints.three_d_state import whole_state
from course_lib.techniques.expert_parallel import max_violation, mixtures_of, total_counts
from course_lib.techniques.three_d import ThreeD

from .options import Options


def train(options: Options) -> float:
    """Train as `options` say; returns the share of new examples that the model solves."""
    device = _join()
    try:
        return _train(options, device)
    finally:
        dist.destroy_process_group()


def _train(options: Options, device: torch.device) -> float:
    mesh = options.mesh(dist.get_world_size())
    training = ThreeD(
        options.model().to(device),
        mesh,
        options.table,
        lambda groups: torch.optim.AdamW(groups, lr=options.lr),
        zero=options.zero,
        recompute=options.recompute,
        master_dtype=options.master_dtype,
    )
    say = _say if dist.get_rank() == 0 else _say_nothing
    if _may_meet_stale_addresses():
        say("to survive a lost rank, start torchrun with TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1")
    say(f"{dist.get_world_size()} ranks on {device.type}, {mesh}, ZeRO-{options.zero}")
    done = resumable.resume(training, options.checkpoint) if options.checkpoint else 0
    if done:
        say(f"resumed after step {done}")

    coming = batches(options.steps, options.batch, options.seed)
    for step, batch in enumerate(itertools.islice(coming, done, None), start=done + 1):
        loss = training.train_step(*(tensor.to(device) for tensor in batch))
        last = step == options.steps
        if step % options.log_every == 0 or last:
            say(f"step {step:4}  loss {loss:.4f}{_busiest(training)}")
        if options.checkpoint and (step % options.save_every == 0 or last):
            resumable.save(training, options.checkpoint, step)

    solved = _solved(training, options.model())
    say(f"of 200 new rows of digits, the model sorts {solved:.0%} without a mistake")
    return solved


def _busiest(training: ThreeD) -> str:
    """What the busiest expert of all layers has had since the last time, where there are some."""
    if training.experts is None:
        return ""
    shares = [1.0]
    for mixture in mixtures_of(training.stages):
        shares.append(1 + max_violation(total_counts(mixture.load, training.experts.data)))
        mixture.load.zero_()
    worst = torch.tensor(max(shares), device=training.device)
    dist.all_reduce(worst, dist.ReduceOp.MAX, group=training.groups["pipeline"])
    return f"  busiest expert {worst.item():.2f} times its share"


def _may_meet_stale_addresses() -> bool:
    several_nodes = int(os.environ.get("GROUP_WORLD_SIZE", "1")) > 1
    restarts = int(os.environ.get("TORCHELASTIC_MAX_RESTARTS", "0")) > 0
    shared = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    return several_nodes and restarts and shared


def _join() -> torch.device:
    """Join the process group that torchrun describes; NCCL with a GPU for each rank here."""
    ranks_here = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    on_gpu = torch.cuda.is_available() and torch.cuda.device_count() >= ranks_here
    device = torch.device("cpu")
    if on_gpu:
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
    if ranks_here > 1:  # to each of several, torchrun gives one thread, whatever the cores
        torch.set_num_threads(max(1, (os.cpu_count() or 1) // ranks_here))
    dist.init_process_group(
        "nccl" if on_gpu else "gloo",
        # Long enough for a slow node, short enough that a lost one is noticed over coffee.
        timeout=datetime.timedelta(minutes=5),
    )
    return device


def _solved(training: ThreeD, model: TinyGPT) -> float:
    """Put the model together in one process, and let it sort new rows; the same on every rank."""
    parts: list[Mapping[str, torch.Tensor]] = [{}] * training.mesh.pipeline
    state = whole_state(training)
    own = {key[len("model/") :]: t.cpu() for key, t in state.items() if key.startswith("model/")}
    dist.all_gather_object(parts, own, group=training.groups["pipeline"])
    model.load_state_dict({name: tensor for part in parts for name, tensor in part.items()})
    return solved_share(model)


def _say(line: str) -> None:
    print(line, flush=True)


def _say_nothing(_line: str) -> None:
    pass
