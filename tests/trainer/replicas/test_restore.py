"""One rank continues from memory, or from storage if memory is not complete. The values after n steps are n."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from telemetry.errors import UnreadableError
from tests.trainer.checkpoint.killed_writer import CONFIG, make_state, values
from tests.trainer.replicas.made_parts import RUN, TOKEN, keeping
from trainer.checkpoint.claim import facts_of
from trainer.checkpoint.folder import About, make_root
from trainer.checkpoint.restore import Restored, restore
from trainer.checkpoint.write import Buffers, CheckpointWriter, WritePlan, plan_writes
from trainer.replicas.part_store import PartStore
from trainer.replicas.replicator import Replicator
from trainer.replicas.restore import restore_replica
from trainer.run_options import ReplicaPlaces

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
STORED, SENT = 3, 5


@dataclass(slots=True, kw_only=True)
class Training:
    """A rank with two keepers."""

    root: Path
    places: ReplicaPlaces
    own: PartStore
    neighbour: PartStore

    def run(self, *, stored: int, sent: int) -> None:
        """Save a checkpoint of step ``stored``, and a replica of step ``sent``."""
        state = make_state()
        tensors = state.tensors()
        plan = plan_writes(tensors, rank=0, world_size=1)
        buffers = Buffers(tensors)
        for step in sorted((stored, sent)):
            fill(tensors, step)
            if step == stored:
                buffers.copy_from(tensors)
                writer = CheckpointWriter(self.root, plan, rank=0, keep=2)
                writer.begin(buffers, about(step))
                writer.finish()
            if step == sent:
                self.send(tensors, plan, step)

    def send(self, tensors: dict[str, torch.Tensor], plan: WritePlan, step: int) -> None:
        replicator = Replicator(self.places, plan, tensors, rank=0)
        replicator.take(tensors, about(step))
        replicator.finish()
        assert not replicator.busy

    def resumed(self) -> tuple[int, bool, set[float]]:
        """What a new rank continues from: the number of steps, whether from memory, and all values."""
        state = make_state()
        found: Restored | None = restore_replica(self.root, RUN, self.places, state, CONFIG)
        from_memory = found is not None
        found = found or restore(self.root, state, CONFIG)
        assert found is not None
        return found.about.step, from_memory, values(state)


def fill(tensors: dict[str, torch.Tensor], value: int) -> None:
    with torch.no_grad():
        for tensor in tensors.values():
            if tensor.is_floating_point():
                tensor.fill_(value)


def about(step: int) -> About:
    return About(step=step, run_id=RUN, attempt=0, world_size=1, training=facts_of(CONFIG))


def damage(store: PartStore, pattern: str, *, at: float = 0.5) -> None:
    """Change a bit of each held file with such a name, by default in the middle."""
    for part in store.parts():
        for file in part.files:
            content = store.read(part.generation, part.rank, file.name)
            if re.fullmatch(pattern, file.name) and content is not None:
                content[int(len(content) * at)] ^= 1


@pytest.fixture(scope="module")
def keepers() -> Iterator[dict[str, PartStore]]:
    """The addresses of two keepers, and what they hold."""
    own, neighbour = PartStore(), PartStore()
    with keeping(own) as first, keeping(neighbour) as second:
        yield {first: own, second: neighbour}


@pytest.fixture
def training(tmp_path: Path, keepers: dict[str, PartStore]) -> Training:
    root = tmp_path / "checkpoints"
    make_root(root)
    for store in keepers.values():
        store.keep_only([])
    (first, own), (second, neighbour) = keepers.items()
    places = ReplicaPlaces(own=first, neighbour=second, keepers=(first, second), token=TOKEN)
    return Training(root=root, places=places, own=own, neighbour=neighbour)


def test_newest_step_is_restored_from_memory(training: Training) -> None:
    training.run(stored=STORED, sent=SENT)
    assert training.resumed() == (SENT, True, {float(SENT)})


@pytest.mark.parametrize("lost", ["own", "neighbour"])
def test_replica_is_restored_when_only_one_of_two_nodes_holds_it(training: Training, lost: str) -> None:
    training.run(stored=STORED, sent=SENT)
    getattr(training, lost).keep_only([])
    assert training.resumed() == (SENT, True, {float(SENT)})


def test_checkpoint_in_storage_is_used_when_no_node_holds_parts(training: Training) -> None:
    training.run(stored=STORED, sent=SENT)
    training.own.keep_only([])
    training.neighbour.keep_only([])
    assert training.resumed() == (STORED, False, {float(STORED)})


@pytest.mark.parametrize("name", [r".*\.distcp", r"\.metadata"])
def test_checkpoint_in_storage_is_used_when_all_copies_are_damaged(
    training: Training, name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    training.run(stored=STORED, sent=SENT)
    damage(training.own, name)
    damage(training.neighbour, name)
    assert training.resumed() == (STORED, False, {float(STORED)})
    assert re.search("cannot (load|read) the replica of step 4: .* damaged", capfd.readouterr().err)


SHARDS_AND_REPORTS, INDEX = r".*\.distcp|rank-.*\.json", r"\.metadata"


@pytest.mark.parametrize(("own", "neighbour"), [(SHARDS_AND_REPORTS, INDEX), (INDEX, SHARDS_AND_REPORTS)])
def test_damaged_files_are_read_from_the_node_with_an_intact_copy(training: Training, own: str, neighbour: str) -> None:
    training.run(stored=STORED, sent=SENT)
    damage(training.own, own)
    damage(training.neighbour, neighbour)
    assert training.resumed() == (SENT, True, {float(SENT)})


def test_tensors_are_read_from_different_nodes_when_both_copies_are_damaged(
    training: Training, capfd: pytest.CaptureFixture[str]
) -> None:
    """Both copies of the shard are damaged, in different tensors."""
    training.run(stored=STORED, sent=SENT)
    damage(training.own, r".*\.distcp", at=0.1)
    damage(training.neighbour, r".*\.distcp", at=0.9)
    assert training.resumed() == (SENT, True, {float(SENT)})
    assert re.search(
        rf"at {training.places.own} is damaged at byte \d+: the copy in .* is used", capfd.readouterr().err
    )


def test_partly_restored_state_without_a_checkpoint_in_storage_raises_an_error(training: Training) -> None:
    state = make_state()
    tensors = state.tensors()
    fill(tensors, SENT)
    training.send(tensors, plan_writes(tensors, rank=0, world_size=1), SENT)
    damage(training.own, r".*\.distcp")
    damage(training.neighbour, r".*\.distcp")
    with pytest.raises(UnreadableError, match="no checkpoint in storage"):
        restore_replica(training.root, RUN, training.places, state, CONFIG)
    assert restore_replica(training.root, RUN, training.places, make_state(), CONFIG) is None


def test_checkpoint_in_storage_is_used_when_it_is_newer_than_the_replica(training: Training) -> None:
    training.run(stored=SENT, sent=STORED)
    assert training.resumed() == (SENT, False, {float(SENT)})


def test_unused_replica_is_dropped(training: Training) -> None:
    training.run(stored=SENT, sent=STORED)
    training.resumed()
    assert training.own.parts() == training.neighbour.parts() == []


def test_neighbour_that_does_not_answer_is_reported_once_and_the_own_replica_is_used(
    training: Training, capfd: pytest.CaptureFixture[str]
) -> None:
    closed = "http://127.0.0.1:1"
    training.places = ReplicaPlaces(
        own=training.places.own, neighbour=closed, keepers=(training.places.own, closed), token=TOKEN
    )
    state = make_state()
    tensors = state.tensors()
    replicator = Replicator(training.places, plan_writes(tensors, rank=0, world_size=1), tensors, rank=0)
    for step in (SENT, SENT + 1):
        fill(tensors, step)
        replicator.take(tensors, about(step))
        replicator.finish()
    assert capfd.readouterr().err.count("no replica after step") == 1
    assert training.resumed() == (SENT + 1, True, {float(SENT + 1)})
