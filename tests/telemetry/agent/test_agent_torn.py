"""A rank is killed in the middle of a record. Complete records and those of the restarted rank are shipped."""

import signal
from pathlib import Path

import pytest

from telemetry.agent.tail import RankTail
from telemetry.record.layout import HEADER_BYTES, RECORD, RECORD_BYTES
from tests.scenarios.command import run_code

LIFE = """
import os, sys
import telemetry
from telemetry.topology import Topology
telemetry.start("run", topology=Topology(), rank=0, local_rank=0, attempt=0, spool=sys.argv[1], agent=False)
for microbatch in range(3):
    with telemetry.span("forward-compute", microbatch=microbatch):
        pass
telemetry.mark("note", "x" * 100)
os.kill(os.getpid(), 9)
"""
SPANS, TEXTS = 3, 3


def record_until_killed(spool: Path) -> Path:
    assert run_code(LIFE, spool).status == -signal.SIGKILL
    return spool / "run" / "0" / "rank-00000"


def tear(folder: Path, record: int) -> None:
    """Change the file as if the process was killed before it committed this record."""
    segment = folder / "000000.rec"
    content = bytearray(segment.read_bytes())
    at = HEADER_BYTES + record * RECORD_BYTES + RECORD.fields["commit"][1]
    content[at : at + 4] = bytes(4)
    segment.write_bytes(content)


def shipped(folder: Path) -> tuple[list[int], list[str]]:
    """(numbers of spans, texts of marks) in the order of shipping."""
    tail = RankTail(folder)
    numbers: list[int] = []
    texts: list[str] = []
    while chunk := tail.read():
        tail.shipped(chunk)
        numbers += chunk.tables["spans"]["seq"].to_pylist() if "spans" in chunk.tables else []
        texts += chunk.tables["marks"]["text"].to_pylist() if "marks" in chunk.tables else []
    return numbers, texts


def test_mark_is_not_shipped_when_its_text_is_incomplete(tmp_path: Path) -> None:
    folder = record_until_killed(tmp_path)
    tear(folder, SPANS + TEXTS)
    assert shipped(folder) == ([0, 1, 2], [])


@pytest.mark.parametrize("torn", range(SPANS, SPANS + TEXTS + 1))
def test_restarted_rank_continues_after_the_last_complete_record(tmp_path: Path, torn: int) -> None:
    folder = record_until_killed(tmp_path)
    tear(folder, torn)
    record_until_killed(tmp_path)
    numbers, texts = shipped(folder)
    assert numbers == [0, 1, 2, torn, torn + 1, torn + 2]
    assert texts[-1] == "x" * 100
