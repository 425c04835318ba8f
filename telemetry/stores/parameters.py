"""How values enter SQL: through the driver's own escaping, for both engines alike."""

from collections.abc import Mapping

from clickhouse_driver.util.escape import escape_params

from telemetry.stores.interface import Parameter


def render(sql: str, parameters: Mapping[str, Parameter] | None) -> str:
    """``sql`` with each ``%(name)s`` replaced by its escaped value. Sequences become ``(1, 2)``, for ``IN``."""
    if not parameters:
        return sql
    values = {name: _as_sql_value(value) for name, value in parameters.items()}
    rendered: str = sql % escape_params(values, None)
    return rendered


def _as_sql_value(value: Parameter) -> object:
    return value if isinstance(value, int | float | str) else tuple(value)
