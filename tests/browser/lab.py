"""Drives a real JupyterLab in a headless browser: open a notebook, write in cells, run, read.

    with jupyterlab(folder) as lab:
        notebook = lab.open("02_ring_all_reduce.ipynb")
        notebook.write("answer-ring_all_reduce", "def ring_all_reduce(...): ...")
        notebook.run("answer-ring_all_reduce")
        print(notebook.run("check-ring_all_reduce"))

Cells are named by the ids they have in the file. Each step waits for what the page shows, up to
`PATIENCE`.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import nbformat
from nbformat.sign import NotebookNotary
from playwright.sync_api import Locator, Page, expect, sync_playwright

PATIENCE = 60.0  # seconds for any one step
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
# Alone on its machine: no sandbox (tests may be root), no display, no calls home.
BROWSER_OPTIONS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
LAB_SETTINGS = {
    # All cells are in the page, also those out of sight.
    "notebook-extension/tracker": {"windowingMode": "none"},
    "apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
}
# Another notebook without loading the page again, which costs more than all else.
OPEN = """async path => {
  await jupyterapp.commands.execute("docmanager:save-all");
  await jupyterapp.commands.execute("application:close-all");
  await (await jupyterapp.commands.execute("docmanager:open", { path })).context.ready;
}"""
READY = "jupyterapp.shell.currentWidget?.sessionContext?.session?.kernel?.status === 'idle'"
# What teachers have installed, and learners have not.
NOT_A_LEARNERS = ("@jupyter/nbgrader",)


def find_browser() -> str | None:
    """The path of an installed Chromium or Chrome."""
    return next(filter(None, map(shutil.which, BROWSERS)), None)


@dataclass
class Notebook:
    """A notebook open in the page. `path` is its file, which tells the order of the cells."""

    page: Page
    path: Path
    ids: list[str] = field(init=False)

    def __post_init__(self) -> None:
        self.ids = [cell["id"] for cell in json.loads(self.path.read_text())["cells"]]

    def cell(self, identity: str) -> Locator:
        """The cell with this id in the file."""
        return self.page.locator(".jp-Notebook .jp-Cell").nth(self.ids.index(identity))

    def write(self, identity: str, source: str) -> None:
        """Replace the text of a code cell, as one paste does."""
        self.cell(identity).locator(".cm-content").click()
        self.page.keyboard.press("ControlOrMeta+a")
        self.page.keyboard.insert_text(source)

    def run(self, identity: str) -> str:
        """Run a cell, wait until it has ended, and return what it shows."""
        cell = self.cell(identity)
        prompt = cell.locator(".jp-InputPrompt")
        before = prompt.inner_text()
        cell.locator(".cm-content").click()
        self.page.keyboard.press("Control+Enter")
        expect(prompt).not_to_have_text(before)
        expect(prompt).to_have_text(re.compile(r"\[\d+\]"))
        return self.output(identity)

    def save(self) -> None:
        """Save, and wait until the page says that there is nothing to save any more."""
        self.page.keyboard.press("Control+s")
        expect(self.page.locator(".lm-TabBar-tab.jp-mod-dirty")).to_have_count(0)

    def output(self, identity: str) -> str:
        """The text of a cell's outputs."""
        return "\n".join(self.cell(identity).locator(".jp-OutputArea-output").all_inner_texts())


@dataclass
class Lab:
    """A running JupyterLab and a page of a browser that shows it."""

    page: Page
    url: str
    token: str
    folder: Path

    def open(self, name: str) -> Notebook:
        """Open a notebook of the folder, instead of what was open, and wait for its kernel."""
        if self.page.url == "about:blank":
            self.start("")
        self.page.evaluate(OPEN, name)
        self.page.wait_for_function(READY)
        return Notebook(self.page, self.folder / name)

    def start(self, path: str) -> None:
        """Load the page, with a file of the folder open in it if one is named."""
        place = f"tree/{path}" if path else ""
        self.page.goto(f"{self.url}lab/{place}?token={self.token}&reset")
        self.page.wait_for_function("window.jupyterapp")
        self.page.evaluate("jupyterapp.restored.then(() => null)")

    def end_kernels(self) -> None:
        """End all kernels, as a restart of the machine does."""
        api = f"{self.url}api/sessions"
        asked = {"Authorization": f"token {self.token}"}
        for session in self.page.request.get(api, headers=asked).json():
            self.page.request.delete(f"{api}/{session['id']}", headers=asked)


@contextmanager
def jupyterlab(
    folder: Path,
    theme: str = "JupyterLab Light",
    width: int = 1400,
    height: int = 1000,
    scale: float = 1,
    trusted: bool = False,
) -> Iterator[Lab]:
    """JupyterLab on `folder`, at a free port of this machine, with nobody's settings.

    The window has `width` times `height` points, each of `scale` pixels of the screen across.
    trusted: scripts in the outputs of the folder's notebooks run, as if this person had run them.
    Should the body raise, the error's notes say where a screenshot of the page lies.
    """
    with _server(folder, theme, trusted) as (url, token), a_page(width, height, scale) as page:
        yield Lab(page, url, token, folder)


@contextmanager
def a_page(width: int, height: int, scale: float = 1) -> Iterator[Page]:
    """An empty page of a browser, which goes with the block; sizes as of `jupyterlab`."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=find_browser(), args=list(BROWSER_OPTIONS)
        )
        page = browser.new_page(
            viewport={"width": width, "height": height}, device_scale_factor=scale
        )
        page.set_default_timeout(PATIENCE * 1000)
        expect.set_options(timeout=PATIENCE * 1000)
        try:
            yield page
        except BaseException as error:
            picture = Path(tempfile.mkdtemp(prefix="course-browser-"), "page.png")
            page.screenshot(path=picture)
            error.add_note(f"The page when it happened: {picture}")
            raise
        finally:
            browser.close()


@contextmanager
def _server(folder: Path, theme: str, trusted: bool) -> Iterator[tuple[str, str]]:
    """(url, token) of a JupyterLab; it and its kernels end with the block."""
    with tempfile.TemporaryDirectory(prefix="course-lab-") as private:
        settings = Path(private, "settings")
        themed = LAB_SETTINGS | {"apputils-extension/themes": {"theme": theme}}
        for plugin, values in themed.items():
            file = settings / "@jupyterlab" / f"{plugin}.jupyterlab-settings"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(values))
        page = Path(private, "config", "labconfig", "page_config.json")
        page.parent.mkdir(parents=True)
        page.write_text(json.dumps({"disabledExtensions": dict.fromkeys(NOT_A_LEARNERS, True)}))
        places = {
            "JUPYTERLAB_SETTINGS_DIR": settings,
            "JUPYTERLAB_WORKSPACES_DIR": Path(private, "workspaces"),
            "JUPYTER_CONFIG_DIR": Path(private, "config"),
            "JUPYTER_DATA_DIR": Path(private, "data"),
            "JUPYTER_RUNTIME_DIR": Path(private, "runtime"),
            "IPYTHONDIR": Path(private, "ipython"),
        }
        if trusted:
            _trust(folder, places["JUPYTER_DATA_DIR"])
        options = [f"--ServerApp.root_dir={folder}", "--ServerApp.port=0", "--no-browser"]
        options += ["--allow-root", "--expose-app-in-browser"]
        log = Path(private, "log")
        with log.open("w") as writes:
            process = subprocess.Popen(
                [sys.executable, "-m", "jupyterlab", *options],
                env=os.environ | {name: str(place) for name, place in places.items()},
                stdout=subprocess.DEVNULL,
                stderr=writes,
            )
        try:
            yield _address(process, log)
        finally:
            process.terminate()
            process.wait(timeout=PATIENCE)


def _trust(folder: Path, data: Path) -> None:
    """Sign the notebooks of a folder for a JupyterLab that has this data folder."""
    data.mkdir()
    notary = NotebookNotary(data_dir=str(data))
    for path in folder.rglob("*.ipynb"):
        notary.sign(nbformat.read(path, as_version=4))
    notary.store.close()


def _address(process: subprocess.Popen, log: Path) -> tuple[str, str]:
    """Wait for the line of its log in which the server says where it is."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline and process.poll() is None:
        said = log.read_text()
        if match := re.search(r"(http://127\.0\.0\.1:\d+/)lab\?token=(\w+)", said):
            return match.groups()
        time.sleep(0.05)
    raise RuntimeError(f"JupyterLab did not start:\n{log.read_text()}")
