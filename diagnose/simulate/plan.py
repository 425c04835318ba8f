"""The plan of a simulated run: grid, schedule, durations, noise and faults, in one record."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from diagnose.findings import Kind
from diagnose.simulate.faults import Fault
from diagnose.simulate.noise import RECORDED, Noise
from diagnose.simulate.role_names import Role
from diagnose.simulate.scene import Scene
from diagnose.simulate.schedule import Layout
from telemetry.errors import UsageError
from telemetry.records import ROLE
from telemetry.stages import Stage
from telemetry.topology import Topology

STARTED_NS = 1_790_000_000_000_000_000
MAX_CLOCK_OFFSET_MS = 3_600_000.0
MAX_CLOCK_DRIFT_PPM = 100_000.0
MAX_STEP = 2**31
MAX_NUMBERED = 2**15 - 1
MAX_SPANS = 200_000_000
"""This number of spans needs 40 GB of memory."""

LAYERS = 8
"""Layers of each chunk. With ``fsdp``, each is gathered and reduced separately."""

Device = Literal["cuda", "cpu"]
Clock = Literal["host", "device"]

MILLISECONDS: Mapping[Stage, float] = {
    Stage.DATA_LOAD: 2.0,
    Stage.FORWARD_COMPUTE: 40.0,
    Stage.BACKWARD_COMPUTE: 80.0,
    Stage.FORWARD_SEND: 1.0,
    Stage.BACKWARD_SEND: 1.0,
    Stage.TP_ALL_REDUCE: 4.0,
    Stage.PARAMS_ALL_GATHER: 12.0,
    Stage.GRADS_REDUCE_SCATTER: 24.0,
    Stage.EMBEDDING_GRADS_ALL_REDUCE: 4.0,
    Stage.OPTIMIZER_CLIP: 3.0,
    Stage.OPTIMIZER: 20.0,
    Stage.EP_ALL_TO_ALL: 2.0,
    Stage.ROLLOUT: 240.0,
    Stage.GC: 60.0,
    Stage.CHECKPOINT_SNAPSHOT: 300.0,
    Stage.CHECKPOINT_WRITE: 3000.0,
}
"""Duration of each stage without noise and waiting. For a compute, the time of one microbatch and chunk without its
collective."""
OF_ROLES = (Kind.COMPUTE_STRAGGLER, Kind.ROLLOUT_TAIL, Kind.ROLE_IDLE, Kind.LOSS_ANOMALY)
"""Kinds of faults that a run with roles can have."""
OPTIONS = {
    "num_chunks": "--chunks",
    "num_microbatches": "--microbatches",
    "num_steps": "--steps",
    "gpus_per_host": "--ranks-per-host",
    "first_step": "first_step",
}
"""Field -> option of ``rankscope simulate``, if their names differ. ``first_step`` has no option."""


def _option(name: str) -> str:
    """The option that sets a field, for messages."""
    return OPTIONS.get(name, f"--{name.replace('_', '-')}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedRun:
    """A run to simulate.

    Raises:
        UsageError: a number is out of range, the schedule is impossible, or a fault does not fit the run.
    """

    name: str = "simulated"
    topology: Topology
    num_chunks: int = 1
    """Chunks of the model on each pipeline rank. More than one: interleaved 1F1B."""
    num_microbatches: int = 8
    num_steps: int = 40
    first_step: int = 0
    milliseconds: Mapping[Stage, float] = field(default_factory=lambda: MILLISECONDS)
    noise: Noise = RECORDED
    gpus_per_host: int = 8
    host_names: tuple[str, ...] = ()
    """One name for each host. Empty: ``gpu-000`` and so on."""
    clock_offset_ms: float = 0.0
    """Largest offset of host clocks."""
    clock_drift_ppm: float = 0.0
    """Largest drift of host clocks."""
    device: Device = "cuda"
    """On ``cpu``, the processor time of each compute is recorded."""
    clock: Clock = "host"
    """The clock of spans. With ``device``, the host issues the work of a step long before it runs."""
    fsdp: bool = False
    """Whether parameters are sharded. They are gathered for each layer inside forwards and backwards, and gradients are
    reduced inside backwards (see ``layers``)."""
    prefetches: bool = True
    """With ``fsdp``: whether the next layer is gathered during the compute of the current one."""
    experts: bool = False
    """Whether each forward and backward sends tokens to experts along the axis ep, and back."""
    roles: tuple[Role, ...] = ()
    """The programs of a reinforcement-learning job, in rank order. Empty: one program."""
    checkpoint_every: int = 0
    """Steps between checkpoints; 0: none."""
    collects_by_plan: bool = False
    """Whether all ranks collect garbage together at the end of each step."""
    faults: tuple[Fault, ...] = ()
    seed: int = 0
    started_ns: int = STARTED_NS

    def __post_init__(self) -> None:
        for name, least in (
            *(("num_chunks", 1), ("num_microbatches", 1), ("num_steps", 1), ("gpus_per_host", 1)),
            *(("first_step", 0), ("checkpoint_every", 0), ("seed", 0)),
        ):
            if getattr(self, name) < least:
                raise UsageError(f"{_option(name)} is {getattr(self, name)}", hint=f"the minimum is {least}")
        for name, most in (("clock_offset_ms", MAX_CLOCK_OFFSET_MS), ("clock_drift_ppm", MAX_CLOCK_DRIFT_PPM)):
            if not 0 <= getattr(self, name) <= most:
                raise UsageError(f"{_option(name)} is {getattr(self, name)}", hint=f"the range is 0 to {most:,.0f}")
        if self.checkpoint_every > MAX_STEP or self.first_step > MAX_STEP:
            name = "checkpoint_every" if self.checkpoint_every > MAX_STEP else "first_step"
            raise UsageError(f"{_option(name)} is {getattr(self, name)}", hint=f"the maximum is {MAX_STEP:,}")
        for name in ("num_chunks", "num_microbatches"):
            if getattr(self, name) > MAX_NUMBERED:
                raise UsageError(f"{_option(name)} is {getattr(self, name)}", hint=f"the maximum is {MAX_NUMBERED:,}")
        self._check_schedule()
        if self.clock == "device" and self.device == "cpu":
            raise UsageError("--clock device does not work on the CPU", hint="use --device cuda")
        if self.fsdp and self.topology.dp == 1:
            raise UsageError("the grid has no axis to shard parameters", hint="use --dp above 1, or --mesh dp_shard=4")
        self._check_roles_and_experts()
        if self.host_names and len(self.host_names) < self._num_hosts:
            raise UsageError(
                f"{len(self.host_names)} host names for {self.topology.world_size} ranks",
                hint=f"{self.gpus_per_host} ranks on each host need {self._num_hosts} host names",
            )
        for fault in self.faults:
            self._check_steps_of(fault)
            fault.check(self.scene)

    def _check_roles_and_experts(self) -> None:
        if self.experts and (dict(self.topology.mesh).get("ep", 1) == 1 or self.topology.tp > 1 or self.fsdp):
            raise UsageError(
                f"experts do not work on the mesh {self.topology}",
                hint="use --mesh dp=2,ep=4: an axis ep above 1, no axis tp, and no --fsdp",
            )
        if not self.roles:
            return
        num_ranks = sum(role.num_ranks for role in self.roles)
        if self.topology != Topology(dp=num_ranks):
            raise UsageError(f"--roles sets the number of ranks ({num_ranks})", hint="omit --mesh, --dp, --pp and --tp")
        if self.experts or self.fsdp or self.num_chunks > 1 or self.device == "cpu" or self.checkpoint_every:
            raise UsageError(
                "a run with roles has no experts, sharded parameters, chunks or checkpoints, and runs on GPUs",
                hint="omit --experts, --fsdp, --chunks, --checkpoint-every and --device",
            )
        for fault in self.faults:
            if fault.kind not in OF_ROLES:
                raise UsageError(
                    f"a run with roles cannot have the fault {fault.kind}", hint="use slow, tail, idle or loss"
                )

    def _check_steps_of(self, fault: Fault) -> None:
        first, last = self.first_step, self.first_step + self.num_steps - 1
        if max(first, fault.first_step) > min(last, fault.last_step):
            raise UsageError(
                f"a fault from step {fault.first_step} to {fault.last_step} affects no step of this run",
                hint=f"this run has the steps {first} to {last}",
            )

    def _check_schedule(self) -> None:
        if self.num_chunks > 1 and (self.topology.pp == 1 or self.num_microbatches % self.topology.pp):
            raise UsageError(
                f"{self.num_chunks} chunks do not work with {self.topology.pp} pipeline ranks and "
                f"{self.num_microbatches} microbatches",
                hint="interleaving needs --pp above 1. --microbatches must be a multiple of --pp",
            )
        operations = 2 + 2 * (self.topology.tp > 1) + 4 * (self.topology.pp > 1)
        if self.fsdp:
            operations = 2 + (3 + 2 * (self.topology.tp > 1)) * LAYERS + 4 * (self.topology.pp > 1)
        num_spans = operations * self.num_chunks * self.num_microbatches * self.topology.world_size * self.num_steps
        if num_spans > MAX_SPANS:
            raise UsageError(
                f"the run has about {num_spans:,} spans; the limit is {MAX_SPANS:,}",
                hint="use fewer --steps or --microbatches",
            )

    @property
    def _num_hosts(self) -> int:
        return -(-self.topology.world_size // self.gpus_per_host)

    @property
    def hosts(self) -> tuple[str, ...]:
        """Host of each rank."""
        digits = max(3, len(str(self._num_hosts - 1)))
        names = self.host_names or tuple(f"gpu-{number:0{digits}d}" for number in range(self._num_hosts))
        return tuple(names[rank // self.gpus_per_host] for rank in range(self.topology.world_size))

    @property
    def words(self) -> Mapping[str, str]:
        """Metadata that each rank announces at its start."""
        return {
            "simulated": "yes",
            "device": self.device,
            "schedule": f"{self.num_microbatches} microbatches, {self.num_chunks} chunks",
        }

    @property
    def words_of_ranks(self) -> tuple[Mapping[str, str], ...]:
        """Metadata of each rank, with its role."""
        if not self.roles:
            return (self.words,) * self.topology.world_size
        return tuple({**self.words, ROLE: role.name} for role in self.roles for _ in range(role.num_ranks))

    @property
    def scene(self) -> Scene:
        return Scene(
            topology=self.topology,
            hosts=self.hosts,
            first_step=self.first_step,
            num_steps=self.num_steps,
            num_microbatches=self.num_microbatches,
            num_chunks=self.num_chunks,
            on_cpu=self.device == "cpu",
            checkpoint_every=self.checkpoint_every,
            collects_by_plan=self.collects_by_plan,
            roles=tuple(role.name for role in self.roles for _ in range(role.num_ranks)),
            experts=self.experts,
        )

    @property
    def layout(self) -> Layout:
        return Layout(
            pp=self.topology.pp,
            dp=self.topology.dp,
            num_chunks=self.num_chunks,
            num_microbatches=self.num_microbatches,
            collects=self.collects_by_plan,
            gathers_inside=self.fsdp,
        )

    @property
    def expected_s(self) -> float:
        """Approximate time of all steps, without noise and faults."""
        microbatch = Stage.FORWARD_COMPUTE, Stage.BACKWARD_COMPUTE, Stage.TP_ALL_REDUCE, Stage.TP_ALL_REDUCE
        once = Stage.PARAMS_ALL_GATHER, Stage.GRADS_REDUCE_SCATTER, Stage.OPTIMIZER_CLIP, Stage.OPTIMIZER
        in_turn = self.num_chunks * self.num_microbatches + self.topology.pp - 1
        step = in_turn * sum(map(self.seconds, microbatch)) + sum(map(self.seconds, once))
        return step * self.num_steps

    def seconds(self, stage: Stage) -> float:
        """Duration of ``stage``, without noise and waiting."""
        return self.milliseconds[stage] / 1e3
