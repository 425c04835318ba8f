"""Folders of checkpoints for tests. Those made here have no training: only ``checkpoint.json`` is real."""

from pathlib import Path

from trainer.checkpoint.claim import facts_of
from trainer.checkpoint.folder import About, commit, complete_name, make_root, partial_folder
from trainer.config import TrainConfig

WRITER = "4f1c"


def about_of(step: int, config: TrainConfig | None = None, *, run_id: str = "job", attempt: int = 0) -> About:
    training = facts_of(config or TrainConfig())
    return About(step=step, run_id=run_id, attempt=attempt, world_size=1, training=training)


def complete(root: Path, *steps: int, attempt: int = 0) -> None:
    """Make checkpoints complete."""
    make_root(root)
    for step in steps:
        with partial_folder(root, step, WRITER):
            pass
        commit(root, about_of(step, attempt=attempt), WRITER)


def names(root: Path) -> set[str]:
    return {path.name for path in root.iterdir()}


def stored_bytes(root: Path, step: int) -> int:
    """Size of all shards of a checkpoint."""
    return sum(path.stat().st_size for path in (root / complete_name(step)).glob("*.distcp"))
