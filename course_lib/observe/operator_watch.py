"""Ordinary operators, looked at while a buffer is in flight or a gradient was cut.

A `TorchDispatchMode` sees every operator, and doubles the time of a small one. So it is only in the
way while there is something to look for: from the issue of an asynchronous operation to its wait,
if a line of the learner issued it. What the course's techniques have in flight is compared by
version number only, at its wait, so that their runs are recorded at the speed that they have.
Inside backward it cannot be put up (autograd restores the modes after each node); what is in flight
then is looked after from the end of backward on, and compared by version number at its wait.
"""

import functools
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch
from torch.utils import _python_dispatch
from torch.utils._python_dispatch import TorchDispatchMode

from . import silent_mistakes
from .buffers_in_flight import InFlightBuffers
from .calls import Call
from .cut_gradients import CutGradients
from .events import CommEvent, Frame
from .frames import learners
from .operator_effects import Effects, effects, tensors

Warn = Callable[..., None]
"""warn(kind, message, where, issued_at)"""


class Watch(TorchDispatchMode):
    """Warns of what disturbs buffers in flight, and where a cut gradient is missed.

    beneath: a mode of ours that may lie under this one.
    """

    supports_higher_order_operators = True

    def __init__(self, warn: Warn, beneath: TorchDispatchMode | None = None):
        super().__init__()
        self._warn, self._beneath = warn, beneath
        self._in_flight = InFlightBuffers()
        self._cuts = CutGradients(warn)
        self._thread = threading.get_ident()
        self._up = False  # put on, and not yet taken off
        self._busy = False  # torch has put this mode aside while it handles an operator
        self._effects: dict[Any, Effects | None] = {}

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # Else torch wraps the method below, which costs 2 microseconds an operator and, at the
        # first one, seconds to import its compiler.
        return False

    # -----------------------------------------------------------------------------------------
    # communication

    def calling(self, call: Call, where: tuple[Frame, ...]) -> None:
        """A communication is about to read and write its tensors."""
        if self._in_flight:
            reads = [tensor for group in call.reads.values() for tensor in group]
            writes = [tensor for group in call.writes.values() for tensor in group]
            self._disturb(reads, writes, lambda: where)

    def called_in_graph(self, event: CommEvent, call: Call) -> None:
        """A communication that has no gradient was called where gradients are recorded."""
        self._cuts.issued(event, call)
        if self._cuts:
            self.arrange()

    def start(self, event: CommEvent, call: Call, results: list[torch.Tensor]) -> None:
        """An operation is under way that somebody has to wait for."""
        self._in_flight.start(event, call, results)
        self.arrange()

    def begin_wait(self, event: CommEvent) -> None:
        """A wait for it begins."""
        self._in_flight.begin_wait(event.n)

    def finish(self, event: CommEvent, frame: FrameType | None = None) -> None:
        """It was waited for, from `frame`, or nobody can any more."""
        if self._in_flight.finish(event.n) and frame:
            where = learners(frame)
            message = silent_mistakes.changed(event, where)
            self._warn("rewritten_in_flight", message, where, event.where)
        self.arrange()

    # -----------------------------------------------------------------------------------------
    # being in the way, or not

    def arrange(self, over: bool = False) -> None:
        """Step into the way of operators if there is something to look for, or out of it."""
        wanted = not over and bool(self._in_flight.exposed or self._cuts)
        if not (wanted or self._up) or self._busy or threading.get_ident() != self._thread:
            return
        if torch._C._current_graph_task_id() != -1:
            return
        stack = _python_dispatch._get_current_dispatch_mode_stack()
        # Others' modes are left alone: they are not taken off in another order than put on.
        if wanted and stack == [self._beneath] * len(stack):
            self.__enter__()
            self._up = True
        elif not wanted and stack and stack[-1] is self:
            self.__exit__(None, None, None)
            self._up = False

    def __torch_dispatch__(
        self, func: Any, types: tuple, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if types and (instead := _instead(tuple(types))) == "hand back":
            return NotImplemented
        self._busy = True
        try:
            if types and instead == "pass on":
                return func(*args, **kwargs)
            return self._run(func, args, kwargs)
        finally:
            self._busy = False

    def _run(self, func: Any, args: tuple, kwargs: dict) -> Any:
        if func not in self._effects:
            self._effects[func] = effects(func)
        found = self._effects[func]
        if found is None:
            return func(*args, **kwargs)
        # No frame is kept: it would hold the operator's tensors until garbage is collected.
        if self._in_flight:
            reads, writes = (tensors(keys, args, kwargs) for keys in (found.reads, found.writes))
            self._disturb(reads, writes, lambda: learners(sys._getframe()))
        result = func(*args, **kwargs)
        if self._cuts and torch.is_grad_enabled():
            reads = tensors(found.reads, args, kwargs)
            self._cuts.used(func._schema.name, reads, result, lambda: learners(sys._getframe()))
        return result

    def _disturb(self, reads: Any, writes: Any, where: Callable[[], tuple[Frame, ...]]) -> None:
        for kind, event in self._in_flight.disturbed(reads, writes):
            frames = where()
            say = (
                silent_mistakes.rewritten
                if kind == "rewritten_in_flight"
                else silent_mistakes.read_early
            )
            self._warn(kind, say(event, frames), frames, event.where)


@functools.cache
def _instead(types: tuple[type, ...]) -> str:
    """What to do about an operator on tensors of special classes; "" for nothing special."""
    if any(hasattr(kind, "__tensor_flatten__") for kind in types):
        # One that stands for others (DTensor, AsyncCollectiveTensor) calls those operators next
        # that really run.
        return "hand back"
    plain = torch._C._disabled_torch_dispatch_impl
    if any(getattr(kind, "__torch_dispatch__", plain) is not plain for kind in types):
        return "pass on"  # one without memory, such as a FakeTensor
    return ""
