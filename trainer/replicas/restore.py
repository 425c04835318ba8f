"""Load the newest complete replica from the memory of the nodes, with the reader of checkpoints in storage.

rank 0       asks every keeper what it holds, chooses the newest complete generation, reads index and checksums
every rank   reads the ranges that it needs, from the keeper of its node if that holds them; if the checksum of a range
             is wrong, from the next keeper that holds it
"""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch.distributed.checkpoint import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystem, _StorageInfo

import telemetry
from telemetry.errors import RankscopeError, UnreadableError
from telemetry.printable import log
from trainer.checkpoint.claim import check_same_training
from trainer.checkpoint.folder import INDEX_NAME, complete_steps, report_name
from trainer.checkpoint.restore import Restored, load, reason_of
from trainer.checkpoint.shards import CheckedReader, read_report
from trainer.checkpoint.state import TrainingState
from trainer.config import TrainConfig
from trainer.replicas.client import HINT, KeeperClient
from trainer.replicas.memory_folder import MemoryFolder, memory_folder
from trainer.replicas.parts import Generation, Part, Replica, newest_complete
from trainer.run_options import ReplicaPlaces

MOST_AT_ONCE = 16
"""Keepers that rank 0 asks at the same time."""
NAME = "memory of the nodes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """What rank 0 sends to all ranks."""

    replica: Replica
    files: Mapping[str, bytes]
    """Name -> content of the small files: the index, and the list of what each rank wrote, with checksums."""
    stored_step: int
    """Steps of the newest checkpoint in storage; 0 if there is none."""


def restore_replica(
    root: Path, run_id: str, places: ReplicaPlaces, state: TrainingState, config: TrainConfig
) -> Restored | None:
    """Load the newest complete replica into ``state``; None if there is none, if the storage below ``root`` has a newer
    checkpoint, or if a rank cannot read it. A collective call.

    Raises:
        UsageError: the replica belongs to another training.
        UnreadableError: the replica was read in part, and no checkpoint in storage can replace it. All keepers drop it,
            so the next attempt begins without it.
    """
    offered: list[Any] = [None]
    if state.rank == 0:
        offered = [_offer(root, run_id, places, config)]
    if dist.is_initialized():
        dist.broadcast_object_list(offered)
    offer: Offer | None = offered[0]
    if offer is None:
        return None
    about = offer.replica.about
    check_same_training(about, config, root)
    with ExitStack() as opened:
        try:
            restored = load(lambda: opened.enter_context(_reader(offer, places)), about, state)
            return replace(restored, stored_step=offer.stored_step)
        except (CheckpointException, RankscopeError) as error:
            _report(f"cannot load the replica of step {about.step - 1}: {reason_of(error)}")
    if not offer.stored_step:  # the state may be a mixture of the replica and the first values
        if state.rank == 0:
            _drop_all(places)
        raise UnreadableError(
            f"only a part of the replica of step {about.step - 1} was read, and there is no checkpoint in storage",
            hint="the next attempt begins with the first step",
        )
    return None


def _drop_all(places: ReplicaPlaces) -> None:
    for address in places.keepers:
        with KeeperClient(address, places.token) as client:
            _keep_only(client, None)


def _offer(root: Path, run_id: str, places: ReplicaPlaces, config: TrainConfig) -> Offer | None:
    """The replica that can be loaded, or None. All keepers drop all other parts."""
    with ExitStack() as opened, ThreadPoolExecutor(MOST_AT_ONCE) as pool:
        clients = {address: opened.enter_context(KeeperClient(address, places.token)) for address in places.keepers}
        held = dict(zip(clients, pool.map(_parts, clients.values()), strict=True))
        size = config.parallel.topology.world_size
        replica = newest_complete(held, run_id=run_id, world_size=size, rollback=places.rollback)
        stored_step = max(complete_steps(root), default=0)
        offer = None
        if replica is not None and replica.about.step >= stored_step:
            with _reported(f"cannot read the replica of step {replica.about.step - 1}"):
                files = dict(pool.map(lambda named: _small(clients, *named), _names(replica)))
                offer = Offer(replica=replica, files=files, stored_step=stored_step)
        kept = offer.replica.generation if offer else None
        list(pool.map(lambda client: _keep_only(client, kept), clients.values()))
    return offer


@contextmanager
def _reported(message: str) -> Iterator[None]:
    """Report an error of the ``with`` block, and continue after the block."""
    try:
        yield
    except RankscopeError as error:
        _report(f"{message}: {error.message}")


def _parts(client: KeeperClient) -> list[Part]:
    """The parts that a keeper holds; empty if it does not answer."""
    try:
        return client.parts()
    except RankscopeError as error:
        log(error.message)
        return []


def _keep_only(client: KeeperClient, generation: Generation | None) -> None:
    with suppress(RankscopeError):
        client.keep_only(generation)


def _names(replica: Replica) -> Iterator[tuple[Sequence[str], Part, str]]:
    """The small files of a replica, with their sources."""
    for rank, part in replica.parts.items():
        yield replica.sources[rank], part, report_name(rank)
    yield replica.sources[0], replica.parts[0], INDEX_NAME


def _small(clients: Mapping[str, KeeperClient], sources: Sequence[str], part: Part, name: str) -> tuple[str, bytes]:
    """Name and content of a small file, from the first keeper that returns it undamaged."""
    reason = UnreadableError(f"no keeper holds {name}", hint=HINT)
    for address in sources:
        try:
            return name, clients[address].read_whole(part, name)
        except UnreadableError as error:
            reason = error
    raise reason


@contextmanager
def _reader(offer: Offer, places: ReplicaPlaces) -> Iterator["ReplicaReader"]:
    with memory_folder(NAME) as folder, ExitStack() as opened:
        for name, content in offer.files.items():
            folder.write(name, content)
        yield ReplicaReader(folder, offer.replica, places, opened)


class ReplicaReader(CheckedReader):
    """Reads the ranges of shards from keepers."""

    shares = False  # each rank reads from the keeper of its node

    def __init__(self, folder: MemoryFolder, replica: Replica, places: ReplicaPlaces, opened: ExitStack) -> None:
        super().__init__(folder)
        self.fs = _KeeperFiles(replica, places, opened)
        results = [result for rank in replica.parts for result in read_report(folder, rank)]
        self._index.storage_data = {result.index: result.storage_data for result in results}

    def _copies(self, file: "_KeeperFile", sinfo: _StorageInfo) -> Iterator[tuple[str, bytes]]:
        """Name and bytes of the copy from each keeper that answers, the nearest first."""
        yield from file.copies(sinfo.offset, sinfo.length)


class _KeeperFiles(FileSystem):
    """Shards in the memory of the nodes, for torch's reader."""

    def __init__(self, replica: Replica, places: ReplicaPlaces, opened: ExitStack) -> None:
        self._places, self._opened = places, opened
        self._clients: dict[str, KeeperClient] = {}
        self._parts = {
            file.name: (part, replica.sources[rank]) for rank, part in replica.parts.items() for file in part.files
        }

    @contextmanager
    def create_stream(self, path: str | PathLike[str], mode: str) -> Iterator[Any]:
        """Yields a :class:`_KeeperFile`."""
        assert mode == "rb"
        name = Path(path).name
        if name not in self._parts:
            raise UnreadableError(f"the replica has no {name}", hint=HINT)
        part, sources = self._parts[name]
        nearest_first = sorted(sources, key=lambda address: address != self._places.own)
        yield _KeeperFile(part, name, [self._client(address) for address in nearest_first])

    def _client(self, address: str) -> KeeperClient:
        if address not in self._clients:
            self._clients[address] = self._opened.enter_context(KeeperClient(address, self._places.token))
        return self._clients[address]


class _KeeperFile:
    """One shard in the memory of several keepers."""

    def __init__(self, part: Part, name: str, clients: Sequence[KeeperClient]) -> None:
        self._part, self._name, self._clients = part, name, clients

    def copies(self, begin: int, length: int) -> Iterator[tuple[str, bytes]]:
        """A range from each keeper, with the keeper's name. Keepers that do not answer are left out.

        Raises:
            UnreadableError: no keeper answers.
        """
        reason, num_found = UnreadableError(f"no keeper holds {self._name}", hint=HINT), 0
        for client in self._clients:
            try:
                content = client.read(self._part, self._name, begin, length)
            except UnreadableError as error:
                reason = error
            else:
                num_found += 1
                yield f"{NAME}/{self._name} at {client.address}", content
        if not num_found:
            raise reason


def _report(message: str) -> None:
    telemetry.mark("replica-unreadable", message)
    log(message)
