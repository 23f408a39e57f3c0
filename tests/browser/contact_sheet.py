"""All pictures of the course on one page: `python -m tests.browser.contact_sheet OUT`.

Every executed lesson is opened in a real JupyterLab, light and dark, each on a plain screen and on
a sharp one, each on a narrow one and on a wide one, and as a narrow web page in both themes; the
learners' notebooks are opened too, which have no pictures yet. Each picture and card is
photographed as it stands there: OUT/index.html has them side by side. What the consoles say and
what `flaws.js` finds (words that overlap, are cut off or hard to read, images that are blurred, and
whatever is wider than its room) is printed, and makes the exit code 1.
"""

import argparse
import html
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import nbformat
from playwright.sync_api import ConsoleMessage, Page

from docs.site import as_page
from tests.browser.lab import Lab, a_page, jupyterlab

ROOT = Path(__file__).resolve().parents[2]
SHOWN = ".course-picture, .course-card, img.course-view, .jp-OutputArea-output:has(table)"
FLAWS = Path(__file__).with_name("flaws.js").read_text(encoding="utf-8")
NARROW, HIGH = 820, 1000  # points of a web page's window


@dataclass(frozen=True)
class Screen:
    """A theme, and a window of `width` points with `scale` pixels each."""

    theme: str
    width: int
    scale: float
    learners: bool = False  # whether the learners' notebooks are looked at, too

    @property
    def name(self) -> str:
        return f"{self.theme.split()[-1].lower()} {self.width} x{self.scale:g}"


# Each width and each scale in both themes.
SCREENS = (
    Screen("JupyterLab Light", 1280, 1, learners=True),
    Screen("JupyterLab Light", 1920, 2),
    Screen("JupyterLab Dark", 1920, 1, learners=True),
    Screen("JupyterLab Dark", 1280, 2),
)


@dataclass
class Sheet:
    """What was photographed of each lesson on each screen, and what is wrong with it."""

    out: Path
    photos: dict[str, dict[str, list[Path]]] = field(default_factory=dict)
    complaints: list[str] = field(default_factory=list)

    def look(self, page: Page, lesson: str, screen: str) -> None:
        """Photograph what an open lesson shows, and ask for what is wrong."""
        found = self.photos.setdefault(lesson, {}).setdefault(screen, [])
        shown = page.locator(SHOWN)
        for index in range(shown.count()):
            one = shown.nth(index)
            if one.is_visible():
                one.scroll_into_view_if_needed()
                found.append(self.out / f"{lesson}-{index:02}-{screen.replace(' ', '-')}.png")
                one.screenshot(path=found[-1])
        self.complaints += [f"{lesson}, {screen}: {flaw}" for flaw in page.evaluate(FLAWS)]

    def listen(self, page: Page, screen: str) -> None:
        """Take down the errors of its console."""

        def said(message: ConsoleMessage) -> None:
            if message.type == "error":
                self.complaints.append(f"{screen}: {message.text}")

        page.on("console", said)

    def page(self) -> str:
        """The sheet itself."""
        parts = ["<!DOCTYPE html><meta charset='utf-8'><title>Contact sheet</title>"]
        parts.append(
            "<style>body{font:14px sans-serif}img{max-width:32%;vertical-align:top}</style>"
        )
        for lesson, screens in self.photos.items():
            parts.append(f"<h2>{html.escape(lesson)}</h2>")
            for same in zip(*filter(None, screens.values()), strict=False):
                images = (f"<img src='{path.name}' alt='{path.stem}'>" for path in same)
                parts.append(f"<div>{' '.join(images)}</div><hr>")
        return "\n".join(parts)


def make(out: Path, lessons: list[str]) -> list[str]:
    """Write the sheet; returns what is wrong."""
    out.mkdir(parents=True, exist_ok=True)
    names = lessons or [path.stem for path in sorted((ROOT / "solutions").glob("*.ipynb"))]
    sheet = Sheet(out)
    for screen in SCREENS:
        folders = ("solutions", "notebooks") if screen.learners else ("solutions",)
        with _lab(folders, names, screen) as lab:
            sheet.listen(lab.page, screen.name)
            for folder in folders:
                for name in names:
                    lab.open(f"{folder}/{name}.ipynb")
                    sheet.look(lab.page, name, f"{screen.name} {folder}")
    with a_page(NARROW, HIGH) as page, tempfile.TemporaryDirectory() as private:
        sheet.listen(page, "page")
        for name in names:
            notebook = nbformat.read(ROOT / "solutions" / f"{name}.ipynb", as_version=4)
            file = Path(private, f"{name}.html")
            file.write_text(as_page(notebook, name), encoding="utf-8")
            page.goto(file.as_uri())
            for theme in ("light", "dark"):
                page.emulate_media(color_scheme=theme)
                sheet.look(page, name, f"{theme} page")
    (out / "index.html").write_text(sheet.page(), encoding="utf-8")
    return sheet.complaints


@contextmanager
def _lab(folders: Sequence[str], names: list[str], screen: Screen) -> Iterator[Lab]:
    """JupyterLab on copies of the lessons."""
    with tempfile.TemporaryDirectory(prefix="course-sheet-") as private:
        for folder in folders:
            Path(private, folder).mkdir()
            for name in names:
                shutil.copy(ROOT / folder / f"{name}.ipynb", Path(private, folder))
        with jupyterlab(
            Path(private), screen.theme, screen.width, scale=screen.scale, trusted=True
        ) as lab:
            yield lab


def main(arguments: list[str] | None = None) -> int:
    """Make the sheet; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.browser.contact_sheet", description=__doc__
    )
    parser.add_argument("out", type=Path, help="a folder")
    parser.add_argument("lesson", nargs="*", help="such as 00_ranks; all if none is given")
    options = parser.parse_args(arguments)
    complaints = make(options.out, options.lesson)
    for complaint in complaints:
        print(complaint, file=sys.stderr)
    print(os.fspath(options.out / "index.html"))
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
