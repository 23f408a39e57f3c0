"""Watches a rank from outside: its plain torch.distributed calls, and when it waits for them.

Two places see everything. Operators, those of torch.distributed among them, pass through a
`TorchDispatchMode`, whoever calls them: the learner, autograd, DistributedDataParallel in C++. The
wait for an asynchronous one is no operator, but a method of its `Work`, which is replaced while the
recorder is open. When none is open, nothing is left in torch's way.

Nothing is kept alive. A `Work` is held until the call that made it has returned (so that it stays
the same object, by which the wait is recognised), and then by a weak reference; memory in flight is
known by address and a weak reference to its storage. The exception are handles that no Python code
holds: they are kept until they are first seen to be complete.
"""

import functools
import os
import sys
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Work
from torch.utils._python_dispatch import TorchDispatchMode

from course_lib.observe import calls, refuse, wording
from course_lib.observe.effects import Effects, effects, tensors
from course_lib.observe.events import CommEvent, Trap
from course_lib.observe.flights import Flights
from course_lib.observe.frames import learners, look
from course_lib.observe.gradients import CutGradients
from course_lib.observe.journal import JournalWriter

_POINT_TO_POINT = ("send", "recv")


class _Handle(weakref.ref):
    """A weak reference to a Work that knows the key it is filed under."""

    __slots__ = ("key",)


@dataclass(slots=True)
class _Pending:
    """An operation that was issued, and how far it has come."""

    event: CommEvent
    waiting: bool = False  # someone called wait(), now or before
    done: bool = False
    handle: _Handle | None = None


class Recorder:
    """Records what this rank communicates, to the journal at `path`, between enter and exit.

        with Recorder("rank0.journal"):
            train()

    rank: this process's rank, if the default process group is not up yet.
    """

    def __init__(self, path: str | os.PathLike, rank: int | None = None):
        self.path, self.rank = path, rank
        self._introduced = False
        self._journal: JournalWriter | None = None
        self._count = 0
        self._spans: list[str] = []
        self._pending: dict[int, _Pending] = {}  # by id of the Work
        self._functional: dict[int, _Pending] = {}  # by address of the result's storage
        self._unseen: list[tuple[_Pending, Work]] = []  # C++ waits for them
        self._fresh: Work | None = None
        self._flights = Flights()
        self._cuts = CutGradients(self._note)
        self._groups: dict[str, tuple[int, ...]] = {}
        self._noted: set[tuple] = set()
        self._mode = _Mode(self)

    def __enter__(self) -> "Recorder":
        self._journal = JournalWriter(self.path)
        if dist.is_initialized():
            self._introduce()
        self._hook_work()
        self._mode.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._mode.__exit__(kind, problem, traceback)
        self._unhook_work()
        self._finish(whole=kind is None)

    def _introduce(self) -> None:
        if self.rank is None:
            self.rank = dist.get_rank()
        self._journal.rank(self.rank, dist.get_world_size())
        self._introduced = True

    def _finish(self, whole: bool) -> None:
        self._see_unseen()
        self._fresh = None
        if whole:
            for pending in [*self._pending.values(), *self._functional.values()]:
                self._tell_if_lost(pending)
        self._pending.clear()
        self._functional.clear()
        self._unseen.clear()
        self._journal.end(time.monotonic(), whole)
        self._journal.close()

    def _tell_if_lost(self, pending: _Pending) -> None:
        event = pending.event
        if not pending.waiting and not pending.done:
            message = wording.never_waited(event)
            self._note(Trap(event.rank, "never_waited", message, event.where))

    def _note(self, trap: Trap) -> None:
        # A line in a loop is noted once.
        key = (trap.kind, trap.where, trap.issued_at)
        if key not in self._noted:
            self._noted.add(key)
            self._journal.trap(trap)

    # -----------------------------------------------------------------------------------------
    # operators

    def run(self, func: Any, plan: "_Plan", args: tuple, kwargs: dict) -> Any:
        """Run one operator that needs more than to be passed on."""
        if plan.parse:
            return self._communicate(func, plan.parse(args, kwargs), args, kwargs)
        if plan.special:
            return plan.special(self, func, args, kwargs)
        if self._flights:
            reads = tensors(plan.effects.reads, args, kwargs)
            writes = tensors(plan.effects.writes, args, kwargs)
            self._disturb(reads, writes, sys._getframe())
        result = func(*args, **kwargs)
        if self._cuts and torch.is_grad_enabled():
            reads = tensors(plan.effects.reads, args, kwargs)
            frame = sys._getframe()
            self._cuts.used(func._schema.name, reads, result, lambda: learners(frame))
        return result

    def _communicate(self, func: Any, call: calls.Call, args: tuple, kwargs: dict) -> Any:
        if not self._introduced:
            self._introduce()
        self._see_unseen()
        stack = look(sys._getframe())
        ranks = self._ranks(call.group)
        if not stack.native:
            if reason := refuse.reason(call):
                self._note(Trap(self.rank, *reason, stack.where))
                raise ValueError(reason[1])
            if self._flights:
                reads = [t for group in call.reads.values() for t in group]
                writes = [t for group in call.writes.values() for t in group]
                self._disturb(reads, writes, sys._getframe())
        event = CommEvent(
            self.rank,
            self._count,
            call.op,
            call.group.group_name,
            ranks,
            None if call.peer is None else ranks[call.peer],
            call.tag,
            call.nbytes,
            call.shapes,
            call.dtype,
            call.reduce_op,
            stack.blocking or call.blocking,
            stack.native and not call.functional,
            time.monotonic(),
            where=stack.where,
            spans=tuple(self._spans),
            splits=call.splits,
        )
        self._count += 1
        self._journal.issue(event)
        if not stack.native and not call.functional and torch.is_grad_enabled():
            self._cuts.issued(event, call)
        try:
            result = func(*args, **kwargs)
        except BaseException:
            # It got stuck on a connection, and wait() will never be called.
            self._journal.wait(event.n, time.monotonic())
            raise
        if call.functional:
            self._expect_tensors(event, call, result)
        else:
            self._expect_work(event, call, result)
        return result

    def _expect_work(self, event: CommEvent, call: calls.Call, result: Any) -> None:
        boxed = result[-1] if isinstance(result, tuple) else result
        if boxed is None:  # the call itself has waited
            now = time.monotonic()
            self._journal.wait(event.n, event.issued)
            self._journal.done(event.n, now)
            return
        work = Work.unbox(boxed)
        pending = _Pending(event)
        if event.native:
            self._unseen.append((pending, work))
            return
        pending.handle = _Handle(work, self._dropped)
        pending.handle.key = id(work)
        self._pending[id(work)] = pending
        self._fresh = work
        if not event.blocking:
            self._flights.start(event, call)

    def _expect_tensors(self, event: CommEvent, call: calls.Call, result: Any) -> None:
        results = list(result) if isinstance(result, (list, tuple)) else [result]
        pending = _Pending(event)
        for tensor in results:
            self._functional[tensor.untyped_storage()._cdata] = pending
        self._flights.start(event, call, results)

    def _wait_tensor(self, func: Any, args: tuple, kwargs: dict) -> Any:
        tensor = args[0] if args else kwargs["tensor"]
        pending = self._functional.pop(tensor.untyped_storage()._cdata, None)
        if pending is None:
            return func(*args, **kwargs)
        if not pending.waiting:
            pending.waiting = True
            self._journal.wait(pending.event.n, time.monotonic())
        result = func(*args, **kwargs)
        self._journal.done(pending.event.n, time.monotonic())
        self._flights.land(pending.event.n)
        return result

    def _enter_span(self, func: Any, args: tuple, kwargs: dict) -> Any:
        self._spans.append(args[0] if args else kwargs["name"])
        return func(*args, **kwargs)

    def _leave_span(self, func: Any, args: tuple, kwargs: dict) -> Any:
        if self._spans:
            self._spans.pop()
        return func(*args, **kwargs)

    def _disturb(self, reads: Any, writes: Any, frame: Any) -> None:
        for kind, flight in self._flights.disturbed(reads, writes):
            where = learners(frame)
            say = wording.rewritten if kind == "rewritten_in_flight" else wording.read_early
            message = say(flight.event, where)
            self._note(Trap(self.rank, kind, message, where, flight.event.where))

    def _ranks(self, group: dist.ProcessGroup) -> tuple[int, ...]:
        name = group.group_name
        if name not in self._groups:
            self._groups[name] = tuple(dist.get_process_group_ranks(group))
        return self._groups[name]

    # -----------------------------------------------------------------------------------------
    # handles

    def _hook_work(self) -> None:
        self._original = {name: getattr(Work, name) for name in ("wait", "is_completed")}
        self._original["get_future"] = Work.get_future
        wait, is_completed, get_future = self._original.values()

        def hooked_wait(work: Work, *args: Any, **kwargs: Any) -> Any:
            pending = self._pending.get(id(work))
            if pending is None:
                return wait(work, *args, **kwargs)
            return self._wait(pending, lambda: wait(work, *args, **kwargs), work)

        def hooked_is_completed(work: Work) -> bool:
            completed = is_completed(work)
            pending = self._pending.get(id(work))
            if completed and pending and not pending.done:
                self._settle(pending, work)
            return completed

        def hooked_get_future(work: Work) -> Any:
            pending = self._pending.pop(id(work), None)
            if pending and not pending.done:
                # Whoever has the future waits for that, where nobody can see it.
                self._flights.land(pending.event.n)
                self._unseen.append((pending, work))
            return get_future(work)

        Work.wait, Work.is_completed, Work.get_future = (
            hooked_wait,
            hooked_is_completed,
            hooked_get_future,
        )

    def _unhook_work(self) -> None:
        for name, method in self._original.items():
            setattr(Work, name, method)

    def _wait(self, pending: _Pending, wait: Callable[[], Any], work: Work) -> Any:
        event = pending.event
        if pending.done and event.op in _POINT_TO_POINT:
            where = learners(sys._getframe())
            message = wording.waited_twice(event, where)
            self._note(Trap(self.rank, "waited_twice", message, where, event.where))
        if not pending.done or event.op in _POINT_TO_POINT:
            pending.waiting = True
            self._journal.wait(event.n, time.monotonic())
        result = wait()
        self._settle(pending, work)
        return result

    def _settle(self, pending: _Pending, work: Work) -> None:
        event = pending.event
        source = None
        if event.op == "recv" and event.peer is None:
            source = event.ranks[work._source_rank()]
        pending.done = True
        self._fresh = None
        self._flights.land(event.n)
        self._journal.done(event.n, time.monotonic(), source)

    def _dropped(self, handle: _Handle) -> None:
        pending = self._pending.pop(handle.key, None)
        if pending and not pending.done:
            # Told at once: gloo loses the message with its handle, so the ranks may hang next.
            self._tell_if_lost(pending)
            self._flights.land(pending.event.n)

    def _see_unseen(self) -> None:
        if not self._unseen:
            return
        is_completed, now = self._original["is_completed"], time.monotonic()
        still = []
        for pending, work in self._unseen:
            if is_completed(work):
                self._journal.done(pending.event.n, now)
            else:
                still.append((pending, work))
        self._unseen = still


# ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Plan:
    """What to do about an operator: nothing, if all of it is None."""

    effects: Effects | None = None
    parse: Callable[[tuple, dict], calls.Call] | None = None
    special: Callable[..., Any] | None = None


_SPECIAL = {
    "profiler::_record_function_enter": Recorder._enter_span,
    "profiler::_record_function_enter_new": Recorder._enter_span,
    "profiler::_record_function_exit": Recorder._leave_span,
    "_c10d_functional::wait_tensor": Recorder._wait_tensor,
}
_NOTHING = _Plan()


def _plan(func: Any) -> _Plan:
    schema = getattr(func, "_schema", None)
    if schema is None:  # a higher-order operator
        return _NOTHING
    if schema.name in _SPECIAL:
        return _Plan(special=_SPECIAL[schema.name])
    if parse := calls.parser(func):
        return _Plan(parse=parse)
    if found := effects(func):
        return _Plan(effects=found)
    return _NOTHING


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


class _Mode(TorchDispatchMode):
    """Hands on to the recorder what it has to see, and everything else straight to torch."""

    supports_higher_order_operators = True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # Else torch wraps the method below, which costs 2 microseconds an operator and, at the
        # first one, seconds to import its compiler.
        return False

    def __init__(self, recorder: Recorder):
        super().__init__()
        self._recorder = recorder
        self._plans: dict[Any, _Plan] = {}

    def __torch_dispatch__(
        self, func: Any, types: tuple, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if types and (instead := _instead(tuple(types))):
            return NotImplemented if instead == "hand back" else func(*args, **kwargs)
        recorder = self._recorder
        recorder._fresh = None
        plan = self._plans.get(func)
        if plan is None:
            plan = self._plans[func] = _plan(func)
        if plan is _NOTHING or (
            plan.effects and not recorder._flights._open and not recorder._cuts._cuts
        ):
            return func(*args, **kwargs)
        return recorder.run(func, plan, args, kwargs)
