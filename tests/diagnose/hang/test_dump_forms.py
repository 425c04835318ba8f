"""Dumps in every form that torch has written: pickle, JSON, old and new, with and without status."""

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from diagnose.hang.dump import read_dump, read_dumps
from diagnose.hang.from_dumps import evidence_from_dumps
from diagnose.hang.verdict import HangVerdict, judge
from telemetry.errors import UnreadableError, UsageError
from tests.diagnose.hang.made_dumps import dump, entry, waiting, write_json, write_pickle

BEHIND = 2
Write = Callable[[Path, int, dict[str, Any]], None]


def _judged(folder: Path) -> HangVerdict:
    return judge(evidence_from_dumps(read_dumps(folder)))


def _four_ranks(folder: Path, write: Write, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    for rank in range(4):
        write(folder, rank, change(waiting(rank, behind=BEHIND)))


def _numbers_as_text(value: dict[str, Any]) -> dict[str, Any]:
    value["pg_status"] = {
        name: {key: str(number) for key, number in one.items()} for name, one in value["pg_status"].items()
    }
    return value


def _other_backend(value: dict[str, Any]) -> dict[str, Any]:
    for row in value["entries"]:
        row["profiling_name"] = row["profiling_name"].replace("nccl:", "xccl:")
    return value


def _without_status(value: dict[str, Any]) -> dict[str, Any]:
    """As in 2.1: entries only, and a finished one for the rank that is behind."""
    done = entry("0", 8, 16, state="completed", retired=True)
    return {"version": "2.1", "pg_config": value["pg_config"], "entries": [done, *value["entries"]]}


def _members_as_list(value: dict[str, Any]) -> dict[str, Any]:
    value["pg_config"]["0"]["ranks"] = [0, 1, 2, 3]
    return value


@pytest.mark.parametrize("write", [write_pickle, write_json], ids=["pickle", "json"])
@pytest.mark.parametrize(
    "change",
    [dict, _numbers_as_text, _other_backend, _without_status, _members_as_list],
    ids=["2.10", "numbers as text", "another backend", "no status", "members as list"],
)
def test_the_rank_that_is_behind_is_named(
    tmp_path: Path, write: Write, change: Callable[[dict[str, Any]], dict[str, Any]]
) -> None:
    _four_ranks(tmp_path, write, change)
    verdict = _judged(tmp_path)
    assert verdict.initiating == (BEHIND,)
    assert verdict.headline.startswith("rank 2 is behind: never entered all_reduce #9 of group 0 [0-3]")


@pytest.mark.parametrize(
    "name", ["nccl_trace_rank_", "comm_lib_trace_rank_", "torchcomm_fr_trace_", "_dump_", "node7-rank_", "trace-2026."]
)
def test_whatever_a_backend_calls_its_files_the_ranks_are_known(tmp_path: Path, name: str) -> None:
    for rank in range(4):
        (tmp_path / f"{name}{rank}").write_bytes(pickle.dumps(waiting(rank, behind=BEHIND), protocol=2))
    assert _judged(tmp_path).initiating == (BEHIND,)


def test_versions_and_forms_may_be_mixed(tmp_path: Path) -> None:
    write_pickle(tmp_path, 0, waiting(0, behind=BEHIND))
    write_json(tmp_path, 1, _numbers_as_text(waiting(1, behind=BEHIND)))
    write_pickle(tmp_path, 2, waiting(2, behind=BEHIND) | {"version": "2.4"})
    write_json(tmp_path, 3, waiting(3, behind=BEHIND) | {"version": "3.0"})
    verdict = _judged(tmp_path)
    assert verdict.initiating == (BEHIND,)
    assert any("3.0" in note for note in verdict.evidence.notes)


def test_a_rank_without_a_dump_that_all_others_wait_for_is_named_and_said_to_be_missing(tmp_path: Path) -> None:
    for rank in (0, 1, 3):
        write_pickle(tmp_path, rank, waiting(rank, behind=BEHIND))
    verdict = _judged(tmp_path)
    assert verdict.initiating == (BEHIND,)
    assert verdict.evidence.missing == (BEHIND,)
    assert "no evidence" in verdict.headline


def test_one_witness_alone_accuses_no_missing_rank(tmp_path: Path) -> None:
    members = {"0": [0, 1]}
    write_pickle(tmp_path, 0, dump(members, {"0": (9, 8)}, [entry("0", 9, 17)]))
    verdict = _judged(tmp_path)
    assert verdict.initiating == ()
    assert "rank 1 left no records" in verdict.headline


def test_a_rank_that_issued_another_shape_is_named(tmp_path: Path) -> None:
    members = {"0": [0, 1, 2, 3]}
    for rank in range(4):
        sizes = [[16]] if rank == BEHIND else [[8]]
        write_pickle(tmp_path, rank, dump(members, {"0": (9, 8)}, [entry("0", 9, 17, input_sizes=sizes)]))
    verdict = _judged(tmp_path)
    assert (verdict.kind, verdict.initiating) == ("collective-mismatch", (BEHIND,))
    assert "[[16]]" in verdict.headline


def test_pieces_of_an_all_to_all_may_differ(tmp_path: Path) -> None:
    members = {"0": [0, 1, 2, 3]}
    for rank in range(4):
        row = entry("0", 9, 17, op="all_to_all", input_sizes=[[rank]])
        status = {"0": (8, 8)} if rank == BEHIND else {"0": (9, 8)}
        write_pickle(tmp_path, rank, dump(members, status, [] if rank == BEHIND else [row]))
    assert _judged(tmp_path).kind == "hung-collective"


def test_an_operation_that_all_entered_and_none_ended_accuses_nobody(tmp_path: Path) -> None:
    for rank in range(4):
        write_pickle(tmp_path, rank, waiting(rank, behind=-1))
    verdict = _judged(tmp_path)
    assert (verdict.kind, verdict.initiating) == ("hung-collective", ())
    assert "none finished it" in verdict.headline


def test_a_hostile_pickle_runs_nothing(tmp_path: Path) -> None:
    class Hostile:
        def __reduce__(self) -> tuple[Any, ...]:
            return Path.touch, (tmp_path / "ran",)

    with pytest.raises(UnreadableError, match=r"it needs .*touch|it needs .*getattr"):
        read_dump(pickle.dumps({"entries": [Hostile()]}), "rank0")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"{", id="torn JSON"),
        pytest.param(b'{"entries": 3}', id="no list"),
        pytest.param(b"\x80\x02.", id="no value"),
        pytest.param(b"hello", id="text"),
        pytest.param(pickle.dumps([1]), id="no object"),
        pytest.param(b'{"entries":' + b"[" * 100_000, id="deep"),
        pytest.param(b"\x80\x04K\x01r\xff\xff\xff\x7f.", id="giant memo"),
    ],
)
def test_what_is_no_dump_is_refused_with_a_hint(data: bytes) -> None:
    with pytest.raises(UnreadableError, match="hint"):
        read_dump(data, "rank0")


def test_a_torn_dump_is_told_and_the_rest_counts(tmp_path: Path) -> None:
    _four_ranks(tmp_path, write_pickle, dict)
    torn = tmp_path / "nccl_trace_rank_3"
    torn.write_bytes(torn.read_bytes()[:100])
    verdict = _judged(tmp_path)
    assert verdict.initiating == (BEHIND,)
    assert verdict.evidence.missing == (3,)
    assert any("nccl_trace_rank_3" in note for note in verdict.evidence.notes)


@pytest.mark.parametrize("what", ["absent", "empty", "foreign"])
def test_a_folder_without_dumps_says_so(tmp_path: Path, what: str) -> None:
    folder = tmp_path / "dumps"
    if what != "absent":
        folder.mkdir()
    if what == "foreign":
        (folder / "notes.txt").write_text("hello")
    with pytest.raises(UsageError, match="hint"):
        read_dumps(folder)


def test_a_second_culprit_that_had_entered_is_told_by_how_little_its_host_issued_behind(tmp_path: Path) -> None:
    """Rank 2 never entered #9; rank 1 entered it and issued no more, while 0, 3 and 4 ran ahead to #12."""
    members = {"0": list(range(5))}
    for rank, issued in ((0, 12), (1, 9), (3, 12), (4, 12)):
        rows = [entry("0", seq, seq) for seq in range(9, issued + 1)]
        write_pickle(tmp_path, rank, dump(members, {"0": (issued, 8)}, rows))
    write_pickle(tmp_path, 2, dump(members, {"0": (8, 8)}, []))
    assert _judged(tmp_path).initiating == (1, 2)


def test_hosts_that_ran_ahead_unevenly_accuse_nobody(tmp_path: Path) -> None:
    members = {"0": list(range(5))}
    for rank, issued in ((0, 12), (1, 10), (3, 11), (4, 12)):
        rows = [entry("0", seq, seq) for seq in range(9, issued + 1)]
        write_pickle(tmp_path, rank, dump(members, {"0": (issued, 8)}, rows))
    write_pickle(tmp_path, 2, dump(members, {"0": (8, 8)}, []))
    assert _judged(tmp_path).initiating == (2,)
