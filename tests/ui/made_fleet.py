"""Samples, events and clocks of the hosts of a run: a NIC that flaps, a throttled GPU, and clocks that disagree.

gpu-01   well                                     the reference
gpu-02   well                                     12 ms ahead; unaligned in the second of three windows
gpu-03   eth0 without link for 4 s, gpu1 hot      disputed
gpu-04   no samples                               never aligned
"""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from telemetry.stores.interface import Store
from telemetry.tables import HOST_CLOCKS, HOST_EVENTS, HOST_SAMPLES, owned
from tests.ui.synthetic_run import SyntheticRun

S = 1_000_000_000
SICK, WELL, SILENT = "gpu-03", ("gpu-01", "gpu-02"), "gpu-04"
ALL = (*WELL, SICK, SILENT)
LOST_NS, BACK_NS = 4 * S, 8 * S
"""Loss and return of the link, after the start of the run."""
HOT_NS = 10 * S
LASTS_S = 24

Row = dict[str, Any]


def tell_of_hosts(store: Store, run: SyntheticRun) -> None:
    """Store one sample per second, and events."""
    samples = [row for host in (*WELL, SICK) for row in _samples(host, run.started_ns)]
    _insert(store, "host_samples", samples, HOST_SAMPLES, run)
    happened = (
        (0, "gpu1", "gpu-seen", "GPU-1"),
        (LOST_NS, "eth0", "link-down", "no carrier"),
        (BACK_NS, "eth0", "link-up", ""),
        (12 * S, "gpu1", "gpu-xid", "48 <b>double bit</b>"),
    )
    rows = [
        {"host": SICK, "device": device, "at_ns": run.started_ns + at_ns, "name": name, "text": text}
        for at_ns, device, name, text in happened
    ]
    _insert(store, "host_events", rows, HOST_EVENTS, run)


def tell_of_clocks(store: Store, run: SyntheticRun, num_steps: int, hosts: Sequence[str] = ALL) -> None:
    """Store the clock estimates of three windows of steps."""
    size = num_steps // 3
    told = [row for window in range(3) for row in _clocks(window) if row["host"] in hosts]
    rows = [
        {**row, "first_step": row["window"] * size, "last_step": (row["window"] + 1) * size - 1}
        | {"first_ns": run.started_ns + row["window"] * 6 * S, "last_ns": run.started_ns + (row["window"] + 1) * 6 * S}
        for row in told
    ]
    _insert(store, "host_clocks", rows, HOST_CLOCKS, run)


def _samples(host: str, started_ns: int) -> list[Row]:
    rows = []
    for second in range(LASTS_S):
        at_ns = second * S
        is_lost = host == SICK and LOST_NS <= at_ns < BACK_NS
        held_s = max(0, second - HOT_NS // S) * 0.8 if host == SICK else 0.0
        values = {
            ("eth0", "nic-up"): 0.0 if is_lost else 1.0,
            ("eth0", "nic-receive-bytes"): 1e9 + second * 125e6,
            ("gpu0", "gpu-sm-clock-mhz"): 1980.0,
            ("gpu1", "gpu-sm-clock-mhz"): 1400.0 if held_s else 1980.0,
            ("gpu1", "gpu-throttle-thermal-ns"): held_s * 1e9,
            ("gpu1", "gpu-throttle-hardware-thermal-ns"): held_s * 1e9,
            ("", "host-pressure-cpu-ns"): second * (0.25e9 if host == SICK else 0.01e9),
            ("", "host-cpu-busy"): 0.5,
            ("core3", "host-cpu-busy"): 1.0,
        }
        rows += [
            {"host": host, "device": device, "metric": metric, "at_ns": started_ns + at_ns, "value": value}
            for (device, metric), value in values.items()
        ]
    return rows


def _clocks(window: int) -> list[Row]:
    common = {"window": window, "reference": "gpu-01", "drift_ppm": 0.0, "num_events": 40, "reason": ""}
    common |= {"estimated_ns": 1, "offset_ns": 0}
    ahead = {"offset_ns": 12_000_000 + window * 100_000, "bound_ns": 40_000, "method": "ends", "drift_ppm": 3.5}
    refused = {"bound_ns": -1, "method": "unaligned", "reason": "nothing in common"}
    disputed = {"offset_ns": -5_000_000, "bound_ns": 2_000_000, "method": "disputed", "reason": "pings lie 2 ms off"}
    return [
        {**common, "host": "gpu-01", "bound_ns": 0, "method": "reference"},
        {**common, "host": "gpu-02", **(refused if window == 1 else ahead)},
        {**common, "host": SICK, **disputed},
        {**common, "host": SILENT, **refused, "reason": "no collective, transfer or ping shared"},
    ]


def _insert(store: Store, table: str, rows: list[Row], schema: pa.Schema, run: SyntheticRun) -> None:
    store.insert(table, owned(pa.Table.from_pylist(rows, schema=schema), run.run_id, run.attempt))
