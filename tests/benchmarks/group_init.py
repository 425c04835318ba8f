"""Operations on the store of a job until all process groups of the trainer exist, by number of ranks.

python -m tests.benchmarks.group_init [--ranks 8,16,32,64] [--json]

Real processes under gloo, forked from one that has loaded torch. Each rank wraps the store of the job, creates the
default group and the mesh of the trainer, and counts what it and the libraries below it ask the store for. The server
of the store works for all ranks. So the start-up of a large job takes long if the count of each rank grows with the
number of ranks.

The bound of a figure is the count per group with the fewest ranks: the count must not grow faster than the number of
groups of a rank. "Usual" is torch without the setting of the trainer (``few_store_operations``).
"""

import argparse
import json
import os
import socket
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import torch
import torch.distributed as dist

from telemetry.process.child_process import tie_to_parent
from telemetry.record.collectives.process_group import register_traced_backend
from telemetry.topology import Topology
from tests.benchmarks.figures import Figure, report
from trainer.parallel.mesh import make_grid
from trainer.rank import STORE_SETTING, few_store_operations

RANKS = (8, 16, 32, 64)
OPERATIONS = ("set", "get", "add", "compare_set", "check", "wait", "append", "multi_get", "multi_set", "delete_key")
DEFAULT_GROUP = 1


def grid_of(num_ranks: int) -> Topology:
    """A grid whose axes all have at least two ranks, if there are eight ranks or more. dp is the largest."""
    degrees = [1, 1, 1]
    for number in range(num_ranks.bit_length() - 1):
        degrees[number % 3] *= 2
    return Topology(dp=degrees[0], pp=degrees[1], tp=degrees[2])


class CountingStore(dist.Store):
    """A store that counts the calls of each of its operations, and the keys that they name."""

    def __init__(self, store: dist.Store) -> None:
        super().__init__()
        self.store = store
        self.calls: Counter[str] = Counter()
        self.num_keys = 0

    def has_extended_api(self) -> bool:
        return True

    def call(self, name: str, keys: Any, *arguments: Any) -> Any:
        self.calls[name] += 1
        self.num_keys += 1 if isinstance(keys, str) else len(keys)
        return getattr(self.store, name)(keys, *arguments)


def _counted(name: str) -> Any:
    return lambda self, *arguments: self.call(name, *arguments)


for each in OPERATIONS:
    setattr(CountingStore, each, _counted(each))


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """The store operations of one rank."""

    default_group: int
    all_groups: int
    num_groups: int
    num_keys: int


class GroupInit:
    """All numbers of ranks, each with the setting of the trainer and without it."""

    title = "Store operations until all process groups exist"
    command = "python -m tests.benchmarks.group_init --ranks 8,16,32,64"

    def __init__(self, ranks: Sequence[int] = RANKS) -> None:
        self._ranks = ranks

    def run(self) -> list[Figure]:
        figures, bound = [], None
        for num_ranks in self._ranks:
            usual, ours = _largest(num_ranks, is_usual=True), _largest(num_ranks, is_usual=False)
            value = ours.all_groups / ours.num_groups
            bound = value if bound is None else bound
            figures.append(_figure(num_ranks, value, usual, ours, bound))
        return figures


def _figure(num_ranks: int, value: float, usual: Count, ours: Count, bound: float) -> Figure:
    grid = grid_of(num_ranks)
    return Figure(
        name=f"{num_ranks} ranks ({grid.dp}x{grid.pp}x{grid.tp}): operations per rank and group",
        value=value,
        unit="",
        rival="usual",
        rival_value=usual.all_groups / usual.num_groups,
        bound=bound,
        note=f"{ours.all_groups} operations with {ours.num_keys} keys for {ours.num_groups} groups, "
        f"{ours.default_group} of them for the default group; usual: {usual.all_groups} operations",
    )


def _largest(num_ranks: int, *, is_usual: bool) -> Count:
    """The count of the rank with the most operations."""
    with tempfile.TemporaryDirectory() as name, socket.create_server(("127.0.0.1", 0), backlog=2 * num_ranks) as server:
        folder, parent = Path(name), os.getpid()
        ranks = [partial(_count, rank, num_ranks, server, folder, is_usual) for rank in range(num_ranks)]
        with _forked(ranks, parent) as statuses:
            assert not any(statuses()), f"a rank failed; number of ranks: {num_ranks}"
        counts = [Count(**json.loads(path.read_text())) for path in folder.iterdir()]
    assert len(counts) == num_ranks
    return max(counts, key=lambda count: count.all_groups)


@contextmanager
def _forked(works: Sequence[Any], parent: int) -> Iterator[Any]:
    """Each work in a child. Gives a function that waits for all exit statuses."""
    pids = []
    for work in works:
        pid = os.fork()
        if not pid:
            _become(work, parent)
        pids.append(pid)
    yield lambda: [os.waitpid(pid, 0)[1] for pid in pids]


def _become(work: Any, parent: int) -> NoReturn:
    status = 1
    try:
        tie_to_parent(parent)
        torch.set_num_threads(1)
        work()
        status = 0
    finally:
        os._exit(status)


def _count(rank: int, num_ranks: int, server: socket.socket, folder: Path, is_usual: bool) -> None:
    """The work of a rank. The last barrier keeps the server of the store, in rank 0, until all ranks are done."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    if is_usual:
        os.environ[STORE_SETTING] = "0"
    few_store_operations()
    place: dict[str, Any] = {"host_name": "127.0.0.1", "port": server.getsockname()[1], "world_size": num_ranks}
    if rank == 0:
        place["master_listen_fd"] = server.detach()
    store = CountingStore(dist.TCPStore(is_master=rank == 0, **place))
    dist.init_process_group(register_traced_backend("gloo"), store=store, rank=rank, world_size=num_ranks)
    default_group = store.calls.total()
    topology = grid_of(num_ranks)
    make_grid(topology, torch.device("cpu"))
    num_groups = DEFAULT_GROUP + sum(degree > 1 for degree in (topology.dp, topology.pp, topology.tp))
    count = {
        "default_group": default_group,
        "all_groups": store.calls.total(),
        "num_groups": num_groups,
        "num_keys": store.num_keys,
    }
    (folder / f"{rank}.json").write_text(json.dumps(count))
    dist.barrier()
    dist.barrier()


BENCHMARK = GroupInit()


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", default=",".join(map(str, RANKS)), help="numbers of ranks, powers of two")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    benchmark = GroupInit([int(text) for text in options.ranks.split(",")])
    return report(benchmark.title, benchmark.run(), as_json=options.json)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
