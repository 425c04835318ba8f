"""Samples of hosts on a common time grid."""

import numpy as np

from diagnose.detectors.host_grid import grid_of, on_grid
from telemetry.host_metrics import Metric
from tests.diagnose.made_fleet import BEGAN_NS, SECOND_NS, made_fleet, made_series


def test_counter_reset_gives_a_rate_of_zero_instead_of_a_negative_rate() -> None:
    at_ns = BEGAN_NS + np.arange(5) * SECOND_NS
    fleet = made_fleet(made_series(Metric.NIC_SEND_BYTES, "one", "eth0", at_ns, [70.0, 80.0, 90.0, 5.0, 15.0]))
    grid = grid_of(fleet, ["one"], [Metric.NIC_SEND_BYTES])
    assert grid is not None
    (rates,) = on_grid(grid, fleet.of(Metric.NIC_SEND_BYTES), counter=True, of_devices="sum")
    assert rates[1:].tolist() == [10.0, 10.0, 0.0, 10.0]
