"""Spans per second from agents to disk: client, collector and store together on this machine.

python -m tests.benchmarks.ingest [--json] [--seconds 60]

    ingest_client (agents) --HTTP, Arrow--> collector --> Debian's ClickHouse server, or chdb in the collector
    the same rows, in blocks of the size that the collector made --clickhouse-driver--> the same server
    as many spans as OTLP/protobuf --Python--> columns
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import httpx
import numpy as np
import psutil
import pyarrow as pa
from clickhouse_driver import Client
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from telemetry.collector.otlp.spans_and_logs import decode_traces
from telemetry.stages import Stage
from telemetry.stores.queries import HighWater
from telemetry.wire.client import CollectorClient
from tests.benchmarks.figures import Figure, report
from tests.benchmarks.ingest_client import RUN, later, made_ranks
from tests.clickhouse_server import PASSWORD, USER, ClickHouseServer, running_server
from tests.deadline import until
from tests.integration.processes import COLLECT, free_port
from tests.parts import SYSTEM_PATH

SECONDS = 60.0
RIVAL_SHARE = 0.25
"""Share of the time that rankscope gets."""
BOUND_NS = 1000.0
"""A million spans per second."""
BOUND_DRIVER = 1 / 0.4
BOUND_OTLP = 1 / 8
OTLP_SPANS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """The rows that one store took, and their cost."""

    rows: int
    seconds: float
    rows_an_insert: int
    cpu_ns: dict[str, float]
    """Processor time of a row, by process."""

    @property
    def ns(self) -> float:
        return 1e9 * self.seconds / self.rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Ingest:
    """The benchmark."""

    seconds: float = SECONDS
    title: str = "Ingest: spans from agents to disk, two cores"
    command: str = "python -m tests.benchmarks.ingest"

    def run(self) -> list[Figure]:
        """Measure on this machine."""
        otlp_ns = _otlp_ns(self.seconds * RIVAL_SHARE)
        figures = []
        if shutil.which("clickhouse-server", path=SYSTEM_PATH):
            with running_server(in_memory=False) as server:
                taken = _collected(server.url("ingest"), self.seconds, server)
                driver_ns = _driver_ns(server, self.seconds * RIVAL_SHARE, taken.rows_an_insert)
            figures += _figures("Debian's server", taken, otlp_ns=otlp_ns, driver_ns=driver_ns)
        else:
            figures.append(Figure(name="Debian's server", value=None, unit="ns", note="clickhouse-server is not here"))
        with tempfile.TemporaryDirectory(prefix="rankscope-ingest-") as folder:
            figures += _figures("embedded", _collected(f"embedded:{folder}/store", self.seconds), otlp_ns=otlp_ns)
        return figures


def _figures(store: str, taken: Taken, *, otlp_ns: float, driver_ns: float | None = None) -> list[Figure]:
    cpu = ", ".join(f"{name} {ns:.0f}" for name, ns in taken.cpu_ns.items())
    note = f"{1e9 / taken.ns:,.0f} spans/s; {taken.rows_an_insert:,} rows per insert; CPU ns per span: {cpu}"
    figures = [Figure(name=f"{store}: time per span", value=taken.ns, unit="ns", bound=BOUND_NS, note=note)]
    rivals = [("clickhouse-driver alone", driver_ns, BOUND_DRIVER), ("OTLP/protobuf decoding", otlp_ns, BOUND_OTLP)]
    for rival, ns, bound in rivals:
        if ns is not None:
            name, said = f"{store}: relative to {rival}", f"{rival}: {ns:,.0f} ns, {1e9 / ns:,.0f} spans/s"
            figures.append(Figure(name=name, value=taken.ns / ns, unit="times", bound=bound, note=said))
    return figures


def _collected(store_url: str, seconds: float, server: ClickHouseServer | None = None) -> Taken:
    """Agents post for ``seconds``. Every acknowledged row must be in the store exactly once."""
    with _collector(store_url) as (collector, url):
        processes = {"collector": psutil.Process(collector.pid)}
        if server is not None:
            processes["server"] = psutil.Process(server.pid)
        before = {name: _cpu_s(process) for name, process in processes.items()}
        command = [sys.executable, "-m", "tests.benchmarks.ingest_client", url, str(seconds)]
        told = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        cpu_s = {name: _cpu_s(process) - before[name] for name, process in processes.items()}
        cpu_s["client"] = told["cpu_s"]
        with CollectorClient(url) as client:
            marks = client.read(HighWater(table="spans", run_id=RUN, attempt=0))["next_seq"].to_numpy()
            assert int(marks.sum()) == told["rows"], (int(marks.sum()), told)
        inserts = _inserts(url)
    cpu_ns = {name: 1e9 * used / told["rows"] for name, used in cpu_s.items()}
    return Taken(
        rows=told["rows"], seconds=told["seconds"], rows_an_insert=round(told["rows"] / inserts), cpu_ns=cpu_ns
    )


@contextmanager
def _collector(store_url: str) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    process = subprocess.Popen([sys.executable, "-c", COLLECT, store_url, str(port)])
    try:
        with CollectorClient(url) as client:
            until(lambda: client.healthy() or process.poll() is not None, what="the collector")
        yield process, url
    finally:
        process.terminate()
        process.wait()


def _inserts(url: str) -> float:
    """Number of span inserts so far."""
    lines = httpx.get(f"{url}/metrics").text.splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith('rankscope_inserts_total{table="spans"}'))


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


def _driver_ns(server: ClickHouseServer, seconds: float, rows_a_block: int) -> float:
    """Nanoseconds per row of clickhouse-driver for the same columns, in NumPy blocks that are made before."""
    columns = _block(rows_a_block)
    client = Client(
        "127.0.0.1", port=server.port, user=USER, password=PASSWORD, database="ingest",
        settings={"use_numpy": True, "insert_block_size": 100_000_000, "min_insert_block_size_rows": 10**9},
    )  # fmt: skip
    client.execute("CREATE TABLE raw AS spans")
    began, rows = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        client.execute(f"INSERT INTO raw ({', '.join(columns)}) VALUES", list(columns.values()), columnar=True)
        rows += rows_a_block
    client.disconnect()
    return 1e9 * (time.perf_counter() - began) / rows


def _block(num_rows: int) -> dict[str, np.ndarray]:
    """The columns of ``num_rows`` rows, with ``run_id`` and ``attempt``."""
    ranks, parts, count = made_ranks(0), [], 0
    while count < num_rows:
        parts += [later(rows, len(parts) // len(ranks)) for rows in ranks]
        count = sum(part.num_rows for part in parts)
    rows = pa.concat_tables(parts).slice(0, num_rows).combine_chunks()
    columns = {name: rows[name].to_numpy() for name in rows.column_names}
    return {**columns, "run_id": np.array([RUN] * num_rows, object), "attempt": np.zeros(num_rows, np.uint32)}


def _otlp_ns(seconds: float) -> float:
    """Nanoseconds per span from protobuf to columns, in Python."""
    body = _otlp_body()
    began, spans = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        decoded = decode_traces(ExportTraceServiceRequest.FromString(body))
        spans += sum(table.num_rows for table in decoded.tables.values())
    return 1e9 * (time.perf_counter() - began) / spans


def _otlp_body() -> bytes:
    """Spans with the content of a rankscope row, as an SDK sends them."""
    (rows, *_) = made_ranks(0)
    request = ExportTraceServiceRequest()
    spans = request.resource_spans.add().scope_spans.add().spans
    for row in rows.slice(0, OTLP_SPANS).to_pylist():
        span = spans.add(trace_id=os.urandom(16), span_id=os.urandom(8), parent_span_id=os.urandom(8))
        span.name = Stage(row["stage"]).label
        span.start_time_unix_nano, span.end_time_unix_nano = row["start_ns"], row["start_ns"] + row["duration_ns"]
        for name in ("rank", "step", "microbatch", "chunk", "peer", "size_bytes"):
            span.attributes.add(key=f"rankscope.{name}").value.int_value = row[name]
    body: bytes = request.SerializeToString()
    return body


BENCHMARK = Ingest()


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--seconds", type=float, default=SECONDS)
    told = parser.parse_args(arguments)
    chosen = Ingest(seconds=told.seconds)
    return report(chosen.title, chosen.run(), as_json=told.json)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
