"""Prefetching: parameters begin to travel one unit before they are needed.

    forward     unshard 0 | run 0, unshard 1 | reshard 0, run 1, unshard 2 | ...
    backward    unshard 2 | run 2, unshard 1 | reshard 2, reduce-scatter 2, run 1, unshard 0 | ...

Nothing tells in which order a model calls its modules but a forward pass that did. So the first
forward pass fetches nothing ahead, and each later one what the one before it ran next.
"""

from .unshard_reshard import Unit


class Prefetcher:
    """Remembers the order of the last forward pass, and begins to unshard by it."""

    def __init__(self) -> None:
        self.order: list[Unit] = []  # of the last forward pass
        self.called: list[Unit] = []  # by the forward pass going on

    def forward(self, unit: Unit) -> None:
        """The forward pass calls `unit`: begin to unshard the one after it."""
        self._start(unit, +1)
        self.called.append(unit)

    def backward(self, unit: Unit) -> None:
        """The backward pass is in `unit`: begin to unshard the one before it."""
        self._start(unit, -1)

    def end_forward(self) -> None:
        """A forward pass has called all that it calls."""
        self.order, self.called = self.called, []

    def forget_calls(self) -> None:
        """The step is over: units that were called outside of a whole forward pass do not count."""
        self.called = []

    def _start(self, unit: Unit, direction: int) -> None:
        if unit in self.order:
            neighbour = self.order.index(unit) + direction
            if 0 <= neighbour < len(self.order):
                self.order[neighbour].start_unshard()
