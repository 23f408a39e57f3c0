"""From stage to stage: to another rank as a message, or within the same one as it is.

What a stage gives has one taker. F of the next stage starts from the output of F, and B (or I) of
the stage before from the gradient of its input.
"""

from collections.abc import Collection

import torch

from course_lib.techniques.schedules import BACKWARD, BACKWARD_WEIGHT, FORWARD, Op, result_of

from .mailbox import Mailbox


class Handover:
    """On one rank, for the operations of its row.

    mailbox: messages from and to other ranks. here: the stages of this rank. last: that of all.
    """

    def __init__(self, mailbox: Mailbox, here: Collection[int], last: int) -> None:
        self.mailbox, self.here, self.last = mailbox, here, last
        self._waiting: dict[Op, torch.Tensor | None] = {}  # for stages of this rank

    def take(self, op: Op) -> torch.Tensor | None:
        """The activation or gradient that `op` starts from; None where no other stage gives one."""
        kind, stage, microbatch = op
        if kind == BACKWARD_WEIGHT or stage == (0 if kind == FORWARD else self.last):
            return None
        before = Op(FORWARD, stage - 1, microbatch)
        needed = before if kind == FORWARD else Op(BACKWARD, stage + 1, microbatch)
        if self.mailbox.receives(needed):
            return self.mailbox.receive(needed)
        return self._waiting.pop(needed)

    def give(self, op: Op, result: torch.Tensor | None) -> None:
        """Pass on what came out of `op`, if another stage starts from it."""
        taker = op.stage + (1 if op.kind == FORWARD else -1)
        if op.kind == BACKWARD_WEIGHT or not 0 <= taker <= self.last:
            return
        if taker in self.here:
            self._waiting[result_of(op)] = result
        else:
            self.mailbox.send(result_of(op), result)
