"""A hang under NCCL: of two ranks one never enters a collective. Its peer's page and both recorders must show it.

``diagnose`` needs more packages than a machine with a GPU may have, so what it reads is checked, not its verdict.
"""

import json
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path

import torch
import torch.distributed as dist

import telemetry
from telemetry.evidence.flight_recorder import ask_flight_recorder
from telemetry.record.reader import RankReader, find_rank_dirs
from telemetry.topology import Topology
from tests.deadline import until
from tests.gpu.outcome import say
from tests.gpu.ranks import RUN, ranks_at_work, ready

ODD = 1
"""The rank that never enters the collective."""
STEPS = 10


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="rankscope-gpu-") as name:
        folder = Path(name)
        with ranks_at_work(_work, Topology(dp=2), folder) as ranks:
            shown = _page_shows(folder)
            fronts = {one.rank: front_of(ask_flight_recorder(one, 0)) for one in ranks}
    wrong = what_is_wrong(fronts)
    if not shown:
        wrong.append("the page of the waiting rank shows nothing pending")
    figures = {"enqueued_and_completed": {str(rank): front for rank, front in fronts.items()}, "page_shows_it": shown}
    say("failed" if wrong else "passed", figures, "; ".join(wrong))


def front_of(text: str | None) -> tuple[int, int]:
    """Collectives that were enqueued and completed, of the group that has the most; (-1, -1) if none is reported."""
    status = json.loads(text or "{}").get("pg_status") or {}
    fronts = [(int(one["last_enqueued_collective"]), int(one["last_completed_collective"])) for one in status.values()]
    return max(fronts, default=(-1, -1))


def what_is_wrong(fronts: Mapping[int, tuple[int, int]]) -> list[str]:
    """The odd rank must be one collective behind its peer, with nothing pending; the peer must wait in that one."""
    behind, waiting = fronts.get(ODD, (-1, -1)), fronts.get(1 - ODD, (-1, -1))
    wrong = []
    if behind[0] < 0 or waiting[0] != behind[0] + 1:
        wrong.append(f"the recorders do not show that rank {ODD} is one collective behind: {dict(fronts)}")
    if behind[0] != behind[1] or waiting[0] == waiting[1]:
        wrong.append(f"the recorders do not show who waits: {dict(fronts)}")
    return wrong


def _work(rank: int, folder: Path) -> None:
    tensor = torch.ones(1024, device="cuda")
    for number in range(STEPS):
        with telemetry.step(number):
            dist.all_reduce(tensor)
            torch.cuda.synchronize()
    with telemetry.step(STEPS):
        ready(rank, folder)
        if rank != ODD:
            dist.all_reduce(tensor)
        threading.Event().wait()


def _page_shows(folder: Path) -> bool:
    """Whether a rank that waits for the other on the device shows an operation that has not ended."""
    pages = [RankReader(place) for place in find_rank_dirs(folder, RUN, 0) if not place.name.endswith(str(ODD))]

    def shows() -> bool:
        return any(one.issued > one.completed for page in pages for one in page.live().operations)

    try:
        until(shows, seconds=5)
    except AssertionError:
        return False
    return True


if __name__ == "__main__":
    main()
