"""OTLP spans that belong to a rank of a training job, as spans of that rank.

    attribute (of the span, else of its resource)                                  means
    rankscope.rank  dl.rank  process.rank  rank                                    the rank: required
    rankscope.world_size  dl.world_size  process.world_size  world_size            number of ranks: required
    rankscope.step  megatron.iteration  training.step  step  global_step           the step
    rankscope.run.id; else service.name and nemo.run.id, or service.name alone     the run
    rankscope.attempt                                                              the attempt, 0 by default
    rankscope.mesh                                                                 the mesh: pp=2,dp_shard=4,tp=8
    dl.pipeline_parallel.size  dl.tensor_parallel.size                             its degrees, pp outermost
    host.name                                                                      the host
    rankscope.stage                                                                the stage; else the span's name
    rankscope.microbatch  megatron.microbatch_id  dl.microbatch_id                 the microbatch

Names of spans are labels of stages (``forward-compute``), or one of ``NAMES``. Other spans are not converted. A span
without a step gets the step of the ``step`` span of its rank that contains it:

    step 7   |------------------------------------------|
              |- forward -|- backward -|- optimizer -|        ended before, so they arrived before: they wait for it
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from telemetry.collector.otlp.scopes import LAST_NS, as_text
from telemetry.errors import UsageError
from telemetry.run_names import MAX_HOST_LENGTH, usable_run_name
from telemetry.stages import STAGE_BY_LABEL, Stage
from telemetry.stores.queries import LAST_STEP
from telemetry.topology import MAX_RANKS, Topology

RANK = ("rankscope.rank", "dl.rank", "process.rank", "rank")
WORLD_SIZE = ("rankscope.world_size", "dl.world_size", "process.world_size", "world_size")
STEP = ("rankscope.step", "megatron.iteration", "training.step", "step", "global_step")
MICROBATCH = ("rankscope.microbatch", "megatron.microbatch_id", "dl.microbatch_id")
_MESH, _RUN, _ATTEMPT, _STAGE = "rankscope.mesh", "rankscope.run.id", "rankscope.attempt", "rankscope.stage"
_READ = frozenset(
    (
        *(*RANK, *WORLD_SIZE, *STEP, *MICROBATCH, _MESH, _RUN, _ATTEMPT, _STAGE),
        *("service.name", "nemo.run.id", "host.name", "dl.pipeline_parallel.size", "dl.tensor_parallel.size"),
    )
)
NAMES: Mapping[str, Stage] = {
    **STAGE_BY_LABEL,
    **dict.fromkeys(("train_step", "training_step", "megatron.train_step", "megatron.train.iteration"), Stage.STEP),
    **dict.fromkeys(("data_loading", "data_load", "fetching_batch"), Stage.DATA_LOAD),
    **dict.fromkeys(("forward", "megatron.microbatch.forward"), Stage.FORWARD_COMPUTE),
    **dict.fromkeys(("backward", "megatron.microbatch.backward"), Stage.BACKWARD_COMPUTE),
    **dict.fromkeys(("forward_backward", "fwd_bwd", "megatron.forward_backward"), Stage.FORWARD_BACKWARD),
    "megatron.train.iteration.forward_backward": Stage.FORWARD_BACKWARD,
    **dict.fromkeys(("optim", "optimizer_step", "megatron.optimizer_step"), Stage.OPTIMIZER),
    "megatron.train.iteration.optimizer": Stage.OPTIMIZER,
    "megatron.grad_sync.finish": Stage.GRADS_ALL_REDUCE,
    "megatron.p2p.send_forward": Stage.FORWARD_SEND,
    "megatron.p2p.recv_forward": Stage.FORWARD_RECV,
    "megatron.p2p.send_backward": Stage.BACKWARD_SEND,
    "megatron.p2p.recv_backward": Stage.BACKWARD_RECV,
    **dict.fromkeys(("gc_collect", "megatron.train.gc_collect"), Stage.GC),
    **dict.fromkeys(("checkpoint_save", "save_checkpoint", "megatron.save_checkpoint"), Stage.CHECKPOINT_WRITE),
    "megatron.checkpoint.exposed_save": Stage.CHECKPOINT_WRITE,
    **dict.fromkeys(("eval", "evaluate", "megatron.evaluate"), Stage.EVALUATION),
}
"""Name of a span -> its stage: Megatron-LM's (nemo-lens), torchtitan's, and usual ones. Megatron-LM has renamed its
spans: ``megatron.train_step`` is now ``megatron.train.iteration``. Both names are read."""
_WAITS_INSIDE = ("megatron.microbatch.forward", "megatron.microbatch.backward")
"""Spans that contain collectives if ``tp`` is above 1. They are then stored as ``forward-backward``: pages draw them,
and detectors do not compare them."""
_MAX_MICROBATCH = 2**15 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The rank that spans belong to."""

    run_id: str
    attempt: int
    rank: int
    topology: Topology
    host: str

    @property
    def key(self) -> tuple[str, int, int]:
        return self.run_id, self.attempt, self.rank


@dataclass(frozen=True, slots=True, kw_only=True)
class RankSpan:
    """A span of a rank."""

    source: Source
    span_id: bytes
    stage: Stage
    step: int | None
    """None if the step is not known yet."""
    start_ns: int
    duration_ns: int
    microbatch: int

    @property
    def end_ns(self) -> int:
        return self.start_ns + self.duration_ns


def rank_spans_of(request: ExportTraceServiceRequest) -> list[RankSpan]:
    """The spans in a request that belong to a rank and have a stage. Other spans, and spans with invalid values, are
    left out."""
    found: list[RankSpan] = []
    for resource in request.resource_spans:
        shared = _read(resource.resource.attributes)
        sources: dict[tuple[str | None, ...], Source | None] = {}
        for scope in resource.scope_spans:
            for span in scope.spans:
                found.extend(_converted(span, shared, sources))
    return found


def _converted(
    span: Span, shared: Mapping[str, str], sources: dict[tuple[str | None, ...], Source | None]
) -> Iterator[RankSpan]:
    attributes = {**shared, **_read(span.attributes)}
    if not any(name in attributes for name in RANK):
        return
    key = tuple(attributes.get(name) for name in (*RANK, *WORLD_SIZE, _RUN, _ATTEMPT, _MESH))
    if key not in sources:
        sources[key] = _source(attributes)
    source = sources[key]
    stage = _stage(attributes.get(_STAGE) or span.name, source)
    step = _number(attributes, STEP, most=LAST_STEP - 1)
    if source is None or stage is None or (stage is Stage.STEP and step is None):
        return
    start_ns, end_ns = span.start_time_unix_nano, span.end_time_unix_nano
    if not (0 < start_ns <= end_ns <= LAST_NS):
        return
    microbatch = _number(attributes, MICROBATCH, most=_MAX_MICROBATCH)
    yield RankSpan(
        source=source,
        span_id=span.trace_id[-16:] + span.span_id[-8:],
        stage=stage,
        step=step,
        start_ns=start_ns,
        duration_ns=end_ns - start_ns,
        microbatch=-1 if microbatch is None else microbatch,
    )


def _read(attributes: Iterable[KeyValue]) -> dict[str, str]:
    return {attribute.key: as_text(attribute.value)[:1024] for attribute in attributes if attribute.key in _READ}


def _source(attributes: Mapping[str, str]) -> Source | None:
    """The rank in ``attributes``; None if an attribute is missing or impossible."""
    world_size = _number(attributes, WORLD_SIZE, most=MAX_RANKS)
    rank = _number(attributes, RANK, most=(world_size or 0) - 1)
    attempt = _number(attributes, (_ATTEMPT,), most=2**31) or 0
    if not world_size or rank is None:
        return None
    try:
        topology = _topology(attributes, world_size)
    except UsageError:
        return None
    host = attributes.get("host.name", "")[:MAX_HOST_LENGTH].encode(errors="replace").decode()
    return Source(run_id=_run_id(attributes), attempt=attempt, rank=rank, topology=topology, host=host)


def _run_id(attributes: Mapping[str, str]) -> str:
    named = (attributes.get("service.name") or "otlp", attributes.get("nemo.run.id"))
    return usable_run_name(attributes.get(_RUN) or "-".join(name for name in named if name))


def _topology(attributes: Mapping[str, str], world_size: int) -> Topology:
    """The mesh in ``attributes``. Without a mesh, it follows from the sizes of pp and tp.

    Raises:
        UsageError: the mesh is invalid.
    """
    if _MESH in attributes:
        topology = Topology.parse(attributes[_MESH])
        if topology.world_size != world_size:
            raise UsageError("the mesh has another number of ranks", hint="")
        return topology
    pp = _number(attributes, ("dl.pipeline_parallel.size",), most=world_size) or 1
    tp = _number(attributes, ("dl.tensor_parallel.size",), most=world_size) or 1
    if world_size % (pp * tp) or pp * tp == 1:
        return Topology(dp=world_size)
    return Topology(mesh=(("pp", pp), ("dp", world_size // (pp * tp)), ("tp", tp)))


def _stage(name: str, source: Source | None) -> Stage | None:
    if name in _WAITS_INSIDE and source is not None and source.topology.tp > 1:
        return Stage.FORWARD_BACKWARD
    return NAMES.get(name)


def _number(attributes: Mapping[str, str], names: Sequence[str], *, most: int) -> int | None:
    """The first attribute of ``names`` that exists; None if it is not a whole number from 0 to ``most``."""
    text = next((attributes[name] for name in names if name in attributes), "")
    if not (text.isascii() and text.isdecimal() and len(text) < 20):
        return None
    return int(text) if int(text) <= most else None


def in_order(spans: Iterable[RankSpan]) -> list[RankSpan]:
    """Spans sorted by their end, and a step after the spans in it. :class:`StepFinder` needs this order."""
    return sorted(spans, key=lambda span: (span.end_ns, span.stage is Stage.STEP))


MAX_WAITING = 10_000
"""Largest number of spans of a rank that wait for their step. The oldest are left out."""


@dataclass(slots=True)
class StepFinder:
    """Finds the steps of the spans of one rank."""

    waiting: tuple[RankSpan, ...] = ()

    def take(self, spans: Iterable[RankSpan]) -> list[RankSpan]:
        """Add ``spans``, sorted by :func:`in_order`. Returns the spans whose steps are known now."""
        ready: list[RankSpan] = []
        waiting = list(self.waiting)
        for span in spans:
            if span.step is None:
                waiting.append(span)
                continue
            if span.stage is Stage.STEP:
                inner = [other for other in waiting if other.end_ns <= span.end_ns]
                ready += [replace(other, step=span.step) for other in inner if other.start_ns >= span.start_ns]
                waiting = [other for other in waiting if other.end_ns > span.end_ns]
            ready.append(span)
        self.waiting = tuple(waiting[-MAX_WAITING:])
        return ready
