"""Shared by the tests of ``diagnose``."""

import pytest

SEEDS_IN_EVERY_RUN = 2


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """`make test` runs only the first few seeds of a test with many seeds."""
    for item in items:
        params = getattr(item, "callspec", None)
        if params and params.params.get("seed", 0) >= SEEDS_IN_EVERY_RUN and "/diagnose/" in item.nodeid:
            item.add_marker(pytest.mark.long)
