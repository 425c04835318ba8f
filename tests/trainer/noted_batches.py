"""Trainings whose ranks note the sequences of each step, in ``OUT/batches/rank-N.jsonl``.

run_job(config, out, work=NOTED)
sequences_of(out) == {0: ("3f2a9c01", ...), 1: ...}     the sequences of each step, in order, over all ranks
"""

import json
from pathlib import Path
from typing import Any
from zlib import crc32

from tests.trainer.launchers import launch_pickled
from trainer.data.batches import Batch, Loader
from trainer.loop import Trainer

NOTED = f"{__name__}:launch_noted"
FOLDER = "batches"
Sequences = tuple[int, ...]
"""A checksum of each sequence."""


def launch_noted(job: str) -> int:
    """Launch the training of a ``job.pickle``. Its ranks are forked from this process."""
    folder = Path(job).parent / FOLDER
    folder.mkdir(exist_ok=True)
    load = Trainer._load

    def load_and_note(trainer: Trainer, loader: Loader) -> Batch:
        batch = load(trainer, loader)
        sequences = [crc32(row.numpy().tobytes()) for row in batch.inputs]
        place, degree = trainer.grid.place, trainer.grid.topology.dp
        line = {"step": trainer.hook.step, "dp": place.dp, "of": degree, "sequences": sequences}
        with (folder / f"rank-{trainer.grid.rank}.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")
        return batch

    Trainer._load = load_and_note  # type: ignore[method-assign]
    return launch_pickled(job)


def sequences_of(out: Path) -> dict[int, Sequences]:
    """Step -> its sequences in the order of the global batch. All attempts must have the same ones."""
    found: dict[int, Sequences] = {}
    for (step, degree), parts in _parts(out).items():
        assert sorted(index for index, _ in parts) == list(range(degree)), (step, parts)
        whole = tuple(sequence for _, part in sorted(parts) for sequence in part)
        assert found.setdefault(step, whole) == whole, step
    return found


def _parts(out: Path) -> dict[tuple[int, int], set[tuple[int, Sequences]]]:
    """(step, degree of data parallelism) -> index along ``dp`` and its sequences. Ranks of an index have the same."""
    found: dict[tuple[int, int], set[tuple[int, Sequences]]] = {}
    for path in (out / FOLDER).iterdir():
        for line in path.read_text().splitlines():
            noted: dict[str, Any] = json.loads(line)
            part = (noted["dp"], tuple(noted["sequences"]))
            found.setdefault((noted["step"], noted["of"]), set()).add(part)
    return found
