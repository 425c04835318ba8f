"""``POST /v1/profiles``: the order of a profile, as JSON."""

from dataclasses import asdict, dataclass
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError

from telemetry.errors import UsageError
from telemetry.profiles import MAX_RANKS, MAX_SECONDS, MAX_STEPS, USUAL_SECONDS, USUAL_STEPS, ProfileRequest
from telemetry.wire.body_errors import first_problem

MAX_ORDER_BYTES = 2**16
HINT = '{"run_id": "RUN", "attempt": 0, "ranks": [3, 7], "steps": 5, "seconds": 60}'


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileOrder:
    """Which ranks to profile, and for how long."""

    run_id: Annotated[str, Field(min_length=1, max_length=200)]
    attempt: Annotated[int, Field(ge=0, le=2**32 - 1)]
    ranks: Annotated[tuple[Annotated[int, Field(ge=0, le=2**32 - 1)], ...], Field(min_length=1, max_length=MAX_RANKS)]
    steps: Annotated[int, Field(ge=1, le=MAX_STEPS)] = USUAL_STEPS
    seconds: Annotated[int, Field(ge=1, le=MAX_SECONDS)] = USUAL_SECONDS
    finding: Annotated[str, Field(max_length=64, pattern="^[a-z-]*$")] = ""
    """The kind of the finding that it is ordered for."""


_ADAPTER: TypeAdapter[ProfileOrder] = TypeAdapter(ProfileOrder)


def encode_order(order: ProfileOrder) -> dict[str, Any]:
    """``order`` as a JSON object."""
    return asdict(order)


def decode_order(body: bytes) -> ProfileOrder:
    """The order in a JSON object.

    Raises:
        UsageError: it is not an order, or a value is out of range.
    """
    try:
        return _ADAPTER.validate_json(body)
    except (ValidationError, RecursionError) as error:
        raise UsageError(f"profile: {first_problem(error)}", hint=f"send {HINT}") from error


def open_requests(answer: Any) -> tuple[ProfileRequest, ...]:
    """The requests in the answer to a batch of heartbeats. Requests that cannot be read are left out."""
    found = []
    for row in answer if isinstance(answer, list) else []:
        try:
            found.append(ProfileRequest(**row))
        except (TypeError, ValueError):
            continue
    return tuple(found)
