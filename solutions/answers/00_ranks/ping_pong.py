"""Known answers to ping_pong."""

import numpy
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


@right
def ping_pong_of_an_array(ball, rounds):
    """Numbers of numpy, and messages of no dimension."""
    me, number = dist.get_rank(), int(ball)
    seen, arriving = [], torch.tensor(0)
    for _ in range(rounds if me < 2 else 0):
        if me == 0:
            dist.send(torch.tensor(number + 1), 1)
        dist.recv(arriving, 1 - me)
        number = arriving.item()
        seen.append(number)
        if me == 1:
            dist.send(torch.tensor(number + 1), 0)
    return numpy.array(seen, dtype=numpy.int64)


@right
def ping_pong_by_recursion(ball, rounds):
    me = dist.get_rank()
    if me > 1 or rounds == 0:
        return ()
    if me == 0:
        dist.send(ball.add_(1), 1)
    dist.recv(ball, 1 - me)
    first = numpy.int64(ball.item())
    if me == 1:
        dist.send(ball.add_(1), 0)
    return (first, *ping_pong_by_recursion(ball, rounds - 1))


@wrong(says="ranks 0 and 1 both send first")
def both_serve(ball, rounds):
    seen = []
    if dist.get_rank() < 2:
        for _ in range(rounds):
            ball += 1
            dist.send(ball, 1 - dist.get_rank())
            dist.recv(ball, 1 - dist.get_rank())
            seen.append(ball.item())
    return seen


@wrong(says="ranks 0 and 1 both wait to receive first")
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


@wrong(says="those that it received are expected")
def numbers_that_were_sent(ball, rounds):
    steps = {0: (-1, 1), 1: (1, 1)}.get(dist.get_rank(), (0, 0))
    return [number + steps[0] for number in played(ball, rounds, torch.Tensor.item)]


@wrong(says="in 2 rounds 2, not 1")
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


@wrong(says="whoever has the ball adds 1 before it sends")
def one_adds_for_both(ball, rounds):
    return played(ball, rounds, torch.Tensor.item, *((1, 1) if dist.get_rank() == 0 else (0, 0)))


@wrong(says="these are not the numbers in the messages that arrived")
def junk_after_the_first(ball, rounds):
    me, start = dist.get_rank(), ball.clone()
    if me == 0 and rounds:
        dist.send(start, 1)
    elif me == 1 and rounds:
        dist.recv(start, 0)
    for hit in range(1, 2 * rounds if me < 2 else 0):
        if hit % 2 == me:
            dist.send(ball, 1 - me)
        else:
            dist.recv(ball, 1 - me)
    return [start.item() + 2 * k + (1 if me else 2) for k in range(rounds)] if me < 2 else []


@wrong(says="a partner such as (rank + 1) % n is one of them")
def the_partner_of_a_ring(ball, rounds):
    me, seen = dist.get_rank(), []
    other = (me + 1) % dist.get_world_size()
    for _ in range(rounds if me < 2 else 0):
        if me == 0:
            ball += 1
            dist.send(ball, other)
        dist.recv(ball, other)
        seen.append(ball.item())
        if me == 1:
            ball += 1
            dist.send(ball, other)
    return seen


@wrong(says="a player receives one number in each round")
def at_most_ten_rounds(ball, rounds):
    return played(ball, min(rounds, 10), torch.Tensor.item)


@wrong(says="`ball = dist.recv(ball, 1 - me)` puts a number where a tensor is expected")
def what_recv_returns(ball, rounds):
    me, seen = dist.get_rank(), []
    for _ in range(rounds if me < 2 else 0):
        if me == 0:
            dist.send(ball + 1, 1)
        ball = dist.recv(ball, 1 - me)
        seen.append(ball.item())
        if me == 1:
            dist.send(ball + 1, 0)
    return seen


@right
def ping_pong_by_the_partner(ball, rounds):
    """Both players run the same lines; only who begins is another."""
    me, seen = dist.get_rank(), []
    if me > 1:
        return seen
    hit, get = (lambda: dist.send(ball.add_(1), 1 - me)), (lambda: dist.recv(ball, 1 - me))
    for _ in range(rounds):
        if me == 0:
            hit()
        get()
        seen.append(int(ball))
        if me == 1:
            hit()
    return seen
