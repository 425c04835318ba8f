"""`rankscope profile --spool`: profiles of ranks on this machine, through their files alone."""

import secrets
import time
from dataclasses import dataclass, replace
from pathlib import Path

from diagnose.ranges import named_ranks, unfold_ranks
from telemetry.errors import UnknownRunError, UnreadableError, UsageError
from telemetry.evidence.rank_state import check_owner, live_state
from telemetry.profile_file import about_file, compressed_parts, file_name
from telemetry.profiles import OUTCOME, REQUEST, SUPPORTED, TRACE, Phase, ProfileOutcome, ProfileRequest
from telemetry.record.profile_files import final_outcome, open_trace, place_request, remove_profile
from telemetry.record.reader import RankReader, find_rank_dirs
from telemetry.records import RankIdentity
from ui.cli.commands.profile import ProfileOptions
from ui.cli.output import progress

POLL_S = 0.1
OLD_HINT = "start the training again with this version of rankscope"


@dataclass(frozen=True, slots=True, kw_only=True)
class RankProfile:
    """The result of a profile on one rank."""

    rank: int
    outcome: ProfileOutcome
    path: Path | None = None
    """The file with the trace; None if no file was written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpoolRun:
    """The ranks of one attempt in a spool."""

    run_id: str
    attempt: int
    ranks: dict[int, tuple[Path, RankIdentity]]


def profile_spool(options: ProfileOptions, spool: Path) -> tuple[SpoolRun, str, list[RankProfile]]:
    """Profile ranks and write their files. Returns the run, the id of the profile, and the result of each rank.

    Raises:
        UsageError: the options are wrong, or a rank cannot be profiled.
    """
    if not options.ranks:
        raise UsageError("--ranks is missing", hint="with --spool, name the ranks: --ranks 3,7")
    run = _newest(spool, options.run, options.attempt)
    world_size = next(iter(run.ranks.values()))[1].topology.world_size
    ranks = unfold_ranks(options.ranks, world_size)
    for rank in ranks:
        _check(run, rank)
    profile_id = secrets.token_hex(16)
    folder = options.out_folder or Path(f"profile-{profile_id[:8]}")
    placed = {rank: _place(run, rank, profile_id, options) for rank in ranks}
    with progress.status(f"profiling {named_ranks(ranks)}"):
        outcomes = _wait(run, placed)
    return run, profile_id, [_write(run, rank, outcome, folder) for rank, outcome in outcomes.items()]


def _newest(spool: Path, run_id: str | None, attempt: int | None) -> SpoolRun:
    found: dict[tuple[str, int], dict[int, tuple[Path, RankIdentity]]] = {}
    for folder in find_rank_dirs(spool, run_id, attempt):
        try:
            identity = RankReader(folder).identity()
        except UnreadableError:
            continue
        found.setdefault((identity.run_id, identity.attempt), {})[identity.rank] = folder, identity
    if not found:
        of = f" of run {run_id}" if run_id else ""
        raise UnknownRunError(f"no rank file{of} under {spool}", hint="give the folder in RANKSCOPE_SPOOL of the job")
    newest = max(found, key=lambda owner: max(identity.started_ns for _, identity in found[owner].values()))
    return SpoolRun(run_id=newest[0], attempt=newest[1], ranks=found[newest])


def _check(run: SpoolRun, rank: int) -> None:
    if rank not in run.ranks:
        raise UsageError(
            f"rank {rank} of run {run.run_id} has no files here", hint="run this command on the host of the rank"
        )
    folder, identity = run.ranks[rank]
    if live_state(RankReader(folder), identity)[1] != "alive":
        raise UsageError(f"rank {rank} of run {run.run_id} does not run", hint="a profile needs a running rank")
    check_owner(identity)
    if SUPPORTED not in identity.meta:
        raise UsageError(f"rank {rank} runs a version of rankscope without profiles", hint=OLD_HINT)


def _place(run: SpoolRun, rank: int, profile_id: str, options: ProfileOptions) -> ProfileRequest:
    request = ProfileRequest(profile_id=profile_id, rank=rank, steps=options.steps, seconds=options.seconds, local=True)
    written = place_request(run.ranks[rank][0], request)
    if written is None:
        raise UsageError(f"another profile of rank {rank} is running", hint="retry when it has ended")
    return written


def _wait(run: SpoolRun, placed: dict[int, ProfileRequest]) -> dict[int, ProfileOutcome]:
    """The final outcome of each rank. Requests are withdrawn when their ranks are done, and on Ctrl-C."""
    outcomes: dict[int, ProfileOutcome] = {}
    try:
        while len(outcomes) < len(placed):
            for rank, request in placed.items():
                if rank not in outcomes and (outcome := final_outcome(run.ranks[rank][0], request)) is not None:
                    outcomes[rank] = outcome
            time.sleep(POLL_S)
        return {rank: outcomes[rank] for rank in placed}
    finally:
        for rank in placed:
            remove_profile(run.ranks[rank][0], REQUEST)


def _write(run: SpoolRun, rank: int, outcome: ProfileOutcome, folder: Path) -> RankProfile:
    source = run.ranks[rank][0]
    if outcome.phase != Phase.DONE:
        remove_profile(source, OUTCOME, TRACE)
        return RankProfile(rank=rank, outcome=outcome)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / file_name(rank)
    about = about_file(run.run_id, run.attempt, rank, outcome)
    with path.open("wb") as file, open_trace(source) as trace:
        for part in compressed_parts(trace, offset_ns=outcome.clock_offset_ns, about=about):
            file.write(part)
    remove_profile(source, OUTCOME, TRACE)
    return RankProfile(rank=rank, outcome=replace(outcome, phase=Phase.STORED), path=path)
