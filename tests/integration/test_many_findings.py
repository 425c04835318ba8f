"""Ten thousand findings, read through a collector that stores a training at the same time, in real processes.

ranks, agent --spans--> collector <--queries---- watcher --> a line for each notice
                           ^                      12 checks of a fleet in which every GPU is sick: 850 findings each
                           +--- active alerts ----'
"""

import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from diagnose.alerts.alert_store import read_alert_store
from telemetry.host_metrics import Happening
from telemetry.stores.queries import Alerts, HighWater
from telemetry.wire.client import CollectorClient
from tests.deadline import until
from tests.integration.counted import records_written, rows_stored
from tests.integration.processes import Part, road
from tests.integration.writer import RUN
from tests.telemetry.made_rows import made, of_run

pytestmark = [pytest.mark.chaos, pytest.mark.long, pytest.mark.timeout(300)]

NUM_RANKS = 2
NUM_SICK = 850
NUM_FINDINGS = 10_000
MOST_SHOWN = 500
"""The watcher sends only this many of the worst active alerts to the collector."""
SLOW_MACHINE_S = 200
FLEET = "fleet"
RULES = """
state = "alerts.sqlite"
every = 0.2
[rules]
severity = "critical"
[rules.gpu-error]
severity = "warning"
[hooks.file]
type = "log"
path = "{told}"
resend_s = 0.001
"""
ALERTS = [sys.executable, "-c", "from ui.cli.commands.alerts import alerts_app; alerts_app()"]


def put_sick_fleet(client: CollectorClient) -> None:
    """Store a job on ``NUM_SICK`` hosts with one GPU each. Every GPU driver reports a row remapper failure."""
    now_ns = time.time_ns()
    ranks = range(NUM_SICK)
    grid = {"dp_size": NUM_SICK, "pp_size": 1, "tp_size": 1, "started_ns": now_ns, "meta": '{"device": "cuda"}'}
    beat = {"at_ns": now_ns, "beat_ns": now_ns, "alive": 1}
    xid = {"device": "gpu0", "at_ns": now_ns, "name": str(Happening.GPU_XID), "text": "64 row remapper failure"}
    told = {
        "ranks": [{"rank": rank, "host": f"node-{rank:03d}", **grid} for rank in ranks],
        "heartbeats": [{"rank": rank, **beat} for rank in ranks],
        "host_events": [{"host": f"node-{rank:03d}", **xid} for rank in ranks],
    }
    for table, rows in told.items():
        client.post(table, of_run(made(table, rows), FLEET))


def stored(client: CollectorClient) -> list[int]:
    """Number of stored records of each rank of the training."""
    marks = client.read(HighWater(table="spans", run_id=RUN, attempt=0))
    return [mark for _, mark in sorted(zip(marks["rank"].to_pylist(), marks["next_seq"].to_pylist(), strict=True))]


def test_10000_findings_cause_no_lost_span_and_each_incident_is_reported_once(tmp_path: Path) -> None:
    url, rules, log = f"embedded:{tmp_path / 'store'}", tmp_path / "rules.toml", tmp_path / "told.log"
    rules.write_text(RULES.format(told=log))

    def told(status: str) -> list[str]:
        """Lines about the fleet. The training has its own alerts when its ranks end one after another."""
        lines = log.read_text().splitlines() if log.is_file() else []
        return [line for line in lines if line.split()[1] == status and f"run_id={FLEET}" in line]

    with road(tmp_path, url, num_ranks=NUM_RANKS) as training, CollectorClient(training.url) as client:
        until(lambda: len(stored(client)) == NUM_RANKS, what="every rank in the store")
        put_sick_fleet(client)
        watcher = Part(
            "watcher", [*ALERTS, "run", "--config", str(rules), "--store", training.url], tmp_path / "watcher.log"
        )
        before = stored(client)
        watcher.start()
        try:
            until(
                lambda: len(told("firing")) + len(told("still-firing")) >= NUM_FINDINGS,
                what="ten thousand findings",
                seconds=SLOW_MACHINE_S,
                every=0.5,
            )
            assert all(now > then for now, then in zip(stored(client), before, strict=True))
            for rank in training.ranks:
                assert rank.end() == 0
            assert training.agent.wait(60) == 0, training.agent.said()
            assert watcher.end() == 0
        finally:
            watcher.kill()
        shown = client.read(Alerts())
        assert training.collector.end() == 0
    written = records_written(training.spool)
    assert [row["stored"] for row in rows_stored(url)] == written
    assert [row["different"] for row in rows_stored(url)] == written
    fired = Counter(word for line in told("firing") for word in line.split() if word.startswith("host=node-"))
    assert fired == {f"host=node-{rank:03d}": 1 for rank in range(NUM_SICK)}
    assert told("resolved") == []
    assert shown["run_id"].to_pylist().count(FLEET) == MOST_SHOWN
    state, waiting = read_alert_store(tmp_path / "alerts.sqlite")
    assert [alert.run for alert in state.alerts.values()].count((FLEET, 0)) == NUM_SICK
    assert not waiting
