"""What crosses between the ranks of a graded run, counted outside of them.

A recorder sits in the process of an answer, which can go round it or write to it. The counters of
the sandbox's loopback device are the kernel's. Since a sealed rank makes no sockets of its own
(`rank_confinement`), all that crosses is gloo's: its messages, each with a head, and notes by which
both ends of a message find each other. So what was recorded says within narrow limits what must
have crossed, added up over all ranks.

The numbers are gloo's, as torch 2.10 to 2.14 have it; `tests/checks/test_loopback_traffic.py`
measures them.
"""

import math
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from course_lib.checks.exercise import Breach, innermost
from course_lib.checks.run_answer import Crossed, Job, Outcome
from course_lib.observe import CommEvent
from course_lib.observe.algorithms import sends

_HEAD = 48  # bytes in front of a message, and of the two notes that may go with it
_A_CONNECTION = 64  # bytes by which two ranks greet each other, at most
_A_PIECE = 2**20  # in which gloo moves what is larger
_A_PACKET = 65_536  # bytes, at most


def crossed() -> Crossed:
    """What has crossed the loopback device of this network namespace so far."""
    stamps = Path("/proc/sys/net/ipv4/tcp_timestamps").read_text().strip() != "0"
    head = 66 if stamps else 54  # Ethernet, IP and TCP, in front of each packet
    for line in Path("/proc/net/dev").read_text().splitlines():
        name, _, numbers = line.partition(":")
        if name.strip() == "lo":
            received, packets = map(int, numbers.split()[:2])
            return Crossed(received - head * packets, _sent_again())
    return Crossed()


def _sent_again() -> int:
    names, numbers = (
        line.split() for line in Path("/proc/net/snmp").read_text().splitlines() if "Tcp:" in line
    )
    return int(numbers[names.index("RetransSegs")])


def compared(job: Job, outcome: Outcome) -> Outcome:
    """The outcome, with a breach where more crossed than was recorded, or less."""
    if outcome.trouble or not outcome.observations:
        return outcome
    events = [event for each in outcome.observations for event in each.trace.events]
    most, least = limits(job, events)
    bytes_ = outcome.crossed.bytes
    first, *others = outcome.observations
    if bytes_ > most + _sent_twice(events, outcome.crossed.again):
        sentence = (
            f"{bytes_:,} bytes crossed between your ranks, and what they sent each other by "
            f"torch.distributed explains {most:,} at most: was something sent past the recorder?"
        )
    elif bytes_ < least:
        sentence = (
            f"{least:,} bytes are recorded as sent, and {bytes_:,} crossed between your ranks: "
            "was something recorded that was never sent?"
        )
    else:
        return outcome
    breaches = [Breach(None, sentence), *first.breaches]
    return replace(outcome, observations=[replace(first, breaches=breaches), *others])


def _sent_twice(events: Iterable[CommEvent], packets: int) -> int:
    """What so many packets hold that the kernel sent again, at most: a message in each.

    The sandbox has it wait for that so long that it is rare (`isolation`). Still, no more is
    forgiven than the largest message: a run of small ones could hide others behind it.
    """
    largest = max((part.nbytes for event in events for part in sends(event)), default=0)
    return packets * min(largest + 3 * _HEAD, _A_PACKET)


def limits(job: Job, events: Iterable[CommEvent]) -> tuple[int, int]:
    """(most, least): the bytes that may cross in a job with these events, and those that must."""
    groups = {tuple(range(job.world_size))}
    for case in (inner for each in job.cases for inner in innermost(each)):
        groups |= {tuple(ranks) for ranks in job.exercise.groups(case)}
    greetings = sum(_A_CONNECTION * math.comb(len(ranks), 2) for ranks in groups)
    # Ranks meet when they have come up, and between two cases.
    meetings = len(job.cases) * job.world_size * _messages("barrier", job.world_size)
    most, least = greetings + meetings * 3 * _HEAD, -greetings
    for event in events:
        n = len(event.ranks)
        payload = sum(part.nbytes for part in sends(event))
        parts = max(1, len(event.shapes))
        most += math.ceil(payload * _times(event.op, n))
        most += (_messages(event.op, n) * parts + payload // _A_PIECE) * 3 * _HEAD
        least += payload
    return most, max(0, least)


def _messages(op: str, n: int) -> int:
    """Messages of a rank, at most or on the average over the ranks, in one of gloo's operations."""
    if n == 1:
        return 0
    return {
        "recv": 0,
        "barrier": math.ceil(math.log2(n)),
        "all_to_all": n - 1,
        "all_gather": 2 * (n - 1),
        "reduce": 2 * n - 1,
        "all_reduce": 4 * (n - 1),
        "reduce_scatter": 4 * n * (n - 1),  # an all-reduce of each part
    }.get(op, 1)


def _times(op: str, n: int) -> float:
    """How often what an operation has to move crosses in gloo's way to do it."""
    return {"reduce": 1 + 1 / n, "reduce_scatter": 2}.get(op, 1)
