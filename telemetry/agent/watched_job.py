"""What the agent keeps of the ranks that it watches, as of its last look."""

from dataclasses import dataclass, field
from pathlib import Path

from telemetry.agent.stall import StallDetector
from telemetry.evidence.collect import Standing
from telemetry.evidence.logs import JobLogs
from telemetry.evidence.owned_process import is_alive
from telemetry.evidence.rank_state import ProcessWord
from telemetry.evidence.usual import RecentOperations
from telemetry.record.reader import RankReader
from telemetry.record.state_page import LiveState
from telemetry.records import RankIdentity


@dataclass(slots=True, kw_only=True)
class WatchedRank:
    """A rank on this host, as of the last look."""

    reader: RankReader
    operations: RecentOperations
    identity: RankIdentity
    state: LiveState
    process: ProcessWord
    living: ProcessWord = "alive"
    """What the process did when it was last seen alive."""
    died_ns: int = 0
    ended_by: str = ""
    stamped: bool = False
    """The kernel tells when its process ends."""
    told: bool = False
    """Its end has been taken down, or was in good order."""
    stamp_is_late: bool = False
    """The kernel's stamp of the end came after that."""

    @property
    def over(self) -> bool:
        return self.process in ("dead", "ended")


@dataclass(slots=True)
class WatchedJob:
    """The ranks of one attempt on this host."""

    detector: StallDetector
    ranks: dict[Path, WatchedRank] = field(default_factory=dict)
    logs: JobLogs = field(default_factory=JobLogs)
    step: int | None = None
    taken_ns: int = 0
    """When evidence of the stall that lasts was taken last."""
    taken_step: int | None = None
    """The step it was taken of. Known for as long as no other step begins, also when no rank lives any more."""
    taken_over: int = 0
    """Ranks that were over then."""


def failed(job: WatchedJob, rank: WatchedRank) -> bool:
    """Whether the rank has ended as none should: killed, or with a fault on its lips."""
    return rank.over and (rank.process == "dead" or job.logs.shows_fault(rank.identity.rank))


def leave_logs(job: WatchedJob) -> None:
    """A process that is gone, and whose end has been judged, prints no more."""
    for rank in job.ranks.values():
        number = rank.identity.rank
        if rank.over and rank.told and job.logs.follows(number) and not is_alive(rank.identity):
            job.logs.leave(number)


def standing(rank: WatchedRank, logs: JobLogs, *, stands_still: bool = False) -> Standing:
    return Standing(
        folder=rank.reader.folder,
        identity=rank.identity,
        state=rank.state,
        process=rank.process,
        living=rank.living,
        died_ns=rank.died_ns,
        ended_by=rank.ended_by,
        habits=tuple(rank.operations.habits(rank.state)),
        log=logs.body(rank.identity.rank),
        stands_still=stands_still,
    )
