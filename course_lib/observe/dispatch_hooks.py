"""A place to look at an operator on its way to the code that carries it out.

Torch passes every operator through a row of dispatch keys. `BackendSelect` is one of the last, just
before CPU or CUDA: autograd, tensor subclasses and modes have done their part by then, and Python
and C++ (as in DistributedDataParallel) come by alike. Few operators have anything to do there, so a
function registered for one sees all its calls, at no cost to any other operator.
"""

import threading
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch._C import DispatchKey

Around = Callable[[tuple, dict, Callable[[], Any]], Any]
"""Gets an operator's arguments and what carries it out, and returns the result."""

_AFTER = torch._C._dispatch_keyset_full_after(DispatchKey.BackendSelect)


class DispatchHooks:
    """Functions around operators, from `put` to `remove`; an operator inside one is let pass."""

    def __init__(self) -> None:
        self._libraries: dict[str, torch.library.Library] = {}
        self._inside: set[int] = set()  # threads

    def put(self, name: str, around: Callable[[torch._ops.OpOverload], Around]) -> None:
        """Look at the operator "namespace::name"; one that this torch lacks is passed over."""
        namespace, _, operator = name.partition("::")
        for overload in _overloads(namespace, operator):
            if namespace not in self._libraries:
                self._libraries[namespace] = torch.library.Library(namespace, "IMPL")
            kernel = self._kernel(overload, around(overload))
            self._libraries[namespace].impl(overload, kernel, "BackendSelect", with_keyset=True)

    def remove(self) -> None:
        for library in self._libraries.values():
            library._destroy()
        self._libraries.clear()

    def _kernel(self, op: torch._ops.OpOverload, around: Around) -> Callable:
        inside = self._inside

        def kernel(keyset: Any, *args: Any, **kwargs: Any) -> Any:
            def carry_out() -> Any:
                return op.redispatch(keyset & _AFTER, *args, **kwargs)

            thread = threading.get_ident()
            if thread in inside:
                return carry_out()
            inside.add(thread)
            try:
                return around(args, kwargs, carry_out)
            finally:
                inside.discard(thread)

        return kernel


def _overloads(namespace: str, operator: str) -> Iterable[torch._ops.OpOverload]:
    packet = getattr(getattr(torch.ops, namespace), operator, None)
    return [getattr(packet, name) for name in packet.overloads()] if packet else []
