"""A made host, for the tests of its sampler."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.telemetry.agent.samplers.made_proc import MadeHost
from tests.telemetry.agent.samplers.sampled_host import Sampled


@pytest.fixture
def sampled(tmp_path: Path) -> Iterator[Sampled]:
    one = Sampled(MadeHost(root=tmp_path))
    yield one
    one.sampler.close()
