"""The GPU of each rank: the key that joins ranks with metrics of other exporters, such as DCGM's.

rank 5 of gpu-01  --reported UUID, or n-th rank of its host (assumed)-->  gpu5  --event gpu-seen-->  GPU-1a2b...
"""

import csv
import io
from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import InfoMetricFamily
from prometheus_client.registry import Collector

from diagnose.model.gpus import gpus_of, plain_uuid, reported_uuid
from telemetry.host_metrics import Happening
from telemetry.records import GPU_UUID, parse_meta
from telemetry.stores.interface import Reader
from telemetry.stores.queries import HostEvents, Ranks

METRIC = "rankscope_rank_gpu"
"""Name of the metric. The Prometheus client adds ``_info``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankGpu:
    """The GPU of a rank."""

    run: str
    attempt: int
    rank: int
    host: str
    device: str
    """Number on the host, as NVML counts: ``gpu3``. Empty if it is not known."""
    uuid: str
    """As NVML writes it. Empty if no agent has seen the GPU, and the rank did not report it."""
    source: str
    """``reported`` by the rank, or ``assumed`` from its position on the host."""


def rank_gpus(reader: Reader, run_id: str, attempt: int) -> list[RankGpu]:
    """The GPUs of all ranks that have one, by rank.

    Raises:
        UnreachableError: the store does not answer.
    """
    ranks = reader.read(Ranks(run_id=run_id, attempt=attempt)).to_pylist()
    meta = [parse_meta(row["meta"]) for row in ranks]
    seen = reader.read(HostEvents(run_id=run_id, attempt=attempt, names=(str(Happening.GPU_SEEN),))).to_pylist()
    device_of = {(row["host"], plain_uuid(row["text"])): row["device"] for row in seen if row["text"]}
    uuid_of = {(row["host"], row["device"]): row["text"] for row in seen}
    found = []
    for row, known, gpu in zip(ranks, meta, gpus_of([row["host"] for row in ranks], meta, device_of), strict=True):
        reported = reported_uuid(known)
        if gpu is None and not reported:
            continue
        device = gpu.device if gpu else ""
        uuid = uuid_of.get((row["host"], device)) or _as_nvml_writes(known.get(GPU_UUID, ""))
        found.append(
            RankGpu(
                run=run_id,
                attempt=attempt,
                rank=row["rank"],
                host=row["host"],
                device=device,
                uuid=uuid,
                source="reported" if reported else "assumed",
            )
        )
    return found


def _as_nvml_writes(uuid: str) -> str:
    """The UUID with the prefix that NVML writes and torch omits."""
    return uuid if not uuid or uuid.upper().startswith(("GPU-", "MIG-")) else f"GPU-{uuid}"


def as_csv(gpus: Sequence[RankGpu]) -> str:
    """One line for each rank, after the names of the columns."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(field.name for field in fields(RankGpu))
    rows.writerows(astuple(gpu) for gpu in gpus)
    return text.getvalue()


def as_metric(gpus: Sequence[RankGpu]) -> str:
    """A metric ``rankscope_rank_gpu_info`` with the value 1 for each rank whose UUID is known, in the Prometheus text
    format. The label ``UUID`` has the name that DCGM's exporter uses."""
    registry = CollectorRegistry()
    registry.register(_GpuInfo(gpus))
    return generate_latest(registry).decode()


class _GpuInfo(Collector):
    def __init__(self, gpus: Sequence[RankGpu]) -> None:
        self._gpus = gpus

    def collect(self) -> list[InfoMetricFamily]:
        names = ("run", "rank", "host", "device", "UUID", "source")
        family = InfoMetricFamily(METRIC, "The GPU of each rank of a run.", labels=names)
        for gpu in self._gpus:
            if gpu.uuid:
                family.add_metric((gpu.run, str(gpu.rank), gpu.host, gpu.device, gpu.uuid, gpu.source), {})
        return [family]
