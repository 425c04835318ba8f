"""Hostile rows are refused with a reason. No later record is mistaken for a duplicate."""

import gc
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest

import telemetry
from telemetry.agent.host import Host
from telemetry.agent.loop import Agent
from telemetry.agent.settings import AgentSettings
from telemetry.collector.api import LINES_A_MINUTE, RefusalLog
from telemetry.collector.stored_numbers import MAX_JUMP
from telemetry.errors import AheadError, JumpError, TakenNameError, UnannouncedError, UsageError
from telemetry.record.rank_identity import rank_folder
from telemetry.record.shipping_page import ShippingPage
from telemetry.records import RECORDS_LOST
from telemetry.stages import Stage
from telemetry.stores.embedded import EmbeddedStore
from telemetry.stores.interface import Store
from telemetry.stores.queries import Ranks
from telemetry.topology import Topology
from telemetry.wire.client import CollectorClient
from telemetry.wire.codec import decode_batch, encode
from tests.each_case import each_case
from tests.telemetry.made_rows import made, numbered_spans, of_run
from tests.telemetry.served import collecting

DAY_NS = 86_400 * 10**9
SPANS = 20


@pytest.fixture
def collector(embedded: EmbeddedStore) -> Iterator[CollectorClient]:
    with collecting(embedded) as client:
        yield client


@pytest.fixture(autouse=True)
def gc_disabled() -> Iterator[None]:
    gc.disable()
    yield
    telemetry.stop()
    gc.enable()


def record(spool: Path, *, rank: int = 0, run_id: str = "run") -> None:
    telemetry.start(run_id, topology=Topology(dp=2), rank=rank, attempt=0, spool=spool, agent=False)
    for _ in range(SPANS):
        with telemetry.span(Stage.DATA_LOAD):
            pass
    telemetry.stop()


def ship(spool: Path, collector: CollectorClient) -> None:
    settings = AgentSettings(spool=spool, collector=collector.url, interval_s=0.02, patience_s=0.0, appear_s=0.0)
    Agent(Host(spool), collector, settings).run(threading.Event())


def recorded(store: Store, run_id: str = "run") -> list[tuple[int, int]]:
    """(rank, seq) of the spans that came from a named folder."""
    rows = store.query(f"SELECT rank, seq FROM spans WHERE run_id = '{run_id}' AND opened_ns > 0 ORDER BY rank, seq")
    return list(zip(rows["rank"].to_pylist(), rows["seq"].to_pylist(), strict=True))


def announcement(**values: object) -> pa.Table:
    return made("ranks", [{"dp_size": 2, "host": "h", **values}])


# ---- numbers of records


def test_jump_in_record_numbers_larger_than_a_spool_is_refused(collector: CollectorClient) -> None:
    for table, seq in product(("spans", "marks", "samples"), (MAX_JUMP + 1, 2**40, 2**62, 2**63 - 1)):
        with pytest.raises(JumpError, match=f"jump from record 0 to {seq}") as refused:
            collector.post(table, of_run(made(table, [{"seq": seq}])))
        assert refused.value.stored == {0: 0}


def test_batch_with_a_jump_in_record_numbers_is_refused_and_not_stored(
    collector: CollectorClient, embedded: Store
) -> None:
    rows = pa.concat_tables([numbered_spans(0, 5), numbered_spans(2**30, 5)])
    with pytest.raises(JumpError, match="jump from record 0 to"):
        collector.post("spans", of_run(rows))
    assert collector.post("spans", of_run(numbered_spans(0, 5))).rows == 5
    assert embedded.query("SELECT count() AS n FROM spans")["n"].to_pylist() == [5]


def test_record_numbers_stored_in_another_table_do_not_count_as_a_jump(collector: CollectorClient) -> None:
    for first in (0, MAX_JUMP, 2 * MAX_JUMP):
        collector.post("spans", of_run(numbered_spans(first, 1)))
    assert collector.post("marks", of_run(made("marks", [{"seq": 2 * MAX_JUMP + 1, "name": "gc"}]))).rows == 1


def test_records_lost_mark_permits_a_jump_only_up_to_its_count(collector: CollectorClient) -> None:
    far = 10 * MAX_JUMP
    short = {"seq": far - 1, "name": RECORDS_LOST, "text": f"{far // 2} records of 1.0 s"}
    with pytest.raises(JumpError):
        collector.post("marks", of_run(made("marks", [short])))
    assert collector.post("marks", of_run(made("marks", [{**short, "text": f"{far} records of 1.0 s"}]))).rows == 1
    assert collector.post("spans", of_run(numbered_spans(far, 3))).rows == 3


def test_later_run_is_stored_complete_after_hostile_rows_under_its_name(
    tmp_path: Path, collector: CollectorClient, embedded: Store
) -> None:
    later_ns = time.time_ns() + DAY_NS // 2
    collector.post("ranks", of_run(announcement(opened_ns=5, started_ns=later_ns), run_id="announced"))
    for table, seq in product(("spans", "marks", "samples"), (0, MAX_JUMP - 1, 2**62)):
        rows = made(table, [{"seq": seq}])
        with suppress(JumpError):
            collector.post(table, of_run(rows, run_id="silent"))
        with pytest.raises(UnannouncedError):
            collector.post(table, of_run(rows, run_id="announced", openings={0: 6}))
    for run_id, rank in product(("announced", "silent"), (0, 1)):
        record(tmp_path, rank=rank, run_id=run_id)
    ship(tmp_path, collector)
    for run_id in ("announced", "silent"):
        assert recorded(embedded, run_id) == [(rank, seq) for rank in (0, 1) for seq in range(SPANS)]
    assert collector.read(Ranks(run_id="announced", attempt=0))["host"].to_pylist()[0] != "h"


def test_replaced_store_gets_a_mark_that_counts_the_missing_records(
    tmp_path: Path, embedded: EmbeddedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("telemetry.collector.stored_numbers.MAX_JUMP", SPANS // 2)
    record(tmp_path)
    folder = rank_folder(tmp_path, "run", 0, 0)
    ShippingPage(folder).acknowledge(SPANS)
    record(tmp_path)
    with collecting(embedded) as client:
        ship(tmp_path, client)
    assert recorded(embedded) == [(0, seq) for seq in range(SPANS, 2 * SPANS)]
    (mark,) = embedded.query(f"SELECT seq, text FROM marks WHERE name = '{RECORDS_LOST}'").to_pylist()
    assert mark["seq"] == SPANS - 1
    assert mark["text"].startswith(f"{SPANS} records of ")
    assert mark["text"].endswith("the collector's store does not have them")


# ---- folders


def test_rows_of_an_unannounced_folder_are_refused_until_it_is_announced(collector: CollectorClient) -> None:
    rows = of_run(numbered_spans(0, 3), openings={0: 7})
    with pytest.raises(UnannouncedError, match="has no row for this folder of rank 0"):
        collector.post("spans", rows)
    collector.post("ranks", of_run(announcement(opened_ns=7)))
    assert collector.post("spans", rows).rows == 3


def test_heartbeats_and_evidence_are_accepted_only_after_the_announcement(collector: CollectorClient) -> None:
    for table in ("heartbeats", "evidence"):
        with pytest.raises(UnannouncedError):
            collector.post(table, of_run(made(table, [{"at_ns": 1}])))
    collector.post("ranks", of_run(announcement(opened_ns=7)))
    for table in ("heartbeats", "evidence"):
        assert collector.post(table, of_run(made(table, [{"at_ns": 1}]), openings={0: 7})).rows == 1


def test_another_sender_cannot_write_rows_of_a_recorded_rank(tmp_path: Path, collector: CollectorClient) -> None:
    record(tmp_path)
    ship(tmp_path, collector)
    for table in ("spans", "marks", "samples", "heartbeats", "evidence"):
        columns = {"seq": SPANS} if table in ("spans", "marks", "samples") else {"at_ns": 1}
        with pytest.raises(TakenNameError, match="rank 0 is recorded from another folder"):
            collector.post(table, of_run(made(table, [columns])))
        with pytest.raises(UnannouncedError):
            collector.post(table, of_run(made(table, [columns]), openings={0: 7}))
    with pytest.raises(TakenNameError, match="is already stored"):
        collector.post("ranks", of_run(announcement(opened_ns=7)))


def test_two_folders_of_one_rank_are_deduplicated_separately(collector: CollectorClient, embedded: Store) -> None:
    """The first sender names no folder, like an import."""
    collector.post("spans", of_run(numbered_spans(0, 30)))
    collector.post("ranks", of_run(announcement(opened_ns=7)))
    assert collector.post("spans", of_run(numbered_spans(0, 20), openings={0: 7})).rows == 20
    assert collector.post("spans", of_run(numbered_spans(0, 25), openings={0: 7})).rows == 5
    with collecting(embedded) as second:
        assert second.post("spans", of_run(numbered_spans(0, 30), openings={0: 7})).rows == 5


def test_new_folder_is_sent_from_record_zero_if_its_shipping_page_is_wrong(
    tmp_path: Path, collector: CollectorClient, embedded: Store
) -> None:
    folder = rank_folder(tmp_path, "run", 0, 0)
    folder.mkdir(parents=True)
    ShippingPage(folder).acknowledge(2**40)
    record(tmp_path)
    ship(tmp_path, collector)
    assert recorded(embedded) == [(0, seq) for seq in range(SPANS)]


# ---- announcements and times


WRONG_ANNOUNCEMENTS: list[tuple[dict[str, object], str]] = [
    ({"rank": 2}, "rank 2 is outside its grid of 2 ranks"),
    ({"dp_size": 0}, "dp is 0"),
    ({"dp_size": 2**31, "pp_size": 2**31, "tp_size": 2**31}, "the mesh has"),
    ({"mesh": "pp=2,tp=2"}, "the mesh 'pp=2,tp=2' does not match dp 2, pp 1, tp 1"),
    ({"mesh": "dp_shard=2,model=1"}, "'model' is not an axis"),
    ({"mesh": "dp=2," * 60}, "does not match dp 2"),
    ({"opened_ns": -1}, "opened_ns is -1"),
    ({"opened_ns": 2**62}, "opened_ns is .* days in the future"),
    ({"started_ns": 2**63 - 1}, "started_ns is .* days in the future"),
    ({"meta": "no"}, "meta of a rank"),
    ({"meta": "[" * 20000}, "meta of a rank"),
    ({"meta": '{"model": 7}'}, "meta of a rank"),
    ({"host": "h" * 5000}, "host name is too long"),
]
WRONG_NUMBERS: list[tuple[str, dict[str, int]]] = [
    ("heartbeats", {"at_ns": 2**62}),
    ("heartbeats", {"beat_ns": -5}),
    ("evidence", {"at_ns": 2**62}),
    ("alerts", {"at_ns": 2**62}),
    ("host_samples", {"at_ns": 2**62}),
    ("host_events", {"at_ns": -1}),
    ("spans", {"start_ns": 2**62}),
    ("spans", {"step": 2**32 - 1}),
    ("marks", {"at_ns": -1}),
    ("samples", {"step": 2**31}),
]


@each_case(("values", "reason"), WRONG_ANNOUNCEMENTS)
def test_announcement_with_invalid_values_is_refused(values: dict[str, object], reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        decode_batch("ranks", encode(of_run(announcement(**values))))


def test_a_rank_announced_twice_in_one_batch_is_refused() -> None:
    twice = pa.concat_tables([announcement(opened_ns=1), announcement(opened_ns=2)])
    with pytest.raises(UsageError, match="announced twice"):
        decode_batch("ranks", encode(of_run(twice)))


@each_case(("table", "values"), WRONG_NUMBERS)
def test_rows_with_impossible_times_or_steps_are_refused(table: str, values: dict[str, int]) -> None:
    with pytest.raises(UsageError, match=r"future|epoch|step"):
        decode_batch(table, encode(of_run(made(table, [values]))))


@each_case("openings", ["x", "1:2:3", "1:", "1:-5", f"1:{2**63}", "1:1," * 400_000])
def test_openings_that_cannot_be_read_are_refused(openings: str) -> None:
    rows = numbered_spans(0, 1).replace_schema_metadata({"run_id": "run", "attempt": "0", "openings": openings})
    with pytest.raises(UsageError, match="openings"):
        decode_batch("spans", encode(rows))


def test_attempt_number_out_of_range_is_refused() -> None:
    with pytest.raises(UsageError, match="attempt 4294967295"):
        decode_batch("spans", encode(of_run(numbered_spans(0, 1), attempt=2**32 - 1)))


ALL_SPANS = [(0, seq) for seq in range(SPANS)]


def record_ahead(spool: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Record with a clock that is 100 days ahead."""
    with monkeypatch.context() as ahead:
        ahead.setattr("telemetry.record.rank_identity.time_ns", lambda: time.time_ns() + 100 * DAY_NS)
        record(spool, run_id="ahead")


def test_rank_that_started_with_its_clock_ahead_is_stored_once(
    tmp_path: Path, collector: CollectorClient, embedded: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    record_ahead(tmp_path, monkeypatch)
    for _ in range(2):
        ship(tmp_path, collector)
    assert recorded(embedded, "ahead") == ALL_SPANS
    told = embedded.query("SELECT started_ns, opened_ns FROM ranks FINAL").to_pylist()
    assert len({row["opened_ns"] for row in told}) == 1
    assert all(value <= time.time_ns() for row in told for value in row.values())


def test_rank_with_its_clock_ahead_does_not_block_other_ranks(
    tmp_path: Path, collector: CollectorClient, embedded: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    record_ahead(tmp_path, monkeypatch)
    ShippingPage(next(tmp_path.glob("ahead/*/*"))).pin(1)  # sent once, so its name in the store must not change
    record(tmp_path, run_id="sound")
    with pytest.raises(AheadError, match=r"100\.0 days in the future"):
        ship(tmp_path, collector)
    assert recorded(embedded, "sound") == ALL_SPANS
    assert recorded(embedded, "ahead") == []


def test_agent_continues_when_the_clock_of_its_collector_is_corrected(
    tmp_path: Path,
    collector: CollectorClient,
    embedded: Store,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    record(tmp_path)
    settings = AgentSettings(spool=tmp_path, collector=collector.url)
    agent = Agent(Host(tmp_path), collector, settings)
    with monkeypatch.context() as behind:
        clock = SimpleNamespace(time_ns=lambda: time.time_ns() - 100 * DAY_NS)
        behind.setattr("telemetry.wire.codec.time", clock)
        for _ in range(3):
            agent.turn()
    assert recorded(embedded) == []
    assert capsys.readouterr().err.count("100.0 days in the future in ranks. The agent retries") == 1
    agent.turn()
    assert recorded(embedded) == ALL_SPANS


# ---- reports


def test_refusals_are_counted_and_logged(collector: CollectorClient, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(3):
        with pytest.raises(JumpError):
            collector.post("spans", of_run(numbered_spans(2**30, 1)))
    logged = [line for line in capsys.readouterr().err.splitlines() if "refused a batch of spans" in line]
    assert len(logged) == 3
    assert all("HTTP status 416" in line and "jump from record 0" in line for line in logged)
    metrics = collector._http.get("/metrics").text
    assert 'rankscope_batches_rejected_total{status="416"} 3' in metrics


def test_refusal_log_is_limited_to_a_few_lines_per_minute(capsys: pytest.CaptureFixture[str]) -> None:
    now_s = 0.0
    log = RefusalLog(lambda: now_s)
    for number in range(500):
        log.refused(f"spans: {number}\nsecond line")
    first = capsys.readouterr().err.splitlines()
    now_s = 61.0
    log.refused("marks")
    later = capsys.readouterr().err.splitlines()
    assert len(first) == LINES_A_MINUTE + 1
    assert later == [
        f"rankscope collect: refused {500 - LINES_A_MINUTE} more batches",
        "rankscope collect: refused a batch of marks",
    ]
