import os
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from telemetry.errors import UsageError
from tests.deadline import until
from tests.trainer.jobs import seeded, small_config
from trainer.config import DataConfig, TrainConfig
from trainer.data.batches import Batch, Batches, Loader, batch_of, check_data
from trainer.data.tokens import TokenFile, load_tokens

TEXT = np.frombuffer(bytes(range(256)) * 40, dtype=np.uint8)
CPU = torch.device("cpu")


def rows_of(config: TrainConfig, step: int) -> torch.Tensor:
    """The global batch of a step, joined from its data-parallel parts."""
    parts = [Batches(TEXT, config, dp_index=index).at(step).inputs for index in range(config.parallel.dp)]
    return torch.cat(parts)


def test_default_text_is_python_source_code_and_the_same_on_every_load() -> None:
    first, second = (load_tokens(DataConfig(max_bytes=100_000), vocab_size=256) for _ in range(2))
    assert b"import" in first.tobytes()
    assert np.array_equal(first, second)


def test_text_files_of_a_folder_are_read_in_path_order_and_other_files_are_skipped(tmp_path: Path) -> None:
    for name in ("b.txt", "a.py", "picture.png"):
        (tmp_path / name).write_text(name)
    assert load_tokens(DataConfig(path=tmp_path), vocab_size=256).tobytes() == b"a.py\nb.txt"


def test_text_files_of_inner_folders_are_read_at_the_place_of_their_folder_without_installed_packages(
    tmp_path: Path,
) -> None:
    names = ["b/d.txt", "b/c/a.py", "a.py", "b.txt", "c.md", "site-packages/a.py", "b/dist-packages/a.py", "b/z"]
    for path in (tmp_path / name for name in names):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(str(path.relative_to(tmp_path)))
    (tmp_path / "linked").symlink_to(tmp_path / "b")
    expected = b"a.py\nb/c/a.py\nb/d.txt\nb.txt\nc.md"
    assert load_tokens(DataConfig(path=tmp_path), vocab_size=256).tobytes() == expected


def test_token_file_is_mapped_into_memory(tmp_path: Path) -> None:
    np.arange(1000, dtype="<u2").tofile(tmp_path / "tokens.bin")
    tokens = load_tokens(DataConfig(path=tmp_path / "tokens.bin"), vocab_size=1000)
    assert isinstance(tokens, TokenFile)
    assert tokens[998:].tolist() == [998, 999]


def test_token_outside_the_vocabulary_is_rejected_with_its_position(tmp_path: Path) -> None:
    """Only tokens of batches are checked. The whole file is not searched."""
    config = small_config()
    tokens = np.zeros(config.model.sequence_length + 2, dtype="<u2")  # two sequences: one begins at 0, one at 1
    tokens[40] = 300
    tokens.tofile(tmp_path / "tokens.bin")
    loaded = load_tokens(DataConfig(path=tmp_path / "tokens.bin"), vocab_size=256)
    with pytest.raises(UsageError, match=rf"token 300 at position 40 of {tmp_path}/tokens.bin is outside .* of 256"):
        check_data(loaded, config)


def test_a_folder_without_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no text in"):
        load_tokens(DataConfig(path=tmp_path), vocab_size=256)


def test_too_little_text_for_one_sequence_is_refused() -> None:
    with pytest.raises(UsageError, match="10 tokens are too few for sequences of 64"):
        Batches(TEXT[:10], small_config(), dp_index=0)


def test_the_global_batch_of_a_step_is_the_same_on_every_grid() -> None:
    alone, spread = small_config(), small_config(dp=4)
    assert torch.equal(rows_of(alone, 7), rows_of(spread, 7))


def test_different_steps_and_seeds_have_different_batches() -> None:
    config = small_config()
    assert not torch.equal(rows_of(config, 0), rows_of(config, 1))
    assert not torch.equal(rows_of(config, 0), rows_of(seeded(config, 1), 0))


def test_targets_are_the_inputs_shifted_by_one_token() -> None:
    batch = Batches(TEXT, small_config(), dp_index=0).at(3)
    assert torch.equal(batch.inputs[:, 1:], batch.targets[:, :-1])


@pytest.mark.parametrize("sequences", [1, 2])
def test_batch_does_not_change_when_its_rows_are_overwritten(sequences: int) -> None:
    """The data loader writes later steps into the same memory."""
    rows = np.arange(sequences * 5, dtype=np.int64).reshape(sequences, 5)
    batch = batch_of(rows)
    rows[:] = -1
    assert batch.inputs[0].tolist() == [0, 1, 2, 3]
    assert batch.targets[0].tolist() == [1, 2, 3, 4]


def test_loader_prepares_no_more_batches_when_its_queue_is_full() -> None:
    made: list[int] = []

    def batch_at(step: int) -> Batch:
        made.append(step)
        return Batch(torch.tensor([step]), torch.tensor([step]))

    with Loader(batch_at, steps=range(100), depth=2, device=CPU) as loader:
        until(lambda: len(made) == 3, what="two batches ready and one in hand")
        assert int(loader.next().inputs) == 0
        until(lambda: len(made) == 4, what="one more made")
        assert made == [0, 1, 2, 3]


def test_loader_thread_ends_when_the_loader_is_closed() -> None:
    with Loader(Batches(TEXT, small_config(), dp_index=0).at, steps=range(100), depth=1, device=CPU):
        assert any(thread.name == "batches" for thread in threading.enumerate())
    assert not any(thread.name == "batches" for thread in threading.enumerate())


def test_error_in_the_loader_thread_is_raised_by_next() -> None:
    def batch_at(step: int) -> Batch:
        raise ValueError("torn page")

    with Loader(batch_at, steps=range(1), depth=1, device=CPU) as loader, pytest.raises(ValueError, match="torn page"):
        loader.next()


def test_text_beyond_the_limit_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "long.txt").write_text("x" * 1000)
    config = replace(DataConfig(path=tmp_path), max_bytes=100)
    assert len(load_tokens(config, vocab_size=256)) == 100


def test_fifo_or_device_as_data_file_is_rejected(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo.bin")
    (tmp_path / "endless.bin").symlink_to("/dev/zero")
    for path in (tmp_path / "fifo.bin", tmp_path / "endless.bin", Path("/dev/zero")):
        with pytest.raises(UsageError):
            load_tokens(DataConfig(path=path), vocab_size=65_536)


def test_fifo_in_a_folder_of_text_is_skipped(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.txt")
    (tmp_path / "b.txt").write_text("b")
    assert bytes(load_tokens(DataConfig(path=tmp_path), vocab_size=256)) == b"b"
