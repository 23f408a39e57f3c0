"""What a call returned stays as it is when the function is called again.

A buffer in a default argument, a global or a cache looks right after every single call.
"""

from ._law import Call, Law, Watch
from ._snapshot import difference, frozen


def watch(call: Call) -> Watch:
    yield
    returned = call.returned
    yield
    before = frozen(returned)
    yield
    if difference(before, returned):
        return (
            "what the function returned has changed while it was called again: both results lie in "
            "memory that it keeps between calls (in a default argument, a global, a cache?)"
        )
    return None


LAW = Law(watch)
