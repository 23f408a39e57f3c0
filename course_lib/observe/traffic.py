"""Who sent how much to whom: a pure function of what was recorded."""

from collections.abc import Iterable

from course_lib.text import table

from .collective_bytes import sends
from .events import CommEvent

Matrix = list[list[int]]


class Traffic:
    """Bytes between ranks; `course_lib.observe.collective_bytes` says how collectives are counted.

    sent[r], received[r]: bytes, by global rank. Their sums are equal: a message counts where it was
        sent, and for the rank that it was sent to.
    messages[r]: how many messages rank r sent.
    matrix[source][destination]: bytes.
    by_operation[op]: (sent, received), as above, of this operation only.
    """

    def __init__(self, world_size: int, events: Iterable[CommEvent]):
        self.world_size = world_size
        self._events = list(events)
        self.messages = [0] * world_size
        matrices: dict[str, Matrix] = {}
        for event in self._events:
            op = "send" if event.op == "recv" else event.op
            matrix = matrices.setdefault(op, _zeros(world_size))
            for part in sends(event):
                matrix[event.rank][part.to] += part.nbytes
                self.messages[event.rank] += part.messages
        self.matrix = _zeros(world_size)
        for matrix in matrices.values():
            for row, more in zip(self.matrix, matrix, strict=True):
                row[:] = [a + b for a, b in zip(row, more, strict=True)]
        self.sent, self.received = _sums(self.matrix)
        self.by_operation = {op: _sums(matrix) for op, matrix in matrices.items()}

    def only(self, *ops: str) -> "Traffic":
        """The part that these operations made: `traffic.only("all_reduce", "broadcast")`."""
        wanted = {"recv" if op == "send" else op for op in ops} | set(ops)
        return Traffic(self.world_size, (e for e in self._events if e.op in wanted))

    def point_to_point(self) -> "Traffic":
        """The part that send and recv made."""
        return self.only("send")

    def __str__(self) -> str:
        head = ["", *(f"rank {rank}" for rank in range(self.world_size)), "all"]
        rows = [head]
        for name, amounts in [("sent", self.sent), ("received", self.received)]:
            rows.append([name, *map(_grouped, amounts), _grouped(sum(amounts))])
        rows.append(["messages", *map(_grouped, self.messages), _grouped(sum(self.messages))])
        if len(self.by_operation) > 1:
            for op, (amounts, _) in self.by_operation.items():
                rows.append([f"  by {op}", *map(_grouped, amounts), _grouped(sum(amounts))])
        return f"bytes, by rank\n{table(rows)}"

    __repr__ = __str__


def _zeros(n: int) -> Matrix:
    return [[0] * n for _ in range(n)]


def _sums(matrix: Matrix) -> tuple[list[int], list[int]]:
    return [sum(row) for row in matrix], [sum(column) for column in zip(*matrix, strict=True)]


def _grouped(number: int) -> str:
    return f"{number:,}"
