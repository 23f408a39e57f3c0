"""Known answers to stuck_ranks."""

from collections import deque

from course_lib.checks.known_answers import right, wrong


@right
def stuck_ranks(programs):
    queues = [[step for step in program if step[0] != "run"] for program in programs]
    while True:
        pairs = [
            (r, q[0][1])
            for r, q in enumerate(queues)
            if q and q[0][0] == "send" and queues[q[0][1]][:1] == [("recv", r)]
        ]
        if not pairs:
            return {r for r, q in enumerate(queues) if q}
        for pair in pairs:
            for rank in pair:
                queues[rank].pop(0)


def meet(programs, fits=None, rounds=None):
    """Places that the ranks reach."""
    place = [0] * len(programs)

    def step(r):
        return programs[r][place[r]] if place[r] < len(programs[r]) else None

    moved = True
    while moved and (rounds is None or rounds > 0):
        moved = False
        rounds = None if rounds is None else rounds - 1
        for r in range(len(programs)):
            now = step(r)
            if now is None:
                continue
            other = step(now[1]) if now[0] == "send" else None
            if now[0] == "run":
                place[r] += 1
                moved = True
            elif other and (other == ("recv", r) or (fits and fits(other))):
                place[r] += 1
                place[now[1]] += 1
                moved = True
    return place


def unfinished(programs, place):
    return [r for r in range(len(programs)) if place[r] < len(programs[r])]


@wrong(says="this would hold if a send returned at once")
def sends_that_return(programs):
    place, mail = [0] * len(programs), []
    for _ in range(1000):
        for r, program in enumerate(programs):
            if place[r] < len(program):
                what, peer = program[place[r]]
                if what == "recv" and (peer, r) not in mail:
                    continue
                if what == "recv":
                    mail.remove((peer, r))
                if what == "send":
                    mail.append((r, peer))
                place[r] += 1
    return unfinished(programs, place)


@wrong(says="these are the ranks that get to the end")
def those_that_finish(programs):
    stuck = unfinished(programs, meet(programs))
    return [r for r in range(len(programs)) if r not in stuck]


@wrong(says="look at everyone again until nothing changes")
def looks_once(programs):
    return unfinished(programs, meet(programs, rounds=1))


@wrong(says="it waits for a rank that never comes to it")
def only_the_circle(programs):
    place = meet(programs)
    return [r for r in unfinished(programs, place) if programs[r][place[r]][0] == "send"]


@wrong(says="a send and a recv meet only if each names the other")
def any_receiver_will_do(programs):
    return unfinished(programs, meet(programs, fits=lambda step: step[0] == "recv"))


@wrong(says="a list of ranks is expected")
def yes_or_no(programs):
    return bool(unfinished(programs, meet(programs)))


@right
def by_a_work_list(programs):
    """Whoever has just met somebody is looked at again."""
    queues = [deque(step for step in program if step[0] != "run") for program in programs]
    todo = deque(range(len(queues)))
    while todo:
        rank = todo.popleft()
        if not queues[rank]:
            continue
        what, peer = queues[rank][0]
        pair = (rank, peer) if what == "send" else (peer, rank)
        steps = ("send", pair[1]), ("recv", pair[0])
        if all(queues[r] and queues[r][0] == s for r, s in zip(pair, steps, strict=True)):
            for r in pair:
                queues[r].popleft()
            todo.extend(pair)
    return tuple(rank for rank, queue in enumerate(queues) if queue)


@right
def from_the_last_to_the_first(programs):
    return unfinished(programs, meet(programs))[::-1]


@wrong(says="does nobody get past a run")
def nobody_runs(programs):
    asleep = [[("send", r) if s[0] == "run" else s for s in p] for r, p in enumerate(programs)]
    return unfinished(asleep, meet(asleep))


@wrong(says="look at everyone again until nothing changes")
def a_hundred_rounds(programs):
    return unfinished(programs, meet(programs, rounds=100))


@wrong(says="look at everyone again until nothing changes")
def as_many_rounds_as_the_longest_program(programs):
    return unfinished(programs, meet(programs, rounds=max(map(len, programs))))


@wrong(says="each rank should be in the list once")
def both_halves_of_the_circle(programs):
    return unfinished(programs, meet(programs)) * 2


@wrong(says="the argument `programs[0]` is not what it was before the call")
def programs_used_up(programs):
    stuck = unfinished(programs, meet(programs))
    for program in programs:
        program.clear()
    return stuck


@right
def by_taking_from_the_front(programs):
    left = [list(program) for program in programs]

    def go_on():
        for rank, program in enumerate(left):
            if program and program[0][0] == "run":
                return [rank]
            if program and program[0][0] == "send":
                peer = program[0][1]
                if left[peer] and tuple(left[peer][0]) == ("recv", rank):
                    return [rank, peer]
        return []

    while ranks := go_on():
        for rank in ranks:
            del left[rank][0]
    return [rank for rank, program in enumerate(left) if program]


@right
def with_generators(programs):
    """A generator for each rank, whose current step is what it waits in."""
    walks = {rank: iter(program) for rank, program in enumerate(programs)}
    at = {rank: next(walk, None) for rank, walk in walks.items()}
    changed = True
    while changed:
        changed = False
        for rank in list(at):
            if at[rank] is not None and at[rank][0] == "run":
                at[rank], changed = next(walks[rank], None), True
        pairs = [
            (rank, step[1])
            for rank, step in at.items()
            if step and step[0] == "send" and at.get(step[1]) == ("recv", rank)
        ]
        for pair in pairs:
            for rank in pair:
                at[rank], changed = next(walks[rank], None), True
    return sorted(rank for rank, step in at.items() if step is not None)
