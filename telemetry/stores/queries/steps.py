"""How long steps took."""

from dataclasses import dataclass

from telemetry.stores.queries.windows import IN_WINDOW, LAST_STEP, STEP_STAGE
from telemetry.stores.question import Fields


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps(Fields):
    """Wall time of each step, from the ranks' ``step`` spans.

    Columns: step, start_ns (the first rank's), duration_ns (median over ranks), num_ranks; ordered by step.
    """

    run_id: str
    attempt: int
    first_step: int = 0
    last_step: int = LAST_STEP
    newest: int = 0
    """Only so many of the newest, however many there are: the table is read from their end. 0: all."""

    def sql(self) -> str:
        steps = f"{IN_WINDOW} AND stage = {STEP_STAGE}"
        newest = f"SELECT DISTINCT step FROM spans WHERE {steps} ORDER BY step DESC LIMIT %(newest)s"
        return f"""
        SELECT step, min(start_ns) AS start_ns, quantileExact(0.5)(duration_ns) AS duration_ns,
            toUInt32(uniqExact(rank)) AS num_ranks
        FROM spans WHERE {steps}{f" AND step IN ({newest})" if self.newest else ""}
        GROUP BY step ORDER BY step
        """
