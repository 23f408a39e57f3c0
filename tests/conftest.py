"""What every test can rely on."""

import sys
from pathlib import Path

import cloudpickle
import pytest

# Files with tests of up to a minute. What takes long begins first: begun last, it would leave the
# other cores without work. Notebooks come next, then all else in the order of the folders.
LONGEST = {
    "test_attacks.py",
    "test_covert_channels.py",
    "test_grade.py",
    "test_lab.py",
    "test_teaching.py",
    "test_training.py",
}


@pytest.fixture(scope="session")
def root() -> Path:
    """The folder of the project, with pyproject.toml in it."""
    return Path(__file__).resolve().parent.parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Send the functions of a test to its ranks by value: no rank then has to import pytest.

    And put what takes long to the front.
    """
    names = {item.module.__name__ for item in items if isinstance(item, pytest.Function)}
    for name in names:
        cloudpickle.register_pickle_by_value(sys.modules[name])
    items.sort(key=lambda item: (item.path.name not in LONGEST, item.path.suffix != ".ipynb"))
