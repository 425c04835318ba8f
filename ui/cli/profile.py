"""The work of `rankscope profile`: request a profile, wait for it, list and fetch stored ones."""

from dataclasses import replace
from pathlib import Path

from diagnose.model.run_state import local_time
from diagnose.profiles import StoredProfile
from diagnose.ranges import named_ranks
from telemetry.errors import UsageError
from telemetry.printable import printable
from telemetry.profiles import Phase, ProfileOutcome
from ui.cli.commands.profile import ProfileOptions
from ui.cli.output import out, progress
from ui.cli.profile_spool import RankProfile, profile_spool
from ui.cli.profile_store import Attempt, fetched, order, the_attempt, write
from ui.cli.readers import open_reader
from ui.dashboard.wording import size


def profile(options: ProfileOptions) -> int:
    _check(options)
    if options.spool:
        run, profile_id, found = profile_spool(options, options.spool)
        return _report(options, run.run_id, run.attempt, profile_id, found)
    with open_reader(options.store) as reader:
        attempt = the_attempt(reader, options)
        if options.list:
            return _print_list(attempt, options)
        stored = fetched(attempt, options.get) if options.get else order(attempt, options)
        found = [_result(profile, _written(attempt, profile, options.out_folder)) for profile in stored]
    return _report(options, attempt.run_id, attempt.number, stored[0].profile_id, found)


def _check(options: ProfileOptions) -> None:
    if options.spool and (options.list or options.get):
        raise UsageError("--spool does not work with --list or --get", hint="stored profiles are in a --store")
    if options.list and (options.get or options.ranks):
        raise UsageError("--list does not work with --get or --ranks", hint="omit --list to request or fetch a profile")
    if options.get and options.ranks:
        raise UsageError("--get does not work with --ranks", hint="--get writes all ranks of a stored profile")
    if options.get and not options.out_folder:
        raise UsageError("--get needs a folder", hint="add --out DIR")
    if options.out_folder and options.out_folder.exists() and not options.out_folder.is_dir():
        raise UsageError(f"--out {options.out_folder} is not a folder", hint="give another folder: --out DIR")


def _written(attempt: Attempt, stored: StoredProfile, folder: Path | None) -> Path | None:
    return write(attempt, stored, folder) if folder and stored.phase is Phase.STORED else None


def _result(stored: StoredProfile, path: Path | None = None) -> RankProfile:
    outcome = stored.outcome or ProfileOutcome(profile_id=stored.profile_id, phase=stored.phase)
    return RankProfile(rank=stored.rank, outcome=replace(outcome, phase=stored.phase), path=path)


def _print_list(attempt: Attempt, options: ProfileOptions) -> int:
    profiles = attempt.profiles()
    if options.json:
        rows = [_listed_object(profile) for profile in profiles]
        out.print_json(data={"schema": 1, "run": attempt.run_id, "attempt": attempt.number, "profiles": rows})
    elif not profiles:
        out.print(f"{attempt.name}: no profiles", markup=False, highlight=False)
    else:
        lines = [_listed(profile) for profile in profiles]
        out.print("\n".join([f"{attempt.name}:", *lines]), markup=False, highlight=False)
    return 0


def _listed(profile: StoredProfile) -> str:
    at = local_time(profile.requested_ns)
    why = f", for {profile.finding}" if profile.finding else ""
    reason = f": {printable(profile.reason)}" if profile.reason else ""
    return f"  {profile.profile_id[:8]}  {at}  rank {profile.rank}  {profile.phase}{reason}{why}"


def _listed_object(profile: StoredProfile) -> dict[str, object]:
    return {
        **_rank_object(_result(profile)),
        "profile": profile.profile_id,
        "requested_ns": profile.requested_ns,
        "finding": profile.finding,
    }


def _report(options: ProfileOptions, run_id: str, attempt: int, profile_id: str, found: list[RankProfile]) -> int:
    """Print the result of a profile. Returns the exit status, which is 2 if a rank was not profiled."""
    if options.json:
        ranks = [_rank_object(profile) for profile in found]
        out.print_json(
            data={"schema": 1, "run": run_id, "attempt": attempt, "profile": profile_id, "profiled_ranks": ranks}
        )
    else:
        lines = [f"{printable(run_id)}: profile {profile_id}", *map(_line, found)]
        out.print("\n".join(lines), markup=False, highlight=False)
    failed = [profile.rank for profile in found if profile.outcome.phase != Phase.STORED]
    if failed:
        progress.print(f"not profiled: {named_ranks(failed)}", markup=False, highlight=False)
    elif any(profile.path for profile in found) and not options.json:
        progress.print("open a file with https://ui.perfetto.dev or chrome://tracing", markup=False, highlight=False)
    return 2 if failed else 0


def _line(profile: RankProfile) -> str:
    outcome = profile.outcome
    if outcome.phase != Phase.STORED:
        return f"  rank {profile.rank}: {outcome.phase}: {printable(outcome.reason)}"
    early = f", ended early: {printable(outcome.reason)}" if outcome.reason else ""
    where = f", {profile.path} ({size(profile.path.stat().st_size)})" if profile.path else ""
    return f"  rank {profile.rank}: steps {outcome.first_step} to {outcome.last_step}{early}{where}"


def _rank_object(profile: RankProfile) -> dict[str, object]:
    outcome = profile.outcome
    return {
        "rank": profile.rank,
        "phase": outcome.phase,
        "reason": outcome.reason,
        "first_step": outcome.first_step,
        "last_step": outcome.last_step,
        "began_ns": outcome.began_ns,
        "ended_ns": outcome.ended_ns,
        "clock_offset_ns": outcome.clock_offset_ns,
        "clock_error_ns": outcome.clock_error_ns,
        "file": str(profile.path) if profile.path else None,
    }
