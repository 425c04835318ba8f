"""Signals of the process of the tests."""

import signal
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def restored_signals() -> Iterator[None]:
    """Checkpoints handle SIGTERM. This process runs other tests afterwards, and must not end because of theirs."""
    handler, descriptor = signal.getsignal(signal.SIGTERM), signal.set_wakeup_fd(-1)
    yield
    signal.signal(signal.SIGTERM, handler)
    signal.set_wakeup_fd(descriptor)
