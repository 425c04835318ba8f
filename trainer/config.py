"""Settings of a training: model, grid, data. They are checked when they are created.

TrainConfig
├── ModelConfig        the transformer's shape
├── ParallelConfig     the grid and the pipeline's microbatches
├── DataConfig         the text and the size of a microbatch
├── OptimConfig        AdamW or LAMB, the schedule, clipping
├── ComputeConfig      precision, recomputation, compilation (compute.py)
├── OverlapConfig      which communication runs beside compute
└── CheckpointConfig   how often to checkpoint, how many to keep

Torch is not imported here, so that a command line can show its settings at once. Every class raises ``UsageError``
with a hint when its values cannot work.
"""

from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import get_args

from telemetry.errors import UsageError
from telemetry.topology import Topology
from trainer.choices import BlockForm, DeviceName, OptimizerName, ScheduleName
from trainer.compute import ComputeConfig

WIDENING = 4
"""Width of the feed-forward layer, in hidden sizes."""


def _positive(owner: object, *names: str) -> None:
    for name in names:
        value = getattr(owner, name)
        if value < 1:
            raise UsageError(f"{name} is {value}", hint=f"{name} is at least 1")


def _divides(divisor_name: str, divisor: int, name: str, value: int) -> None:
    if value % divisor:
        near = max(value - value % divisor, divisor)
        raise UsageError(f"{name} {value} is not divisible by {divisor_name} {divisor}", hint=f"try {name} {near}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """Shape of the decoder.

    ``window`` is the span of keys a query sees, itself included; 0 means every earlier one (full causal attention).
    ``block`` and ``fused_projection``: see ``trainer/model/block.py``.
    """

    num_layers: int = 4
    hidden_size: int = 128
    num_heads: int = 4
    sequence_length: int = 128
    window: int = 0
    vocab_size: int = 256
    block: BlockForm = "parallel"
    fused_projection: bool = False

    def __post_init__(self) -> None:
        _positive(self, "num_layers", "hidden_size", "num_heads", "sequence_length", "vocab_size")
        _divides("num_heads", self.num_heads, "hidden_size", self.hidden_size)
        if self.head_size % 2:
            raise UsageError(
                f"rotary positions need an even head size, not {self.head_size}",
                hint="make hidden_size / num_heads even",
            )
        if not 0 <= self.window <= self.sequence_length:
            raise UsageError(
                f"window is {self.window}",
                hint=f"use 0 for full attention, else at most the sequence length {self.sequence_length}",
            )
        if self.fused_projection and self.block == "serial":
            raise UsageError(
                "a serial block has no fused projection: its two projections have different inputs",
                hint="use the parallel block, or no fused projection",
            )

    @property
    def head_size(self) -> int:
        return self.hidden_size // self.num_heads

    @property
    def attention_span(self) -> int:
        """Number of keys that a query can see, without regard to the causal mask."""
        return self.window or self.sequence_length


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelConfig:
    """The grid, and how the pipeline fills it.

    ``num_chunks``: model chunks of each pipeline rank. With 1 the schedule is 1F1B, with more it is interleaved 1F1B.
    """

    dp: int = 1
    pp: int = 1
    tp: int = 1
    num_chunks: int = 1
    num_microbatches: int = 4
    schedule: ScheduleName = "1f1b"
    """``zero-bubble``: the gradients of weights, which no other rank needs, fill waiting time (arXiv 2401.10241)."""

    def __post_init__(self) -> None:
        _positive(self, "num_chunks", "num_microbatches")
        assert self.topology.world_size
        if self.schedule not in get_args(ScheduleName):
            raise UsageError(f"no schedule {self.schedule!r}", hint=f"use {' or '.join(get_args(ScheduleName))}")
        if self.schedule == "zero-bubble" and self.pp == 1:
            raise UsageError("a zero-bubble schedule needs a pipeline", hint="set pp to 2 or more, or use 1f1b")
        if self.num_microbatches < self.pp:
            raise UsageError(
                f"{self.num_microbatches} microbatches are too few for a pipeline of {self.pp} stages",
                hint=f"use at least {self.pp} microbatches",
            )
        if self.num_chunks == 1:
            return
        if self.pp == 1:
            raise UsageError("num_chunks needs a pipeline", hint="set pp to 2 or more, or num_chunks to 1")
        _divides("pp", self.pp, "num_microbatches", self.num_microbatches)

    @property
    def topology(self) -> Topology:
        return Topology(dp=self.dp, pp=self.pp, tp=self.tp)

    @property
    def num_stages(self) -> int:
        """Number of pieces into which the layers are cut: pipeline ranks times chunks."""
        return self.pp * self.num_chunks


@dataclass(frozen=True, slots=True, kw_only=True)
class DataConfig:
    """The text. ``path``: a text file, a folder of text files, or a ``.bin`` file of uint16 tokens. If it is None,
    Python's own sources are used."""

    path: Path | None = None
    microbatch_size: int = 2
    """Sequences in one microbatch of one data-parallel rank."""
    max_bytes: int = 8 * 1024 * 1024
    """Text beyond this size is not read. The size of a token file is not limited, because it is mapped."""
    queue_depth: int = 2
    """Number of batches that the loader keeps ready."""
    shared_loader: bool = True
    """Whether one process for each host prepares the batches of its ranks in shared memory. If False, a thread in each
    rank prepares them."""

    def __post_init__(self) -> None:
        _positive(self, "microbatch_size", "max_bytes", "queue_depth")
        if self.path is not None and not self.path.exists():
            raise UsageError(
                f"no data at {self.path}",
                hint="use a text file, a folder of text, or a .bin file of uint16 tokens. Without --data, "
                "training uses the Python sources",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimConfig:
    """AdamW or LAMB, with a linear warm-up and a cosine decay to a tenth."""

    optimizer: OptimizerName = "adamw"
    learning_rate: float = 3e-3
    beta1: float = 0.9
    beta2: float = 0.95
    weight_decay: float = 0.1
    num_warmup_steps: int = 5
    num_decay_steps: int = 1000
    max_gradient_norm: float = 1.0
    """Limit of the norm over all ranks. 0: no clipping (the norm is still measured)."""

    def __post_init__(self) -> None:
        if not 0 < self.learning_rate < inf:
            raise UsageError(f"learning_rate is {self.learning_rate}", hint="use a number above 0, such as 3e-4")
        if not (0 <= self.beta1 < 1 and 0 <= self.beta2 < 1):
            raise UsageError(f"betas are {self.beta1}, {self.beta2}", hint="use numbers from 0 to less than 1")
        if min(self.weight_decay, self.max_gradient_norm, self.num_warmup_steps) < 0 or self.num_decay_steps < 1:
            raise UsageError("an optimizer setting is negative", hint="use 0 or more for weight decay, norm and steps")


@dataclass(frozen=True, slots=True, kw_only=True)
class OverlapConfig:
    """Which communication runs beside compute, for each axis. The results are those without overlap."""

    dp: bool = False
    """Gathers of parameters start while data is loaded; each gradient bucket is reduced when its gradients exist."""
    pp: bool = False
    """Transfers are waited for only when their data is needed."""
    tp: bool = False
    """Projections multiply a rank's own part of the sequence while the other parts move."""

    @classmethod
    def along(cls, axes: str) -> "OverlapConfig":
        """The setting for axes such as ``dp,tp``, for ``all``, or for ``none``.

        Raises:
            UsageError: there is another name in ``axes``.
        """
        names = {"all": ["dp", "pp", "tp"], "none": []}.get(axes, axes.split(","))
        if unknown := [name for name in names if name not in cls.__slots__]:
            raise UsageError(f"no overlap along {unknown[0]!r}", hint="use all, none, or some of dp,pp,tp")
        return cls(**dict.fromkeys(names, True))


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointConfig:
    """How often to write checkpoints. Their folder is ``RunOptions.checkpoints``."""

    every: int = 0
    """Steps between checkpoints. If it is 0, the interval is the one that costs the least time (Young and Daly), from
    the measured cost of a snapshot and ``failure_every_s``."""
    failure_every_s: float = 3 * 3600.0
    """Mean time between failures of the whole job."""
    keep: int = 2
    """Complete checkpoints that stay on disk."""

    def __post_init__(self) -> None:
        if self.every < 0:
            raise UsageError(
                f"a checkpoint every {self.every} steps",
                hint="use 1 or more, or 0 for the interval that costs the least time",
            )
        if not 0 < self.failure_every_s < inf:
            raise UsageError(f"failure_every_s is {self.failure_every_s}", hint="use seconds above 0")
        _positive(self, "keep")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainConfig:
    """A whole training, the same on every rank."""

    model: ModelConfig = field(default_factory=ModelConfig)
    parallel: ParallelConfig = field(default_factory=ParallelConfig)
    data: DataConfig = field(default_factory=DataConfig)
    optim: OptimConfig = field(default_factory=OptimConfig)
    overlap: OverlapConfig = field(default_factory=OverlapConfig)
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    compute: ComputeConfig = field(default_factory=ComputeConfig)
    recipe: str = "custom"
    device: DeviceName = "cpu"
    num_steps: int = 20
    seed: int = 0
    peak_tflops: float | None = None
    """Dense peak of one device, for MFU. If None, it is looked up by the name of the GPU. A CPU has none."""
    collective_timeout_s: float | None = None
    """How long an operation between ranks may make no progress before it fails. Must be longer than a link flap that
    the job should survive. If None, the default of torch applies: 30 minutes with gloo, 10 minutes with NCCL."""

    def __post_init__(self) -> None:
        _positive(self, "num_steps")
        if self.seed < 0:
            raise UsageError(f"seed is {self.seed}", hint="use a whole number of 0 or more")
        if self.peak_tflops is not None and not 0 < self.peak_tflops < inf:
            raise UsageError(
                f"peak_tflops is {self.peak_tflops}",
                hint="use the peak TFLOP/s of the device without sparsity, such as 989 for an H100",
            )
        if self.collective_timeout_s is not None and not 0 < self.collective_timeout_s < inf:
            raise UsageError(
                f"collective_timeout_s is {self.collective_timeout_s}",
                hint="use more seconds than a link flap takes, or omit it for torch's default",
            )
        model, parallel = self.model, self.parallel
        _divides("pipeline stages", parallel.num_stages, "num_layers", model.num_layers)
        for name in ("num_heads", "sequence_length", "vocab_size"):
            _divides("tp", parallel.tp, name, getattr(model, name))
        if self.compute.compile and parallel.tp > 1:
            raise UsageError(
                "compiled blocks do not work with tensor parallelism", hint="set tp to 1, or do not compile"
            )
        if self.compute.precision == "float8":
            if parallel.tp > 1:
                raise UsageError("float8 does not work with tensor parallelism", hint="set tp to 1, or use bfloat16")
            _divides("the unit of float8 matrices,", 16, "hidden_size", model.hidden_size)
            _divides("the unit of float8 matrices,", 16, "sequence_length", model.sequence_length)

    @property
    def sequences_per_rank(self) -> int:
        """Sequences of a step that one data-parallel rank works on."""
        return self.data.microbatch_size * self.parallel.num_microbatches

    @property
    def tokens_per_step(self) -> int:
        """Tokens of a step on all ranks together."""
        return self.sequences_per_rank * self.parallel.dp * self.model.sequence_length
