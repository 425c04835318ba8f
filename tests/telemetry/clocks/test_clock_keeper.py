"""The collector estimates the clocks of a run from its spans and stores the estimates. Commands read them."""

import json
import time
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

from diagnose.model.host_clocks import load_clocks
from diagnose.model.load import load_view
from telemetry.clocks.windows import ClockKeeper
from telemetry.stages import Stage
from telemetry.stores.interface import Store, StoreReader
from telemetry.stores.queries import HostClocks, MeetingSpans
from tests.deadline import until
from tests.telemetry.clocks.simulated_hosts import RUN, put, simulated
from tests.telemetry.made_rows import insert, made
from tests.telemetry.served import collecting
from ui.cli.main import app

HOSTS = 4


def clocks_in(store: Store) -> list[dict]:
    return StoreReader(store).read(HostClocks(run_id=RUN, attempt=0)).to_pylist()


def test_clock_estimates_of_an_active_run_are_stored(store: Store) -> None:
    run = simulated()
    put(run, store)
    assert ClockKeeper(store, every_s=0).update() == 1
    rows = clocks_in(store)
    assert [row["host"] for row in rows] == [f"gpu-00{number}" for number in range(HOSTS)]
    for row in rows:
        assert run.error_ns(row) <= row["bound_ns"] < 200_000
    assert max(abs(row["offset_ns"]) for row in rows) > 10**9


def test_update_without_new_spans_estimates_nothing(embedded: Store) -> None:
    put(simulated(), embedded)
    keeper = ClockKeeper(embedded, every_s=0)
    assert (keeper.update(), keeper.update()) == (1, 0)


def test_only_the_newest_estimate_is_read_when_several_collectors_store_one(store: Store) -> None:
    put(simulated(), store)
    for _ in range(3):
        ClockKeeper(store, every_s=0).update()
    rows = clocks_in(store)
    assert len(rows) == HOSTS
    assert len({row["estimated_ns"] for row in rows}) == 1


def test_clock_estimates_do_not_change_the_stored_timestamps(embedded: Store) -> None:
    run = simulated()
    put(run, embedded)
    ClockKeeper(embedded, every_s=0).update()
    stored = embedded.query("SELECT start_ns FROM spans ORDER BY rank, seq")["start_ns"]
    assert (
        stored.to_pylist() == run.spans.sort_by([("rank", "ascending"), ("seq", "ascending")])["start_ns"].to_pylist()
    )


def test_clocks_of_a_run_that_ended_long_ago_are_not_estimated(embedded: Store) -> None:
    put(simulated(started_ns=time.time_ns() - 3600 * 10**9), embedded)
    assert ClockKeeper(embedded, every_s=0).update() == 0


def test_clocks_of_a_run_on_one_host_are_not_estimated(embedded: Store) -> None:
    put(simulated(gpus_per_host=16), embedded)
    assert ClockKeeper(embedded, every_s=0).update() == 0


def test_pings_bound_the_clock_offset_of_hosts_without_common_operations(embedded: Store) -> None:
    """Each host has one replica of four ranks. Operations along dp were not recorded."""
    run = simulated()
    along_dp = {Stage.PARAMS_ALL_GATHER, Stage.GRADS_REDUCE_SCATTER, Stage.GRADS_ALL_REDUCE}
    kept = run.spans.filter([stage not in along_dp for stage in run.spans["stage"].to_pylist()])
    put(replace(run, spans=kept), embedded)
    looks = []
    for number, host in enumerate(run.clocks.hosts):
        for second in range(0, 30, 5):
            at = int(run.clocks.read(host, np.array([second * 10**9]))[0])
            true = run.plan.started_ns + second * 10**9
            values = {"clock-offset-ns": float(true - at + 50_000 * (number % 2)), "clock-round-trip-ns": 400_000.0}
            looks += [
                {"host": host, "device": "collector/1", "metric": metric, "at_ns": at, "value": value}
                for metric, value in values.items()
            ]
    insert(embedded, "host_samples", made("host_samples", looks), run_id=RUN)
    ClockKeeper(embedded, every_s=0).update()
    rows = clocks_in(embedded)
    assert {row["method"] for row in rows[1:]} == {"pings"}
    for row in rows:
        assert run.error_ns(row) <= row["bound_ns"] < 2_000_000


def test_clock_keeper_reads_the_spans_of_one_rank_per_host(embedded: Store) -> None:
    put(simulated(num_steps=4), embedded)
    asked: list[MeetingSpans] = []
    reader = StoreReader(embedded)

    class Watched:
        def read(self, query: object) -> object:
            if isinstance(query, MeetingSpans):
                asked.append(query)
            return reader.read(query)

    keeper = ClockKeeper(embedded, every_s=0)
    keeper._reader = Watched()
    keeper.update()
    assert [len(query.ranks) for query in asked] == [HOSTS]


def test_run_with_an_invalid_topology_does_not_block_clock_estimates_of_other_runs(
    embedded: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    """The invalid run is the newest, so it is read first. Its dp degree is 0."""
    put(simulated(), embedded)
    nonsense = [{"rank": rank, "host": f"host-{rank}", "dp_size": 0, "started_ns": time.time_ns()} for rank in (0, 1)]
    insert(embedded, "ranks", made("ranks", nonsense), run_id="a run of nonsense")
    keeper = ClockKeeper(embedded, every_s=0)
    keeper.update()
    assert len(clocks_in(embedded)) >= HOSTS
    keeper.update()
    assert capsys.readouterr().err.count("run 'a run of nonsense', attempt 0: UsageError: dp is 0") == 1


def test_run_view_aligns_the_timestamps_of_different_hosts(embedded: Store) -> None:
    run = simulated()
    put(run, embedded)
    ClockKeeper(embedded, every_s=0).update()
    reader = StoreReader(embedded)
    view = load_view(reader, RUN, 0)
    ends = {}
    for rank in (0, 4, 8, 12):
        host = view.hosts[rank]
        operations = next(one for stage, one in view.operations.items() if stage.label == "grads-reduce-scatter")
        raw = operations.end_ns[:, 0, rank]
        aligned = view.clocks.aligned(raw, host)
        assert aligned is not None
        ends[host] = aligned.at_ns
    apart = max(int(abs(ends[host] - ends["gpu-000"]).max()) for host in ends)
    assert apart < 200_000
    assert load_clocks(reader, "another", 0, view.steps, view.step_ns).reference == ""


def test_collector_stores_clock_estimates_periodically(embedded: Store) -> None:
    put(simulated(), embedded)
    with collecting(embedded, clocks_s=0.05) as client:
        asked = HostClocks(run_id=RUN, attempt=0)
        until(lambda: client.read(asked).num_rows == HOSTS, what="the clocks of four hosts")


@pytest.mark.parametrize("kept", [True, False])
def test_doctor_shows_the_clock_offsets_of_a_run(embedded: Store, kept: bool) -> None:
    """Uses the estimates that the collector has stored. If there are none, the command estimates the clocks."""
    run = simulated()
    put(run, embedded)
    if kept:
        ClockKeeper(embedded, every_s=0).update()
    with collecting(embedded) as client:
        as_json = CliRunner().invoke(app, ["doctor", "--run", RUN, "--store", client.url, "--json"])
        as_text = CliRunner().invoke(app, ["doctor", "--run", RUN, "--store", client.url])
    report = json.loads(as_json.stdout)
    assert (as_json.exit_code, as_text.exit_code) == (0, 0)
    assert report["reference"] == "gpu-000"
    for row in report["clocks"]:
        assert row["aligned"]
        assert run.error_ns(row) <= row["bound_ns"]
    assert "gpu-003" in as_text.stdout
    assert "ppm" in as_text.stdout


def test_doctor_shows_refused_hosts_with_their_reason(embedded: Store) -> None:
    run = simulated()
    alone = [rank not in (4, 5, 6, 7) for rank in run.spans["rank"].to_pylist()]
    put(replace(run, spans=run.spans.filter(alone)), embedded)
    with collecting(embedded) as client:
        answer = CliRunner().invoke(app, ["doctor", "--run", RUN, "--store", client.url])
    assert answer.exit_code == 1
    (line,) = [line for line in answer.stdout.splitlines() if line.startswith("gpu-001")]
    assert "unknown" in line
    assert "shared with" in line


def test_doctor_reports_an_unknown_run_by_name(embedded: Store) -> None:
    put(simulated(num_steps=2), embedded)
    with collecting(embedded) as client:
        answer = CliRunner().invoke(app, ["doctor", "--run", "other", "--store", client.url])
    assert "no run 'other'" in str(answer.exception)
