"""Queries about profiles on demand."""

from dataclasses import dataclass

from telemetry.stores.interface import OF_ATTEMPT, Fields


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileRequests(Fields):
    """Requested profiles of an attempt, the newest first. Columns: profile_id, rank, at_ns, steps, seconds, finding."""

    run_id: str
    attempt: int

    def sql(self) -> str:
        return f"""
        SELECT DISTINCT profile_id, rank, at_ns, steps, seconds, finding
        FROM profile_requests WHERE {OF_ATTEMPT} ORDER BY at_ns DESC, profile_id, rank LIMIT 10000
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileStates(Fields):
    """The newest state of each rank of the profiles of an attempt. Columns: profile_id, rank, at_ns, phase, body
    (``telemetry.profiles.ProfileOutcome`` as JSON); ordered by profile_id, rank."""

    run_id: str
    attempt: int

    def sql(self) -> str:
        return f"""
        SELECT profile_id, rank, newest AS at_ns, newest_phase AS phase, newest_body AS body
        FROM (
            SELECT profile_id, rank, max(at_ns) AS newest, argMax(phase, at_ns) AS newest_phase,
                argMax(body, at_ns) AS newest_body
            FROM profile_states WHERE {OF_ATTEMPT} GROUP BY profile_id, rank
        )
        ORDER BY profile_id, rank
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileParts(Fields):
    """Parts of the trace of one rank. Columns: part, content (base64); ordered by part."""

    run_id: str
    attempt: int
    profile_id: str
    rank: int
    first_part: int
    last_part: int

    def sql(self) -> str:
        return f"""
        SELECT part, any(content) AS content FROM profile_parts
        WHERE {OF_ATTEMPT} AND profile_id = %(profile_id)s AND rank = %(rank)s
            AND part >= %(first_part)s AND part <= %(last_part)s
        GROUP BY part ORDER BY part
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenProfileRequests(Fields):
    """Requests since a time that no agent has answered, of all runs. Columns: run_id, attempt, rank, profile_id, steps,
    seconds, at_ns; in the order of requests."""

    since_ns: int

    def sql(self) -> str:
        return """
        SELECT DISTINCT run_id, attempt, rank, profile_id, steps, seconds, at_ns FROM profile_requests
        WHERE at_ns >= %(since_ns)s
            AND (profile_id, rank) GLOBAL NOT IN (SELECT profile_id, rank FROM profile_states)
        ORDER BY at_ns, profile_id, rank
        """
