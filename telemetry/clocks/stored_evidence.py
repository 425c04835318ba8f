"""Reads the input of clock alignment from a store: collectives, transfers and pings of one window of steps."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from telemetry.clocks.align_evidence import ABSENT, Evidence, Gathering, Int64s, Pings, Transfers
from telemetry.clocks.places import COLLECTIVES, TRANSFERS, Groups, Places
from telemetry.group_names import NO_PEER, Purpose, peer_of_mask, resolved_peers
from telemetry.host_metrics import Metric
from telemetry.stages import Stage
from telemetry.stores.interface import Reader
from telemetry.stores.queries import StageCounts
from telemetry.stores.queries.clocks import MeetingSpans
from telemetry.stores.queries.hosts import HostSamples

MAX_STEPS = 64
"""Steps of a window that are asked for, evenly spread."""
MAX_EVENTS = 256
"""About so many of one stage and rank: more make no bound tighter."""
PING_MARGIN_NS = 60_000_000_000
"""Pings are rare: those around a window count, too."""

_KEY = np.dtype([(name, np.int64) for name in ("step", "number", "sender", "receiver")])
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Steps of one attempt."""

    run_id: str
    attempt: int
    first_step: int
    last_step: int
    first_ns: int
    """Wall clock, roughly: hosts differ."""
    last_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rows:
    """Columns of ``MeetingSpans``."""

    stage: Int64s
    step: Int64s
    number: Int64s
    rank: Int64s
    peer: Int64s
    start_ns: Int64s
    end_ns: Int64s

    def where(self, chosen: Bools) -> "_Rows":
        return _Rows(**{name: getattr(self, name)[chosen] for name in _Rows.__slots__})


def read_evidence(reader: Reader, window: Window, places: Places, hosts: tuple[str, ...]) -> Evidence:
    """Everything in ``window`` that tells of hosts' clocks. ``hosts``: of each rank."""
    counts = _counts(reader, window)
    gatherings = [
        gathering
        for purpose, stages in COLLECTIVES.items()
        for gathering in _all_gatherings(
            _read(reader, window, stages, places.grouped(purpose), counts), places, purpose, hosts
        )
    ]
    sides = tuple(stage for pair in TRANSFERS for stage in pair)
    transfers = list(_transfers(_read(reader, window, sides, places.paired, counts), places, hosts))
    return Evidence(
        hosts=tuple(dict.fromkeys(host for host in hosts if host)),
        gatherings=tuple(gatherings),
        transfers=tuple(transfers),
        pings=tuple(_pings(reader, window)),
    )


def _counts(reader: Reader, window: Window) -> dict[int, int]:
    """By stage: of one rank in the whole window, about."""
    table = reader.read(
        StageCounts(
            run_id=window.run_id, attempt=window.attempt, first_step=window.first_step, last_step=window.last_step
        )
    )
    columns = (table[name].to_pylist() for name in ("stage", "spans", "ranks"))
    return {stage: spans // max(ranks, 1) for stage, spans, ranks in zip(*columns, strict=True)}


def _read(
    reader: Reader, window: Window, stages: tuple[Stage, ...], ranks: tuple[int, ...], counts: dict[int, int]
) -> _Rows | None:
    occurring = tuple(int(stage) for stage in stages if counts.get(int(stage)))
    if not occurring or not ranks:
        return None
    num_steps = window.last_step - window.first_step + 1
    asked = np.unique(np.linspace(window.first_step, window.last_step, min(MAX_STEPS, num_steps)).astype(np.int64))
    most = max(counts[stage] for stage in occurring) * len(asked) // num_steps
    table = reader.read(
        MeetingSpans(
            run_id=window.run_id,
            attempt=window.attempt,
            stages=occurring,
            steps=tuple(asked.tolist()),
            ranks=ranks,
            every=max(1, most // MAX_EVENTS),
        )
    )
    return _rows(table) if table.num_rows else None


def _rows(table: pa.Table) -> _Rows:
    names = ("stage", "step", "op_seq", "rank", "peer", "start_ns", "duration_ns")
    stage, step, number, rank, peer, start, duration = (table[name].to_numpy().astype(np.int64) for name in names)
    return _Rows(stage=stage, step=step, number=number, rank=rank, peer=peer, start_ns=start, end_ns=start + duration)


def _all_gatherings(
    rows: _Rows | None, places: Places, purpose: Purpose, hosts: tuple[str, ...]
) -> Iterator[Gathering]:
    """Groups along different axes count their operations by themselves."""
    if rows is None:
        return
    peer = resolved_peers(rows.peer, places.topology)
    for place, (mask, of_mask) in enumerate(places.groups[purpose].items()):
        named = peer == peer_of_mask(mask)
        yield from _gatherings(rows.where(named | ((peer == NO_PEER) & (place == 0))), of_mask, hosts)


def _gatherings(rows: _Rows, groups: Groups, hosts: tuple[str, ...]) -> Iterator[Gathering]:
    group_of, column_of = np.full((2, len(hosts)), ABSENT)
    for number, ranks in enumerate(groups):
        group_of[list(ranks)], column_of[list(ranks)] = number, np.arange(len(ranks))
    rows = rows.where(rows.rank < len(hosts))
    for number, ranks in enumerate(groups):
        mine = rows.where(group_of[rows.rank] == number)
        if len(mine.step):
            yield _gathering(mine, column_of[mine.rank], tuple(hosts[rank] for rank in ranks))


def _gathering(rows: _Rows, column: Int64s, hosts: tuple[str, ...]) -> Gathering:
    """Rows come ordered by step, number and stage: those of one collective stand together."""
    news = np.ones(len(rows.step), dtype=np.bool_)
    news[1:] = (np.diff(rows.step) != 0) | (np.diff(rows.number) != 0) | (np.diff(rows.stage) != 0)
    at = np.cumsum(news) - 1
    start, end = np.full((2, int(at[-1]) + 1, len(hosts)), ABSENT, dtype=np.int64)
    start[at, column], end[at, column] = rows.start_ns, rows.end_ns
    return Gathering(hosts=hosts, start_ns=start, end_ns=end, step=rows.step[news])


def _transfers(rows: _Rows | None, places: Places, hosts: tuple[str, ...]) -> Iterator[Transfers]:
    """The n-th send of a rank to a peer with that peer's n-th receive from it."""
    if rows is None:
        return
    for send, receive in TRANSFERS:
        sent, received = rows.where(rows.stage == send), rows.where(rows.stage == receive)
        here, there = _matched(sent, received)
        pairs = np.stack([sent.rank[here], sent.peer[here]], axis=1)
        for a, b in np.unique(pairs, axis=0).tolist():
            if (a, b) in places.pairs:
                mine = (pairs == (a, b)).all(axis=1)
                yield Transfers(
                    sender=hosts[a],
                    receiver=hosts[b],
                    sent_ns=sent.start_ns[here[mine]],
                    received_ns=received.end_ns[there[mine]],
                    step=sent.step[here[mine]],
                )


def _matched(sent: _Rows, received: _Rows) -> tuple[Int64s, Int64s]:
    """Rows of the two sides of each transfer, in the order of steps and numbers."""
    of_sent = np.rec.fromarrays([sent.step, sent.number, sent.rank, sent.peer], dtype=_KEY)
    of_received = np.rec.fromarrays([received.step, received.number, received.peer, received.rank], dtype=_KEY)
    _, here, there = np.intersect1d(of_sent, of_received, return_indices=True)
    return here, there


def _pings(reader: Reader, window: Window) -> Iterator[Pings]:
    offset, trip = str(Metric.CLOCK_OFFSET_NS), str(Metric.CLOCK_ROUND_TRIP_NS)
    table = reader.read(
        HostSamples(
            run_id=window.run_id,
            attempt=window.attempt,
            metrics=(offset, trip),
            first_ns=max(0, window.first_ns - PING_MARGIN_NS),
            last_ns=window.last_ns + PING_MARGIN_NS,
        )
    )
    found: dict[tuple[str, str], dict[int, dict[str, float]]] = {}
    for row in table.select(["metric", "host", "device", "at_ns", "value"]).to_pylist():
        found.setdefault((row["host"], row["device"]), {}).setdefault(row["at_ns"], {})[row["metric"]] = row["value"]
    for (host, collector), looks in found.items():
        whole = [(at_ns, values[offset], values[trip]) for at_ns, values in sorted(looks.items()) if len(values) > 1]
        if whole:
            at, by, took = (np.array(column, dtype=np.int64) for column in zip(*whole, strict=True))
            yield Pings(host=host, collector=collector, at_ns=at, offset_ns=by, round_trip_ns=took)
