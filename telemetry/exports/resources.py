"""OpenTelemetry resources: a run is a service, each rank of an attempt is an instance of it.

    service.name         the run                 } stable semantic conventions
    service.instance.id  a UUID of the rank      }
    rankscope.*          attributes without a stable name: attempt, rank, place in the grid, host

``OTEL_SERVICE_NAME`` and ``OTEL_RESOURCE_ATTRIBUTES`` override these.
"""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass

from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.semconv.attributes.service_attributes import SERVICE_NAME

from telemetry.records import topology_in
from telemetry.stores.interface import Reader
from telemetry.stores.queries import Ranks

SERVICE_INSTANCE_ID = "service.instance.id"
_INSTANCES = uuid.UUID("4d63009a-8d0f-11ee-aad7-4c796ed8e320")
"""The namespace that the conventions name for ids of instances that follow from something."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """What is exported."""

    run_id: str
    attempt: int


def of_attempt(who: Attempt) -> Resource:
    """The resource of all ranks together."""
    return _resource(who, "attempt", {})


def of_ranks(reader: Reader, who: Attempt) -> dict[int, Resource]:
    """The resource of each stored rank."""
    return {
        row["rank"]: _resource(who, f"rank {row['rank']}", _attributes(row))
        for row in reader.read(Ranks(run_id=who.run_id, attempt=who.attempt)).to_pylist()
    }


def of_rank(who: Attempt, rank: int) -> Resource:
    """The resource of a rank of which only spans are known."""
    return _resource(who, f"rank {rank}", {"rankscope.rank": rank})


def _attributes(row: Mapping[str, int | str]) -> dict[str, int | str]:
    topology = topology_in(row)
    rank = int(row["rank"])
    known = rank < topology.world_size
    place = topology.place(rank)._asdict() | topology.coordinates(rank) if known else {}
    return {
        "rankscope.rank": rank,
        "rankscope.local_rank": row["local_rank"],
        "rankscope.host.name": row["host"],
        "rankscope.mesh": str(topology),
        **{f"rankscope.{axis}": index for axis, index in place.items()},
    }


def _resource(who: Attempt, instance: str, more: Mapping[str, int | str]) -> Resource:
    named = Resource(
        {
            SERVICE_NAME: who.run_id,
            SERVICE_INSTANCE_ID: str(uuid.uuid5(_INSTANCES, f"{who.run_id}/{who.attempt}/{instance}")),
            "rankscope.run.id": who.run_id,
            "rankscope.attempt": who.attempt,
            **more,
        }
    )
    return named.merge(OTELResourceDetector().detect())
