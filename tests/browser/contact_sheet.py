"""All pictures of the course on one page: `python -m tests.browser.contact_sheet OUT`.

Every executed lesson is opened in a real JupyterLab, light on a plain screen and dark on a sharp
one at another width, and each of its pictures and cards is photographed as it stands there.
OUT/index.html has them side by side. The console's errors are printed, and make the exit code 1.
"""

import argparse
import html
import os
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.browser.lab import Lab, jupyterlab

ROOT = Path(__file__).resolve().parents[2]
SHOWN = ".course-picture, .course-card, img.course-view, .jp-OutputArea-output:has(table)"


@dataclass(frozen=True)
class Screen:
    """A theme, and a window of `width` points with `scale` pixels each."""

    name: str
    theme: str
    width: int
    scale: float


SCREENS = (
    Screen("light", "JupyterLab Light", 1280, 1),
    Screen("dark", "JupyterLab Dark", 1920, 2),
)


def photograph(lab: Lab, name: str, screen: Screen, out: Path) -> list[Path]:
    """A file for each thing that is shown in a notebook, in order."""
    lab.open(name)
    found = []
    shown = lab.page.locator(SHOWN)
    for index in range(shown.count()):
        one = shown.nth(index)
        if not one.is_visible():
            continue
        one.scroll_into_view_if_needed()
        path = out / f"{Path(name).stem}-{index:02}-{screen.name}.png"
        one.screenshot(path=path)
        found.append(path)
    return found


def make(out: Path, lessons: list[str]) -> list[str]:
    """Write the sheet; returns what the consoles complained of."""
    out.mkdir(parents=True, exist_ok=True)
    complaints: list[str] = []
    photos: dict[str, dict[str, list[Path]]] = {}
    names = lessons or [path.stem for path in sorted((ROOT / "solutions").glob("*.ipynb"))]
    for screen in SCREENS:
        with tempfile.TemporaryDirectory(prefix="course-sheet-") as private:
            folder = Path(private)
            for name in names:
                shutil.copy(ROOT / "solutions" / f"{name}.ipynb", folder)
            with jupyterlab(
                folder, screen.theme, screen.width, scale=screen.scale, trusted=True
            ) as lab:
                where = [""]
                lab.page.on(
                    "console",
                    lambda m, where=where: (
                        complaints.append(f"{where[0]}: {m.text}") if m.type == "error" else None
                    ),
                )
                for name in names:
                    where[0] = f"{name}, {screen.name}"
                    found = photograph(lab, f"{name}.ipynb", screen, out)
                    photos.setdefault(name, {})[screen.name] = found
    (out / "index.html").write_text(_page(photos), encoding="utf-8")
    return complaints


def _page(photos: dict[str, dict[str, list[Path]]]) -> str:
    parts = ["<!DOCTYPE html><meta charset='utf-8'><title>Contact sheet</title>"]
    parts.append("<style>body{font:14px sans-serif}img{max-width:49%;vertical-align:top}</style>")
    for lesson, screens in photos.items():
        parts.append(f"<h2>{html.escape(lesson)}</h2>")
        for pair in zip(*screens.values(), strict=False):
            images = (f"<img src='{path.name}' alt='{path.stem}'>" for path in pair)
            parts.append(f"<div>{' '.join(images)}</div><hr>")
    return "\n".join(parts)


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
