"""A view under controls: any function that draws, and the values its arguments may take.

Controls and picture are two outputs. The picture is replaced in place whenever a control moves, so
what a saved notebook holds is the picture that was last seen, and it needs no kernel to be shown.
"""

import asyncio
import inspect
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .svg_drawing import WIDEST, Picture
from .view import View, said

_PAUSE = 0.02  # seconds in which changes that have already arrived are taken in
_LINE = 84  # letters of a text
_BUTTONS = 24  # letters of all choices together, up to which they are buttons beside one another


@dataclass(frozen=True)
class Control:
    """What may be chosen for one argument, and how that is said.

    values  in order; numbers are on a slider, names on buttons or in a list
    label   in words; the argument's name, if it is left out
    unit    behind each number
    names   how single values are said, where that is not their number or text
    when    whether it changes anything, by the values of all controls; else it is disabled
    """

    values: Sequence[Any]
    label: str = ""
    unit: str = ""
    names: Mapping[Any, str] = field(default_factory=dict)
    when: Callable[[Mapping[str, Any]], bool] | None = None

    def said(self, value: Any) -> str:
        """A value in words."""
        if value in self.names:
            return self.names[value]
        words = f"{value:g}" if isinstance(value, float) else str(value)
        return f"{words} {self.unit}".strip()

    @property
    def is_number(self) -> bool:
        return all(isinstance(value, int | float) for value in self.values)


def explore(
    draw: Callable[..., View], height: float = 0, **choices: Sequence[Any] | Control
) -> "Explorer":
    """A control for each of the named arguments of `draw`, over the given values.

    The controls begin at the defaults of `draw`. What they begin with is also the static picture
    and text of the output, for readers without a kernel.

    height  pixels that every picture has at least, so that what stands below does not jump
    """
    controls = {
        name: choice if isinstance(choice, Control) else Control(choice)
        for name, choice in choices.items()
    }
    return Explorer(draw, controls, height)


class Explorer(View):
    """A view whose arguments can be changed where a kernel runs and ipywidgets is installed."""

    def __init__(self, draw: Callable[..., View], controls: dict[str, Control], height: float = 0):
        self._draw = draw
        self._controls = controls
        self._start = _defaults(draw, controls)
        self._height = height
        first = self.drawn(self._start)
        super().__init__(first.picture, first.text)

    def drawn(self, values: Mapping[str, Any]) -> View:
        """The view for these values, or in its place why there is none."""
        try:
            view = self._draw(**values)
        except Exception as problem:  # a combination that cannot be, or a learner's own function
            if values == self._start:
                raise
            view = said(str(problem) or type(problem).__name__)
        if isinstance(view.picture, Picture):
            view.picture.at_least(self._height)
        return view

    def _ipython_display_(self) -> None:
        """Two outputs: the controls, and the picture, which they replace."""
        from IPython.display import display

        controls, picture = self.bundles(lambda view: shown.update(_bundle(view), raw=True))
        display(controls, raw=True)
        shown = display(picture, raw=True, display_id=True)

    def bundles(
        self, listen: Callable[[View], None] | None = None
    ) -> tuple[dict[str, Any], dict[str, str]]:
        """What is stored of the controls and of the picture; `listen` gets each new view."""
        try:
            controls, follow = self.controls()
        except ModuleNotFoundError as missing:
            note = f"(no controls: {missing.name} is not installed; pip install ipywidgets)"
            return {"text/plain": note}, _bundle(self)
        if listen is not None:
            follow(listen)
        # The widget's own text would be a line of code.
        return controls._repr_mimebundle_() | {"text/plain": self._said()}, _bundle(self)

    def _said(self) -> str:
        """The controls without a kernel: what is shown, and that it could be something else."""
        words = "; ".join(
            f"{_label(name, control)} = {control.said(self._start[name])}".replace(" ", "\xa0")
            for name, control in self._controls.items()
            if control.when is None or control.when(self._start)
        )
        # JupyterLab breaks long lines anywhere; a name and its value stay together.
        shown = textwrap.fill(f"Shown: {words}.", _LINE).replace("\xa0", " ")
        return f"{shown}\nWith a running kernel you can change this here."

    def controls(self) -> tuple[Any, Callable[[Callable[[View], None]], None]]:
        """The widgets, and what takes the function to call with each new view.

        Nothing is printed: what a callback prints would appear as new output.
        """
        import ipywidgets  # optional: everything else works without it

        widgets = {
            name: _widget(ipywidgets, name, control, self._start[name])
            for name, control in self._controls.items()
        }
        listeners: list[Callable[[View], None]] = []

        def values() -> dict[str, Any]:
            return {name: widget.value for name, widget in widgets.items()}

        def redraw() -> None:
            view = self.drawn(values())
            for listen in listeners:
                listen(view)

        late = Latest(redraw)

        def changed(_change: Any) -> None:
            _enable(widgets, self._controls, values())
            late()

        for widget in widgets.values():
            widget.observe(changed, names="value")
        _enable(widgets, self._controls, values())
        layout = {"flex_flow": "row wrap", "max_width": f"{WIDEST}px", "margin": "4px 0"}
        return ipywidgets.HBox(list(widgets.values()), layout=layout), listeners.append


def _bundle(view: View) -> dict[str, str]:
    return view._repr_mimebundle_()


def _label(name: str, control: Control) -> str:
    return control.label or name.replace("_", " ")


def _enable(
    widgets: Mapping[str, Any], controls: Mapping[str, Control], values: Mapping[str, Any]
) -> None:
    """Disable what changes nothing."""
    for name, control in controls.items():
        if control.when is not None:
            widgets[name].disabled = not control.when(values)


def _widget(ipywidgets: Any, name: str, control: Control, start: Any) -> Any:
    """A slider for numbers, else buttons if they fit beside one another, else a list."""
    options = [(control.said(value), value) for value in control.values]
    common = {
        "options": options,
        "value": start,
        "description": _label(name, control),
        "style": {"description_width": "initial"},
    }
    layout = {"margin": "2px 24px 2px 0"}
    if control.is_number:
        return ipywidgets.SelectionSlider(**common, layout=layout | {"width": "380px"})
    if sum(len(words) + 3 for words, _ in options) <= _BUTTONS:
        style = common["style"] | {"button_width": "auto"}
        return ipywidgets.ToggleButtons(**common | {"style": style}, layout=layout)
    return ipywidgets.Dropdown(**common, layout=layout | {"width": "380px"})


class Latest:
    """Calls `work` once for all the calls that came while it was busy, instead of once for each.

    A slider that is dragged sends each value it passes, faster than pictures can be drawn. In a
    kernel these lie in the queue of its event loop; by drawing a moment later, in the same loop,
    all that are there by then are taken in, and only the last one is drawn. Without a loop `work`
    runs at once.
    """

    def __init__(self, work: Callable[[], None]):
        self._work = work
        self._waiting = False

    def __call__(self) -> None:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            self._work()
            return
        if not self._waiting:
            self._waiting = True
            loop.call_later(_PAUSE, self._now)

    def _now(self) -> None:
        self._waiting = False
        self._work()


def _defaults(draw: Callable[..., View], controls: dict[str, Control]) -> dict[str, Any]:
    parameters = inspect.signature(draw).parameters
    start = {}
    for name, control in controls.items():
        if name not in parameters:
            raise ValueError(f"there is a control for {name!r}, but no such argument to draw by")
        start[name] = parameters[name].default
        if start[name] not in control.values:
            raise ValueError(
                f"{name} begins at {start[name]!r}, which is not among {control.values!r}"
            )
    return start
