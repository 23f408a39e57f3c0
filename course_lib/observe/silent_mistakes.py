"""What goes silently wrong, each in the sentence that warns of it: what happened, what to do."""

from .event_wording import location, name
from .events import CommEvent, Frame

_WITH_GRADIENT = (
    "Write a torch.autograd.Function whose backward says what gradient goes on (their sum over the "
    "ranks, or the one that came, as it is), call it on tensor.detach() if no gradient is wanted, "
    "or do without it if each rank's own part is enough"
)


def rewritten(event: CommEvent, where: tuple[Frame, ...]) -> str:
    if event.op == "send":
        return (
            f"race: {location(where)} writes into a tensor that is still being sent: the "
            f"{_issued(event)} was not waited for, so rank {event.peer} may receive the new values "
            f"instead of the old. Call wait() on that isend first, or send a copy: "
            f"dist.isend(tensor.clone(), {event.peer})"
        )
    return (
        f"race: {location(where)} writes into a tensor that the {_issued(event)} is still working "
        f"on, as it was not waited for: what is in the tensor afterwards is a matter of luck. Call "
        f"wait() on it first"
    )


def changed(event: CommEvent, where: tuple[Frame, ...]) -> str:
    return (
        f"race: something wrote into the tensor of the {_issued(event)} before {location(where)} "
        f"waited for it: what is in the tensor afterwards, or was sent, is a matter of luck. Leave "
        f"the tensor alone until wait(), or give the call a copy"
    )


def read_early(event: CommEvent, where: tuple[Frame, ...]) -> str:
    return (
        f"race: {location(where)} reads a tensor before its values have arrived: the "
        f"{_issued(event)} was not waited for, so they may be old, new, or some of each. Call "
        f"wait() on it before the tensor is used"
    )


def never_waited(event: CommEvent) -> str:
    stale = {
        "send": "and without its handle gloo drops the message",
        "recv": "so nothing says that its values have arrived",
    }.get(event.op, "so nothing says that its result is there")
    return (
        f"the {_issued(event)} was never waited for, {stale}. Keep the handle and wait for it: "
        f"work = dist.{_function(event)}; work.wait()"
    )


def waited_twice(event: CommEvent, where: tuple[Frame, ...]) -> str:
    return (
        f"{location(where)} waits a second time for the {_issued(event)}: on gloo the second "
        f"wait() waits for one more message, which nobody sends. Wait once for each handle"
    )


def cut_in_place(event: CommEvent) -> str:
    return (
        f"dist.{event.op} in {location(event.where)} changed a tensor inside the graph, and "
        f"backward then went through it as if nothing had been done: torch.distributed's calls "
        f"have no gradient, so other ranks' parts of it are missing. {_WITH_GRADIENT}"
    )


def cut_from(event: CommEvent, where: tuple[Frame, ...]) -> str:
    return (
        f"{location(where)} computes with what dist.{event.op} in {location(event.where)} gave, "
        f"from an input that requires grad: torch.distributed's calls let no gradient back "
        f"through. {_WITH_GRADIENT}"
    )


def _issued(event: CommEvent) -> str:
    return f"{name(event)} from {location(event.where)}"


def _function(event: CommEvent) -> str:
    if event.op in ("send", "recv"):
        return f"i{event.op}(...)"
    return f"{event.op}(..., async_op=True)"
