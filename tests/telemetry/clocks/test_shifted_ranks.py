"""Real ranks whose hosts' clocks disagree by seconds."""

from pathlib import Path

import pytest

from telemetry.clocks.windows import estimate_newest
from telemetry.imports.spool import store_from_spool
from telemetry.stores.interface import StoreReader
from tests.telemetry.clocks.shifted_ranks import OFFSETS_NS, RUN, STEPS, train_shifted

pytestmark = pytest.mark.gloo
SAME_CLOCK_NS = 1_000_000
"""Ranks of one machine read the same clock, but it may be slewed between two readings."""


def test_clock_offset_of_each_host_is_estimated_within_its_bound(tmp_path: Path) -> None:
    train_shifted(tmp_path)
    store = store_from_spool(tmp_path)
    try:
        (estimate,) = estimate_newest(StoreReader(store), RUN, 0, STEPS - 1)
    finally:
        store.close()
    assert [clock.host for clock in estimate.clocks] == [f"host-{number}" for number in range(len(OFFSETS_NS))]
    for clock, true_ns in zip(estimate.clocks, OFFSETS_NS, strict=True):
        assert clock.aligned, clock.reason
        assert abs(clock.offset_ns - true_ns) <= clock.bound_ns + SAME_CLOCK_NS
        assert clock.bound_ns < 200_000_000
