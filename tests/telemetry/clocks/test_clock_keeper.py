"""What a collector knows of the clocks of a run, from its spans to whoever asks."""

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


def test_the_clocks_of_a_run_that_is_alive_are_kept(store: Store) -> None:
    run = simulated()
    put(run, store)
    assert ClockKeeper(store, every_s=0).update() == 1
    rows = clocks_in(store)
    assert [row["host"] for row in rows] == [f"gpu-00{number}" for number in range(HOSTS)]
    for row in rows:
        assert run.error_ns(row) <= row["bound_ns"] < 200_000
    assert max(abs(row["offset_ns"]) for row in rows) > 10**9


def test_a_look_without_news_estimates_nothing(embedded: Store) -> None:
    put(simulated(), embedded)
    keeper = ClockKeeper(embedded, every_s=0)
    assert (keeper.update(), keeper.update()) == (1, 0)


def test_of_several_collectors_the_newest_estimate_counts_once(store: Store) -> None:
    put(simulated(), store)
    for _ in range(3):
        ClockKeeper(store, every_s=0).update()
    rows = clocks_in(store)
    assert len(rows) == HOSTS
    assert len({row["estimated_ns"] for row in rows}) == 1


def test_raw_stamps_stay_as_they_are(embedded: Store) -> None:
    run = simulated()
    put(run, embedded)
    ClockKeeper(embedded, every_s=0).update()
    stored = embedded.query("SELECT start_ns FROM spans ORDER BY rank, seq")["start_ns"]
    assert (
        stored.to_pylist() == run.spans.sort_by([("rank", "ascending"), ("seq", "ascending")])["start_ns"].to_pylist()
    )


def test_a_run_that_is_over_for_long_is_left_alone(embedded: Store) -> None:
    put(simulated(started_ns=time.time_ns() - 3600 * 10**9), embedded)
    assert ClockKeeper(embedded, every_s=0).update() == 0


def test_a_job_on_one_host_has_nothing_to_align(embedded: Store) -> None:
    put(simulated(gpus_per_host=16), embedded)
    assert ClockKeeper(embedded, every_s=0).update() == 0


def test_pings_bound_hosts_whose_ranks_have_nothing_in_common(embedded: Store) -> None:
    """Replicas of four ranks fill a host each, and nothing of what goes along dp was recorded."""
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


def test_few_ranks_are_asked_however_many_there_are(embedded: Store) -> None:
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


def test_a_run_that_makes_no_sense_keeps_no_other_from_being_aligned(
    embedded: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    """It began last, so it is looked at first, and its grid has a side of none."""
    put(simulated(), embedded)
    nonsense = [{"rank": rank, "host": f"host-{rank}", "dp_size": 0, "started_ns": time.time_ns()} for rank in (0, 1)]
    insert(embedded, "ranks", made("ranks", nonsense), run_id="a run of nonsense")
    keeper = ClockKeeper(embedded, every_s=0)
    keeper.update()
    assert len(clocks_in(embedded)) >= HOSTS
    keeper.update()
    assert capsys.readouterr().err.count("run 'a run of nonsense', attempt 0: UsageError: dp is 0") == 1


def test_a_view_aligns_stamps_of_different_hosts(embedded: Store) -> None:
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


def test_a_collector_keeps_the_table_by_itself(embedded: Store) -> None:
    put(simulated(), embedded)
    with collecting(embedded, clocks_s=0.05) as client:
        asked = HostClocks(run_id=RUN, attempt=0)
        until(lambda: client.read(asked).num_rows == HOSTS, what="the clocks of four hosts")


@pytest.mark.parametrize("kept", [True, False])
def test_doctor_tells_the_clocks_of_a_run(embedded: Store, kept: bool) -> None:
    """Those that the collector keeps; of a run that it never watched they are estimated on the spot."""
    run = simulated()
    put(run, embedded)
    if kept:
        ClockKeeper(embedded, every_s=0).update()
    with collecting(embedded) as client:
        as_json = CliRunner().invoke(app, ["doctor", "--run", RUN, "--store", client.url, "--json"])
        as_text = CliRunner().invoke(app, ["doctor", "--run", RUN, "--store", client.url])
    told = json.loads(as_json.stdout)
    assert (as_json.exit_code, as_text.exit_code) == (0, 0)
    assert told["reference"] == "gpu-000"
    for row in told["clocks"]:
        assert row["aligned"]
        assert run.error_ns(row) <= row["bound_ns"]
    assert "gpu-003" in as_text.stdout
    assert "ppm" in as_text.stdout


def test_doctor_tells_which_hosts_are_refused_and_why(embedded: Store) -> None:
    run = simulated()
    alone = [rank not in (4, 5, 6, 7) for rank in run.spans["rank"].to_pylist()]
    put(replace(run, spans=run.spans.filter(alone)), embedded)
    with collecting(embedded) as client:
        answer = CliRunner().invoke(app, ["doctor", "--run", RUN, "--store", client.url])
    assert answer.exit_code == 1
    (line,) = [line for line in answer.stdout.splitlines() if line.startswith("gpu-001")]
    assert "refused" in line
    assert "shared with" in line


def test_doctor_of_a_run_that_is_not_there_says_so(embedded: Store) -> None:
    put(simulated(num_steps=2), embedded)
    with collecting(embedded) as client:
        answer = CliRunner().invoke(app, ["doctor", "--run", "other", "--store", client.url])
    assert "no run 'other'" in str(answer.exception)
