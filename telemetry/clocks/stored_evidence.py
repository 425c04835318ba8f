"""Reads the input of clock alignment from a store: collectives, transfers and pings of one window of steps.

Only the ranks are queried that are needed to cover every host. For 12,288 ranks on 1,536 hosts that is one rank a host.

    a group of collectives    one rank of each host, if it spans several; one group for the same set of hosts.
                              Parameters and gradients use any axes that the grid's dp direction counts
    neighbours along pp       one pair for the same two hosts; a few pairs between the same two sets of hosts that
                              groups connect
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from telemetry.clocks.align_evidence import ABSENT, Bools, Evidence, Gathering, Int64s, Pings, Transfers
from telemetry.group_names import NO_PEER, Purpose, peer_of_mask, resolved_peers
from telemetry.host_metrics import Metric
from telemetry.stages import Stage
from telemetry.stores.interface import Reader
from telemetry.stores.queries import StageCounts
from telemetry.stores.queries.clocks import MeetingSpans
from telemetry.stores.queries.hosts import HostSamples
from telemetry.topology import Topology

COLLECTIVES: dict[Purpose, tuple[Stage, ...]] = {
    "dp": (Stage.PARAMS_ALL_GATHER, Stage.GRADS_REDUCE_SCATTER, Stage.GRADS_ALL_REDUCE),
    "tp": (
        *(Stage.TP_ALL_GATHER, Stage.TP_REDUCE_SCATTER, Stage.TP_ALL_REDUCE, Stage.TP_ALL_TO_ALL),
        Stage.LAYERNORM_GRADS_ALL_REDUCE,
    ),
    "cp": (Stage.CP_ALL_GATHER, Stage.CP_REDUCE_SCATTER, Stage.CP_ALL_REDUCE, Stage.CP_ALL_TO_ALL),
    "ep": (Stage.EP_ALL_TO_ALL, Stage.EP_ALL_GATHER, Stage.EP_REDUCE_SCATTER),
}
"""Collectives that no member leaves before all members have entered."""
Groups = tuple[tuple[int, ...], ...]
"""Groups of ranks, each rank on another host."""
TRANSFERS = ((Stage.FORWARD_SEND, Stage.FORWARD_RECV), (Stage.BACKWARD_SEND, Stage.BACKWARD_RECV))

MAX_BRIDGES = 8
"""Largest number of pairs of ranks between two sets of hosts. The pair with the smallest bound is used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """The ranks to query."""

    topology: Topology
    groups: dict[Purpose, dict[int, Groups]]
    """Purpose of the collectives -> bit mask of the axes of the groups -> groups. The first mask is also used for spans
    whose group is not recorded."""
    pairs: frozenset[tuple[int, int]]
    """Pipeline neighbours on two hosts, in both orders."""

    @property
    def paired(self) -> tuple[int, ...]:
        return tuple(sorted({rank for pair in self.pairs for rank in pair}))

    def grouped(self, purpose: Purpose) -> tuple[int, ...]:
        found = self.groups[purpose].values()
        return tuple(sorted({rank for groups in found for group in groups for rank in group}))


def choose_places(topology: Topology, hosts: Sequence[str]) -> Places:
    """The ranks to query. ``hosts``: the host of each rank, or an empty text if it is unknown."""
    groups: dict[Purpose, dict[int, Groups]] = {}
    for purpose in COLLECTIVES:
        # The possible axes of such groups. Axes of one rank make no difference.
        wide = topology.replica_mask if purpose == "dp" else topology.wide_mask(purpose)
        masks = [mask for mask in range(wide, 0, -1) if mask & wide == mask]
        groups[purpose] = {mask: _groups(topology, hosts, mask) for mask in masks}
    every_group = [found for by_mask in groups.values() for found in by_mask.values()]
    return Places(topology=topology, groups=groups, pairs=_pairs(topology, hosts, every_group))


def _groups(topology: Topology, hosts: Sequence[str], mask: int) -> Groups:
    chosen: dict[frozenset[str], tuple[int, ...]] = {}
    for group in topology.members(mask).tolist():
        first_of: dict[str, int] = {}
        for rank in group:
            if hosts[rank]:
                first_of.setdefault(hosts[rank], rank)
        if len(first_of) > 1:
            chosen.setdefault(frozenset(first_of), tuple(first_of.values()))
    return tuple(chosen.values())


def _pairs(topology: Topology, hosts: Sequence[str], groups: Iterable[Groups]) -> frozenset[tuple[int, int]]:
    connected = _connected_hosts(hosts, groups)
    chosen: dict[frozenset[str], tuple[int, int]] = {}
    bridges: Counter[frozenset[str]] = Counter()
    for group in topology.groups(along="pp") if topology.pp > 1 else ():
        for a, b in zip(group, (*group[1:], group[0]), strict=True):
            both, sets = frozenset((hosts[a], hosts[b])), frozenset((connected[hosts[a]], connected[hosts[b]]))
            if len(both) == 2 and "" not in both and both not in chosen and bridges[sets] < MAX_BRIDGES:
                chosen[both] = (a, b)
                bridges[sets] += 1
    return frozenset({*chosen.values(), *((b, a) for a, b in chosen.values())})


def _connected_hosts(hosts: Sequence[str], groups: Iterable[Groups]) -> dict[str, str]:
    """For each host, a host that represents the set of hosts that its groups connect."""
    above = {host: host for host in hosts}

    def top(host: str) -> str:
        while above[host] != host:
            above[host] = host = above[above[host]]
        return host

    for group in (group for of_mask in groups for group in of_mask):
        for rank in group[1:]:
            above[top(hosts[rank])] = top(hosts[group[0]])
    return {host: top(host) for host in above}


MAX_STEPS = 64
"""Steps of a window that are queried, evenly spread."""
MAX_EVENTS = 256
"""Approximate number of events to query for one stage and rank. More events would not improve a bound."""
PING_MARGIN_NS = 60_000_000_000
"""Pings up to this time before and after a window are used, too, because pings are rare."""

_KEY = np.dtype([(name, np.int64) for name in ("step", "number", "sender", "receiver")])


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Steps of one attempt."""

    run_id: str
    attempt: int
    first_step: int
    last_step: int
    first_ns: int
    """Wall clock, approximate, because the clocks of hosts differ."""
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
    """All events in ``window`` that relate the clocks of hosts. ``hosts``: the host of each rank."""
    steps = {"first_step": window.first_step, "last_step": window.last_step}
    table = reader.read(StageCounts(run_id=window.run_id, attempt=window.attempt, **steps))
    columns = (table[name].to_pylist() for name in ("stage", "spans", "ranks"))
    # The approximate number of spans of one rank in the whole window, by stage.
    counts = {stage: spans // max(ranks, 1) for stage, spans, ranks in zip(*columns, strict=True)}
    gatherings: list[Gathering] = []
    for purpose, stages in COLLECTIVES.items():
        rows = _read(reader, window, stages, places.grouped(purpose), counts)
        gatherings += _gatherings(rows, places, purpose, hosts) if rows is not None else ()
    rows = _read(reader, window, tuple(stage for pair in TRANSFERS for stage in pair), places.paired, counts)
    return Evidence(
        hosts=tuple(dict.fromkeys(host for host in hosts if host)),
        gatherings=tuple(gatherings),
        transfers=tuple(_transfers(rows, places, hosts)) if rows is not None else (),
        pings=tuple(_pings(reader, window)),
    )


def _read(
    reader: Reader, window: Window, stages: tuple[Stage, ...], ranks: tuple[int, ...], counts: dict[int, int]
) -> _Rows | None:
    occurring = tuple(int(stage) for stage in stages if counts.get(int(stage)))
    if not occurring or not ranks:
        return None
    num_steps = window.last_step - window.first_step + 1
    asked = np.unique(np.linspace(window.first_step, window.last_step, min(MAX_STEPS, num_steps)).astype(np.int64))
    most = max(counts[stage] for stage in occurring) * len(asked) // num_steps
    query = MeetingSpans(
        run_id=window.run_id,
        attempt=window.attempt,
        stages=occurring,
        steps=tuple(asked.tolist()),
        ranks=ranks,
        every=max(1, most // MAX_EVENTS),
    )
    table = reader.read(query)
    if not table.num_rows:
        return None
    names = ("stage", "step", "op_seq", "rank", "peer", "start_ns", "duration_ns")
    stage, step, number, rank, peer, start, duration = (table[name].to_numpy().astype(np.int64) for name in names)
    return _Rows(stage=stage, step=step, number=number, rank=rank, peer=peer, start_ns=start, end_ns=start + duration)


def _gatherings(rows: _Rows, places: Places, purpose: Purpose, hosts: tuple[str, ...]) -> Iterator[Gathering]:
    """The gatherings of one purpose. Groups along different axes number their operations separately."""
    rows = rows.where(rows.rank < len(hosts))
    peer = resolved_peers(rows.peer, places.topology)
    for place, (mask, groups) in enumerate(places.groups[purpose].items()):
        group_of, column_of = np.full((2, len(hosts)), ABSENT)
        for number, ranks in enumerate(groups):
            group_of[list(ranks)], column_of[list(ranks)] = number, np.arange(len(ranks))
        own = rows.where((peer == peer_of_mask(mask)) | ((peer == NO_PEER) & (place == 0)))
        for number, ranks in enumerate(groups):
            mine = own.where(group_of[own.rank] == number)
            if len(mine.step):
                yield _gathering(mine, column_of[mine.rank], tuple(hosts[rank] for rank in ranks))


def _gathering(rows: _Rows, column: Int64s, hosts: tuple[str, ...]) -> Gathering:
    """Rows are ordered by step, number and stage, so rows of one collective are adjacent."""
    is_first = np.ones(len(rows.step), dtype=np.bool_)
    is_first[1:] = (np.diff(rows.step) != 0) | (np.diff(rows.number) != 0) | (np.diff(rows.stage) != 0)
    at = np.cumsum(is_first) - 1
    start, end = np.full((2, int(at[-1]) + 1, len(hosts)), ABSENT, dtype=np.int64)
    start[at, column], end[at, column] = rows.start_ns, rows.end_ns
    return Gathering(hosts=hosts, start_ns=start, end_ns=end, step=rows.step[is_first])


def _transfers(rows: _Rows, places: Places, hosts: tuple[str, ...]) -> Iterator[Transfers]:
    """Matches the n-th send of a rank to a peer with that peer's n-th receive from it."""
    for send, receive in TRANSFERS:
        sent, received = rows.where(rows.stage == send), rows.where(rows.stage == receive)
        of_sent = np.rec.fromarrays([sent.step, sent.number, sent.rank, sent.peer], dtype=_KEY)
        of_received = np.rec.fromarrays([received.step, received.number, received.peer, received.rank], dtype=_KEY)
        _, here, there = np.intersect1d(of_sent, of_received, return_indices=True)
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
    for (host, collector), pings in found.items():
        whole = [(at_ns, values[offset], values[trip]) for at_ns, values in sorted(pings.items()) if len(values) > 1]
        if whole:
            at, by, took = (np.array(column, dtype=np.int64) for column in zip(*whole, strict=True))
            yield Pings(host=host, collector=collector, at_ns=at, offset_ns=by, round_trip_ns=took)
