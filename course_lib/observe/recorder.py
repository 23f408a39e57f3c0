"""Watches a rank from outside: its plain torch.distributed calls, and when it waits for them.

Three things see it all, and none of them is there when no recorder is open: hooks on the operators
of torch.distributed, by whichever way they are called (`dispatch_hooks`); the methods of the
handles that asynchronous calls return (`work_handles`); and, only while a buffer is in flight,
every other operator (`operator_watch`). Who asks for memory has every operator watched from
beginning to end (`memory_tracker`).
"""

import itertools
import os
import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Work

from . import argument_checks, calls
from .dispatch_hooks import Around, DispatchHooks
from .events import CommEvent, Frame, RankWarning
from .frames import Stack, look
from .journal import JournalWriter
from .memory_tracker import MemoryTracker
from .operator_watch import Watch
from .stopwatch import Stopwatch
from .threads import ThreadState, lock
from .work_handles import Handles


class Recorder:
    """Records what this rank communicates, to the journal at `path`, between enter and exit.

        with Recorder("rank0.journal"):
            train()

    What is in that file already goes. Under torchrun, let each rank write into one folder, which
    `read_trace` puts together: `Recorder(f"run/{os.environ['RANK']}.journal")`.

    rank: this process's rank, if the default process group is not up yet.
    memory: record what lies in memory as well, which slows small operators down several times.

    One at a time in a process: a second one raises RuntimeError on entering.
    """

    _open: "Recorder | None" = None

    def __init__(self, path: str | os.PathLike, rank: int | None = None, memory: bool = False):
        self.path, self.rank, self.memory = path, rank, memory

    def __enter__(self) -> "Recorder":
        if Recorder._open:
            raise RuntimeError(f"a recorder is already open, writing to {Recorder._open.path}")
        self._introduced = False
        self._count = itertools.count()
        self._thread = ThreadState(itertools.count())
        self._labels = self._thread.labels  # of the thread that opened this
        self._groups: dict[str, tuple[int, ...]] = {}
        self._told: set[tuple] = set()
        self._journal = JournalWriter(self.path)
        self._tracker = MemoryTracker(self._journal, self._labels) if self.memory else None
        self._watch = Watch(self._warn, self._tracker)
        self._stopwatch = Stopwatch(self._journal, self._labels)
        self._handles = Handles(
            self._journal, self._watch, self._warn, self._stopwatch, self._thread
        )
        self._hooks = DispatchHooks()
        self._journal.clock(time.time() - time.monotonic())
        if dist.is_initialized():
            self._introduce()
        self._handles.open()
        for name in calls.OPERATORS:
            self._hooks.put(name, self._around)
        self._hooks.put("_c10d_functional::wait_tensor", lambda _: self._handles.wait_tensor)
        self._hooks.put("profiler::_record_function_enter_new", lambda _: self._enter_span)
        self._hooks.put("profiler::_record_function_exit", lambda _: self._leave_span)
        self._run_backward = torch.autograd._engine_run_backward
        torch.autograd._engine_run_backward = self._backward
        if self._tracker:
            self._tracker.__enter__()
        Recorder._open = self
        self._stopwatch.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        Recorder._open = None
        self._stopwatch.stop()
        torch.autograd._engine_run_backward = self._run_backward
        self._hooks.remove()
        self._handles.close(whole=kind is None)
        self._watch.arrange(over=True)
        if self._tracker:
            self._tracker.__exit__(kind, problem, traceback)
        while self._thread.labels:
            self._end_label()
        self._journal.end(time.monotonic(), whole=kind is None)
        self._journal.close()

    @classmethod
    def on_arrival(
        cls, look: Callable[[CommEvent, list[torch.Tensor]], None] | None
    ) -> Callable[[CommEvent, list[torch.Tensor]], None] | None:
        """From now on `look` gets each operation of this rank that was waited for.

        With it come the tensors that it wrote, before anybody reads them. None: no longer.
        Returns who got them before. RuntimeError where no recorder is open.
        """
        if cls._open is None:
            raise RuntimeError("no recorder is open in this process, so nothing sees what arrives")
        before, cls._open._handles.arrived = cls._open._handles.arrived, look
        return before

    def _introduce(self) -> None:
        if self.rank is None:
            self.rank = dist.get_rank()
        self._journal.rank(self.rank, dist.get_world_size())
        self._introduced = True

    def _warn(
        self,
        kind: str,
        message: str,
        where: tuple[Frame, ...],
        issued_at: tuple[Frame, ...] = (),
    ) -> None:
        assert self.rank is not None
        with lock:
            if (kind, where, issued_at) not in self._told:  # a line in a loop is told once
                self._told.add((kind, where, issued_at))
                self._journal.warning(RankWarning(self.rank, kind, message, where, issued_at))

    # -----------------------------------------------------------------------------------------

    def _around(self, op: torch._ops.OpOverload) -> Around:
        parse = calls.parser(op)

        def around(args: tuple, kwargs: dict, carry_out: Callable[[], Any]) -> Any:
            self._stopwatch.stop()
            waits_next = False
            try:
                result, waits_next = self._communicate(parse(args, kwargs), carry_out)
                return result
            finally:
                if not waits_next:
                    self._stopwatch.start()

        return around

    def _communicate(
        self, call: calls.Call | list[calls.Call], carry_out: Callable[[], Any]
    ) -> tuple[Any, bool]:
        """The result, and whether the very next thing is that torch waits for it."""
        if not self._introduced:
            self._introduce()
        self._handles.poll()
        stack = look(sys._getframe())
        batch = call if isinstance(call, list) else [call]
        held = not stack.native or any(each.functional for each in batch)
        if held:
            for each in batch:
                if reason := argument_checks.reason_to_refuse(each):
                    self._warn(*reason, stack.where)
                    raise ValueError(reason[1])
                self._watch.calling(each, stack.where)
        # Written before it is carried out: gloo may abort the process in the middle of it.
        events = [self._issue(each, stack, held) for each in batch]
        try:
            result = carry_out()
        except BaseException:
            # A connection is gone: this is where the rank got stuck, and wait() never comes.
            for event in events:
                self._journal.wait(event.n, time.monotonic())
            raise
        results = result if isinstance(call, list) else [result]
        for event, each, made in zip(events, batch, results, strict=True):
            self._under_way(event, each, made)
        handle = result[-1] if isinstance(result, tuple) else result
        return result, held and handle is not None and any(event.blocking for event in events)

    def _issue(self, call: calls.Call, stack: Stack, held: bool) -> CommEvent:
        ranks, thread = self._ranks(call.group), self._thread.number
        assert self.rank is not None
        event = CommEvent(
            self.rank,
            next(self._count),
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
            not held,
            time.monotonic(),
            where=stack.where,
            spans=tuple(self._labels) if not thread else (*self._labels, *self._thread.labels),
            splits=call.splits,
            thread=thread,
        )
        if self._tracker:
            for tensors in (*call.reads.values(), *call.writes.values()):
                self._tracker.communicated(tensors)
        self._journal.issue(event)
        return event

    def _under_way(self, event: CommEvent, call: calls.Call, result: Any) -> None:
        if call.functional:
            results = list(result) if isinstance(result, (list, tuple)) else [result]
            self._handles.expect_tensors(event, results)
            self._watch.start(event, call, results)
            if self._tracker:
                self._tracker.communicated(results)
        else:
            boxed = result[-1] if isinstance(result, tuple) else result
            self._handles.expect(event, None if boxed is None else Work.unbox(boxed), call)
            if event.native:
                return
            if torch.is_grad_enabled():
                self._watch.called_in_graph(event, call)
            if boxed is not None and not event.blocking:
                self._watch.start(event, call, [])

    def _ranks(self, group: dist.ProcessGroup) -> tuple[int, ...]:
        name = group.group_name
        if name not in self._groups:
            self._groups[name] = tuple(dist.get_process_group_ranks(group))
        return self._groups[name]

    def _enter_span(self, args: tuple, kwargs: dict, carry_out: Callable[[], Any]) -> Any:
        self._stopwatch.stop()
        self._thread.labels.append(args[0])
        self._thread.begins.append(time.monotonic())
        result = carry_out()
        self._stopwatch.start()
        return result

    def _leave_span(self, args: tuple, kwargs: dict, carry_out: Callable[[], Any]) -> Any:
        self._stopwatch.stop()
        if self._thread.labels:
            self._end_label()
        result = carry_out()
        self._stopwatch.start()
        return result

    def _end_label(self) -> None:
        name, begin = self._thread.labels.pop(), self._thread.begins.pop()
        self._journal.label(name, begin, time.monotonic())

    def _backward(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return self._run_backward(*args, **kwargs)
        finally:
            self._watch.arrange()
            if self._tracker:
                self._tracker.after_backward()
