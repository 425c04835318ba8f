"""A fault of one rank has the same effect on all ranks, and no rank hangs."""

import ast
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.trainer.launchers import start_forked
from trainer.checkpoint.folder import complete_name, complete_steps, damaged_name

pytestmark = pytest.mark.gloo


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """Files and output of the ranks."""

    folder: Path
    lines: list[str]
    messages: str

    def lines_of(self, scenario: str) -> list[str]:
        return [line.removeprefix(f"{scenario} ") for line in self.lines if line.startswith(f"{scenario} ")]


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    folder = tmp_path_factory.mktemp("two-ranks")
    log = folder / "log"
    status = start_forked("tests.trainer.checkpoint.two_ranks:main", str(folder), log=log).wait(120)
    assert status == 0, log.read_text()
    lines = [line for rank in range(2) for line in (folder / f"returned-{rank}").read_text().splitlines()]
    return Ended(folder=folder, lines=sorted(lines), messages=log.read_text())


def test_checkpoint_is_abandoned_when_one_rank_cannot_write_its_part(ended: Ended) -> None:
    root, messages = ended.folder / "one_rank_cannot_write", ended.messages
    lines = ended.lines_of("one_rank_cannot_write")
    assert lines == ["0 finished", "1 finished"]
    assert complete_steps(root) == []
    assert list(root.iterdir()) == []
    assert "checkpoint after step 1 is not written: [Errno 116] Stale file handle" in messages
    assert "another rank could not write its part" in messages


def test_full_disk_is_reported_until_a_checkpoint_is_written_again(ended: Ended) -> None:
    """The error of torch itself is about a wrong position in the file."""
    root = ended.folder / "the_disk_is_full"
    for line in ended.lines_of("the_disk_is_full"):
        *full, written = ast.literal_eval(line[2:])
        assert len(full) >= 1
        assert written == ""
        for text in full:
            assert f"is not written: the disk of {root} is full (" in text
            assert "hint: free space there" in text
    assert complete_steps(root) == [2, 1]


def test_all_ranks_load_the_older_checkpoint_when_one_rank_cannot_open_the_newest(ended: Ended) -> None:
    root, messages = ended.folder / "one_rank_cannot_open", ended.messages
    lines = ended.lines_of("one_rank_cannot_open")
    assert lines == ["0 (2, [2.0])", "1 (2, [2.0])"]
    assert f"cannot load {root / complete_name(3)}: rank 1: [Errno 116] Stale file handle" in messages
    assert complete_steps(root) == [3, 2, 1]
    assert (root / damaged_name(3)).exists()


def test_damaged_checkpoint_is_reported_and_the_previous_one_is_loaded(ended: Ended) -> None:
    root, messages = ended.folder / "one_shard_is_damaged", ended.messages
    lines = ended.lines_of("one_shard_is_damaged")
    assert lines == ["0 (2, [2.0])", "1 (2, [2.0])"]
    assert f"cannot load {root / complete_name(3)}: rank " in messages
    assert "is damaged at byte" in messages
    assert complete_steps(root) == [3, 2, 1]
    assert (root / damaged_name(3)).exists()


def test_rank_0_does_not_wait_for_a_folder_that_was_removed(ended: Ended) -> None:
    root, messages = ended.folder / "the_folder_is_removed", ended.messages
    lines = ended.lines_of("the_folder_is_removed")
    assert lines == ["0 finished", "1 finished"]
    assert f"the disk of {root} is full" in messages
    assert complete_steps(root) == []


def test_last_checkpoint_starts_only_after_rank_0_has_completed_the_previous_one(ended: Ended) -> None:
    assert ended.lines_of("rank_0_is_late") == ["0 finished", "1 finished"]
    assert complete_steps(ended.folder / "rank_0_is_late") == [2, 1]


def test_all_ranks_end_after_a_non_finite_step_and_only_the_previous_checkpoint_is_complete(ended: Ended) -> None:
    lines = ended.lines_of("a_step_is_not_finite")
    assert lines == [f"{rank} loss or gradient norm is not finite in step 1" for rank in range(2)]
    assert [path.name for path in (ended.folder / "a_step_is_not_finite").iterdir()] == [complete_name(1)]
