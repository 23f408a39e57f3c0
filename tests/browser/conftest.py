"""One JupyterLab for all tests in a browser: its start and its page cost more than the tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser.lab import Lab, jupyterlab


@pytest.fixture(scope="package")  # and no longer: the browser leaves a running event loop
def lab(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """JupyterLab on an empty folder, dark and on a sharp screen, set up as by `make lab`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUPYTER_CONFIG_PATH", str(root / ".jupyter"))
        folder = tmp_path_factory.mktemp("course") / "notebooks"
        folder.mkdir()
        with jupyterlab(folder, theme="JupyterLab Dark", scale=2) as running:
            yield running
