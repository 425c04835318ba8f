"""Reads traces back like their viewers. Both forms give the same records."""

import gzip
import json
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """Stamps in nanoseconds: since the trace's base in JSON, since the epoch in protobuf."""

    pid: int
    tid: int
    name: str
    category: str
    start_ns: int
    duration_ns: int
    words: dict[str, Any]

    @property
    def end_ns(self) -> int:
        return self.start_ns + self.duration_ns


@dataclass(kw_only=True)
class Opened:
    first_ns: int = 0
    """When the trace begins, nanoseconds since the epoch."""
    processes: dict[int, str] = field(default_factory=dict)
    notes: dict[int, str] = field(default_factory=dict)
    threads: dict[int, tuple[int, str]] = field(default_factory=dict)
    """tid -> pid, name."""
    slices: list[Slice] = field(default_factory=list)
    arrows: dict[int, tuple[Slice, Slice]] = field(default_factory=dict)
    instants: list[tuple[int, int, str, dict[str, Any]]] = field(default_factory=list)
    """pid, stamp, name, words."""
    counters: dict[str, list[tuple[int, float]]] = field(default_factory=lambda: defaultdict(list))

    @property
    def named_arrows(self) -> set[tuple[str, str, str, str]]:
        """Process and slice at both ends of each arrow."""
        return {(self.processes[a.pid], a.name, self.processes[b.pid], b.name) for a, b in self.arrows.values()}

    def check_nesting(self) -> None:
        """On each thread any two slices nest, or follow each other."""
        by_thread: dict[int, list[Slice]] = defaultdict(list)
        for one in self.slices:
            by_thread[one.tid].append(one)
        for slices in by_thread.values():
            open_until: list[int] = []
            for one in sorted(slices, key=lambda one: (one.start_ns, -one.end_ns)):
                while open_until and open_until[-1] <= one.start_ns:
                    open_until.pop()
                assert not open_until or one.end_ns <= open_until[-1], one
                open_until.append(one.end_ns)


def cut_off(us: float) -> int:
    """Nanoseconds as Perfetto computes them from Chrome's microseconds."""
    return int(us * 1000.0)


def opened_json(path: Path) -> Opened:
    """Read Chrome's JSON. ``.gz`` is unpacked."""
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    trace = Opened()
    leaves: dict[int, Slice] = {}
    arrives: dict[int, Slice] = {}
    last: dict[int, list[Slice]] = defaultdict(list)
    whole = json.loads(text)
    events = whole["traceEvents"]
    trace.first_ns = int(whole["otherData"]["first stamp, ns since 1970"])
    for event in sorted(events, key=lambda event: event.get("ts", -1)):  # stable, as readers sort
        match event["ph"]:
            case "M":
                _read_metadata(trace, event)
            case "X":
                assert round(event["ts"] * 1000) == cut_off(event["ts"])
                assert round(event["dur"] * 1000) == cut_off(event["dur"])
                one = Slice(
                    pid=event["pid"], tid=event["tid"], name=event["name"], category=event["cat"],
                    start_ns=cut_off(event["ts"]), duration_ns=cut_off(event["dur"]), words=event["args"],
                )  # fmt: skip
                trace.slices.append(one)
                last[one.tid] = [*(open for open in last[one.tid] if open.end_ns > one.start_ns), one]
            case "s":
                leaves[event["id"]] = last[event["tid"]][-1]
                assert event["id"] not in arrives, "it arrives before it leaves"
            case "f":
                assert event["bp"] == "e"
                arrives[event["id"]] = last[event["tid"]][-1]
            case "i":
                trace.instants.append((event["pid"], cut_off(event["ts"]), event["name"], event["args"]))
            case "C":
                trace.counters[event["name"]].append((cut_off(event["ts"]), event["args"]["value"]))
            case other:
                raise AssertionError(other)
    assert leaves.keys() == arrives.keys()
    trace.arrows = {number: (leaves[number], arrives[number]) for number in leaves}
    return trace


def _read_metadata(trace: Opened, event: dict[str, Any]) -> None:
    match event["name"]:
        case "process_name":
            trace.processes[event["pid"]] = event["args"]["name"]
        case "process_labels":
            trace.notes[event["pid"]] = event["args"]["labels"]
        case "thread_name":
            assert event["tid"] not in trace.threads, "readers name threads by tid alone"
            trace.threads[event["tid"]] = (event["pid"], event["args"]["name"])


def opened_protobuf(path: Path) -> Opened:
    """Read Perfetto's protobuf."""
    from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as protos  # noqa: PLC0415 - an optional extra

    packets = protos.Trace.FromString(path.read_bytes()).packet
    trace = Opened()
    names: dict[int, str] = {}
    categories: dict[int, str] = {}
    words: dict[int, str] = {}
    counters: dict[int, str] = {}
    open_slices: dict[int, list[tuple[int, Any]]] = defaultdict(list)
    ends: dict[int, dict[str, tuple[int, int]]] = defaultdict(dict)
    found: dict[int, Slice] = {}
    for packet in packets:
        if packet.HasField("clock_snapshot"):
            trace.first_ns = packet.clock_snapshot.clocks[0].timestamp
        if packet.HasField("interned_data"):
            names |= {one.iid: one.name for one in packet.interned_data.event_names}
            categories |= {one.iid: one.name for one in packet.interned_data.event_categories}
            words |= {one.iid: one.name for one in packet.interned_data.debug_annotation_names}
        if packet.HasField("track_descriptor"):
            _read_track(trace, counters, packet.track_descriptor)
    events = [packet for packet in packets if packet.HasField("track_event")]
    for packet in sorted(events, key=lambda packet: packet.timestamp):  # stable, as readers sort
        event, at_ns = packet.track_event, packet.timestamp
        said = _annotations(event, words)
        if event.type == protos.TrackEvent.TYPE_SLICE_BEGIN:
            open_slices[event.track_uuid].append((at_ns, event))
        elif event.type == protos.TrackEvent.TYPE_SLICE_END:
            start_ns, begin = open_slices[event.track_uuid].pop()
            pid, _ = trace.threads[event.track_uuid]
            one = Slice(
                pid=pid, tid=event.track_uuid, name=begin.name or names[begin.name_iid],
                category=[*begin.categories, *map(categories.get, begin.category_iids)][0],
                start_ns=start_ns, duration_ns=at_ns - start_ns, words=_annotations(begin, words),
            )  # fmt: skip
            number = len(trace.slices)
            trace.slices.append(one)
            found[number] = one
            for flow in begin.flow_ids:
                ends[flow]["leaves"] = (number, start_ns)
            for flow in event.terminating_flow_ids:
                ends[flow]["arrives"] = (number, at_ns)
        elif event.type == protos.TrackEvent.TYPE_INSTANT:
            trace.instants.append((event.track_uuid, at_ns, event.name, said))
        else:
            trace.counters[counters[event.track_uuid]].append((at_ns, event.double_counter_value))
    assert not any(open_slices.values())
    for flow, both in ends.items():
        assert both["leaves"][1] < both["arrives"][1]
        trace.arrows[flow] = (found[both["leaves"][0]], found[both["arrives"][0]])
    return trace


def _annotations(event: Any, words: dict[int, str]) -> dict[str, Any]:
    return {
        one.name or words[one.name_iid]: one.string_value if one.HasField("string_value") else one.int_value
        for one in event.debug_annotations
    }


def _read_track(trace: Opened, counters: dict[int, str], track: Any) -> None:
    if track.HasField("process"):
        trace.processes[track.uuid] = track.process.process_name
        if track.process.process_labels:
            trace.notes[track.uuid] = track.process.process_labels[0]
    elif track.HasField("thread"):
        trace.threads[track.uuid] = (track.thread.pid, track.thread.thread_name)
    else:
        counters[track.uuid] = track.name
