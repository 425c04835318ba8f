"""Rows of the samplers of a made host: GPUs, network ports, the host, and pings of the collector's clock."""

import time
from collections.abc import Collection, Iterable

import pyarrow as pa

from telemetry.agent.host import FollowedRank, Owner
from telemetry.agent.host_reports import Poster
from telemetry.agent.samplers.interface import Reading
from telemetry.host_metrics import WINDOW_S, Metric
from telemetry.tables import HOST_SAMPLES
from telemetry.wire.codec import labelled
from tests.benchmarks.fleet.traffic import RANKS_A_HOST, RUN, MadeHost

WINDOW_NS = round(WINDOW_S * 1e9)
PER_GPU = (
    Metric.GPU_SM_CLOCK_MHZ, Metric.GPU_MEMORY_CLOCK_MHZ, Metric.GPU_POWER_W, Metric.GPU_TEMPERATURE_C,
    Metric.GPU_MEMORY_TEMPERATURE_C, Metric.GPU_UTILIZATION, Metric.GPU_MEMORY_USED_BYTES,
)  # fmt: skip
PER_PORT = "rdma-port_rcv_data", "rdma-port_xmit_data"
OF_HOST = (
    Metric.HOST_CPU_BUSY, Metric.HOST_RUN_QUEUE, Metric.HOST_MEMORY_AVAILABLE_BYTES, Metric.HOST_PAGE_FAULTS,
    Metric.TCP_RETRANSMITS, Metric.HOST_PRESSURE_CPU_NS,
)  # fmt: skip
SAMPLERS: tuple[list[tuple[str, str]], ...] = (
    [(f"gpu{gpu}", str(metric)) for gpu in range(RANKS_A_HOST) for metric in PER_GPU],
    [(f"mlx5_{port}/1", metric) for port in range(RANKS_A_HOST) for metric in PER_PORT],
    [("", str(metric)) for metric in OF_HOST],
)
"""Device and metric of the rows of each sampler in a window of five seconds."""


class MadeReports:
    """Rows of samplers, in place of ``HostReports``: each sampler has a window of five seconds, none at the same time.
    During an outage they wait, as those of an agent."""

    def __init__(self, host: MadeHost) -> None:
        self._host = host
        self._due_ns = [time.time_ns() + number * WINDOW_NS // 3 for number in range(len(SAMPLERS))]
        self._pings: list[tuple[int, Reading]] = []
        self.rows = 0

    def follow(self, ranks: Iterable[FollowedRank]) -> None:
        """They do not change."""

    def add(self, at_ns: int, readings: Iterable[Reading]) -> None:
        """Add the result of a ping of the collector's clock."""
        self._pings += [(at_ns, reading) for reading in readings]

    def ship(self, poster: Poster, refused: Collection[Owner] = ()) -> None:
        """Post the windows that have ended."""
        now_ns = time.time_ns()
        times = [list(range(due_ns, now_ns, WINDOW_NS)) for due_ns in self._due_ns]
        pings = self._pings[:]
        rows = [
            (device, metric, at_ns, 1.0 + at_ns % 97)
            for sampler, ends_ns in zip(SAMPLERS, times, strict=True)
            for at_ns in ends_ns
            for device, metric in sampler
        ] + [(reading.device, reading.metric, at_ns, reading.value) for at_ns, reading in pings]
        if not rows:
            return
        columns = dict(zip(("device", "metric", "at_ns", "value"), map(list, zip(*rows, strict=True)), strict=True))
        table = pa.table({"host": [self._host.name] * len(rows), **columns}, schema=HOST_SAMPLES)
        poster.post("host_samples", labelled(table, RUN, 0))
        self.rows += len(rows)
        self._due_ns = [due_ns + WINDOW_NS * len(ends) for due_ns, ends in zip(self._due_ns, times, strict=True)]
        self._pings = self._pings[len(pings) :]
