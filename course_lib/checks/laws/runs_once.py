"""A module runs forward as often as is due, and not once more to look at its result.

A forward pass that is run twice gives the same numbers, and takes twice the time.
"""

from typing import Any

from torch import nn
from torch.nn.modules.module import register_module_forward_hook

from ._law import Call, Law, Watch
from ._snapshot import modules


def watch(call: Call) -> Watch:
    assert call.contract.runs is not None, "the law does not apply"
    due = call.contract.runs(call.arguments)
    names = {id(m): n for n, value in call.arguments.items() for _, m in modules(value)}
    counts = dict.fromkeys(names, 0)

    def ran(module: nn.Module, *_: Any) -> None:
        if id(module) in counts:
            counts[id(module)] += 1

    handle = register_module_forward_hook(ran)
    yield
    handle.remove()
    for module, count in counts.items():
        if count > due:
            return (
                f"`{names[module]}` ran forward {count} times where {due} will do, and forward "
                "passes are what takes the time: keep what the first one returned"
            )
    return None


LAW = Law(watch, applies=lambda contract: contract.runs is not None)
