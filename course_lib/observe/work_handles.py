"""Operations on their way: who waits for them, and which of them nobody can wait for any more.

An asynchronous operation gives a handle, a `Work`, and its `wait` is a method and no operator: it
is replaced while this is open. Handles are told apart as objects. They are not kept alive: the last
one of a thread is held until the thread does something else, so that the call which made it returns
the same object; after that a weak reference tells when it is dropped. Those that no Python code
ever gets are kept until they are first seen to be complete.
"""

import itertools
import sys
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._C._distributed_c10d import Work

from . import silent_mistakes
from .calls import Call
from .events import CommEvent
from .frames import learners
from .journal import JournalWriter
from .operator_watch import Warn, Watch
from .stopwatch import Stopwatch
from .threads import ThreadState, lock


class _Reference(weakref.ref):
    """A weak reference to a Work that knows the key it is filed under."""

    __slots__ = ("key",)
    key: int


@dataclass(slots=True)
class _Pending:
    """How far an operation has come."""

    event: CommEvent
    written: list[torch.Tensor] = field(default_factory=list)  # only if somebody asks for it
    waiting: bool = False  # wait() was called, now or before
    done: bool = False
    reference: _Reference | None = None


class Handles:
    """The operations that were issued, from `open` to `close`."""

    def __init__(
        self,
        journal: JournalWriter,
        watch: Watch,
        warn: Warn,
        stopwatch: Stopwatch,
        thread: ThreadState,
    ):
        self._journal, self._watch, self._warn = journal, watch, warn
        self._stopwatch, self._thread = stopwatch, thread
        self._pending: dict[int, _Pending] = {}  # by id of the Work
        # By address of the result's storage; a tensor may be sent to several ranks at once.
        self._functional: dict[int, list[_Pending]] = {}
        self._unseen: list[tuple[_Pending, Work]] = []
        self._original: dict[str, Any] = {}
        self.arrived: Callable[[CommEvent, list[torch.Tensor]], None] | None = None

    def open(self) -> None:
        """Replace the methods of Work."""
        for name in ("wait", "is_completed", "get_future"):
            self._original[name] = getattr(Work, name)
            setattr(Work, name, self._hook(name))

    def close(self, whole: bool) -> None:
        """Put them back; unless the run was broken off, tell what was never waited for."""
        for name, method in self._original.items():
            setattr(Work, name, method)
        self.poll()
        self._thread.fresh = None
        if whole:
            for pending in [*self._pending.values(), *itertools.chain(*self._functional.values())]:
                self._tell_if_lost(pending)
        self._pending.clear()
        self._functional.clear()
        self._unseen.clear()

    # -----------------------------------------------------------------------------------------

    def expect(self, event: CommEvent, work: Work | None, call: Call | None = None) -> None:
        """`event` is under way, and `work` is its handle; `call` knows what it writes."""
        written = [t for ts in call.writes.values() for t in ts] if call and self.arrived else []
        if work is None:  # the call itself has waited
            self._journal.wait(event.n, event.issued)
            self._journal.done(event.n, time.monotonic())
            self._tell_arrival(event, written)
        elif event.native:
            with lock:
                self._unseen.append((_Pending(event), work))
        else:
            reference = _Reference(work, self._dropped)
            reference.key = id(work)
            self._pending[id(work)] = _Pending(event, written, reference=reference)
            self._thread.fresh = work

    def expect_tensors(self, event: CommEvent, tensors: list[torch.Tensor]) -> None:
        """`event` is under way, and wait_tensor on any of `tensors` waits for it."""
        pending = _Pending(event)
        with lock:
            for tensor in tensors:
                self._functional.setdefault(tensor.untyped_storage()._cdata, []).append(pending)

    def _tell_arrival(self, event: CommEvent, written: list[torch.Tensor]) -> None:
        if self.arrived and written:
            self.arrived(event, written)

    def poll(self) -> None:
        """Something else happens: let go of the last handle, and look at those nobody sees."""
        self._thread.fresh = None
        if self._unseen:
            with lock:
                now = time.monotonic()
                for pending, work in self._unseen:
                    if self._over(work):
                        pending.done = True
                        self._journal.done(pending.event.n, now)
                self._unseen = [each for each in self._unseen if not each[0].done]

    def _over(self, work: Work) -> bool:
        try:
            # Not is_completed, which comes a little later than whoever waits for the future.
            return self._original["get_future"](work).done()
        except RuntimeError:  # gloo's messages have none
            return self._original["is_completed"](work)

    def wait_tensor(self, args: tuple, kwargs: dict, carry_out: Any) -> Any:
        """Around the operator that waits for the tensor of a functional collective."""
        tensor = args[0] if args else kwargs["tensor"]
        waited_for = self._functional.pop(tensor.untyped_storage()._cdata, None)
        if waited_for is None:
            return carry_out()
        self._stopwatch.stop()
        for pending in waited_for:
            if not pending.waiting:
                pending.waiting = True
                self._journal.wait(pending.event.n, time.monotonic())
        result = carry_out()
        for pending in waited_for:
            self._journal.done(pending.event.n, time.monotonic())
            self._watch.finish(pending.event, sys._getframe())
            self._tell_arrival(pending.event, [tensor])
        self._stopwatch.start()
        return result

    # -----------------------------------------------------------------------------------------
    # methods of Work

    def _hook(self, name: str) -> Any:
        original, ours = self._original[name], getattr(self, f"_{name}")

        def method(work: Work, *args: Any, **kwargs: Any) -> Any:
            pending = self._pending.get(id(work))
            if pending is None:
                return original(work, *args, **kwargs)
            return ours(pending, work, lambda: original(work, *args, **kwargs))

        return method

    def _wait(self, pending: _Pending, work: Work, original: Any) -> Any:
        self._stopwatch.stop()
        event = pending.event
        again = pending.done and event.op in ("send", "recv")
        if again:
            where = learners(sys._getframe())
            message = silent_mistakes.waited_twice(event, where)
            self._warn("waited_twice", message, where, event.where)
        if not pending.done or again:
            pending.waiting = True
            self._journal.wait(event.n, time.monotonic())
            self._watch.begin_wait(event)
        try:
            result = original()
            self._settle(pending, work)
        finally:
            self._stopwatch.start()
        return result

    def _is_completed(self, pending: _Pending, work: Work, original: Any) -> bool:
        completed = original()
        if completed and not pending.done:
            self._settle(pending, work)
        return completed

    def _get_future(self, pending: _Pending, work: Work, original: Any) -> Any:
        # Whoever has the future waits for that, where nobody can see it.
        del self._pending[id(work)]
        if not pending.done:
            self._watch.finish(pending.event)
            with lock:
                self._unseen.append((pending, work))
        return original()

    def _settle(self, pending: _Pending, work: Work) -> None:
        event = pending.event
        source = None
        if event.op == "recv" and event.peer is None:
            source = event.ranks[work._source_rank()]
        pending.done = True
        self._journal.done(event.n, time.monotonic(), source)
        self._thread.fresh = None
        self._watch.finish(event, sys._getframe())
        self._tell_arrival(event, pending.written)
        pending.written = []

    def _dropped(self, reference: _Reference) -> None:
        pending = self._pending.pop(reference.key, None)
        if pending and not pending.done:
            # Told at once: gloo loses the message with its handle, so the ranks may hang next.
            self._tell_if_lost(pending)
            self._watch.finish(pending.event)

    def _tell_if_lost(self, pending: _Pending) -> None:
        event = pending.event
        if not pending.waiting and not pending.done:
            self._warn("never_waited", silent_mistakes.never_waited(event), event.where)
