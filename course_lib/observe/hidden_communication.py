"""How much of the communication hides behind computation, and how much sticks out."""

from .timeline import COMMUNICATION, Timeline


def exposed(step: Timeline) -> float:
    """Time by which communication makes the step longer than its computation."""
    return step.makespan - max(step.busy)


def hidden_share(step: Timeline) -> float:
    """The part of rank 0's communication that runs beside computation, 0 to 1.

    0 if nothing was communicated.
    """
    moving = communication_time(step)
    return max(0.0, 1 - exposed(step) / moving) if moving else 0.0


def communication_time(step: Timeline) -> float:
    """Time that rank 0's messages take, one after the other."""
    return sum(
        span.end - span.start
        for span in step.spans
        if span.rank == 0 and span.track == COMMUNICATION
    )
