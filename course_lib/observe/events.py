"""What is recorded: what a rank communicated, what lay in memory, what went silently wrong."""

from dataclasses import dataclass, field, replace

from .timeline import COMPUTE, read_label


@dataclass(frozen=True, slots=True)
class Frame:
    """A line of code: file as Python knows it, line number, function."""

    file: str
    line: int
    function: str


@dataclass(slots=True)
class CommEvent:
    """One operation that a rank issued, by whichever way it was called.

    rank, n: the rank, and how many operations it had issued before this one.
    op: the learner's name: send recv broadcast all_reduce reduce all_gather gather scatter
        reduce_scatter all_to_all barrier.
    group, ranks: name of the process group, and its members as global ranks, in group order.
    peer: global rank: destination of a send, source of a recv (None while it may come from any
        rank), root of broadcast, reduce, gather and scatter; else None.
    nbytes: size of "the tensor": the message; what is reduced or broadcast; one rank's share in
        all_gather, gather, scatter and reduce_scatter; the whole input of all_to_all; 0 in barrier.
    splits: for all_to_all, all_gather and reduce_scatter with unequal parts, bytes of the part of
        each member, in group order; None where the parts are equal.
    shapes, dtype: of that tensor, or of each tensor of a coalesced call.
    reduce_op: "sum", "avg", "max" ...; None where nothing is reduced.
    blocking: the call itself waits (dist.send, or async_op=False).
    native: issued by C++ (as by DistributedDataParallel), which waits where nobody can see it.
    issued, waited, done: `time.monotonic()` in seconds: issue, begin of wait(), return of wait().
        None if that was not reached. An operation that nobody waits for in Python is `done` when it
        was first seen to be complete.
    where: the learner's frames, innermost first, at most 6.
    spans: open torch.profiler.record_function labels at issue, outermost first; for a helper
        thread those of the main one before its own.
    thread: 0 if the thread that opened the recorder issued it, else 1, 2 ... by first appearance.
    """

    rank: int
    n: int
    op: str
    group: str
    ranks: tuple[int, ...]
    peer: int | None
    tag: int
    nbytes: int
    shapes: tuple[tuple[int, ...], ...]
    dtype: str
    reduce_op: str | None
    blocking: bool
    native: bool
    issued: float
    waited: float | None = None
    done: float | None = None
    where: tuple[Frame, ...] = ()
    spans: tuple[str, ...] = ()
    splits: tuple[int, ...] | None = None
    thread: int = 0


@dataclass(frozen=True, slots=True)
class ComputeSpan:
    """A stretch in which a rank computed, between two communications or labels.

    start, end: `time.monotonic()` in seconds.
    seconds: processor time of the rank's thread, which is less than end - start where ranks share
        a core (`course_lib.observe.stopwatch`).
    spans: open torch.profiler.record_function labels, outermost first.
    """

    rank: int
    start: float
    end: float
    seconds: float
    spans: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The innermost label that names a pipeline's operation, else the innermost of all."""
        operations = [label for label in self.spans if isinstance(read_label(label), tuple)]
        return (operations or self.spans or (COMPUTE,))[-1]


@dataclass(frozen=True, slots=True)
class Label:
    """A torch.profiler.record_function from its begin to its end, `time.monotonic()` seconds."""

    rank: int
    name: str
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class RankWarning:
    """Something that gives wrong numbers, or none, without an error of its own.

    kind: non_contiguous, aliased_list, no_such_rank (these three are also raised, as ValueError),
        rewritten_in_flight, read_before_wait, never_waited, waited_twice, cut_gradient;
        mismatched_message, mismatched_collective (found in the records of several ranks).
    message: what happened, why it goes wrong and how to repair it, with line numbers.
    where: the learner's frames of the offending line, innermost first.
    issued_at: those of the operation it offends against, where that is another line.
    """

    rank: int
    kind: str
    message: str
    where: tuple[Frame, ...] = ()
    issued_at: tuple[Frame, ...] = ()


@dataclass(slots=True)
class Block:
    """One storage: the memory behind a tensor and all its views. It is counted once.

    rank, n: the rank, and how many blocks it had been seen to use before this one.
    kind: what it turned out to be for (`course_lib.observe.memory_tracker`); it holds from the
        beginning of the block.
    steps: (time, bytes, saved) whenever one of the last two changed. `saved`: a graph keeps it for
        its backward pass. A block that was given back has 0 bytes.
    """

    rank: int
    n: int
    kind: str = "other"
    steps: list[tuple[float, int, bool]] = field(default_factory=list)

    def between(self, start: float, end: float) -> "Block":
        """The part from `start` to `end`, in seconds; no steps where nothing was held in it."""
        before = [step for step in self.steps if step[0] <= start]
        inside = [step for step in self.steps if start < step[0] <= end]
        if before and before[-1][1]:
            inside.insert(0, (start, *before[-1][1:]))
        return replace(self, steps=inside)
