"""Dumps in every form that torch has written: pickle, JSON, old and new, with and without status."""

import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from diagnose.hang.dump import read_dump, read_dumps
from diagnose.hang.evidence import NS_PER_S
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
    """The form of 2.1: entries only. The entry of the rank that is behind is completed."""
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
def test_rank_that_is_behind_is_named_for_each_form_of_dumps(
    tmp_path: Path, write: Write, change: Callable[[dict[str, Any]], dict[str, Any]]
) -> None:
    _four_ranks(tmp_path, write, change)
    verdict = _judged(tmp_path)
    assert verdict.initiating == (BEHIND,)
    assert verdict.headline.startswith("rank 2 is behind: never entered all_reduce #9 of group 0 [0-3]")


@pytest.mark.parametrize(
    "name", ["nccl_trace_rank_", "comm_lib_trace_rank_", "torchcomm_fr_trace_", "_dump_", "node7-rank_", "trace-2026."]
)
def test_rank_number_is_read_from_the_dump_file_names_of_each_backend(tmp_path: Path, name: str) -> None:
    for rank in range(4):
        (tmp_path / f"{name}{rank}").write_bytes(pickle.dumps(waiting(rank, behind=BEHIND), protocol=2))
    assert _judged(tmp_path).initiating == (BEHIND,)


def test_dumps_of_mixed_versions_and_forms_are_read_together(tmp_path: Path) -> None:
    write_pickle(tmp_path, 0, waiting(0, behind=BEHIND))
    write_json(tmp_path, 1, _numbers_as_text(waiting(1, behind=BEHIND)))
    write_pickle(tmp_path, 2, waiting(2, behind=BEHIND) | {"version": "2.4"})
    write_json(tmp_path, 3, waiting(3, behind=BEHIND) | {"version": "3.0"})
    verdict = _judged(tmp_path)
    assert verdict.initiating == (BEHIND,)
    assert any("3.0" in note for note in verdict.evidence.notes)


def test_rank_without_a_dump_is_not_named_when_all_others_wait_for_it(tmp_path: Path) -> None:
    """The rank may have entered the operation, and a device may be stuck in it."""
    for rank in (0, 1, 3):
        write_pickle(tmp_path, rank, waiting(rank, behind=BEHIND))
    evidence = evidence_from_dumps(read_dumps(tmp_path))
    ranks = {rank: replace(of_rank, stage_since_ns=NS_PER_S) for rank, of_rank in evidence.ranks.items()}
    evidence = replace(evidence, ranks=ranks)
    soon, later = (judge(replace(evidence, taken_ns=evidence.moved_ns + wait_s * NS_PER_S)) for wait_s in (30, 61))
    assert (soon.kind, soon.initiating) == ("insufficient-evidence", ())  # evidence may still arrive
    assert (later.kind, later.initiating) == ("hung-collective", ())
    assert later.evidence.missing == (BEHIND,)
    assert later.headline.startswith(f"undecided: rank {BEHIND} left no evidence, and others wait")
    assert f"the processes of rank {BEHIND}" in later.next_step


def test_one_waiting_rank_is_not_enough_to_name_a_missing_rank(tmp_path: Path) -> None:
    members = {"0": [0, 1]}
    write_pickle(tmp_path, 0, dump(members, {"0": (9, 8)}, [entry("0", 9, 17)]))
    verdict = _judged(tmp_path)
    assert verdict.initiating == ()
    assert "rank 1 left no evidence" in verdict.headline


def test_rank_that_issued_a_different_shape_is_named_for_a_mismatch(tmp_path: Path) -> None:
    members = {"0": [0, 1, 2, 3]}
    for rank in range(4):
        sizes = [[16]] if rank == BEHIND else [[8]]
        write_pickle(tmp_path, rank, dump(members, {"0": (9, 8)}, [entry("0", 9, 17, input_sizes=sizes)]))
    verdict = _judged(tmp_path)
    assert (verdict.kind, verdict.initiating) == ("collective-mismatch", (BEHIND,))
    assert "[[16]]" in verdict.headline


def test_different_sizes_of_an_all_to_all_are_not_a_mismatch(tmp_path: Path) -> None:
    members = {"0": [0, 1, 2, 3]}
    for rank in range(4):
        row = entry("0", 9, 17, op="all_to_all", input_sizes=[[rank]])
        status = {"0": (8, 8)} if rank == BEHIND else {"0": (9, 8)}
        write_pickle(tmp_path, rank, dump(members, status, [] if rank == BEHIND else [row]))
    assert _judged(tmp_path).kind == "hung-collective"


def test_no_rank_is_named_when_all_entered_the_operation_and_none_finished_it(tmp_path: Path) -> None:
    for rank in range(4):
        write_pickle(tmp_path, rank, waiting(rank, behind=-1))
    verdict = _judged(tmp_path)
    assert (verdict.kind, verdict.initiating) == ("hung-collective", ())
    assert "none finished it" in verdict.headline


def test_hostile_pickle_is_rejected_and_runs_no_code(tmp_path: Path) -> None:
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
def test_invalid_dump_is_rejected_with_a_hint(data: bytes) -> None:
    with pytest.raises(UnreadableError, match="hint"):
        read_dump(data, "rank0")


def test_truncated_dump_is_noted_and_the_other_dumps_are_used(tmp_path: Path) -> None:
    _four_ranks(tmp_path, write_pickle, dict)
    torn = tmp_path / "nccl_trace_rank_3"
    torn.write_bytes(torn.read_bytes()[:100])
    verdict = _judged(tmp_path)
    assert verdict.initiating == (BEHIND,)
    assert verdict.evidence.missing == (3,)
    assert any("nccl_trace_rank_3" in note for note in verdict.evidence.notes)


@pytest.mark.parametrize("what", ["absent", "empty", "foreign"])
def test_folder_without_dumps_raises_a_usage_error_with_a_hint(tmp_path: Path, what: str) -> None:
    folder = tmp_path / "dumps"
    if what != "absent":
        folder.mkdir()
    if what == "foreign":
        (folder / "notes.txt").write_text("hello")
    with pytest.raises(UsageError, match="hint"):
        read_dumps(folder)


def test_second_culprit_that_entered_is_named_when_its_host_issued_fewer_operations(tmp_path: Path) -> None:
    """Rank 2 never entered #9. Rank 1 entered #9 and issued no more. Ranks 0, 3 and 4 ran ahead to #12."""
    members = {"0": list(range(5))}
    for rank, issued in ((0, 12), (1, 9), (3, 12), (4, 12)):
        rows = [entry("0", seq, seq) for seq in range(9, issued + 1)]
        write_pickle(tmp_path, rank, dump(members, {"0": (issued, 8)}, rows))
    write_pickle(tmp_path, 2, dump(members, {"0": (8, 8)}, []))
    assert _judged(tmp_path).initiating == (1, 2)


def test_no_second_culprit_is_named_when_hosts_ran_ahead_unevenly(tmp_path: Path) -> None:
    members = {"0": list(range(5))}
    for rank, issued in ((0, 12), (1, 10), (3, 11), (4, 12)):
        rows = [entry("0", seq, seq) for seq in range(9, issued + 1)]
        write_pickle(tmp_path, rank, dump(members, {"0": (issued, 8)}, rows))
    write_pickle(tmp_path, 2, dump(members, {"0": (8, 8)}, []))
    assert _judged(tmp_path).initiating == (2,)
