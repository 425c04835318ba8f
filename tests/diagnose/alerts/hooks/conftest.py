"""A receiver for each test."""

from collections.abc import Iterator

import pytest

from tests.diagnose.alerts.hooks.http_receiver import HttpReceiver, http_receiver


@pytest.fixture
def receiver() -> Iterator[HttpReceiver]:
    with http_receiver() as running:
        yield running
