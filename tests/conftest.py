"""What every test can rely on."""

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def root() -> Path:
    """The folder of the project, with pyproject.toml in it."""
    return Path(__file__).resolve().parent.parent
