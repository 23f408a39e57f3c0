import sys

import cloudpickle


def pytest_collection_modifyitems(items) -> None:
    for module in {item.module.__name__ for item in items}:
        cloudpickle.register_pickle_by_value(sys.modules[module])
