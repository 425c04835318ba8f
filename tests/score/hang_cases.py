"""Labelled hangs for the scoreboard, each with the evidence of every source, and with false evidence.

A false source shows something else than the hang, and is not marked as false:

    earlier hang      the same job, hung before, because of another rank
    healthy moment    the same job, taken while it moved
    other numbering   all ranks have other numbers: the job was restarted with its hosts in another order
    swapped ranks     files or lines of two ranks are exchanged, one of them at fault
"""

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from diagnose.hang.sources.combine import Found
from tests.diagnose.hang.simulated_job import Backend, Fault, SimulatedJob, SimulatedRank, Trouble, simulated_job
from tests.score.hang_files import RAS, SOURCES, WHOLE, random_missing, read_source, write_source

EARLIER, HEALTHY, NUMBERED, SWAPPED = "earlier hang", "healthy moment", "other numbering", "swapped ranks"
FALSE_KINDS = (EARLIER, HEALTHY, NUMBERED, SWAPPED)
FAMILIES = {
    "simulated: a host stops": Trouble.HOST_STOPS,
    "simulated: a device stops": Trouble.DEVICE_STOPS,
    "simulated: a rank skips a collective": Trouble.LEAVES_OUT,
}
MOST_ATTEMPTS = 20

Sources = Mapping[str, Found | None]
"""The evidence by source. None: the source is not readable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HangCase:
    """A hang and its evidence."""

    name: str
    family: str
    guilty: frozenset[int]
    whole: Sources
    """Every rank reports everything that its source can show."""
    partial: Sources = field(default_factory=dict)
    """Some ranks left no evidence, or only a part of it."""
    false: Mapping[str, Sources] = field(default_factory=dict)
    """False sources by kind."""


def simulated_case(family: str, seed: int, folder: Path) -> HangCase | None:
    """The hang of a seed. None: the fault never causes a hang."""
    trouble = FAMILIES[family]
    job = simulated_job(seed, Backend.NCCL, trouble)
    job.run()
    if not job.troubled or all(one.at >= len(one.program) for one in job.ranks):
        return None
    rng = random.Random(f"{family}/{seed}")
    size = job.grid.world_size
    stated = size if rng.random() < 0.5 else None
    whole = _read(job, folder / "whole", rng, stated)
    missing = {
        source: _one(source, job, folder / "partial" / source, rng, stated, is_whole=False) for source in SOURCES
    }
    return HangCase(
        name=f"{family}, seed {seed}",
        family=family,
        guilty=frozenset(job.troubled),
        whole=whole,
        partial=missing,
        false={
            EARLIER: _earlier(seed, trouble, job, folder / "earlier", rng, stated),
            HEALTHY: _healthy(seed, trouble, folder / "healthy", rng, stated),
            NUMBERED: _read(renumbered(job, _rotation(size, rng)), folder / "numbered", rng, stated),
            SWAPPED: _swapped(job, folder / "swapped", rng, stated),
        },
    )


def _read(job: SimulatedJob, folder: Path, rng: random.Random, stated: int | None) -> dict[str, Found | None]:
    return {source: _one(source, job, folder / source, rng, stated) for source in SOURCES}


def _one(
    source: str, job: SimulatedJob, folder: Path, rng: random.Random, stated: int | None, *, is_whole: bool = True
) -> Found | None:
    write_source(source, job, folder, rng, WHOLE if is_whole else random_missing(job.grid.world_size, rng))
    return read_source(source, folder, stated)


def _earlier(
    seed: int, trouble: Trouble, job: SimulatedJob, folder: Path, rng: random.Random, stated: int | None
) -> dict[str, Found | None]:
    """The job hung before, because of another rank and at another place."""
    innocent = [rank for rank in range(job.grid.world_size) if rank not in job.troubled]
    for _ in range(MOST_ATTEMPTS):
        before = simulated_job(seed, Backend.NCCL, trouble)
        rank = rng.choice(innocent)
        before.faults = (Fault(rank=rank, trouble=trouble, at=rng.randrange(len(before.ranks[rank].program))),)
        before.run()
        if before.troubled:
            return _read(before, folder, rng, stated)
    return {}


def _healthy(
    seed: int, trouble: Trouble, folder: Path, rng: random.Random, stated: int | None
) -> dict[str, Found | None]:
    """The healthy job in the middle of its program. RAS is read twice, and the job moves in between."""
    rounds = _free_of_faults(seed, trouble).run()
    first, second = sorted(rng.randint(1, max(1, rounds - 1)) for _ in range(2))
    moments = [_free_of_faults(seed, trouble) for _ in range(2)]
    moments[0].run(first)
    moments[1].run(max(second, first + 1))
    found: dict[str, Found | None] = {}
    for source in SOURCES:
        for number, moment in enumerate(moments[: 2 if source == RAS else 1]):
            write_source(source, _moving(moment, rng), folder / source, rng, name=f"ras-{number}.json")
        found[source] = read_source(source, folder / source, stated)
    return found


def _free_of_faults(seed: int, trouble: Trouble) -> SimulatedJob:
    job = simulated_job(seed, Backend.NCCL, trouble)
    job.faults = ()
    return job


def _moving(job: SimulatedJob, rng: random.Random) -> SimulatedJob:
    """No watchdog reports. The stack of a rank that does not wait shows its own code. In half of the cases only one
    rank does not wait, and the others wait for it: then the stacks are like those of a hang."""
    alone = rng.randrange(len(job.ranks)) if rng.random() < 0.5 else None
    for one in job.ranks:
        one.stopped = one.waits_for is None if alone is None else one.rank == alone
    job.moves = True
    return job


def _rotation(size: int, rng: random.Random) -> list[int]:
    by = rng.randrange(1, size)
    return [(rank + by) % size for rank in range(size)]


def renumbered(job: SimulatedJob, numbers: Sequence[int]) -> SimulatedJob:
    """``numbers``: the new number of each rank. Members of a group are in the order of their numbers."""
    groups = tuple(replace(one, members=tuple(sorted(numbers[rank] for rank in one.members))) for one in job.groups)
    ranks = sorted((_renumbered(one, numbers) for one in job.ranks), key=lambda one: one.rank)
    return replace(job, groups=groups, ranks=tuple(ranks), troubled={numbers[rank] for rank in job.troubled})


def _renumbered(one: SimulatedRank, numbers: Sequence[int]) -> SimulatedRank:
    issued = [
        replace(each, operation=replace(each.operation, peer=numbers[each.operation.peer]))
        if each.operation.peer >= 0
        else each
        for each in one.issued
    ]
    return replace(one, rank=numbers[one.rank], issued=issued)


def _swapped(job: SimulatedJob, folder: Path, rng: random.Random, stated: int | None) -> dict[str, Found | None]:
    guilty = rng.choice(sorted(job.troubled))
    innocent = rng.choice([rank for rank in range(job.grid.world_size) if rank not in job.troubled])
    found: dict[str, Found | None] = {}
    for source in SOURCES:
        write_source(source, job, folder / source, rng)
        for path in [*(folder / source).iterdir()]:
            _swap(source, path, guilty, innocent)
        _rename(folder / source, guilty, innocent)
        found[source] = read_source(source, folder / source, stated)
    return found


def _swap(source: str, path: Path, first: int, second: int) -> None:
    """Inside a file: the numbers in front of lines, or of two processes in the communicator of all."""
    if source == "logs":
        text = path.read_text()
        for old, new in ((f"[rank{first}]", "[first]"), (f"[rank{second}]", f"[rank{first}]")):
            text = text.replace(old, new)
        path.write_text(text.replace("[first]", f"[rank{second}]"))
    elif source == RAS:
        answer = json.loads(path.read_bytes())
        of_all = max(answer["communicators"], key=lambda comm: comm["size"])
        for row in of_all["ranks"]:
            row["rank"] = {first: second, second: first}.get(row["rank"], row["rank"])
        path.write_text(json.dumps(answer))


def _rename(folder: Path, first: int, second: int) -> None:
    """The two files, where there is one for each rank."""
    for path in _of_rank(folder, first):
        other = path.with_name(path.name.replace(str(first), str(second)))
        if other.exists():
            kept = other.read_bytes()
            other.write_bytes(path.read_bytes())
            path.write_bytes(kept)


def _of_rank(folder: Path, rank: int) -> Iterator[Path]:
    for pattern in (f"nccl_trace_rank_{rank}", f"rank{rank}.txt"):
        yield from folder.glob(pattern)
