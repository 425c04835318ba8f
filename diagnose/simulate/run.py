"""Simulates a run: the program of its schedule is replayed with noise and faults. The result is arrays.

    plan -> schedule -> program --replay--> begin and end of every slot in every lane -> operations
                          ^
              conditions (faults), draws (noise)

All steps are replayed at once. A step begins when the step before has ended on all ranks, because the norm of the
gradients needs all ranks. In each compute, all ranks of a tensor-parallel group wait for the slowest one in a
collective.

    rank 0, healthy   |== compute ==|~~~~ tp-all-reduce ~~~~|
    rank 1, slow      |====== compute ======|~ tp-all-reduce|

Samples of each step: loss, gradient norm, tokens per second, MFU.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from diagnose.model.compute_time import INNER_STAGES, WORK_STAGES, compute_time_of
from diagnose.model.fleet import Fleet
from diagnose.model.operations import Bools, Int64s, Operations
from diagnose.model.roles import peer_groups
from diagnose.model.rollouts import rollout_work
from diagnose.model.view import RunView, Series
from diagnose.simulate.agents import fleet_of
from diagnose.simulate.durations import ComputeTimes, Durations
from diagnose.simulate.experts import loads_of, run_experts
from diagnose.simulate.layers import Groups, InnerCollective, Streams, masks_of, run_layers
from diagnose.simulate.noise import Draws
from diagnose.simulate.plan import SimulatedRun
from diagnose.simulate.recording import Book, Timeline, Written, between_steps, clocks_of, ns_of, read_by_hosts
from diagnose.simulate.role_steps import run_roles
from diagnose.simulate.scene import Conditions, Floats, healthy
from diagnose.simulate.schedule import Schedule, schedule
from diagnose.simulate.truth import Truth, strike
from diagnose.whatif.replay import Lane, latest_end, replay
from telemetry.stages import Stage

SAMPLES_DRAW = 4
TOKENS_A_MICROBATCH = 4096
BEST_MFU = 0.6
"""MFU of a step that consists only of the forwards and backwards of its microbatches."""


def samples(plan: SimulatedRun, conditions: Conditions, draws: Draws, step_ns: Floats) -> dict[str, Series]:
    """Metric -> its values, one for each step."""
    random = draws.of(SAMPLES_DRAW)
    steps = plan.scene.steps
    step_s = step_ns / 1e9
    tokens = plan.topology.dp * plan.num_microbatches * TOKENS_A_MICROBATCH
    loss = 2.0 + 9.0 * np.exp(-((steps + 1) ** 0.5) / 12) + random.normal(0.0, 0.02, plan.num_steps)
    norm = np.exp(random.normal(0.0, 0.1, plan.num_steps))
    values = {
        "loss": loss + conditions.loss,
        "gradient-norm": norm * conditions.gradient_norm,
        "tokens-per-second": tokens / step_s,
        "mfu": BEST_MFU * _useful_s(plan) / step_s,
    }
    return {metric: Series(steps=steps, values=series) for metric, series in values.items()}


def _useful_s(plan: SimulatedRun) -> float:
    """Seconds of forwards and backwards of a rank in a step."""
    each = plan.seconds(Stage.FORWARD_COMPUTE) + plan.seconds(Stage.BACKWARD_COMPUTE)
    return each * plan.num_chunks * plan.num_microbatches


FAULTS_DRAW = 1000
"""First number of the random generators of faults."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation:
    """A simulated run: the records of its ranks, and the truth, which is not recorded."""

    plan: SimulatedRun
    operations: Mapping[Stage, Operations]
    """All stages, also ``step`` and collectives inside computes. Times are by the clock of each host."""
    step_ns: Floats
    """The step time of each step."""
    samples: Mapping[str, Series]
    fleet: Fleet
    """Samples and events of hosts, by their clocks. Empty without a fault of a network card or GPU."""
    truth: tuple[Truth, ...]

    @property
    def num_spans(self) -> int:
        return sum(int(one.present.sum()) for one in self.operations.values())


def simulate(plan: SimulatedRun) -> Simulation:
    """Simulate ``plan``. The same plan gives exactly the same result."""
    conditions = healthy(plan.scene)
    draws = Draws(noise=plan.noise, seed=plan.seed)
    truth = tuple(strike(fault, conditions, draws.of(FAULTS_DRAW + number)) for number, fault in enumerate(plan.faults))
    program = schedule(plan.layout)
    book = Book(plan.topology, plan.num_steps)
    met_s: Floats
    if plan.roles:
        ended_s = run_roles(plan, conditions, draws, book)
        met_s = np.zeros_like(ended_s)
    else:
        recording = _Recording(plan, program, conditions, book)
        ended_s, met_s = recording.replayed(), recording.met_s
    begin_ns = between_steps(plan, conditions, draws, ended_s, book)
    exact, clocks = book.operations(begin_ns), clocks_of(plan, draws)
    timeline = Timeline(
        begin_ns=begin_ns,
        end_ns=int(exact[Stage.STEP].end_ns.max()),
        met_ns=begin_ns[:, None] + ns_of(met_s),
        clocks=clocks,
    )
    operations = read_by_hosts(exact, plan, clocks)
    step_ns = np.nanmean(operations[Stage.STEP].duration_ns[:, 0], axis=1)
    return Simulation(
        plan=plan,
        operations=operations,
        step_ns=step_ns,
        samples=samples(plan, conditions, draws, step_ns),
        fleet=fleet_of(plan, conditions, draws, timeline),
        truth=truth,
    )


def view(simulation: Simulation) -> RunView:
    """The view of all steps of a run, as detectors get it, made without a store."""
    plan = simulation.plan
    inner = {stage: one for stage, one in simulation.operations.items() if stage in INNER_STAGES}
    hidden = {Stage.STEP, *inner}
    seen = {stage: one for stage, one in simulation.operations.items() if stage not in hidden}
    on_device = plan.clock == "device"
    meta = plan.words_of_ranks
    own = compute_time_of(seen, inner, peer_groups(plan.topology, meta), on_device=on_device)
    return RunView(
        run_id=plan.name,
        attempt=0,
        topology=plan.topology,
        hosts=plan.hosts,
        steps=plan.scene.steps,
        step_ns=simulation.step_ns,
        work={**own.work, **rollout_work(seen)},
        off_cpu=own.off_cpu,
        overlap=own.overlap,
        operations=seen,
        samples=simulation.samples,
        history=Series(steps=plan.scene.steps, values=simulation.step_ns),
        step_start_ns=simulation.operations[Stage.STEP].start_ns[:, 0].min(axis=1),
        fleet=simulation.fleet,
        on_device=on_device,
        meta=meta,
        exchanges=inner.get(Stage.EP_ALL_TO_ALL),
        inner=inner,
    )


class _Recording:
    """A replay that records its operations."""

    def __init__(self, plan: SimulatedRun, program: Schedule, conditions: Conditions, book: Book) -> None:
        self._plan = plan
        self._program = program.program
        self._slots = program.program.slots
        self._stages = program.stages
        self._other_side = program.transfers.other_side
        self._durations = Durations(plan, program, conditions)
        self._launch_s = conditions.launch_s
        self._book = book
        self._ends: dict[int, Lane] = {}
        self._streams = [Streams() for _ in range(plan.topology.pp)]
        self._groups = Groups(topology=plan.topology)
        self._numbers: dict[tuple[int, Stage], int] = defaultdict(int)
        self._masks = masks_of(plan, self._groups)
        self._cpu_s: dict[int, Floats] = {}
        self._ended_s = np.zeros((plan.num_steps, plan.topology.dp, plan.topology.pp, plan.topology.tp))
        self._met_s = np.full_like(self._ended_s, np.inf)
        self._experts = Groups(topology=plan.topology, axes=("ep",))
        self._load = loads_of(plan, conditions, Draws(noise=plan.noise, seed=plan.seed)) if plan.experts else None

    def replayed(self) -> Floats:
        """Run the replay. Returns the end of each rank, in seconds from the begin of its step: [steps, ranks]."""
        replay(self._program, self._takes, gaps=self._late, watch=self._write)
        return self._plan.topology.by_rank(self._ended_s)

    @property
    def met_s(self) -> Floats:
        """When all members had begun the first transfer of a rank that a link loss delays: [steps, ranks], in seconds
        from the begin of the step. 0 without such a transfer."""
        self._met_s[np.isinf(self._met_s)] = 0.0
        return self._plan.topology.by_rank(self._met_s)

    def _takes(self, slot: int) -> Lane:
        is_compute = self._stages[slot] in WORK_STAGES
        return self._compute(slot) if is_compute else self._durations.other(slot)[None]

    def _late(self, slot: int) -> Lane:
        """Delay with which the host launches a slot. Only the first reduction of gradients is delayed, or their norm if
        there is no reduction."""
        reduces = self._plan.topology.dp > 1 and not self._plan.fsdp
        launched = Stage.GRADS_REDUCE_SCATTER if reduces else Stage.OPTIMIZER_CLIP
        if self._stages[slot] is not launched or self._slots.occurrence[slot]:
            return np.zeros((1, 1, 1, 1))
        pp = int(self._slots.pp[slot])
        launch_s = self._durations.lanes(self._launch_s, pp)[None]
        if not self._plan.fsdp:
            return launch_s
        begin = self._begin(slot)
        return np.asarray(np.maximum(begin + launch_s, self._streams[pp].reductions) - begin)

    def _begin(self, slot: int) -> Lane:
        """When all dependencies of a slot have ended."""
        return latest_end(self._program.before[slot], self._ends)

    def _compute(self, slot: int) -> Lane:
        """Duration of a compute. All ranks of a tensor-parallel group end it at the same time."""
        begin = self._begin(slot)
        times = self._durations.compute(slot)
        self._cpu_s[slot] = times.cpu_s
        if self._plan.fsdp:
            return np.asarray(self._sharded(slot, begin, times) - begin)
        if self._load is not None:
            return np.asarray(self._with_experts(slot, begin, times, self._load) - begin)
        ready = end = begin + times.wall_s
        if self._plan.topology.tp > 1:
            end = ready.max(axis=-1, keepdims=True) + self._durations.inner(slot)
            self._book.add(self._inside(slot, Stage.TP_ALL_REDUCE, ready, end))
        if (hit := times.collection_s > 0).any():
            middle = (begin + ready - times.collection_s) / 2
            burst = self._inside(slot, Stage.GC, middle, middle + times.collection_s)
            self._book.add(replace(burst, occurrence=0, microbatch=-1, chunk=-1, present=hit))
        return np.asarray(end - begin)

    def _sharded(self, slot: int, begin: Lane, times: ComputeTimes) -> Lane:
        """End of a compute whose parameters are gathered inside it."""
        pp = int(self._slots.pp[slot])
        layers = self._durations.layers(slot, times)
        end, inside = run_layers(begin, layers, self._streams[pp], self._groups, prefetches=self._plan.prefetches)
        for one in inside:
            self._add_inside(slot, one, self._masks[one.stage])
        if (silent := self._durations.silence(slot) > 0).any():
            first = next(one for one in inside if one.stage is Stage.GRADS_REDUCE_SCATTER)
            self._note_begin(pp, silent, first.end[0] - layers.reduce_s[0])
        return end

    def _with_experts(self, slot: int, begin: Lane, times: ComputeTimes, load: Floats) -> Lane:
        """End of a compute that exchanges tokens with the experts of other ranks."""
        of_lanes = self._durations.lanes(load, int(self._slots.pp[slot]))
        exchange_s = partial(self._durations.exchange, slot)
        end, inside = run_experts(begin, times.wall_s, of_lanes, exchange_s, self._experts)
        for one, received in inside:
            self._add_inside(slot, one, self._experts.mask, received)
        return end

    def _add_inside(self, slot: int, one: InnerCollective, mask: int, size_bytes: Int64s | None = None) -> None:
        """Record a collective inside a compute. Collectives of one stage are numbered in order of time."""
        place = int(self._slots.pp[slot]), one.stage
        number = self._numbers[place]
        self._numbers[place] += 1
        written = self._written(slot, one.begin, one.end)
        self._book.add(
            replace(written, stage=one.stage, occurrence=number, peer_pp=-1, mask=mask, size_bytes=size_bytes)
        )

    def _inside(self, slot: int, stage: Stage, begin: Lane, end: Lane) -> Written:
        """An operation inside a compute. Collectives are numbered over forwards and backwards, in order of time."""
        number = int(
            np.isin(self._slots.stage[:slot], WORK_STAGES)[self._slots.pp[:slot] == self._slots.pp[slot]].sum()
        )
        return replace(self._written(slot, begin, end), stage=stage, occurrence=number, mask=self._masks[stage])

    def _write(self, slot: int, begin: Lane, end: Lane) -> None:
        self._ends[slot] = end
        pp = int(self._slots.pp[slot])
        self._ended_s[:, :, pp] = np.maximum(self._ended_s[:, :, pp], end[0])
        if self._stages[slot] not in WORK_STAGES and (silent := self._durations.silence(slot) > 0).any():
            self._note_begin(pp, silent, end[0] - self._durations.other(slot))
        cpu_s = self._cpu_s.pop(slot, None) if self._plan.device == "cpu" else None
        self._book.add(replace(self._written(slot, begin, end), cpu_s=cpu_s))

    def _note_begin(self, pp: int, silent: Bools, begin_s: Floats) -> None:
        """Note when all ranks had begun a transfer that a link loss delays."""
        self._met_s[:, :, pp] = np.minimum(self._met_s[:, :, pp], np.where(silent, begin_s, np.inf))

    def _written(self, slot: int, begin: Lane, end: Lane) -> Written:
        other = int(self._other_side[slot])
        return Written(
            stage=self._stages[slot],
            pp=int(self._slots.pp[slot]),
            occurrence=int(self._slots.occurrence[slot]),
            chunk=int(self._slots.chunk[slot]),
            microbatch=int(self._slots.microbatch[slot]),
            peer_pp=int(self._slots.pp[other]) if other >= 0 else -1,
            mask=self._masks[self._stages[slot]],
            begin_s=begin[0],
            end_s=end[0],
        )
