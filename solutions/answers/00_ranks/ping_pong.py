"""Known answers to ping_pong."""

import torch
import torch.distributed as dist

from course_lib.checks.known_answers import right, wrong


@right
def ping_pong(ball, rounds):
    """The two players take turns by the parity of the hit."""
    me, seen = dist.get_rank(), []
    if me > 1:
        return seen
    for hit in range(2 * rounds):
        if hit % 2 == me:
            ball += 1
            dist.isend(ball, 1 - me).wait()
        else:
            dist.irecv(ball, 1 - me).wait()
            seen.append(int(ball))
    return seen


@right
def ping_pong_with_two_balls(ball, rounds):
    me, arriving, seen = dist.get_rank(), torch.zeros_like(ball), []
    for _ in range(rounds if me < 2 else 0):
        if me == 0:
            dist.send(ball + 1, 1)
        dist.recv(arriving, 1 - me)
        seen.append(arriving.item())
        ball = arriving
        if me == 1:
            dist.send(ball + 1, 0)
    return seen


@wrong(says="ranks 0 and 1 all send first")
def both_serve(ball, rounds):
    seen = []
    if dist.get_rank() < 2:
        for _ in range(rounds):
            ball += 1
            dist.send(ball, 1 - dist.get_rank())
            dist.recv(ball, 1 - dist.get_rank())
            seen.append(ball.item())
    return seen


@wrong(says="ranks 0 and 1 all wait to receive first")
def nobody_serves(ball, rounds):
    seen = []
    if dist.get_rank() < 2:
        for _ in range(rounds):
            dist.recv(ball, 1 - dist.get_rank())
            seen.append(ball.item())
            ball += 1
            dist.send(ball, 1 - dist.get_rank())
    return seen


@wrong(says="lets them in")
def spectators_play(ball, rounds):
    seen = []
    for _ in range(rounds):
        if dist.get_rank() == 0:
            ball += 1
            dist.send(ball, 1)
            dist.recv(ball, 1)
            seen.append(ball.item())
        else:
            dist.recv(ball, 0)
            seen.append(ball.item())
            ball += 1
            dist.send(ball, 0)
    return seen


def played(ball, rounds, keep, before=1, after=0):
    """A right game (with the defaults); `keep` makes an entry of the list."""
    seen, me = [], dist.get_rank()
    for _ in range(rounds if me < 2 else 0):
        if me == 0:
            ball += before
            dist.send(ball, 1)
        dist.recv(ball, 1 - me)
        ball += after
        seen.append(keep(ball))
        if me == 1:
            ball += before
            dist.send(ball, 0)
    return seen


@wrong(says="append(ball) puts the same tensor into the list each time")
def one_ball_many_times(ball, rounds):
    return played(ball, rounds, keep=lambda ball: ball)


@wrong(says="nobody adds 1")
def the_ball_stays_the_same(ball, rounds):
    return played(ball, rounds, torch.Tensor.item, before=0)


@wrong(says="those that it received are asked")
def numbers_that_were_sent(ball, rounds):
    steps = {0: (-1, 1), 1: (1, 1)}.get(dist.get_rank(), (0, 0))
    return [number + steps[0] for number in played(ball, rounds, torch.Tensor.item)]


@wrong(says="in 2 rounds 2, and not 1")
def only_the_last_number(ball, rounds):
    return played(ball, rounds, torch.Tensor.item)[-1:]


@wrong(says="your function returned nothing")
def the_list_is_forgotten(ball, rounds):
    played(ball, rounds, torch.Tensor.item)


@wrong(says="rank 1 waits for a message from rank 0")
def the_hitter_returns_early(ball, rounds):
    if dist.get_rank() == 0:
        ball += 1
        dist.send(ball, 1)
        dist.recv(ball, 1)
        return [ball.item()]
    return played(ball, rounds, torch.Tensor.item)


@wrong(says="a round is one message from each of the two players")
def computed_after_one_message(ball, rounds):
    me = dist.get_rank()
    if me > 1 or rounds == 0:
        return []
    if me == 0:
        dist.send(ball, 1)
    else:
        dist.recv(ball, 0)
    return [ball.item() + 2 * k + (1 if me else 2) for k in range(rounds)]
