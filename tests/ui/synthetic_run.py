"""A training run made from a seed, as a collector would store it: every span of a 3D-parallel step, in real order.

    1F1B over two pipeline stages, four microbatches, tensor-parallel collectives inside each compute span

    pp0   F0  F1  ..wait..  B0  F2  B1  F3  B2  B3   reduce-scatter  clip  optimizer  all-gather
    pp1   wait  F0  B0  F1  B1  F2  B2  F3  B3       reduce-scatter  clip  optimizer  all-gather

A slow rank does its own work slower (wall and processor time); its tensor-parallel peer waits for it inside the
collectives, so both have equally long spans, and only processor time tells the culprit from the victim.
"""

import json
import pickle
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from telemetry.profiles import SUPPORTED
from telemetry.stages import Stage
from telemetry.stores.interface import Store
from telemetry.tables import TABLES, owned
from telemetry.topology import Place, Topology

MS = 1_000_000
DATA_NS, FORWARD_NS, BACKWARD_NS = 6 * MS, 34 * MS, 68 * MS
TP_NS, SEND_NS, REDUCE_NS, GATHER_NS = 1_500_000, 2 * MS, 22 * MS, 12 * MS
CLIP_NS, OPTIMIZER_NS, BETWEEN_STEPS_NS = 4 * MS, 18 * MS, 3 * MS
LAYERS = 2
MICROBATCHES = 4
ACTIVATION_BYTES = 2 * 1024 * 256 * 4

Row = dict[str, Any]

UNRECORDED = ("run_id", "attempt", "device", "host", "_late")
"""Attributes of a run that the records of its next steps do not depend on."""
BLOCK_STEPS, MAX_BLOCKS = 10, 256
_BLOCKS: dict[bytes, tuple[pa.Table, pa.Table, bytes]] = {}
"""State of a run and the number of steps to train -> their spans and samples, and the state after them. The least
recently used first."""


@dataclass(kw_only=True)
class SyntheticRun:
    """A run that can be written piece by piece, as a live one is."""

    run_id: str = "synthetic"
    attempt: int = 0
    topology: Topology = field(default_factory=lambda: Topology(dp=2, pp=2, tp=2))
    slow: Mapping[int, float] = field(default_factory=lambda: {5: 1.4})
    jitter: float = 0.04
    started_ns: int = 1_790_000_000_000_000_000
    ranks_per_host: int = 2
    with_cpu: bool = True
    device: str = "cpu"
    """The device that its ranks report."""
    seed: int = 0

    def __post_init__(self) -> None:
        self._random = np.random.default_rng(self.seed)
        self._clock_ns = dict.fromkeys(range(self.topology.world_size), self.started_ns + 500 * MS)
        self._seq = dict.fromkeys(range(self.topology.world_size), 0)
        self._op_seq: dict[tuple[int, int], int] = {}
        self._spans: list[tuple[int | None, ...]] = []
        self._samples: list[Row] = []
        self._late = TABLES["spans"].empty_table()
        self._next_step = 0

    @property
    def now_ns(self) -> int:
        """The time that the slowest rank has reached."""
        return max(self._clock_ns.values())

    def host(self, rank: int) -> str:
        return f"gpu-{rank // self.ranks_per_host + 1:02d}"

    def introduce(self, store: Store) -> None:
        """Write the ranks, as they report when they start."""
        meta = json.dumps({"recipe": "tiny_cpu", "device": self.device, "model": "4 layers, 256 wide", SUPPORTED: "1"})
        grid = {"dp_size": self.topology.dp, "pp_size": self.topology.pp, "tp_size": self.topology.tp}
        rows = [
            {"rank": rank, "host": self.host(rank), "local_rank": rank % self.ranks_per_host, "pid": 4000 + rank}
            | grid
            | {"started_ns": self.started_ns, "meta": meta}
            for rank in range(self.topology.world_size)
        ]
        self._insert(store, "ranks", rows)

    def advance(self, store: Store, num_steps: int, *, late: Collection[int] = ()) -> None:
        """Train more steps and store their records. The next call stores the spans of the ``late`` ranks."""
        blocks = [self._train(min(BLOCK_STEPS, num_steps - first)) for first in range(0, num_steps, BLOCK_STEPS)]
        spans = pa.concat_tables([self._late, *(spans for spans, _ in blocks)])
        is_late = pc.is_in(spans["rank"], pa.array([*late], pa.uint32()))
        self._late = spans.filter(is_late)
        self._insert(store, "spans", spans.filter(pc.invert(is_late)).combine_chunks())
        samples = pa.concat_tables([TABLES["samples"].empty_table(), *(samples for _, samples in blocks)])
        self._insert(store, "samples", samples.combine_chunks())

    def _train(self, num_steps: int) -> tuple[pa.Table, pa.Table]:
        """Spans and samples of the next steps. A process makes them only once for all runs in the same state."""
        before = pickle.dumps((self._state(), num_steps))
        if before not in _BLOCKS:
            if len(_BLOCKS) == MAX_BLOCKS:
                del _BLOCKS[next(iter(_BLOCKS))]
            _BLOCKS[before] = *self._make_records(num_steps), pickle.dumps(self._state())
        spans, samples, after = _BLOCKS[before] = _BLOCKS.pop(before)
        vars(self).update(pickle.loads(after))
        return spans, samples

    def _state(self) -> dict[str, Any]:
        """What records depend on."""
        return {name: value for name, value in vars(self).items() if name not in UNRECORDED}

    def _make_records(self, num_steps: int) -> tuple[pa.Table, pa.Table]:
        for step in range(self._next_step, self._next_step + num_steps):
            self._step(step)
        self._next_step += num_steps
        samples, self._samples = pa.Table.from_pylist(self._samples, schema=TABLES["samples"]), []
        return self._take_spans(), samples

    def _take_spans(self) -> pa.Table:
        columns = zip(zip(*self._spans, strict=True), TABLES["spans"], strict=True)
        self._spans = []
        return pa.table([pa.array(values, field.type) for values, field in columns], schema=TABLES["spans"])

    def advance_into_a_step(self, store: Store, part_ns: int) -> int:
        """Train for ``part_ns`` of the next step, store the spans that have ended by then, and return the time."""
        stopped_ns = self.now_ns + part_ns
        self._step(self._next_step)
        spans, self._samples = self._take_spans(), []
        has_ended = pc.less_equal(pc.add(spans["start_ns"], spans["duration_ns"]), stopped_ns)
        is_part = pc.not_equal(spans["stage"], int(Stage.STEP))
        self._insert(store, "spans", spans.filter(pc.and_(has_ended, is_part)))
        self._clock_ns = dict.fromkeys(self._clock_ns, stopped_ns)
        return stopped_ns

    def advance_from(self, step: int) -> None:
        """Begin with a later step, as from a checkpoint."""
        self._next_step = step

    def stand_still(self, seconds: float) -> None:
        """Let time pass in which no rank does anything."""
        for rank in self._clock_ns:
            self._clock_ns[rank] += round(seconds * 1e9)

    def beat(self, store: Store, *, at_ns: int, ended: bool = False, stage: Stage | None = None) -> None:
        """Write a heartbeat of every rank. ``stage``: the open one."""
        rows = [
            {"rank": rank, "at_ns": at_ns, "beat_ns": at_ns, "step": max(0, self._next_step - 1)}
            | {"stage": 0 if stage is None else int(stage)}
            | {"alive": int(not ended), "ended": int(ended), "recorded": self._seq[rank], "dropped": 0}
            for rank in range(self.topology.world_size)
        ]
        self._insert(store, "heartbeats", rows)

    def leave_evidence(self, store: Store, rows: list[Row]) -> None:
        """Write the evidence that agents collected from its ranks."""
        self._insert(store, "evidence", rows)

    def mark(self, store: Store, rank: int, name: str, text: str) -> None:
        """Write one mark of a rank."""
        row = {"rank": rank, "seq": self._take_seq(rank), "step": self._next_step - 1}
        self._insert(store, "marks", [row | {"at_ns": self.now_ns, "name": name, "text": text}])

    def _insert(self, store: Store, table: str, rows: list[Row] | pa.Table) -> None:
        batch = rows if isinstance(rows, pa.Table) else pa.Table.from_pylist(rows, schema=TABLES[table])
        if batch.num_rows:
            store.insert(table, owned(batch, self.run_id, self.attempt))

    def _step(self, step: int) -> None:
        starts = dict(self._clock_ns)
        for rank in self._clock_ns:
            self._work(rank, Stage.DATA_LOAD, step, DATA_NS)
        self._pipeline(step)
        for group in self.topology.groups(along="dp"):
            self._collective(group, Stage.GRADS_REDUCE_SCATTER, step, REDUCE_NS, 8 * ACTIVATION_BYTES)
        for rank in self._clock_ns:
            self._work(rank, Stage.OPTIMIZER_CLIP, step, CLIP_NS)
            self._work(rank, Stage.OPTIMIZER, step, OPTIMIZER_NS)
        for group in self.topology.groups(along="dp"):
            self._collective(group, Stage.PARAMS_ALL_GATHER, step, GATHER_NS, 8 * ACTIVATION_BYTES)
        for rank, start in starts.items():
            self._record(rank, Stage.STEP, step, start, self._clock_ns[rank] - start)
            self._clock_ns[rank] += BETWEEN_STEPS_NS
        self._sample(step, max(self._clock_ns[rank] - start for rank, start in starts.items()) / 1e9)

    def _sample(self, step: int, step_s: float) -> None:
        rank = self.topology.world_size - 1
        loss = 2.1 + 3.4 * np.exp(-step / 25) + self._random.normal(0, 0.02)
        values = {"loss": loss, "tokens-per-second": 16384 / step_s, "mfu": 0.21 / step_s}
        for metric, value in values.items():
            row = {"rank": rank, "seq": self._take_seq(rank), "step": step, "at_ns": self._clock_ns[rank]}
            self._samples.append(row | {"metric": metric, "value": float(value)})

    def _pipeline(self, step: int) -> None:
        """Run each pipeline by its schedule; an operation runs once what it needs has arrived."""
        for dp in range(self.topology.dp):
            queues = {pp: list(_one_forward_one_backward(pp, self.topology.pp)) for pp in range(self.topology.pp)}
            arrived: dict[tuple[str, int, int, int], int] = {}
            while any(queues.values()):
                pp = next(pp for pp, queue in queues.items() if queue and self._ready(pp, queue[0], arrived))
                self._operation(step, dp, pp, queues[pp].pop(0), arrived)

    def _ready(self, pp: int, operation: tuple[str, int], arrived: dict[tuple[str, int, int, int], int]) -> bool:
        kind, microbatch = operation
        first = pp == 0 if kind == "F" else pp == self.topology.pp - 1
        return first or (kind, microbatch, pp, 0) in arrived

    def _operation(
        self,
        step: int,
        dp: int,
        pp: int,
        operation: tuple[str, int],
        arrived: dict[tuple[str, int, int, int], int],
    ) -> None:
        kind, microbatch = operation
        forward = kind == "F"
        onward = pp + 1 if forward else pp - 1
        group = [self.topology.rank(Place(dp, pp, tp)) for tp in range(self.topology.tp)]
        for tp, rank in enumerate(group):
            at = arrived.get((kind, microbatch, pp, tp))
            if at is not None:
                peer = self.topology.rank(Place(dp, pp - 1 if forward else pp + 1, tp))
                self._receive(rank, Stage.FORWARD_RECV if forward else Stage.BACKWARD_RECV, step, microbatch, peer, at)
        stage = Stage.FORWARD_COMPUTE if forward else Stage.BACKWARD_COMPUTE
        self._compute(group, stage, step, microbatch, FORWARD_NS if forward else BACKWARD_NS)
        if 0 <= onward < self.topology.pp:
            for tp, rank in enumerate(group):
                peer = self.topology.rank(Place(dp, onward, tp))
                sent = Stage.FORWARD_SEND if forward else Stage.BACKWARD_SEND
                self._spend(rank, sent, step, SEND_NS, microbatch=microbatch, peer=peer, size_bytes=ACTIVATION_BYTES)
                arrived[kind, microbatch, onward, tp] = self._clock_ns[rank]

    def _compute(self, group: list[int], stage: Stage, step: int, microbatch: int, own_ns: int) -> None:
        """Layers of own work with collectives between them. A rank leaves a collective after the last one entered."""
        starts = {rank: self._clock_ns[rank] for rank in group}
        own = dict.fromkeys(group, 0)
        for _ in range(LAYERS):
            for half, collective in ((0.6, Stage.TP_ALL_GATHER), (0.4, Stage.TP_REDUCE_SCATTER)):
                for rank in group:
                    work = self._noisy(rank, own_ns / LAYERS * half)
                    own[rank] += work
                    self._clock_ns[rank] += work
                self._collective(tuple(group), collective, step, TP_NS, ACTIVATION_BYTES, microbatch)
        for rank in group:
            span_ns = self._clock_ns[rank] - starts[rank]
            self._record(rank, stage, step, starts[rank], span_ns, microbatch=microbatch, cpu_ns=own[rank])

    def _collective(
        self, group: tuple[int, ...], stage: Stage, step: int, transfer_ns: int, size: int, microbatch: int = -1
    ) -> None:
        end = max(self._clock_ns[rank] for rank in group) + int(transfer_ns * self._random.uniform(0.9, 1.2))
        for rank in group:
            start, self._clock_ns[rank] = self._clock_ns[rank], end
            op = self._op_seq[rank, int(stage.stream)] = self._op_seq.get((rank, int(stage.stream)), 0) + 1
            self._record(rank, stage, step, start, end - start, microbatch=microbatch, size_bytes=size, op_seq=op)

    def _receive(self, rank: int, stage: Stage, step: int, microbatch: int, peer: int, at_ns: int) -> None:
        start = self._clock_ns[rank]
        self._clock_ns[rank] = max(start + SEND_NS // 4, at_ns)
        duration = self._clock_ns[rank] - start
        self._record(rank, stage, step, start, duration, microbatch=microbatch, peer=peer, size_bytes=ACTIVATION_BYTES)

    def _work(self, rank: int, stage: Stage, step: int, own_ns: int) -> None:
        own = self._noisy(1, own_ns) if rank not in self.slow else self._noisy(rank, own_ns)
        start = self._clock_ns[rank]
        self._clock_ns[rank] += own
        self._record(rank, stage, step, start, own, cpu_ns=own if stage is not Stage.DATA_LOAD else -1)

    def _spend(self, rank: int, stage: Stage, step: int, duration_ns: int, **more: int) -> None:
        start = self._clock_ns[rank]
        self._clock_ns[rank] += duration_ns
        self._record(rank, stage, step, start, duration_ns, **more)

    def _noisy(self, rank: int, own_ns: float) -> int:
        return int(own_ns * self.slow.get(rank, 1.0) * np.exp(self._random.normal(0, self.jitter)))

    def _record(self, rank: int, stage: Stage, step: int, start_ns: int, duration_ns: int, **more: int) -> None:
        number, cpu_ns = self._take_seq(rank), more.get("cpu_ns", -1) if self.with_cpu else -1
        place = rank, number, int(stage), int(stage.stream), step, more.get("microbatch", -1), -1, more.get("peer", -1)
        times = more.get("op_seq", 0), start_ns, duration_ns, cpu_ns, 0, more.get("size_bytes", 0), None
        self._spans.append(place + times)

    def _take_seq(self, rank: int) -> int:
        self._seq[rank] += 1
        return self._seq[rank] - 1


def _one_forward_one_backward(pp: int, num_stages: int) -> Iterator[tuple[str, int]]:
    warm_up = min(MICROBATCHES, num_stages - pp - 1)
    yield from (("F", number) for number in range(warm_up))
    for number in range(MICROBATCHES - warm_up):
        yield "F", warm_up + number
        yield "B", number
    yield from (("B", number) for number in range(MICROBATCHES - warm_up, MICROBATCHES))
