"""What the ranks of a finished job recorded, straight from their files."""

from pathlib import Path

import numpy as np
import numpy.typing as npt

from telemetry.record.layout import RecordKind
from telemetry.record.reader import RankReader, find_rank_dirs
from telemetry.record.segments import decode_marks, decode_samples
from telemetry.stages import Stage

Records = npt.NDArray[np.void]


def spans_of(out: Path) -> dict[int, Records]:
    """Spans by rank, in the order of their recording."""
    return {int(folder.name.rpartition("-")[2]): _spans(RankReader(folder)) for folder in find_rank_dirs(out / "spool")}


def samples_of(out: Path, rank: int) -> dict[str, dict[int, float]]:
    """Values that a rank sampled, by metric and step."""
    records = _records(RankReader(find_rank_dirs(out / "spool")[rank]))
    columns = decode_samples(records, 0, lambda at_ns: at_ns)
    found: dict[str, dict[int, float]] = {}
    for metric, step, value in zip(columns["metric"], columns["step"], columns["value"], strict=True):
        found.setdefault(metric, {})[int(step)] = float(value)
    return found


def marks_of(out: Path, rank: int) -> list[tuple[str, str]]:
    """Marks of a rank in all attempts: name and text."""
    folders = [folder for folder in find_rank_dirs(out / "spool") if folder.name == f"rank-{rank:05d}"]
    columns = [decode_marks(_records(RankReader(folder)), 0, lambda at_ns: at_ns) for folder in folders]
    return [(str(name), str(text)) for each in columns for name, text in zip(each["name"], each["text"], strict=True)]


def read_bytes(out: Path, *, num_ranks: int) -> int:
    """Bytes of checkpoints that all ranks of a job read together. Each has resumed once."""
    resumed = [text for rank in range(num_ranks) for name, text in marks_of(out, rank) if name == "resumed"]
    assert len(resumed) == num_ranks, resumed
    return sum(int(text.rpartition("read ")[2].split()[0]) for text in resumed)


def of_stage(spans: Records, stage: Stage) -> Records:
    return spans[spans["stage"] == stage]


def covered_share(spans: Records, step: int) -> float:
    """Part of a step's wall time inside at least one span other than the step's own."""
    mine = spans[spans["step"] == step]
    (whole,) = of_stage(mine, Stage.STEP)
    inner = np.sort(mine[mine["stage"] != Stage.STEP], order="start_ns")
    reach, covered = whole["start_ns"], 0
    for start, duration in zip(inner["start_ns"], inner["duration_ns"], strict=True):
        covered += max(start + duration - max(start, reach), 0)
        reach = max(reach, start + duration)
    return float(covered / whole["duration_ns"])


def _spans(reader: RankReader) -> Records:
    records = _records(reader)
    return records[records["kind"] == RecordKind.SPAN]


def _records(reader: RankReader) -> Records:
    blocks, seq = [], 0
    while len((block := reader.read(seq)).records):
        blocks.append(block.records)
        seq = block.next_seq
    return np.concatenate(blocks)
