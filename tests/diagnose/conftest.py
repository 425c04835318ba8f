"""What tests of the detectors share."""

import pytest

SEEDS_IN_EVERY_RUN = 3


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of a test that is asked with many seeds, `make test` asks the first few."""
    for item in items:
        params = getattr(item, "callspec", None)
        if params and params.params.get("seed", 0) >= SEEDS_IN_EVERY_RUN and "/diagnose/" in item.nodeid:
            item.add_marker(pytest.mark.long)
