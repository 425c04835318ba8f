"""Gives bad inputs to every reader of untrusted data, and checks it.

python -m tests.integration.wire_fuzz --count 100000 [--http 2000] [--seed 0] [--only INDEX] [--write]

Each input must give a value or a user error, within seconds. ``--http``: number of further inputs for a real collector.
It must answer each with a status below 500, change no other run, and not grow. If an input fails, it prints the numbers
of the inputs and exits with 1. ``--write`` puts the results into docs/accuracy.md.
"""

import argparse
import faulthandler
import gzip
import json
import random
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from starlette.datastructures import Headers

from telemetry.collector.gates import without_port
from telemetry.collector.guard import declared_length, presented
from telemetry.collector.otlp.api import SIGNALS
from telemetry.collector.otlp.message import JSON_TYPE, PROTOBUF_TYPE, Encoding, TooBigError, decode
from telemetry.collector.otlp.rank_spans import rank_spans_of
from telemetry.errors import UsageError
from telemetry.stores.queries import HeatCells, Spans
from telemetry.tables import TABLES
from telemetry.wire.codec import ARROW_TYPE, decode_batch, decode_query, encode, encode_query
from tests.benchmarks.pages import as_table, write_section
from tests.integration.attacked import KEPT, Attacked, attacked
from tests.integration.hostile_bytes import damaged
from tests.telemetry.made_rows import made, numbered_spans, of_run

LIMIT_S = 5
MAX_GROWTH_MIB = 250
LIMIT_BYTES = 2**20
Refusals = (UsageError, TooBigError)
Headed = tuple[str, str, str]
"""Path, Content-Type, Content-Encoding."""

_TRACES = {"resourceSpans": [{
    "resource": {"attributes": [{"key": "service.name", "value": {"stringValue": "job"}}]},
    "scopeSpans": [{"scope": {"name": "s", "version": "1"}, "spans": [{
        "traceId": "5b8efff798038103d269b633813fc60c", "spanId": "eee19b7ec3c1b174", "name": "step", "kind": 1,
        "startTimeUnixNano": "1544712660000000000", "endTimeUnixNano": "1544712661000000000",
        "attributes": [{"key": "rank", "value": {"intValue": "1"}}, {"key": "world_size", "value": {"intValue": "2"}},
                       {"key": "step", "value": {"intValue": "3"}},
                       {"key": "a", "value": {"arrayValue": {"values": [{"intValue": "7"}, {"doubleValue": 1.5}]}}},
                       {"key": "m", "value": {"kvlistValue": {"values": [{"key": "k", "value": {}}]}}}],
        "events": [{"timeUnixNano": "1544712660500000000", "name": "e"}],
        "links": [{"traceId": "5b8efff798038103d269b633813fc60c", "spanId": "eee19b7ec3c1b175"}],
        "status": {"code": 2, "message": "no"}}]}]}]}  # fmt: skip
_POINT = {"timeUnixNano": "1544712660000000000", "asDouble": 1.5}
_BUCKETS = {"timeUnixNano": "1", "count": "2", "sum": 2, "bucketCounts": ["1", "1"], "explicitBounds": [1]}
_METRICS = {"resourceMetrics": [{"scopeMetrics": [{"metrics": [
    {"name": "loss", "unit": "1", "gauge": {"dataPoints": [_POINT]}},
    {"name": "n", "sum": {"dataPoints": [_POINT], "aggregationTemporality": 2, "isMonotonic": True}},
    {"name": "h", "histogram": {"dataPoints": [_BUCKETS], "aggregationTemporality": 2}}]}]}]}  # fmt: skip
_LOGS = {"resourceLogs": [{"scopeLogs": [{"logRecords": [
    {"timeUnixNano": "1544712660000000000", "severityNumber": 9, "body": {"stringValue": "words"}}]}]}]}  # fmt: skip


@dataclass(slots=True, kw_only=True)
class Outcome:
    """Results of all inputs."""

    read: int = 0
    refused: int = 0
    over_http: dict[str, int] = field(default_factory=dict)
    """Number of answers of the collector, by status."""
    failures: list[str] = field(default_factory=list)
    slowest_s: float = 0.0
    slowest_index: int = -1
    peak_mib: float = 0.0
    growth_mib: float = 0.0
    """Memory growth of the collector."""


class _TooSlow(BaseException):
    """A reader took too long. A BaseException, so that no reader catches it."""


def samples() -> list[tuple[Headed, bytes]]:
    """Valid bodies, and the requests that they belong to."""
    window = {"run_id": "run", "attempt": 0, "first_step": 0, "last_step": 99}
    asked = [Spans(**window, ranks=(1, 2)), HeatCells(**window, stage=1, num_ranks=8, max_rows=4, max_columns=9)]
    spans = encode(of_run(numbered_spans(0, 5), run_id="fuzz"))
    batches = {
        name: encode(of_run(made(name, [{}, {"seq": 1} if "seq" in TABLES[name].names else {}]), "fuzz"))
        for name in TABLES
    }
    found = [((f"/v1/batches/{name}", ARROW_TYPE, ""), body) for name, body in {**batches, "spans": spans}.items()]
    found += [(("/v1/query", JSON_TYPE, ""), json.dumps(encode_query(query)).encode()) for query in asked]
    for name, told, kind in (
        ("traces", _TRACES, ExportTraceServiceRequest),
        ("metrics", _METRICS, ExportMetricsServiceRequest),
        ("logs", _LOGS, ExportLogsServiceRequest),
    ):
        as_json = json.dumps(told).encode()
        as_protobuf = decode(
            as_json, Encoding(content_type=JSON_TYPE), kind, limit_bytes=LIMIT_BYTES
        ).SerializeToString()
        found += [
            ((f"/v1/{name}", JSON_TYPE, ""), as_json),
            ((f"/v1/{name}", PROTOBUF_TYPE, ""), as_protobuf),
            ((f"/v1/{name}", PROTOBUF_TYPE, ""), as_protobuf),
            ((f"/v1/{name}", PROTOBUF_TYPE, "gzip"), gzip.compress(as_protobuf)),
        ]
    return found


def input_at(seed: int, index: int, good: list[tuple[Headed, bytes]]) -> tuple[Headed, bytes]:
    """The input with number ``index``."""
    rng = random.Random(f"{seed}/{index}")
    headed, body = rng.choice(good)
    if headed[2] == "gzip" and rng.random() < 0.5:
        return headed, gzip.compress(damaged(rng, gzip.decompress(body)))
    return headed, rng.randbytes(rng.randrange(300)) if rng.random() < 0.02 else damaged(rng, body)


def read(headed: Headed, body: bytes) -> None:
    """Read a body as the routes of the collector and the checks before them do."""
    path, kind, packing = headed
    _read_as_head(body)
    name = path.rpartition("/")[2]
    if path.startswith("/v1/batches/"):
        decode_batch(name, body)
    elif name == "query":
        decode_query(body)
    else:
        signal_of = SIGNALS[name]
        encoding = Encoding(content_type=kind, packing=packing)
        message = decode(body, encoding, signal_of.request, limit_bytes=LIMIT_BYTES)
        signal_of.rows(message)
        if isinstance(message, ExportTraceServiceRequest):
            rank_spans_of(message)


def _read_as_head(body: bytes) -> None:
    value = body[:200]
    declared_length([(b"content-length", value)])
    without_port(value.decode("latin-1"))
    for kind in (b"Bearer ", b"Basic ", b""):
        presented(Headers(raw=[(b"authorization", kind + value)]))


def fuzz(seed: int, indices: range) -> Outcome:
    """Read each input in this process."""
    outcome, good, before_mib = Outcome(), samples(), _peak_mib()
    signal.signal(signal.SIGALRM, _too_slow)
    for index in indices:
        headed, body = input_at(seed, index, good)
        began = time.perf_counter()
        signal.setitimer(signal.ITIMER_REAL, LIMIT_S)
        try:
            _judge(lambda headed=headed, body=body: read(headed, body), index, outcome)  # type: ignore[misc]
        except _TooSlow:
            outcome.failures.append(f"{index}: {headed}: not done within {LIMIT_S} s")
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        took = time.perf_counter() - began
        if took > outcome.slowest_s:
            outcome.slowest_s, outcome.slowest_index = took, index
    outcome.peak_mib = _peak_mib()
    if outcome.peak_mib - before_mib > MAX_GROWTH_MIB:
        outcome.failures.append(f"memory grew from {before_mib:.0f} to {outcome.peak_mib:.0f} MiB")
    return outcome


def _peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _judge(attempt: Callable[[], None], index: int, outcome: Outcome) -> None:
    try:
        attempt()
        outcome.read += 1
    except Refusals:
        outcome.refused += 1
    except Exception as error:
        outcome.failures.append(f"{index}: {type(error).__name__}: {str(error)[:200]}")


def _too_slow(*_: object) -> None:
    raise _TooSlow


def fuzz_http(seed: int, count: int, outcome: Outcome) -> None:
    """Send other inputs to a collector. It stores the inputs that it accepts."""
    shm = Path("/dev/shm")
    with (
        tempfile.TemporaryDirectory(prefix="rankscope-fuzz-", dir=shm if shm.is_dir() else None) as folder,
        attacked(Path(folder), "--no-dashboard", forks=False) as target,
    ):
        assert target.post_batch(encode(of_run(numbered_spans(0, 50), run_id=KEPT))).status_code == 200
        _send(target, seed, range(min(count, 300)), outcome)
        settled_mib = target.rss_mib()
        _send(target, seed, range(300, count), outcome)
        outcome.growth_mib = target.rss_mib() - settled_mib
        if not target.alive() or target.stored()["spans"] != 50:
            outcome.failures.append("the collector is gone, or what it had stored")
        if outcome.growth_mib > MAX_GROWTH_MIB:
            outcome.failures.append(f"the collector grew by {outcome.growth_mib:.0f} MiB")


def _send(target: Attacked, seed: int, indices: range, outcome: Outcome) -> None:
    good = samples()
    with target.http() as http:
        for index in indices:
            (path, kind, packing), body = input_at(seed + 1_000_000, index, good)
            told = {"Content-Type": kind, **({"Content-Encoding": packing} if packing else {})}
            status = http.post(path, content=body, headers=told).status_code
            outcome.over_http[str(status)] = outcome.over_http.get(str(status), 0) + 1
            if status >= 500:
                outcome.failures.append(f"http {index}: {path}: {status}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--http", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, help="this input alone, in this process")
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    faulthandler.enable()
    outcome = fuzz(given.seed, range(given.count) if given.only is None else range(given.only, given.only + 1))
    if given.http and given.only is None:
        fuzz_http(given.seed, given.http, outcome)
    print(json.dumps(asdict(outcome), indent=1))
    if given.write:
        command = f"python -m tests.integration.wire_fuzz --count {given.count} --http {given.http} --seed {given.seed}"
        write_section("Untrusted network input", command, as_section(outcome, given.count, given.http))
    return int(bool(outcome.failures))


def as_section(outcome: Outcome, count: int, sent: int) -> str:
    """The results as a section of docs/accuracy.md."""
    headings = ("inputs", "read", "refused", "crashed, hung or grew", "slowest", "peak memory", "sent to a collector",
                "answers", "memory growth")  # fmt: skip
    answers = ", ".join(f"{number} x {status}" for status, number in sorted(outcome.over_http.items()))
    counts = map(str, (count, outcome.read, outcome.refused, len(outcome.failures)))
    rest = (
        f"{outcome.slowest_s:.2f} s",
        f"{outcome.peak_mib:.0f} MiB",
        str(sent),
        answers,
        f"{outcome.growth_mib:.0f} MiB",
    )
    return as_table(headings, [(*counts, *rest)])


if __name__ == "__main__":
    sys.exit(main())
