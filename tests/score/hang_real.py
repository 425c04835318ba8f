"""Labelled hangs of real jobs: published dumps of NCCL jobs, and gloo jobs that ``tests.scenarios.hang_trials`` made.

The published cases have dumps only. Their logs and answers of NCCL RAS are written from the counts in the dumps, as
torch 2.6 and NCCL 2.29 would have written them. NCCL counts no all-to-all: torch sends it as transfers.
"""

import json
import pickle
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from diagnose.hang.dump import read_dumps
from diagnose.hang.evidence import HangEvidence, Pending
from diagnose.hang.from_dumps import evidence_from_dumps
from diagnose.hang.sources.combine import Found
from tests.diagnose.hang.made_sources import OP_TYPES
from tests.diagnose.hang.real_dumps import cases, injected
from tests.score.hang_cases import EARLIER, HangCase
from tests.score.hang_files import DUMPS, LOG, RAS, SPOOL, STACKS, read_source

PUBLISHED = "real NCCL jobs, published dumps"
TRIALS = "real gloo jobs of `tests.scenarios.hang_trials`"
ALL_TO_ALL = "all_to_all"
_RANK = re.compile(r"rank=(\d+)")


def published_cases(folder: Path) -> list[HangCase]:
    """The published cases. The false evidence of a case is the evidence of another case."""
    found = []
    for case in cases():
        place = folder / case.name
        write_from_dumps(evidence_from_dumps(read_dumps(case)), place)
        sources = {
            DUMPS: read_source(DUMPS, case, None),
            LOG: read_source(LOG, place / LOG, None),
            RAS: read_source(RAS, place / RAS, None),
        }
        found.append((case, sources))
    return [
        HangCase(
            name=case.name,
            family=PUBLISHED,
            guilty=frozenset(injected(case)),
            whole=sources,
            false={EARLIER: found[at - 1][1]} if len(found) > 1 else {},
        )
        for at, (case, sources) in enumerate(found)
    ]


def trial_cases(jobs: list[Path], folder: Path) -> list[HangCase]:
    """``jobs``: folders of jobs, as ``hang_trials --out`` leaves them."""
    found = [(job, _sources_of(job, folder / f"{number}")) for number, job in enumerate(jobs)]
    return [
        HangCase(
            name=f"{job.name}, {_fault_of(job)}",
            family=TRIALS,
            guilty=frozenset({_guilty_of(job)}),
            whole=sources,
            false={EARLIER: next(iter(_of_another(job, found)), {})},
        )
        for job, sources in found
    ]


def _of_another(
    job: Path, found: list[tuple[Path, Mapping[str, Found | None]]]
) -> Iterator[Mapping[str, Found | None]]:
    """The evidence of a job with another rank at fault."""
    yield from (sources for other, sources in found if _guilty_of(other) != _guilty_of(job))


def _fault_of(job: Path) -> str:
    _, options = pickle.loads((job / "job.pickle").read_bytes())  # written by the trials themselves
    return str(options.fault)


def _guilty_of(job: Path) -> int:
    named = _RANK.search(_fault_of(job))
    assert named is not None
    return int(named[1])


def _sources_of(job: Path, folder: Path) -> dict[str, Found | None]:
    """The files that the agent of a job wrote, as one source for each kind. An agent of dead ranks took no dumps."""
    for kind, source in (("flight-recorder", DUMPS), ("stack", STACKS)):
        (folder / source).mkdir(parents=True)
        for path in (job / "spool").glob(f"*/*/rank-*/evidence/{kind}"):
            rank = int(path.parents[1].name.removeprefix("rank-"))
            shutil.copyfile(path, folder / source / f"rank{rank}.json")
    (folder / LOG).mkdir()
    for path in (job / "logs").glob("rank-*.log"):
        shutil.copyfile(path, folder / LOG / path.name)
    at_hand = [source for source in (DUMPS, LOG, STACKS) if any((folder / source).iterdir())]
    size = len(list((job / "logs").glob("rank-*.log")))
    found = {source: read_source(source, folder / source, size) for source in at_hand}
    return {SPOOL: read_source(SPOOL, job / "spool", None), **found}


def write_from_dumps(evidence: HangEvidence, folder: Path) -> None:
    """Logs and RAS's answer with the counts of real dumps."""
    (folder / LOG).mkdir(parents=True)
    (folder / RAS).mkdir()
    for rank in evidence.ranks:
        (folder / LOG / f"rank_{rank}.log").write_text("\n".join(_log_of(evidence, rank)) + "\n")
    (folder / RAS / "ras.json").write_text(json.dumps({"nccl_version": "2.29.1", "communicators": [*_comms(evidence)]}))


def _log_of(evidence: HangEvidence, rank: int) -> Iterator[str]:
    """The watchdog's report of the oldest operation in each group, and the counts of the default group."""
    head = f"[rank{rank}]:[E1206 18:44:12.715298746 ProcessGroupNCCL.cpp:607] "
    yield f"[rank{rank}]: iteration 7, loss 3.1, lr 0.0003"
    of_rank = evidence.ranks[rank]
    for op in _oldest(of_rank.pending).values():
        uid, name = evidence.groups[op.group].uid, evidence.groups[op.group].name
        place = evidence.groups[op.group].members.index(rank)
        kind = OP_TYPES.get(op.op, op.op.upper())
        front = of_rank.fronts.get(op.group)
        entered, completed = (front.entered, front.completed) if front else (op.seq, op.seq - 1)
        yield (
            f"{head}[Rank {place}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={op.seq}, "
            f"OpType={kind}, NumelIn=8, NumelOut=8, Timeout(ms)=600000) ran for 600029 milliseconds before timing out."
        )
        yield (
            f"{head}[PG ID {op.group} PG GUID {uid}({name}) Rank {place}]  failure detected by watchdog at work "
            f"sequence id: {op.seq} PG status: last enqueued work: {entered}, last completed work: {completed}"
        )
    world = next(at for at, group in enumerate(evidence.groups) if group.uid == "0")
    front = of_rank.fronts[world]
    yield (
        f"{head}[PG ID {world} PG GUID 0(default_pg) Rank {rank}] Received a dump signal due to a collective timeout "
        f"and we will try our best to dump the debug info. Last enqueued NCCL work: {front.entered}, last completed "
        f"NCCL work: {front.completed}.This is most likely caused by incorrect usages of collectives"
    )


def _oldest(pending: tuple[Pending, ...]) -> dict[int, Pending]:
    by_group: dict[int, Pending] = {}
    for op in pending:
        by_group.setdefault(op.group, op)
    return by_group


def _comms(evidence: HangEvidence) -> Iterator[dict[str, object]]:
    exchanges = {op.group for one in evidence.ranks.values() for op in one.pending if op.op == ALL_TO_ALL}
    for index, group in enumerate(evidence.groups):
        counted = [rank for rank in group.members if index in evidence.ranks[rank].fronts]
        if len(counted) == len(group.members) > 1 and index not in exchanges:
            rows = [
                {
                    "rank": place,
                    "host": f"10.0.0.{rank // 8}",
                    "pid": 1000 + rank,
                    "cuda_dev": rank % 8,
                    "collective_counts": {"AllReduce": evidence.ranks[rank].fronts[index].entered},
                }
                for place, rank in enumerate(group.members)
            ]
            yield {"hash": f"0x{index + 10:x}", "size": len(rows), "ranks": rows, "missing_ranks": []}
