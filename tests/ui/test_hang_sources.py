"""`rankscope diagnose hang` on files of any job."""

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from telemetry.errors import UnreadableError, UsageError
from tests.diagnose.hang.made_dumps import waiting, write_pickle
from tests.each_case import each_case
from ui.cli.main import app

LINE = (
    "[rank{rank}]:[E1206 18:44:12.715298746 ProcessGroupNCCL.cpp:607] [PG ID 0 PG GUID 0(default_pg) Rank {rank}] "
    "Process group watchdog thread terminated with exception: "
    "[Rank {rank}] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=9, OpType=ALLREDUCE, NumelIn=8, NumelOut=8, Timeout(ms)=600000) ran for 600029 milliseconds\n"
)
ASKED = (
    "[rank2]:[E1206 18:44:13.1 x.cpp:1] [PG ID 0 PG GUID 0(default_pg) Rank 2] Received a dump signal due to a "
    "collective timeout from rank 0. Last enqueued NCCL work: 8, last completed NCCL work: 8.\n"
)
BARRIER = "barrier (distributed_c10d.py:3)"
FRAMES = (BARRIER, BARRIER, "next_batch (loader.py:8)", "recv (distributed_c10d.py:9)")


@pytest.fixture
def files(tmp_path: Path) -> Path:
    for rank in (0, 1, 3):
        (tmp_path / f"log{rank}.txt").write_text(LINE.format(rank=rank))
    (tmp_path / "log2.txt").write_text(ASKED)
    (tmp_path / "stacks").mkdir()
    for rank, frame in enumerate(FRAMES):
        (tmp_path / "stacks" / f"rank{rank}.txt").write_text(f'Thread 1 (idle): "MainThread"\n    {frame}\n')
    return tmp_path


def test_expanded_log_files_and_standard_input_give_the_same_verdict(files: Path) -> None:
    logs = [str(path) for path in sorted(files.glob("log*.txt"))]
    done = CliRunner().invoke(app, ["diagnose", "hang", "--json", "--logs", *logs, "--stacks", str(files / "stacks")])
    answer = json.loads(done.output)
    assert done.exit_code == 1
    assert answer["findings"][0]["ranks"] == [2]
    assert [source["source"] for source in answer["sources"]] == ["log", "stacks"]
    assert answer["contradictions"] == []
    text = "".join(Path(log).read_text() for log in logs)
    done = CliRunner().invoke(app, ["diagnose", "hang", "--world-size", "4", "--logs", "-"], input=text)
    assert done.exit_code == 1
    assert "rank 2 is behind: never entered all_reduce #9 of default_pg [0-3]" in done.output
    assert "evidence: log of ranks 0-3" in done.output


def test_undecided_logs_end_with_status_0_and_name_the_ranks_without_evidence(files: Path) -> None:
    done = CliRunner().invoke(app, ["diagnose", "hang", "--logs", str(files / "log0.txt"), str(files / "log2.txt")])
    assert done.exit_code == 0
    assert "undecided" in done.output
    assert "next: add evidence of ranks 1-2" in done.output


def test_logs_without_the_number_of_ranks_suggest_the_option_world_size(files: Path) -> None:
    done = CliRunner().invoke(app, ["diagnose", "hang", "--logs", str(files)])
    assert done.exit_code == 0
    assert "--world-size" in done.output


def test_one_ras_file_names_no_rank_and_two_equal_files_do(tmp_path: Path) -> None:
    """A job that makes progress can look the same at one moment."""
    who = [{"rank": rank, "host": "h", "pid": 100 + rank, "cuda_dev": rank} for rank in range(4)]
    ranks = [{**one, "collective_counts": {"AllReduce": 50 if one["rank"] == 2 else 51}} for one in who]
    answer = {"communicators": [{"hash": "0xab", "size": 4, "ranks": ranks, "missing_ranks": []}]}
    samples = [tmp_path / "1.json", tmp_path / "2.json"]
    for sample in samples:
        sample.write_text(json.dumps(answer))
    first, second = map(str, samples)
    done = CliRunner().invoke(app, ["diagnose", "hang", "--ras", first])
    assert done.exit_code == 0
    assert "Give a second file" in done.output
    assert CliRunner().invoke(app, ["diagnose", "hang", "--ras", first, "--ras", second]).exit_code == 1
    samples[1].write_text(json.dumps(answer).replace("51", "52"))
    done = CliRunner().invoke(app, ["diagnose", "hang", "--ras", first, "--ras", second])
    assert done.exit_code == 0
    assert "nothing is stalled" in done.output


@each_case("option", ["--dumps", "--logs", "--stacks", "--ras", "--inspector"])
@each_case("content", [b"", b"a line\n", b"\x80\x02.", b'{"cut": ', b'{"a": 1}'])
def test_file_of_another_format_is_named_with_the_accepted_formats(option: str, content: bytes, tmp_path: Path) -> None:
    (tmp_path / "wrong").write_bytes(content)
    done = CliRunner().invoke(app, ["diagnose", "hang", option, str(tmp_path / "wrong")])
    assert isinstance(done.exception, UnreadableError)
    assert "wrong" in done.exception.message
    assert re.search(r"Error|Expecting|MARK|load key|\('communicators'", done.exception.message) is None
    assert done.exception.hint.startswith("accepted: ")


def test_error_about_several_unreadable_sources_names_each_of_them(tmp_path: Path) -> None:
    (tmp_path / "wrong").write_bytes(b"a line\n")
    wrong = str(tmp_path / "wrong")
    done = CliRunner().invoke(app, ["diagnose", "hang", "--dumps", wrong, "--stacks", wrong])
    assert isinstance(done.exception, UnreadableError)
    assert "flight recorder: no flight-recorder dump in" in done.exception.message
    assert "stacks: no Python stack in" in done.exception.message


def test_ignored_files_are_counted_and_named_beside_the_verdict(files: Path) -> None:
    (files / "stacks" / "rank9.txt").write_text("a line\n")
    done = CliRunner().invoke(app, ["diagnose", "hang", "--stacks", str(files / "stacks")])
    assert "4 of 5 files of stacks were read" in done.output
    assert "ignored: rank9.txt holds no Python stack" in done.output


def test_world_size_that_the_dumps_contradict_is_rejected(tmp_path: Path) -> None:
    for rank in range(4):
        write_pickle(tmp_path, rank, waiting(rank, behind=2))
    done = CliRunner().invoke(app, ["diagnose", "hang", "--dumps", str(tmp_path), "--world-size", "2"])
    assert isinstance(done.exception, UsageError)
    assert "names rank 3, so the job has more than 2 ranks" in done.exception.message


@each_case("wrong", [["--logs", "/nowhere/*"], ["a-run", "--ras", "x"], ["--ras", "/nowhere"], ["--ras", "x"] * 3])
def test_invalid_file_arguments_raise_usage_error(wrong: list[str]) -> None:
    done = CliRunner().invoke(app, ["diagnose", "hang", *wrong])
    assert isinstance(done.exception, UsageError)
