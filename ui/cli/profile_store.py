"""`rankscope profile` with a collector: order a profile, wait for it, list profiles, and write traces to files."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from diagnose.model.load import newest_attempt
from diagnose.model.run_state import RunState, heard_of
from diagnose.pipeline import diagnose_run
from diagnose.profiles import NO_AGENT, StoredProfile, choose_for, newest_finding, stored_profiles, trace_parts
from diagnose.ranges import named_ranks, unfold_ranks
from telemetry.errors import UnreachableError, UsageError
from telemetry.printable import printable
from telemetry.profile_file import file_name
from telemetry.profiles import MAX_RANKS, is_profile_id
from telemetry.records import topology_of
from telemetry.stores.interface import Reader
from telemetry.stores.queries import Ranks
from telemetry.wire.client import CollectorClient
from telemetry.wire.profile_order import ProfileOrder
from ui.cli.commands.profile import ProfileOptions
from ui.cli.output import progress

POLL_S = 0.5
PATIENCE_S = 60.0
OWN_COLLECTOR_HINT = (
    "use the address of a running collector: --store http://HOST:8719, or --spool DIR on the ranks' host"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """The attempt of a run that the command reads or profiles."""

    reader: Reader
    run_id: str
    number: int

    @property
    def name(self) -> str:
        return f"{printable(self.run_id)}/{self.number}"

    def profiles(self) -> list[StoredProfile]:
        return stored_profiles(self.reader, self.run_id, self.number)


def the_attempt(reader: Reader, options: ProfileOptions) -> Attempt:
    run_id, number = newest_attempt(reader, options.run, options.attempt)
    return Attempt(reader=reader, run_id=run_id, number=number)


def order(attempt: Attempt, options: ProfileOptions) -> list[StoredProfile]:
    """Order a profile and wait for it. Returns the profiles of its ranks, each stored or failed.

    Raises:
        UsageError: the run is not live, has no such rank, or the collector refuses the order.
        UnreachableError: no agent took the request, or the collector does not answer.
    """
    client = attempt.reader
    if not isinstance(client, CollectorClient):
        raise UsageError("a profile needs a running collector, not a store", hint=OWN_COLLECTOR_HINT)
    state = heard_of(client, attempt.run_id, attempt.number).state
    if state is not RunState.LIVE:
        raise UsageError(
            f"run {attempt.name} is not live, its state is {state}",
            hint="only a live run can be profiled" + ("; see `rankscope diagnose hang`" * (state is RunState.STALLED)),
        )
    ranks, finding = chosen_ranks(attempt, options)
    progress.print(f"profiling {named_ranks(ranks)} of {attempt.name}", markup=False, highlight=False)
    profile_id = client.order_profile(
        ProfileOrder(
            run_id=attempt.run_id,
            attempt=attempt.number,
            ranks=ranks,
            steps=options.steps,
            seconds=options.seconds,
            finding=finding,
        )
    )
    return _wait(attempt, profile_id)


def chosen_ranks(attempt: Attempt, options: ProfileOptions) -> tuple[tuple[int, ...], str]:
    """The ranks to profile, and the kind of the finding that names them; empty if the options name the ranks.

    Raises:
        UsageError: there are no such ranks, they are too many, or no finding names a rank.
    """
    if options.ranks:
        rows = attempt.reader.read(Ranks(run_id=attempt.run_id, attempt=attempt.number))
        if not rows.num_rows:
            raise UsageError(f"no rank of run {attempt.name} is known", hint="only a live run can be profiled")
        return _bounded(unfold_ranks(options.ranks, topology_of(rows).world_size)), ""
    finding = newest_finding(diagnose_run(attempt.reader, attempt.run_id, attempt.number).findings)
    if finding is None:
        raise UsageError(f"no finding of run {attempt.name} names a rank", hint="give the ranks: --ranks 3,7")
    choice = choose_for(attempt.reader, attempt.run_id, attempt.number, finding.ranks)
    return _bounded(choice.ranks), finding.kind.value


def _bounded(ranks: Sequence[int]) -> tuple[int, ...]:
    if len(ranks) > MAX_RANKS:
        raise UsageError(
            f"{len(ranks)} ranks are too many", hint=f"give at most {MAX_RANKS} ranks, because a profile slows the job"
        )
    return tuple(ranks)


def _wait(attempt: Attempt, profile_id: str) -> list[StoredProfile]:
    with progress.status("waiting for the agents") as status:
        while True:
            own = [profile for profile in _read_on(attempt) if profile.profile_id == profile_id]
            if own and all(profile.phase.is_final for profile in own):
                break
            phases = [f"rank {profile.rank} {profile.phase}" for profile in own]
            status.update(", ".join(phases) or "waiting for the agents")
            time.sleep(POLL_S)
    if all(profile.reason == NO_AGENT for profile in own):
        raise UnreachableError(
            f"{named_ranks([profile.rank for profile in own])}: {NO_AGENT}",
            hint="check that the agents of these hosts run, reach this collector, and have the version of the "
            "collector",
        )
    return own


def _read_on(attempt: Attempt) -> list[StoredProfile]:
    """The profiles of the attempt. Retries for ``PATIENCE_S``, because the collector may be restarting."""
    until_s = time.monotonic() + PATIENCE_S
    while True:
        try:
            return attempt.profiles()
        except UnreachableError:
            if time.monotonic() > until_s:
                raise
            time.sleep(POLL_S)


def fetched(attempt: Attempt, profile_id: str) -> list[StoredProfile]:
    """The stored profiles whose id is ``profile_id``, or begins with it if there is only one such id.

    Raises:
        UsageError: there is no such id, or several.
    """
    profiles = attempt.profiles()
    ids = dict.fromkeys(profile.profile_id for profile in profiles if profile.profile_id.startswith(profile_id))
    if len(ids) != 1 or not profile_id:
        number = "several profiles" if len(ids) > 1 else "no profile"
        which = "" if is_profile_id(profile_id) else "whose id begins with "
        raise UsageError(
            f"run {attempt.name} has {number} {which}{printable(profile_id)!r}",
            hint="`rankscope profile RUN --list` lists them",
        )
    return [profile for profile in profiles if profile.profile_id in ids]


def write(attempt: Attempt, profile: StoredProfile, folder: Path) -> Path:
    """Write the trace of a profile into ``folder``, whole or not at all. Returns the path of the file."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / file_name(profile.rank)
    new = path.with_name(f"{path.name}.new")
    try:
        with new.open("wb") as file:
            for part in trace_parts(attempt.reader, attempt.run_id, attempt.number, profile):
                file.write(part)
        new.rename(path)
    finally:
        new.unlink(missing_ok=True)
    return path
