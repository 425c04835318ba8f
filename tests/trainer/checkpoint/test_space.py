"""Too little space for checkpoints is reported before the first one is written."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.integration.chaos.small_disk import small_disk
from tests.parts import require_root
from tests.trainer.checkpoint.killed_writer import CONFIG, make_state, write
from trainer.checkpoint.checkpoints import Checkpoints
from trainer.checkpoint.folder import complete_name, complete_steps
from trainer.checkpoint.space import why_too_little_space
from trainer.checkpoint.write import plan_writes
from trainer.config import CheckpointConfig
from trainer.run_options import RunOptions

KEEP_ONE = replace(CONFIG, checkpoint=CheckpointConfig(every=1, keep=1))


def test_the_size_of_a_checkpoint_is_known_before_it_is_written(tmp_path: Path) -> None:
    state = make_state()
    planned = plan_writes(state.tensors(), rank=0, world_size=1).size_bytes
    checkpoints = Checkpoints(KEEP_ONE, RunOptions(out=tmp_path, checkpoints=tmp_path / "root", run_id="job"))
    (tmp_path / "root").mkdir(mode=0o700)
    checkpoints.restore(state)
    write(0, state, checkpoints)
    files = (tmp_path / "root" / complete_name(1)).iterdir()
    assert sum(path.stat().st_size for path in files) == pytest.approx(planned, rel=0.05)


def test_stored_checkpoints_reduce_the_space_that_is_still_needed(tmp_path: Path) -> None:
    assert "no room for 3 more checkpoints of about" in why_too_little_space(tmp_path, 2**60, 2)
    for step in (1, 2, 3):
        (tmp_path / complete_name(step)).mkdir()
    assert "no room for one more checkpoint of about" in why_too_little_space(tmp_path, 2**60, 2)
    assert why_too_little_space(tmp_path, 1, 2) == ""
    assert why_too_little_space(tmp_path / "gone", 2**60, 2) == ""


@pytest.mark.parametrize(("size_mib", "fits"), [(3, False), (5, True)])
def test_disk_without_room_for_two_checkpoints_is_reported_before_the_first_one_is_written(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], size_mib: int, fits: bool
) -> None:
    require_root("mounts a small file system")
    with small_disk(tmp_path / "disk", size_mib=size_mib) as disk:
        root, warnings = disk.folder / "root", list[str]()
        root.mkdir(mode=0o700)
        options = RunOptions(out=tmp_path, checkpoints=root, run_id="job")
        state, checkpoints = make_state(), Checkpoints(KEEP_ONE, options, warn=warnings.append)
        checkpoints.restore(state)
        assert [f"the disk of {root} has no room for 2 more" in text for text in warnings] == ([] if fits else [True])
        assert ("hint: free space there" in capfd.readouterr().err) is not fits
        for done in (0, 1):
            write(done, state, checkpoints)
        assert complete_steps(root) == [2 if fits else 1]
