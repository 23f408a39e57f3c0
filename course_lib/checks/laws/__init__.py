"""Laws: what every answer to an exercise must hold, whatever else the exercise asks.

A law is a file here, found by itself, that defines `LAW`. Every check keeps it wherever it applies
to the contract of the exercise, which does nothing for it.

How a law is written
    `watch` is a generator that runs on a rank around one call of the answer:

        def watch(call):
            ...                 # note something, or put something else into call.arguments
            yield               # the answer is called
            ...                 # call.returned is there
            yield               # the check uses what came, to the end of the case
            ...
            yield               # the same ranks go through all other cases
            ...

    Where it finds the law broken it returns the sentence that says so; a law without interest in
    what comes later just ends. Laws are entered in the order of their `order`, and left the other
    way round, so the first one stands between the check and all others.

    Where the record shows whether it is kept, `judge` looks at that, where no answer runs.

    What has to be tried in a run of its own is a variation: an exercise made of another, with its
    own way to run a case and to judge it (`variations`). With `fresh`, one of its ranks is a Python
    of its own, and it is run only for answers that go by hashes.

How an exercise uses them
    It states its contract (`course_lib.checks.contract`), and hands the answer it was given to
    nobody but itself: `on_rank` calls `answer(...)`, which is where the laws look.
"""

import functools
import importlib
import pkgutil

from ._law import Breach, Call, Law, Watch

__all__ = ["Breach", "Call", "Law", "Watch", "all_laws"]


@functools.cache
def all_laws() -> tuple[Law, ...]:
    """Every law, in the order in which they are entered."""
    names = sorted(m.name for m in pkgutil.iter_modules(__path__) if not m.name.startswith("_"))
    laws = [importlib.import_module(f"{__name__}.{name}").LAW for name in names]
    return tuple(sorted(laws, key=lambda law: law.order))
