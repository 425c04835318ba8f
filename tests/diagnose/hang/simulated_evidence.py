"""The evidence of a stalled simulated job: fronts and pending operations only."""

from collections.abc import Collection

from diagnose.hang.evidence import Front, HangEvidence, Pending, Process, RankEvidence
from tests.diagnose.hang.simulated_job import START_NS, Backend, Issued, SimulatedJob, SimulatedRank
from tests.diagnose.hang.simulated_program import TRANSFERS, Kind

LOOK_AFTER_NS = 60_000_000_000


def evidence_of(job: SimulatedJob, *, knows_grid: bool, gone: Collection[int] = ()) -> HangEvidence:
    """The evidence a minute later. The ranks in ``gone`` left nothing.

    For a gloo job it shows whether a host waits in communication. For an NCCL job it does not.
    """
    return HangEvidence(
        world_size=job.grid.world_size,
        groups=job.groups,
        ranks={one.rank: _left_by(one, job) for one in job.ranks if one.rank not in gone},
        topology=job.grid if knows_grid else None,
        taken_ns=job.now_ns + LOOK_AFTER_NS,
    )


def _left_by(one: SimulatedRank, job: SimulatedJob) -> RankEvidence:
    sees_host = job.backend is Backend.GLOO
    own = [at for at, group in enumerate(job.groups) if one.rank in group.members and group.name != TRANSFERS]
    # The operation that the host waits for comes first if it is known. The others are in the order of issue.
    pending = sorted(one.unended, key=lambda issued: sees_host and issued is not one.waits_for)
    return RankEvidence(
        rank=one.rank,
        process=Process.ALIVE,
        step=1,
        stage_since_ns=one.issued[-1].issued_ns if one.issued else START_NS,
        fronts={at: _front(one, at) for at in own},
        pending=tuple(_pending(issued) for issued in pending),
        on_host=one.waits_for not in pending if sees_host else None,
    )


def _front(one: SimulatedRank, group: int) -> Front:
    own = [it for it in one.issued if it.operation.group == group and it.operation.kind is Kind.COLLECTIVE]
    completed = next((at for at, issued in enumerate(own) if not issued.ended_ns), len(own))
    return Front(entered=len(own), completed=completed, entered_ns=own[-1].issued_ns if own else 0)


def _pending(issued: Issued) -> Pending:
    operation = issued.operation
    return Pending(
        group=operation.group,
        seq=issued.seq,
        op=operation.name,
        is_transfer=operation.kind is not Kind.COLLECTIVE,
        peer=operation.peer,
        signature=f"{operation.name} {operation.size}",
        since_ns=issued.issued_ns,
    )
