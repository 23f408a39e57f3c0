"""What a picture holds, read back from its SVG; and controls moved as a person does."""

import html
import re
import urllib.parse
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from typing import Any

from course_lib.views.view import View
from course_lib.views.widgets import Explorer

_SVG = "{http://www.w3.org/2000/svg}"


@dataclass(frozen=True)
class Box:
    """A rectangle: its place in pixels, colour or ink, what it tells and what stands in it."""

    x: float
    y: float
    wide: float
    high: float
    fill: str
    hint: str
    word: str
    key: str
    strength: float = 1.0

    @property
    def right(self) -> float:
        return self.x + self.wide


def tree(view: View) -> ElementTree.Element:
    return ElementTree.fromstring(view.svg())


def boxes(view: View, key: str | None = None) -> list[Box]:
    """All that stand for something, or those that stand for `key`."""
    return [box for box in every_box(view) if box.key and key in (None, box.key)]


def every_box(view: View) -> list[Box]:
    """All that are no key, also those without a name of their own."""
    found = []
    for group in tree(view).iter(f"{_SVG}g"):
        name = group.get("data-key", "")
        rect = group.find(f"{_SVG}rect")
        if group.get("class") != "b" or rect is None or name == "key":
            continue
        place = (float(rect.get(side)) for side in ("x", "y", "width", "height"))
        told = (group.findtext(f"{_SVG}{tag}") or "" for tag in ("title", "text"))
        found.append(Box(*place, _fill(rect), *told, name, float(rect.get("fill-opacity", 1))))
    return found


def _fill(rect: ElementTree.Element) -> str:
    """A colour, or an ink by its name."""
    return rect.get("fill") or re.sub(r"fill:var\(--(\w+)\)", r"\1", rect.get("style", ""))


def keys(view: View) -> list[str]:
    """What the colours mean, as the picture says below itself."""
    svg = view.svg()
    names = re.findall(r"data-key='key'>.*?</g><text[^>]*>(.*?)</text>", svg)
    return [html.unescape(name) for name in names]


def words(view: View) -> list[str]:
    """All that is written, a text as often as it stands there."""
    return [text.text or "" for text in tree(view).iter(f"{_SVG}text")]


def places(view: View) -> dict[str, list[tuple[float, float]]]:
    """Where each text stands, in pixels."""
    found: dict[str, list[tuple[float, float]]] = {}
    for text in tree(view).iter(f"{_SVG}text"):
        found.setdefault(text.text or "", []).append((float(text.get("x")), float(text.get("y"))))
    return found


def curves(view: View) -> dict[str, list[tuple[float, float]]]:
    """The lines that have a name, in pixels."""
    return {
        line.get("data-key"): [tuple(map(float, p.split(","))) for p in line.get("points").split()]
        for line in tree(view).iter(f"{_SVG}polyline")
        if line.get("data-key")
    }


def layers(view: View, key: str) -> list[list[tuple[float, float]]]:
    """The corners of stepped areas that stand for `key`, in pixels."""
    found = []
    for path in tree(view).iter(f"{_SVG}path"):
        if path.get("data-key") == key:
            x = y = 0.0
            corners = []
            for sign, numbers in re.findall(r"([MVH])([-\d.,]+)", path.get("d")):
                x, y = {
                    "M": lambda n, x, y: tuple(map(float, n.split(","))),
                    "V": lambda n, x, y: (x, float(n)),
                    "H": lambda n, x, y: (float(n), y),
                }[sign](numbers, x, y)
                corners.append((x, y))
            found.append(corners)
    return found


def shown_in(bundle: dict[str, str]) -> str:
    """The SVG in the output of a notebook."""
    source = re.search(r'src="data:image/svg\+xml;charset=utf-8,(.*?)"', bundle["text/html"])
    return urllib.parse.unquote(source.group(1))


class Moved:
    """An explorer with its controls by name, and what it last showed."""

    def __init__(self, explorer: Explorer) -> None:
        box, follow = explorer.controls()
        self.view: View = explorer
        self.widgets = dict(zip(explorer._controls, box.children, strict=True))
        follow(self._take)

    def _take(self, view: View) -> None:
        self.view = view

    def __call__(self, **values: Any) -> View:
        for name, value in values.items():
            self.widgets[name].value = value
        return self.view

    def offered(self, name: str) -> list[Any]:
        return [value for _, value in self.widgets[name].options]
