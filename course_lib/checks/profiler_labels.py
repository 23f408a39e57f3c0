"""On a rank: labels that tell the record what goes on, for the law of waits to read.

with record_function(BACKWARD):
    loss.backward()                 # with hooks that call ready(place, p.grad.nbytes)

with record_function(message("layer 3")):
    work = gather()
meanwhile("layer 2 runs", "layer 3")   # a moment; or a context, for what takes a while
"""

from torch.profiler import record_function


def label_of(what: str) -> str:
    """What stands in the record while `what` runs: "backward"."""
    return f"check: {what}"


FORWARD, BACKWARD = label_of("forward"), label_of("backward")


def message(name: str) -> str:
    """The label around the call that begins the message of this name."""
    return label_of(f"message {name}")


WHILE = label_of("while {message} travels: {runs}")


def meanwhile(runs: str, name: str) -> record_function:
    """Around what is to run while the message of this name is under way.

    name: that of `message`, or "all_to_all 2" for the second one that the rank issues.
    """
    return record_function(WHILE.format(message=name, runs=runs))


def moment(label: str) -> None:
    """A label that begins and ends here."""
    with record_function(label):
        pass


READY, NEVER = label_of("ready"), label_of("never ready")


def ready(place: int, nbytes: int) -> None:
    """Something is ready to leave: in which place of the line it is, and its bytes."""
    moment(f"{READY} {place} {nbytes}")


def never_ready(place: int, nbytes: int) -> None:
    """Something in the line has not been ready in what has just ended."""
    moment(f"{NEVER} {place} {nbytes}")
