"""A view under sliders: any function that draws, and the values its arguments may take."""

import asyncio
import inspect
from collections.abc import Callable, Sequence
from typing import Any

from .view import View, said

_PAUSE = 0.02  # seconds in which changes that have already arrived are taken in


def explore(draw: Callable[..., View], **choices: Sequence[Any]) -> "Explorer":
    """A slider for each of the named arguments of `draw`, over the given values.

    The sliders begin at the defaults of `draw`. What they begin with is also the static picture and
    text of the output, for readers without a kernel.
    """
    return Explorer(draw, choices)


class Explorer(View):
    """A view whose arguments can be changed where a kernel runs and ipywidgets is installed."""

    def __init__(self, draw: Callable[..., View], choices: dict[str, Sequence[Any]]):
        self._draw = draw
        self._choices = choices
        self._start = _defaults(draw, choices)
        first = draw(**self._start)
        super().__init__(first.figure, first.text)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        static = {"text/plain": self.text, "image/png": self.png()}
        try:
            widget = self.widget()
        except ModuleNotFoundError as missing:
            note = f"(no sliders: {missing.name} is not installed; pip install ipywidgets)"
            return {**static, "text/plain": f"{self.text}\n{note}"}
        return {**widget._repr_mimebundle_(), **static}

    def widget(self) -> Any:
        """Sliders above an image, which each change replaces by the bytes of a fresh figure.

        No Output widget and nothing printed: a callback that prints would appear as new output.
        """
        import ipywidgets  # optional: everything else works without it

        image = ipywidgets.Image(value=self.png(), format="png")
        sliders = {
            name: ipywidgets.SelectionSlider(
                options=values,
                value=self._start[name],
                description=name.replace("_", " "),
                style={"description_width": "initial"},
                layout={"width": "330px"},  # the usual 300 cut "InfiniBand HDR" off
            )
            for name, values in self._choices.items()
        }

        def redraw() -> None:
            try:
                view = self._draw(**{name: s.value for name, s in sliders.items()})
            except (
                Exception
            ) as problem:  # a combination that cannot be, or a learner's own function
                view = said(str(problem) or type(problem).__name__)
            image.value = view.png()

        late = Latest(redraw)
        for slider in sliders.values():
            slider.observe(lambda _change: late(), names="value")
        # A slider keeps its width, so more of them than fit beside each other need further rows.
        row = ipywidgets.HBox(list(sliders.values()), layout={"flex_flow": "row wrap"})
        return ipywidgets.VBox([row, image])


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


def _defaults(draw: Callable[..., View], choices: dict[str, Sequence[Any]]) -> dict[str, Any]:
    parameters = inspect.signature(draw).parameters
    start = {}
    for name, values in choices.items():
        if name not in parameters:
            raise ValueError(f"there is a slider for {name!r}, but no such argument to draw by")
        start[name] = parameters[name].default
        if start[name] not in values:
            raise ValueError(f"{name} begins at {start[name]!r}, which is not among {values!r}")
    return start
