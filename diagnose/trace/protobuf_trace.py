"""Writes a trace in Perfetto's own format: track events in protobuf. Times are whole nanoseconds of wall time.

    track descriptors     process (uuid = pid)  >  thread (uuid = tid), counter
    slice                 SLICE_BEGIN  arrows that leave      ...      SLICE_END  arrows that arrive

Names are written once, in the first packet, and slices refer to them (perfetto.dev: "Synthetic Track Events"). At equal
times, readers keep the order of the file. So the end of a slice is written before the begin of the next one, and the
end of an inner slice before the end of the slice around it.
"""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, BinaryIO

import numpy as np
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as protos
from perfetto.trace_builder.proto_builder import TraceProtoBuilder

from diagnose.model.operations import Ints
from diagnose.trace.drawing import (
    CATEGORIES,
    WORDS,
    ArrowEnds,
    Counter,
    Instant,
    Process,
    ProfileDrawing,
    RankDrawing,
    RunDrawing,
    Thread,
    Words,
    category_of,
    name_of,
    words_of,
)
from telemetry.stages import Stage

SEQUENCE = 1
PACKETS_AT_ONCE = 20_000
FIRST_COUNTER_UUID = 2**32
MARKS = "mark"

_TrackEvent = protos.TrackEvent
_NAMED = protos.TracePacket.SEQ_NEEDS_INCREMENTAL_STATE
_FIRST = protos.TracePacket.SEQ_INCREMENTAL_STATE_CLEARED | _NAMED
_WALL, _TRACE_CLOCK = protos.BUILTIN_CLOCK_REALTIME, protos.BUILTIN_CLOCK_BOOTTIME


class ProtobufTrace:
    """Writes protobuf.

    Args:
        about: description of the trace, at its first time.
    """

    def __init__(self, file: BinaryIO, about: Instant) -> None:
        self._file = file
        self._packets = TraceProtoBuilder()
        self._names = {int(stage): number for number, stage in enumerate(Stage, 1)}
        self._categories = {name: number for number, name in enumerate((*CATEGORIES, MARKS), 1)}
        self._words = {name: number for number, name in enumerate(WORDS, 1)}
        self._add_clocks(about.at_ns)
        self._add_names()

    def add_run(self, run: RunDrawing) -> None:
        """Write the data that belongs to no rank."""
        self._add_process(run.process)
        for instant in (run.about, *run.instants):
            self._add_instant(run.process.pid, instant)
        for number, counter in enumerate(run.counters):
            self._add_counter(run.process.pid, FIRST_COUNTER_UUID + number, counter)
        self._flush()

    def add_rank(self, rank: RankDrawing) -> None:
        """Write a rank."""
        self._add_process(rank.process)
        for thread in rank.threads:
            self._add_thread(rank.process.pid, thread)
        self._add_slices(rank)
        for mark in rank.marks:
            self._add_instant(rank.process.pid, mark)
        self._flush()

    def add_profile(self, profile: ProfileDrawing) -> None:
        """Write a Kineto trace."""
        for thread in profile.threads:
            self._add_thread(profile.pid, thread)
        self._add_profiled_slices(profile)
        self._add_instant(profile.pid, profile.about)
        self._flush()

    def end(self) -> None:
        """Write the end of the trace."""
        self._flush()

    def _flush(self) -> None:
        self._file.write(self._packets.serialize())
        self._packets = TraceProtoBuilder()

    def _packet(self) -> Any:
        if len(self._packets.trace.packet) >= PACKETS_AT_ONCE:
            self._flush()
        packet = self._packets.add_packet()
        packet.trusted_packet_sequence_id = SEQUENCE
        return packet

    def _add_clocks(self, at_ns: int) -> None:
        """Set wall time as the clock of the trace, so that viewers can show the time of day."""
        packet = self._packet()
        packet.timestamp = at_ns
        packet.clock_snapshot.primary_trace_clock = _TRACE_CLOCK
        for clock in (_WALL, _TRACE_CLOCK):
            packet.clock_snapshot.clocks.add(clock_id=clock, timestamp=at_ns)

    def _add_names(self) -> None:
        packet = self._packet()
        packet.sequence_flags = _FIRST
        interned = packet.interned_data
        for stage, number in self._names.items():
            interned.event_names.add(iid=number, name=name_of(stage))
        for name, number in self._categories.items():
            interned.event_categories.add(iid=number, name=name)
        for name, number in self._words.items():
            interned.debug_annotation_names.add(iid=number, name=name)

    def _add_process(self, process: Process) -> None:
        track = self._packet().track_descriptor
        track.uuid = process.pid
        track.sibling_order_rank = process.order
        track.process.pid = process.pid
        track.process.process_name = process.name
        track.process.legacy_sort_index = process.order
        if process.note:
            track.process.process_labels.append(process.note)

    def _add_thread(self, pid: int, thread: Thread) -> None:
        track = self._packet().track_descriptor
        track.uuid, track.parent_uuid = thread.tid, pid
        track.sibling_order_rank = thread.order
        track.thread.pid, track.thread.tid = pid, thread.tid
        track.thread.thread_name = thread.name
        track.thread.legacy_sort_index = thread.order

    def _add_instant(self, pid: int, instant: Instant) -> None:
        event = self._event(instant.at_ns, pid, _TrackEvent.TYPE_INSTANT)
        event.name = instant.name
        event.category_iids.append(self._categories[MARKS])
        _annotate(event, instant.words)

    def _add_counter(self, pid: int, uuid: int, counter: Counter) -> None:
        track = self._packet().track_descriptor
        track.uuid, track.parent_uuid, track.name = uuid, pid, counter.metric
        track.counter.SetInParent()
        for at_ns, value in zip(counter.at_ns.tolist(), counter.value.tolist(), strict=True):
            self._event(at_ns, uuid, _TrackEvent.TYPE_COUNTER).double_counter_value = value

    def _event(self, at_ns: int, track: int, kind: int) -> Any:
        packet = self._packet()
        packet.timestamp = at_ns
        packet.sequence_flags = _NAMED
        event = packet.track_event
        event.type = kind
        event.track_uuid = track
        return event

    def _add_slices(self, rank: RankDrawing) -> None:
        leaving, arriving = _numbers(rank.leaving), _numbers(rank.arriving)
        words = [
            (self._words[name], values.tolist(), known.tolist())
            for name, values, known in words_of(rank)
            if known.any()
        ]
        stages = rank.slices.stage.tolist()
        tids = [rank.threads[thread].tid for thread in rank.thread.tolist()]
        for at_ns, row, begins in _begins_and_ends(rank.slices.start_ns, rank.slices.end_ns, rank.thread):
            if not begins:
                self._end_slice(at_ns, tids[row], arriving.get(row, ()))
                continue
            event = self._event(at_ns, tids[row], _TrackEvent.TYPE_SLICE_BEGIN)
            self._name(event, stages[row])
            event.flow_ids.extend(leaving.get(row, ()))
            for word, values, known in words:
                if known[row]:
                    event.debug_annotations.add(name_iid=word, int_value=values[row])

    def _add_profiled_slices(self, profile: ProfileDrawing) -> None:
        leaving, arriving = _numbers(profile.leaving), _numbers(profile.arriving)
        tids = [profile.threads[thread].tid for thread in profile.thread.tolist()]
        for at_ns, row, begins in _begins_and_ends(profile.start_ns, profile.end_ns, profile.thread):
            if not begins:
                self._end_slice(at_ns, tids[row], arriving.get(row, ()))
                continue
            event = self._event(at_ns, tids[row], _TrackEvent.TYPE_SLICE_BEGIN)
            event.name = profile.name[row]
            event.categories.append(profile.category[row])
            event.flow_ids.extend(leaving.get(row, ()))
            _annotate(event, _plain(profile.args[row]))

    def _end_slice(self, at_ns: int, track: int, arriving: Sequence[int]) -> None:
        event = self._event(at_ns, track, _TrackEvent.TYPE_SLICE_END)
        event.terminating_flow_ids.extend(arriving)

    def _name(self, event: Any, stage: int) -> None:
        event.category_iids.append(self._categories[category_of(stage)])
        if stage in self._names:
            event.name_iid = self._names[stage]
        else:
            event.name = name_of(stage)


def _annotate(event: Any, words: Words) -> None:
    for name, value in words.items():
        one = event.debug_annotations.add(name=name)
        if isinstance(value, int):
            one.int_value = value
        else:
            one.string_value = value


def _numbers(ends: ArrowEnds) -> Mapping[int, list[int]]:
    """Row of a slice -> numbers of the arrows that begin or end there."""
    found: dict[int, list[int]] = defaultdict(list)
    for row, number in zip(ends.row.tolist(), ends.number.tolist(), strict=True):
        found[row].append(number)
    return found


def _plain(args: str) -> Words:
    """The values of a JSON object as values of an annotation. Other values than integers and texts become text."""
    return {
        name.encode(errors="replace").decode(): value
        if isinstance(value, int) and -(2**63) <= value < 2**63
        else (value if isinstance(value, str) else json.dumps(value)).encode(errors="replace").decode()
        for name, value in json.loads(args).items()
    }


def _begins_and_ends(start_ns: Ints, end_ns: Ints, thread: Ints) -> Iterator[tuple[int, int, bool]]:
    """Time, row of a slice, and whether it begins or ends then: thread by thread, in the order of time and nesting."""
    starts, ends = start_ns.tolist(), end_ns.tolist()
    by_thread = np.argsort(thread, kind="stable")
    for rows in np.split(by_thread, np.flatnonzero(np.diff(thread[by_thread])) + 1):
        open_rows: list[int] = []
        for row in rows.tolist():
            while open_rows and ends[open_rows[-1]] <= starts[row]:
                ended = open_rows.pop()
                yield ends[ended], ended, False
            open_rows.append(row)
            yield starts[row], row, True
        for row in reversed(open_rows):
            yield ends[row], row, False
