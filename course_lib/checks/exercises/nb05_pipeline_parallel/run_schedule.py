"""The executor: any row of a table, on real ranks.

run_schedule(row, module, inputs, targets, loss) -> mean loss on the last rank, None elsewhere
    Stage s is on rank s. `row` is this rank's row, of (kind, stage, microbatch) with kinds F and B.
    Rank 0 reads `inputs`, the last rank `targets`, both cut into m equal microbatches. What crosses
    a boundary has the shape of a microbatch of `inputs`. Gradients are those of the whole batch, in
    .grad. The passes run in the order of the row.
"""

import random
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from course_lib.checks import traffic_limits
from course_lib.checks.call_answer import kind_of, plain
from course_lib.checks.contract import POINT_TO_POINT, Contract, Waits
from course_lib.checks.exercise import Case, Clue, Exercise, Finding, Observation
from course_lib.checks.rank_inputs import by_rank, only
from course_lib.text import counted

from ._networks import (
    FROZEN,
    PASS,
    Gradients,
    loss_of,
    moved,
    network_data,
    one_process,
    other_losses,
    stage_module,
    wrong_gradient,
    wrong_loss,
    wrong_parameters,
)
from ._tables import Op, shown

_WAITING = (
    "dist.send waits until the other side receives, and in 1F1B that side is sending too: begin "
    "sends with dist.isend, keep handle and tensor, and wait for them at the end"
)


Row = list[tuple[str, int, int]]


def _cases(rng: random.Random) -> list[Case]:
    return [
        _case(rng, "GPipe, 2 stages, 3 microbatches", _gpipe(2, 3)),
        _case(rng, "1F1B, 3 stages, 4 microbatches", _one_f_one_b(3, 4), clue=_WAITING),
        _case(rng, "GPipe, 3 stages, 2 microbatches", _gpipe(3, 2)),
        _case(
            rng,
            "1 stage, 3 microbatches",
            _gpipe(1, 3),
            clue=Clue(
                "one rank is first and last at once: nothing is sent or received",
                "rank of the current process",
                "invalid",
            ),
        ),
        _case(rng, "1F1B, 4 stages, 6 microbatches, one stage partly frozen", _one_f_one_b(4, 6)),
        _case(
            rng,
            "GPipe in an order of its own, 3 stages",
            _renamed(_backwards_turned(_gpipe(3, 4)), [*rng.sample(range(1, 4), 3), 0]),
        ),
    ]


def _case(rng: random.Random, label: str, table: list[Row], clue: str = "") -> Case:
    p, m = len(table), 1 + max(i for row in table for _, _, i in row)
    more, dtype = ((), torch.float32) if p != 2 else ((rng.randint(2, 3),), torch.float64)
    network = network_data(rng, p, rng.randint(1, 3) * m, more, dtype)
    data = {**network, "table": table, "m": m}
    if "frozen" in label:
        data[FROZEN] = (1,)
    return Case(p, label, data, clue)


def _gpipe(p: int, m: int) -> list[Row]:
    return [[(kind, s, i) for kind in "FB" for i in range(m)] for s in range(p)]


def _one_f_one_b(p: int, m: int) -> list[Row]:
    rows = []
    for s in range(p):
        w = min(p - s - 1, m)
        row = [("F", s, i) for i in range(w)]
        for i in range(m - w):
            row += [("F", s, w + i), ("B", s, i)]
        rows.append(row + [("B", s, i) for i in range(m - w, m)])
    return rows


def _backwards_turned(table: list[Row]) -> list[Row]:
    """The last microbatch comes back first, as in the paper's Figure 2."""
    return [row[: len(row) // 2] + row[: len(row) // 2 - 1 : -1] for row in table]


def _renamed(table: list[Row], order: list[int]) -> list[Row]:
    """With microbatch order[i] for i, the same on all ranks."""
    return [[(kind, s, order[i]) for kind, s, i in row] for row in table]


def _on_rank(answer: Callable, case: Case) -> dict[str, Any]:
    rank, last, data = dist.get_rank(), dist.get_world_size() - 1, case.data
    module = stage_module(case, rank)
    x = data["x"].clone() if rank == 0 else torch.full_like(data["x"], torch.nan)
    y = data["y"].clone() if rank == last else torch.full_like(data["y"], torch.nan)
    row = [Op(*op) for op in data["table"][rank]]
    returned = answer(row, module, x, y, loss_of)
    return {
        "returned": plain(returned),
        "gradients": {name: plain(p.grad) for name, p in module.named_parameters()},
        "passes": module.passes,
        "moved": moved(case, rank, module),
        "held": module.most,
        "waiting": module.waiting if rank else 0,  # rank 0 has its inputs anyway
        "read": _microbatches(module.given, x.chunk(data["m"])) if rank == 0 else [],
    }


def _microbatches(given: list[torch.Tensor], xs: tuple[torch.Tensor, ...]) -> list[int]:
    """Which of the microbatches each forward was given; -1 for none of them."""
    return [next((i for i, x in enumerate(xs) if torch.equal(x, g)), -1) for g in given]


def _mistakes(case: Case) -> dict[str, Gradients]:
    """The gradients of known mistakes on this very input."""
    m, data = case.data["m"], case.data
    size = len(data["x"]) // m
    found = other_losses(case)
    for i in range(m) if m > 1 else ():
        _, gradients = one_process(case, rows=slice(i * size, (i + 1) * size))
        name = f"only the part of microbatch {i}: add them up in .grad"
        found[name] = [{n: None if g is None else g / m for n, g in s.items()} for s in gradients]
    order = [i for kind, _, i in data["table"][0] if kind == "F"]
    ys = data["y"].chunk(m)
    turned: list[torch.Tensor] = [ys[order.index(i)] for i in range(m)]
    if order != sorted(order):
        name = "that with targets of other microbatches: the row says which one it is, F by F"
        found[name] = one_process(case, targets=torch.cat(turned))[1]
    return found


def _judge(case: Case, observation: Observation) -> Finding | None:
    loss, gradients = one_process(case)
    last, m, mistakes = case.world_size - 1, case.data["m"], _mistakes(case)
    for rank in reversed(range(case.world_size)):  # a gradient goes wrong first where it starts
        for name in gradients[rank]:
            got = observation.values[rank]["gradients"][name]
            if finding := wrong_gradient(got, gradients, rank, name, mistakes, m):
                return finding
    if finding := wrong_parameters(observation.values):
        return finding
    for rank, seen in enumerate(observation.values):
        returned = seen["returned"]
        if rank != last and returned is not None:
            return Finding(
                "only the last rank sees the losses; the others return None",
                rank,
                expected="None",
                got=kind_of(returned),
            )
    wrong = {"this is their sum": m * loss, "this is divided by m twice": loss / m}
    rule = "the last rank returns the mean of the microbatches' losses"
    if finding := wrong_loss(observation.values[last]["returned"], loss, last, rule, wrong):
        return finding
    return _order(case, observation) or _in_flight(case, observation) or _traffic(case, observation)


def _order(case: Case, observation: Observation) -> Finding | None:
    """Each rank's passes, forward and backward, as its row has them."""
    for rank, seen in enumerate(observation.values):
        row = case.data["table"][rank]
        forwards = [i for kind, _, i in row if kind == "F"]
        wanted = [f"{kind}{i}" for kind, _, i in row]
        numbers = seen["read"] or forwards
        got = [_named(each, numbers) for each in seen["passes"]]
        if got == wanted:
            continue
        likely = "the passes did not run in the order of the row"
        if len(got) > len(row):
            likely = "some passes ran more than once"
        elif numbers != forwards:
            likely = "rank 0 ran other microbatches than its row says"
        return Finding(
            f"the numbers are right, but {likely}: the row decides what is in flight",
            rank,
            input=shown([[Op(*op) for op in row]]).replace("rank 0", f"rank {rank}"),
            expected=" ".join(wanted),
            got=" ".join(got),
        )
    return None


def _named(each: str, numbers: list[int]) -> str:
    """A pass, by the microbatch instead of by the number of the forward."""
    number = int(each[1:])
    return f"{each[0]}{numbers[number] if number < len(numbers) else '?'}"


def _in_flight(case: Case, observation: Observation) -> Finding | None:
    for rank, seen in enumerate(observation.values):
        held = most = 0
        for kind, _, _ in case.data["table"][rank]:
            held += 1 if kind == "F" else -1
            most = max(most, held)
        if seen["held"] > most:
            return Finding(
                "the numbers are right, but more is kept than the row has in flight: a microbatch "
                "is done with after its backward, so let go of its graph (no retain_graph, and no "
                "output that is kept with it)",
                rank,
                expected=f"the activations of {counted(most, 'microbatch')} at most",
                got=f"of {seen['held']}",
            )
        if seen["waiting"] > most + 1:  # a name may still stand for the last one
            return Finding(
                "the numbers are right, but inputs stay in memory after their backward: take them "
                "out of what you keep, such as kept.pop(i), and send output.detach(), since a "
                "tensor with a graph keeps all that is behind it",
                rank,
                expected=f"the inputs of {counted(most + 1, 'microbatch')} at most",
                got=f"of {seen['waiting']}",
            )
        if (room := _room_for_inputs(rank, seen["passes"], observation)) > most + 1:
            return Finding(
                "the numbers are right, but room for inputs is made long before their turn: all "
                "that have been asked for and not gone back lie in memory. Receive when the row "
                "comes to the F, or one ahead",
                rank,
                expected=f"room for {counted(most + 1, 'microbatch')} at most",
                got=f"for {room}",
            )
    return None


def _room_for_inputs(rank: int, passes: list[str], observation: Observation) -> int:
    """Receives from the stage before that had begun at a pass, less the backwards before it."""
    trace = observation.trace
    moments = [each.start for each in trace.labels if each.rank == rank and each.name == PASS]
    asked = [e.issued for e in trace.of(rank) if e.op == "recv" and e.peer == rank - 1]
    room, back = [0], 0
    for name, moment in zip(passes, moments, strict=False):
        room.append(sum(issued <= moment for issued in asked) - back)
        back += name[0] == "B"
    return max(room)


def _traffic(case: Case, observation: Observation) -> Finding | None:
    p, m = case.world_size, case.data["m"]
    size = case.data["x"].nbytes // m
    for rank in range(p):
        count = m * ((rank < p - 1) + (rank > 0))
        rule = "each microbatch's activation goes one stage on, its gradient one stage back"
        finding = (
            traffic_limits.peers(observation, rank, {rank - 1, rank + 1}, rule)
            or traffic_limits.sent(observation, rank, count * size, count * size, rule)
            or traffic_limits.messages(observation, rank, count, rule)
        )
        if finding:
            return finding
    return None


EXERCISE = Exercise(
    module=__name__,
    signature="(row, module, inputs, targets, loss)",
    cases=_cases,
    on_rank=_on_rank,
    own={"states": by_rank, "x": only(lambda case: 0), "y": only(lambda case: case.world_size - 1)},
    judge=_judge,
    hints=(
        """
        A loop over the row. F is the first half of two_stage_step and B the second, for one
        microbatch each. In between, input and output have to be kept: a dictionary by number of
        the microbatch.
        """,
        """
        F: the first rank takes its microbatch, the others receive (and requires_grad_()). Run the
        module; the last rank computes loss / m, the others isend the output. B: the last rank
        calls backward on its loss, the others receive a gradient first. All but the first isend
        the gradient of their input. Keep (work, tensor) of every isend in a list.
        """,
        """
        xs = inputs.chunk(m); kept = {}; sending = []. For F: x = xs[i], or receive from rank - 1;
        y = module(x); on the last rank y = loss(y, ys[i]) / m and add y.detach() to a total; else
        isend y.detach() to rank + 1. kept[i] = (x, y). For B: x, y = kept.pop(i); y.backward() on
        the last rank, else y.backward(what came from rank + 1); if rank > 0, isend x.grad to
        rank - 1. At the end wait for all works.
        """,
    ),
    passed="any table runs as it is written, and the gradients are those of the whole batch",
    contract=Contract(
        runs=lambda arguments: sum(op[0] == "F" for op in arguments["row"]),
        changes=("module",),
        takes="rows of F and B, in any order that is the same on neighbours; inputs and targets of "
        "any shape and float dtype, of m equal microbatches; as `loss(output, targets)` any mean "
        "over samples",
        gives="gradients go to .grad, and the parameters stay",
        allowed=POINT_TO_POINT,
        sends="for each microbatch one message goes to the next rank and one comes back",
        holds="only the activations of the microbatches that the row has in flight are held, and "
        "what is still being sent",
        waits=(Waits(op="send", reaches="pass"),),
    ),
    points=3,
)
