"""Logs, NCCL RAS answers and stacks of a stalled simulated NCCL job.

The watchdog of each rank reports the oldest operation of each of its groups, unless the process is ended before. Then
the rank prints the counts of the default group at most. Wordings are those of torch 2.1 to 2.13.
"""

import json
import random
from collections.abc import Iterator, Sequence
from pathlib import Path

from diagnose.hang.evidence import Group
from tests.diagnose.hang.simulated_job import Issued, SimulatedJob, SimulatedRank
from tests.diagnose.hang.simulated_program import TRANSFERS, WORLD, Kind

OP_TYPES = {
    "all_reduce": "ALLREDUCE", "all_gather": "_ALLGATHER_BASE", "reduce_scatter": "_REDUCE_SCATTER_BASE",
    "broadcast": "BROADCAST", "barrier": "ALLREDUCE", "send": "SEND", "recv": "RECV",
}  # fmt: skip
NCCL_NAMES = {
    "all_reduce": "AllReduce", "all_gather": "AllGather", "reduce_scatter": "ReduceScatter", "broadcast": "Broadcast",
    "barrier": "AllReduce",
}  # fmt: skip
VERSIONS = ("2.2", "2.3", "2.4", "2.5", "2.6", "2.13")
WAITS = (
    "    all_reduce (torch/distributed/distributed_c10d.py:2806)\n    wrapper (torch/distributed/c10d_logger.py:83)\n",
    "    synchronize (torch/cuda/__init__.py:1083)\n",
    "    recv (torch/distributed/distributed_c10d.py:2301)\n",
)
HIDDEN_WAIT = "    train_step (train.py:88)\n"
"""A rank in ``loss.item()`` has no frame that shows that it waits."""
ELSEWHERE = "    next_batch (loader.py:40)\n"


def watchdog_lines(
    job: SimulatedJob, one: SimulatedRank, version: str, rng: random.Random, *, ended_early: bool
) -> list[str]:
    """The log of a rank. ``ended_early``: the rank is ended before some of its watchdogs report."""
    lines = [f"[rank{one.rank}]: iteration 7, loss 3.1, lr 0.0003"]
    if job.moves:
        return lines
    for at in _groups_of(job, one):
        entered, completed, oldest = _progress(one, at)
        if oldest is not None and not (ended_early and rng.random() < 0.7):
            lines += _timeout(job, one, at, oldest, version, (entered, completed))
    world = next(at for at, group in enumerate(job.groups) if group.name == WORLD)
    entered, completed, _ = _progress(one, world)
    if version != "2.2" and not (ended_early and rng.random() < 0.5):
        lines.append(
            f"{_head(one)}{_prefix(job, one, world, version)} Received a dump signal due to a collective timeout and "
            f"we will try our best to dump the debug info. Last enqueued NCCL work: {entered or -1}, last "
            f"completed NCCL work: {completed or -1}.This is most likely caused by incorrect usages of collectives"
        )
    return lines


def _groups_of(job: SimulatedJob, one: SimulatedRank) -> list[int]:
    return [at for at, group in enumerate(job.groups) if one.rank in group.members]


def _progress(one: SimulatedRank, at: int) -> tuple[int, int, Issued | None]:
    """Entered, completed and the oldest pending operation."""
    own = [issued for issued in one.issued if issued.operation.group == at]
    completed = next((index for index, issued in enumerate(own) if not issued.ended_ns), len(own))
    return len(own), completed, own[completed] if completed < len(own) else None


def _head(one: SimulatedRank) -> str:
    return f"[rank{one.rank}]:[E1206 18:44:12.715298746 ProcessGroupNCCL.cpp:607] "


def group_label(job: SimulatedJob, at: int) -> tuple[str, str]:
    """The name and the description that torch gives a group."""
    name = job.groups[at].name
    if name == WORLD:
        return "0", "default_pg"
    return str(at + 1), f"mesh_{name.replace(' transfers', '_p2p')}"


def _prefix(job: SimulatedJob, one: SimulatedRank, at: int, version: str) -> str:
    uid, desc = group_label(job, at)
    place = job.groups[at].members.index(one.rank)
    match version:
        case "2.3":
            return f"[PG {uid} Rank {place}]"
        case "2.4":
            return f"[PG {uid} ({desc}) Rank {place}]"
        case _:
            return f"[PG ID {at} PG GUID {uid}({desc}) Rank {place}]"


def _timeout(
    job: SimulatedJob, one: SimulatedRank, at: int, oldest: Issued, version: str, counts: tuple[int, int]
) -> Iterator[str]:
    group, op = job.groups[at], oldest.operation
    place, seq = group.members.index(one.rank), counts[1] + 1
    sizes = _sizes(op.name, op.size, group)
    yield (
        f"{_head(one)}[Rank {place}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={seq}, "
        f"OpType={OP_TYPES[op.name]}, {sizes}Timeout(ms)=600000) ran for 600029 milliseconds before timing out."
    )
    entered, completed = counts[0], counts[1] or -1
    if version == "2.2":
        return
    started = ", last started work: -1" if version == "2.13" else ""
    told = {
        "2.3": f"Timeout at NCCL work: {seq}, last enqueued NCCL work: {entered}, "
        f"last completed NCCL work: {completed}.",
        "2.6": f" failure detected by watchdog at work sequence id: {seq} PG status: last enqueued work: {entered}, "
        f"last completed work: {completed}",
        "2.13": f" failure detected by watchdog at work sequence id: {seq} PG status: last enqueued work: {entered}"
        f"{started}, last completed work: {completed}",
    }.get(
        version,
        f"Exception (either an error or timeout) detected by watchdog at work: {seq}, last enqueued NCCL work: "
        f"{entered}, last completed NCCL work: {completed}.",
    )
    yield f"{_head(one)}{_prefix(job, one, at, version)} {told}"


def _sizes(name: str, size: int, group: Group) -> str:
    num = len(group.members)
    if name == "all_gather":
        return f"NumelIn={size}, NumelOut={size * num}, "
    return (
        f"NumelIn={size * num}, NumelOut={size}, " if name == "reduce_scatter" else f"NumelIn={size}, NumelOut={size}, "
    )


def write_logs(
    job: SimulatedJob, folder: Path, rng: random.Random, *, gone: Sequence[int] = (), ended_early: float = 0.0
) -> None:
    """Write the logs of all ranks that are not ``gone``, to one file or to a file for each rank."""
    version = rng.choice(VERSIONS)
    of_rank = {
        one.rank: watchdog_lines(job, one, version, rng, ended_early=rng.random() < ended_early)
        for one in job.ranks
        if one.rank not in gone
    }
    if rng.random() < 0.5:
        for rank, lines in of_rank.items():
            (folder / f"rank_{rank}.log").write_text("\n".join(lines) + "\n")
        return
    queues, mixed = [list(lines) for lines in of_rank.values()], []
    while queues := [queue for queue in queues if queue]:
        mixed.append(rng.choice(queues).pop(0))
    (folder / "job.log").write_text("\n".join(mixed) + "\n")


def ras_answer(job: SimulatedJob, *, gone: Sequence[int] = ()) -> bytes:
    """RAS's JSON: what each rank has launched. Ranks that are ``gone`` give no answer."""
    comms = []
    for at, group in enumerate(job.groups):
        if group.name == TRANSFERS:
            continue
        rows: list[dict[str, object]] = []
        missing: list[dict[str, object]] = []
        for place, rank in enumerate(group.members):
            who = {"rank": place, "host": f"10.0.0.{rank // 8}", "pid": 1000 + rank, "cuda_dev": rank % 8}
            if rank in gone:
                missing.append({**who, "status": {"unresponsive": True, "considered_dead": False}})
                continue
            counts = dict.fromkeys(("Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce"), 0)
            for issued in job.ranks[rank].issued:
                if issued.operation.group == at and issued.operation.kind is Kind.COLLECTIVE:
                    counts[NCCL_NAMES[issued.operation.name]] += 1
            rows.append({**who, "status": {"init_state": 0}, "collective_counts": counts})
        comms.append({
            "hash": f"0x{at + 10:x}", "size": len(group.members), "ranks": rows, "missing_ranks": missing,
        })  # fmt: skip
    return json.dumps({"nccl_version": "2.29.1", "communicators_count": len(comms), "communicators": comms}).encode()


def write_stacks(
    job: SimulatedJob, folder: Path, rng: random.Random, *, gone: Sequence[int] = (), hidden: float = 0.0
) -> None:
    """One text of py-spy for each rank. ``hidden``: share of waiting ranks whose stack does not show it."""
    for one in job.ranks:
        if one.rank in gone:
            continue
        wait = HIDDEN_WAIT if rng.random() < hidden else rng.choice(WAITS)
        top = ELSEWHERE if one.stopped else wait
        text = (
            f'Process {one.rank}: python\nPython v3.11\n\nThread 7 (idle): "MainThread"\n{top}    main (train.py:5)\n'
        )
        (folder / f"rank{one.rank}.txt").write_text(text)
