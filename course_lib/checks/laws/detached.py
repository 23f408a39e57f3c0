"""What is returned for others to read is a number, and keeps no graph alive.

A loss that still hangs on its graph keeps all activations of the step in memory, as long as
somebody has the loss, in a list for a curve for example.
"""

from ._law import Call, Law, Watch
from ._snapshot import tensors


def watch(call: Call) -> Watch:
    yield
    if any(tensor.requires_grad for _, tensor in tensors(call.returned)):
        return (
            "what you returned still requires grad, and keeps the graph of the whole pass alive "
            "for as long as somebody has it: return it detached, value.detach()"
        )
    return None


LAW = Law(watch, applies=lambda contract: contract.detached)
