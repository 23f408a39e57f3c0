"""What every test can rely on: the project's root, and no need of a display."""

import os
from pathlib import Path

import pytest

# Kernels that tests start inherit this; a display may be missing, or be somebody's desktop.
os.environ["MPLBACKEND"] = "agg"


@pytest.fixture(scope="session")
def root() -> Path:
    """The folder of the project, with pyproject.toml in it."""
    return Path(__file__).resolve().parent.parent
