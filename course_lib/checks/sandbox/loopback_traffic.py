"""What crosses between the ranks of a graded run, counted outside of them.

A recorder sits in the process of an answer, which can go round it or write to it. The counters of
the sandbox's loopback device are the kernel's. Since a sealed rank makes no sockets of its own
(`rank_confinement`), all that crosses is gloo's: its messages, each with a head, and two notes by
which both ends of a message find each other. So what was recorded says to the byte what must have
crossed, added up over all ranks; of what gloo makes of a reduction it says the most.

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
from course_lib.observe.collective_bytes import sends

_HEAD = 48  # bytes in front of a message, and of each of the two notes that go with it
_A_CONNECTION = 24  # bytes by which two ranks greet each other, 16 of them TCP's
_A_PIECE = 2**20  # in which gloo moves what is larger
CROSSED = "crossed between your ranks"  # in every sentence of this file, and in no other


def counted() -> Crossed:
    """What has crossed the loopback device of this network namespace so far."""
    stamps = Path("/proc/sys/net/ipv4/tcp_timestamps").read_text().strip() != "0"
    head = 52 if stamps else 40  # IP and TCP, in front of each packet
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
    sentence = breach(job, outcome)
    if not sentence:
        return outcome
    first, *others = outcome.observations
    breaches = [Breach(None, sentence), *first.breaches]
    return replace(outcome, observations=[replace(first, breaches=breaches), *others])


def breach(job: Job, outcome: Outcome) -> str:
    """What more crossed than was recorded, or less, in a sentence; "" if all is well."""
    if outcome.trouble or not outcome.observations:
        return ""
    events = [event for each in outcome.observations for event in each.trace.events]
    most, least = limits(job, events)
    crossed = outcome.crossed.bytes
    if crossed > most:
        again = outcome.crossed.again
        twice = f" ({again} packets were sent a second time)" if again else ""
        return (
            f"{crossed:,} bytes {CROSSED}{twice}, and what they sent each other "
            f"by torch.distributed explains {most:,} at most: was something sent past the recorder?"
        )
    if crossed < least:
        return (
            f"{least:,} bytes are recorded as sent, and {crossed:,} {CROSSED}: "
            "was something recorded that was never sent?"
        )
    return ""


def limits(job: Job, events: Iterable[CommEvent]) -> tuple[int, int]:
    """(most, least): the bytes that may cross in a job with these events, and those that must."""
    cases = [inner for each in job.cases for inner in innermost(each)]
    groups = {tuple(ranks) for case in cases for ranks in job.exercise.groups(case)}
    pairs = sum(math.comb(n, 2) for n in (job.world_size, *map(len, groups)))
    greetings = pairs * _A_CONNECTION
    # Ranks meet when they have come up, and between two cases.
    meetings = len(job.cases) * job.world_size * _messages("barrier", job.world_size)
    most, least = greetings + meetings * 3 * _HEAD, 0
    for event in events:
        n = len(event.ranks)
        sent = list(sends(event))
        payload = sum(part.nbytes for part in sent)
        messages = _messages(event.op, n, len(sent)) * max(1, len(event.shapes))
        most += math.ceil(payload * _times(event.op, n))
        most += (messages + payload // _A_PIECE) * 3 * _HEAD
        least += payload
    return most, least


def _messages(op: str, n: int, sent: int = 0) -> int:
    """Messages of a rank in one of gloo's operations, at most or on the average over the ranks.

    sent: those that are counted for it, which gloo sends if it goes straight from rank to rank.
    """
    if n == 1:
        return 0
    return {
        "barrier": math.ceil(math.log2(n)),
        "all_gather": 2 * (n - 1),
        "reduce": 2 * n - 1,
        "all_reduce": 4 * (n - 1),
        "reduce_scatter": 4 * n * (n - 1),  # an all-reduce of each part
    }.get(op, sent)


def _times(op: str, n: int) -> float:
    """How often what an operation has to move crosses in gloo's way to do it."""
    return {"reduce": 1 + 1 / n, "reduce_scatter": 2}.get(op, 1)
