"""What a notebook shows for something that has a text everywhere else; it imports no room.

Rooms below `views` hand over what they have to say; how it looks is registered from above
(`course_lib.notebook_display`). Without a notebook, or without a form, there is the text.
"""

import sys
import weakref
from collections.abc import Callable
from typing import Any

Form = Callable[[Any], str]
_FORMS: dict[type, Form] = {}
_last: weakref.ref | None = None  # what was shown last


def register(kind: type, form: Form) -> None:
    """Let values of this kind be shown by `form(value)`, HTML; "" leaves one to its text."""
    _FORMS[kind] = form


def show(value: Any, text: str = "") -> bool:
    """Show the form of a value, if there is one and this is a notebook; False if not.

    A second time in a row it is not shown again: IPython asks an error twice for its text.

    text: the same for those who cannot see the form, if it does not stand beside it anyway.
    """
    global _last
    if _last is not None and _last() is value:
        return True
    form = _FORMS.get(type(value))
    if form is None or not in_a_notebook():
        return False
    try:
        html = form(value)
    except Exception:  # what is wrong with a picture must not hide a report
        return False
    if html:
        from IPython.display import display

        display({"text/html": html} | ({"text/plain": text} if text else {}), raw=True)
        _last = weakref.ref(value)
    return bool(html)


def in_a_notebook() -> bool:
    """Whether this process is a kernel: only there is more than text."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    return hasattr(shell, "kernel")
