"""What every test can rely on."""

import sys
from pathlib import Path

import cloudpickle
import pytest


@pytest.fixture(scope="session")
def root() -> Path:
    """The folder of the project, with pyproject.toml in it."""
    return Path(__file__).resolve().parent.parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Send the functions of a test to its ranks by value: no rank then has to import pytest."""
    names = {item.module.__name__ for item in items if isinstance(item, pytest.Function)}
    for name in names:
        cloudpickle.register_pickle_by_value(sys.modules[name])
