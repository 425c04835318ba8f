"""Disk of the files of a rank that no agent sends: with 100,000 records, and with more than the limit.

python -m tests.benchmarks.rank_files [--json]

The recorder writes real spans as fast as it can. The size is that of the blocks on disk, of all files in the folder.
"""

import sys
import tempfile
from pathlib import Path

import telemetry
from telemetry.record.rank_file import SEGMENT_RECORDS
from telemetry.record.reader import find_rank_dirs
from telemetry.settings import MAX_SEGMENTS
from tests.benchmarks.figures import Figure, report

FEW = 100_000
MANY = 2 * MAX_SEGMENTS * SEGMENT_RECORDS
"""Twice the number of records that fit."""
MIB = 2**20
BOUND_MIB = 17.0
"""16 segments of 1 MiB, and a few pages."""


class RankFileBenchmark:
    """The files of one rank."""

    title = "Rank files without an agent"
    command = "python -m tests.benchmarks.rank_files"

    def run(self) -> list[Figure]:
        with tempfile.TemporaryDirectory(prefix="rankscope-files-") as folder:
            few, many = _bytes_of(Path(folder) / "few", FEW), _bytes_of(Path(folder) / "many", MANY)
        return [
            Figure(name=f"{FEW:,} records: bytes per record", value=few / FEW, unit="B", note=f"{few / MIB:.1f} MiB"),
            Figure(
                name=f"{MANY:,} records", value=many / MIB, unit="MiB", bound=BOUND_MIB, note="the oldest are deleted"
            ),
        ]


def _bytes_of(spool: Path, num_records: int) -> int:
    """Bytes on disk after a rank has recorded."""
    session = telemetry.start("files", rank=0, local_rank=0, host="host", attempt=0, spool=spool, agent=False)
    assert session.recording
    for number in range(num_records):
        with telemetry.span("forward-compute", microbatch=number % 16):
            pass
    telemetry.stop()
    (rank,) = find_rank_dirs(spool)
    return sum(path.stat().st_blocks * 512 for path in rank.rglob("*") if path.is_file())


BENCHMARK = RankFileBenchmark()

if __name__ == "__main__":
    sys.exit(report(BENCHMARK.title, BENCHMARK.run(), as_json="--json" in sys.argv))
