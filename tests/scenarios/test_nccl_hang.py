"""Labelled hangs of a job under NCCL: stand-in ranks give its dumps to a real agent, collector and verdict."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from telemetry.process.child_process import child_environment
from telemetry.stores.embedded import EmbeddedStore
from telemetry.stores.queries import Evidence
from telemetry.wire.client import CollectorClient
from tests.deadline import until
from tests.diagnose.hang.real_dumps import cases, injected, needs_real_dumps
from tests.telemetry.served import collecting
from tests.telemetry.stand_in_ranks import PREFIX, ROOT, RUN, TIME_IS_UP, stand_in_job
from ui.cli.main import app

pytestmark = needs_real_dumps()
MESH = "pp=4,dp=2,tp=2"
"""The mesh of the job in the dumps."""


@pytest.fixture
def collector(embedded: EmbeddedStore) -> Iterator[CollectorClient]:
    with collecting(embedded) as client:
        yield client


@contextmanager
def agent_of(spool: Path, collector: CollectorClient) -> Iterator[None]:
    options = ["--spool", str(spool), "--collector", collector.url, "--interval", "0.2", "--sample", "0"]
    command = [sys.executable, "-m", "telemetry.agent", *options, "--stall-floor", "1"]
    process = subprocess.Popen(command, cwd=ROOT, env=child_environment())
    try:
        yield
    finally:
        process.terminate()
        process.wait()


def recorders(collector: CollectorClient) -> dict[int, dict[str, Any]]:
    """The flight-recorder evidence in the store, by rank."""
    rows = collector.read(Evidence(run_id=RUN, attempt=0, kinds=("flight-recorder",))).to_pylist()
    return {row["rank"]: json.loads(row["body"]) for row in rows}


def states(collector: CollectorClient) -> set[str]:
    rows = collector.read(Evidence(run_id=RUN, attempt=0, kinds=("state",))).to_pylist()
    return {json.loads(row["body"])["process"] for row in rows}


def diagnosed(collector: CollectorClient) -> dict[str, Any]:
    answer = CliRunner().invoke(app, ["diagnose", "hang", RUN, "--json", "--store", collector.url])
    assert answer.exit_code == 1, answer.output
    (finding,) = json.loads(answer.stdout)["findings"]
    return finding


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, id=case.name, marks=pytest.mark.long if number else ()) for number, case in enumerate(cases())],
)
def test_injected_ranks_are_named_from_the_dumps_of_the_nccl_trace_handler(
    case: Path, tmp_path: Path, collector: CollectorClient
) -> None:
    spool = tmp_path / "spool"
    with stand_in_job(spool, case, MESH, "SERVE"), agent_of(spool, collector):
        until(lambda: len(recorders(collector)) == 16, seconds=60, what="all flight recorders in the store")
        finding = diagnosed(collector)
    assert set(finding["ranks"]) == injected(case)
    assert finding["evidence"]["flight_recorders"] == ["dump_nccl_trace_json of ranks 0-15"]


def test_dump_files_that_torch_writes_on_a_timeout_are_sent_and_diagnosed(
    tmp_path: Path, collector: CollectorClient
) -> None:
    spool = tmp_path / "spool"
    with stand_in_job(spool, cases()[0], MESH, "WRITE"), agent_of(spool, collector):
        until(lambda: states(collector) == {"alive"}, seconds=60, what="the stall in the store")
        assert recorders(collector) == {}
        (spool / TIME_IS_UP).touch()
        until(lambda: len(recorders(collector)) == 16, seconds=60, what="all dumps in the store")
        found = recorders(collector)
        finding = diagnosed(collector)
    assert {one["source"] for one in found.values()} == {f"file:{spool}/{PREFIX}{rank}" for rank in range(16)}
    assert set(finding["ranks"]) == injected(cases()[0])
    assert finding["evidence"]["flight_recorders"] == ["torch files of ranks 0-15"]
