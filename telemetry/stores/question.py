"""What a query is: parameters in, SQL out. The questions themselves stand in ``queries`` and ``host_queries.py``."""

from dataclasses import fields
from typing import Protocol

from telemetry.stores.interface import Parameter

OF_ATTEMPT = "run_id = %(run_id)s AND attempt = %(attempt)s"


class Query(Protocol):
    """A question with its parameters."""

    def sql(self) -> str: ...

    def parameters(self) -> dict[str, Parameter]: ...


class Fields:
    """Parameters are the fields."""

    __slots__ = ()

    def parameters(self) -> dict[str, Parameter]:
        return {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]


def among(column: str, parameter: str, values: tuple[int, ...] | tuple[str, ...]) -> str:
    """A condition on ``column``, nothing when ``values`` is empty."""
    return f" AND {column} IN %({parameter})s" if values else ""
