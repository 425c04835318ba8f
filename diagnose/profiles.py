"""Profiles on demand: the stored profiles, the ranks to profile for a finding, and the trace of a rank."""

import base64
import hashlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from diagnose.findings import Finding
from telemetry.errors import NotStoredError, UnreadableError
from telemetry.profiles import TAKE_S, Phase, ProfileOutcome
from telemetry.records import parse_meta, role_in, topology_of
from telemetry.stores.interface import Reader
from telemetry.stores.queries import ProfileParts, ProfileRequests, ProfileStates, Ranks
from telemetry.topology import Topology

PARTS_AT_ONCE = 8
MARGIN_S = 5
END_S = 180
"""Time to write, send and store a trace, after the time limits of the rank."""
NO_AGENT = f"no agent took the request within {TAKE_S} s"
LOST = "no result arrived: the agent ended, or does not reach the collector"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredProfile:
    """The profile of one rank."""

    profile_id: str
    rank: int
    requested_ns: int
    """Wall clock of the collector."""
    steps: int
    seconds: int
    finding: str
    """The kind of the finding that it was requested for; empty: none."""
    phase: Phase
    outcome: ProfileOutcome | None
    """None until the rank has answered."""

    @property
    def reason(self) -> str:
        return self.outcome.reason if self.outcome else ""

    @property
    def steps_profiled(self) -> tuple[int, int]:
        """The first and the last step in the trace. The last is lower if no step was completed."""
        return (self.outcome.first_step, self.outcome.last_step) if self.outcome else (0, -1)


def stored_profiles(
    reader: Reader, run_id: str, attempt: int, *, clock_ns: Callable[[], int] = time.time_ns
) -> list[StoredProfile]:
    """The profiles of an attempt, the newest first, by rank. A profile whose answer is overdue counts as failed."""
    requests = reader.read(ProfileRequests(run_id=run_id, attempt=attempt)).to_pylist()
    if not requests:
        return []
    states = {
        (row["profile_id"], row["rank"]): row
        for row in reader.read(ProfileStates(run_id=run_id, attempt=attempt)).to_pylist()
    }
    now_ns = clock_ns()
    return [_unless_overdue(_profile(row, states.get((row["profile_id"], row["rank"]))), now_ns) for row in requests]


def _unless_overdue(profile: StoredProfile, now_ns: int) -> StoredProfile:
    waited_s = (now_ns - profile.requested_ns) / 1e9
    if profile.phase is Phase.REQUESTED and waited_s > TAKE_S + MARGIN_S:
        reason = NO_AGENT
    elif not profile.phase.is_final and waited_s > TAKE_S + 2 * profile.seconds + END_S:
        reason = LOST
    else:
        return profile
    outcome = ProfileOutcome(profile_id=profile.profile_id, phase=Phase.FAILED, reason=reason)
    return replace(profile, phase=Phase.FAILED, outcome=outcome)


def _profile(request: Mapping[str, object], state: Mapping[str, object] | None) -> StoredProfile:
    outcome = None
    phase = Phase.REQUESTED if state is None else Phase(str(state["phase"]))
    if state is not None and state["body"]:
        outcome = ProfileOutcome.parse(str(state["body"]))
    return StoredProfile(
        profile_id=str(request["profile_id"]),
        rank=int(str(request["rank"])),
        requested_ns=int(str(request["at_ns"])),
        steps=int(str(request["steps"])),
        seconds=int(str(request["seconds"])),
        finding=str(request["finding"]),
        phase=phase,
        outcome=outcome,
    )


def trace_parts(reader: Reader, run_id: str, attempt: int, profile: StoredProfile) -> Iterator[bytes]:
    """The compressed trace of a profile, in parts. The last part is followed by a check of the whole.

    Raises:
        NotStoredError: no trace is stored.
        UnreadableError: the stored parts are incomplete, e.g. because they have expired.
    """
    outcome = profile.outcome
    if profile.phase is not Phase.STORED or outcome is None:
        raise NotStoredError(
            f"the profile of rank {profile.rank} is not stored: {profile.phase} {profile.reason}".rstrip(),
            hint="`rankscope profile RUN --list` lists the profiles of a run",
        )
    digest, num_parts = hashlib.sha256(), 0
    for first in range(0, outcome.parts, PARTS_AT_ONCE):
        query = ProfileParts(
            run_id=run_id,
            attempt=attempt,
            profile_id=profile.profile_id,
            rank=profile.rank,
            first_part=first,
            last_part=first + PARTS_AT_ONCE - 1,
        )
        for row in reader.read(query).to_pylist():
            part = base64.b64decode(row["content"])
            digest.update(part)
            num_parts += 1
            yield part
    if (num_parts, digest.hexdigest()) != (outcome.parts, outcome.sha256):
        raise UnreadableError(
            f"the trace of rank {profile.rank} is incomplete: {num_parts} of {outcome.parts} parts are stored",
            hint="it may have expired (RANKSCOPE_RETENTION_DAYS): request a new profile",
        )


def profiles_for(finding: Finding, profiles: Iterable[StoredProfile]) -> list[StoredProfile]:
    """The stored ``profiles`` of ranks of the finding, and of peers that were profiled for it, in their order."""
    stored = [profile for profile in profiles if profile.phase is Phase.STORED]
    named = {*finding.ranks}
    for_it = {each.profile_id for each in stored if each.rank in named and each.finding == finding.kind}
    return [profile for profile in stored if profile.rank in named or profile.profile_id in for_it]


def newest_finding(findings: Sequence[Finding]) -> Finding | None:
    """The finding whose window ends last and that names ranks; of several, the first."""
    named = [finding for finding in findings if finding.ranks]
    return max(named, key=lambda finding: finding.window.last_step, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class RankChoice:
    """Ranks to profile: suspects, and for each a peer that does the same work."""

    suspects: tuple[int, ...]
    peers: tuple[int, ...]

    @property
    def ranks(self) -> tuple[int, ...]:
        return tuple(sorted({*self.suspects, *self.peers}))


MAX_SUSPECTS = 8
"""Number of suspects of a finding that are profiled. Further suspects are left out."""


def choose_ranks(suspects: Sequence[int], topology: Topology, roles: Mapping[int, str]) -> RankChoice:
    """The first suspects with their peers.

    A peer has the role and the pipeline stage of its suspect, and is no suspect. A replica of the suspect is preferred,
    then the nearest rank. A suspect without such a peer has none.
    """
    first = tuple(suspects[:MAX_SUSPECTS])
    peers = (_peer_of(suspect, {*suspects}, topology, roles) for suspect in first)
    return RankChoice(suspects=first, peers=tuple(dict.fromkeys(peer for peer in peers if peer is not None)))


def _peer_of(suspect: int, named: set[int], topology: Topology, roles: Mapping[int, str]) -> int | None:
    place = topology.place(suspect)
    of_stage: list[int] = topology.grid[:, place.pp, :].ravel().tolist()
    alike = [rank for rank in of_stage if rank not in named and roles.get(rank, "") == roles.get(suspect, "")]
    return min(alike, key=lambda rank: (topology.place(rank).tp != place.tp, abs(rank - suspect), rank), default=None)


def choose_for(reader: Reader, run_id: str, attempt: int, suspects: Sequence[int]) -> RankChoice:
    """Like :func:`choose_ranks`, for a stored attempt."""
    rows = reader.read(Ranks(run_id=run_id, attempt=attempt))
    roles = {row["rank"]: role_in(parse_meta(row["meta"])) for row in rows.select(["rank", "meta"]).to_pylist()}
    return choose_ranks(suspects, topology_of(rows), roles)
