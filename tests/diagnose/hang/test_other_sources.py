"""NCCL RAS, NCCL Inspector and stacks in all their forms; and several sources in one verdict."""

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from diagnose.findings import Kind
from diagnose.hang.evidence import Front, Group, HangEvidence, Pending, RankEvidence
from diagnose.hang.sources.combine import Found, judge_together
from diagnose.hang.sources.from_communicators import evidence_from_inspector, evidence_from_ras
from diagnose.hang.sources.from_stacks import evidence_from_stacks, stacks_in
from diagnose.hang.sources.read_ras import ask_ras, read_ras
from diagnose.hang.verdict import HangVerdict, judge
from diagnose.report import hang_object
from telemetry.errors import UnreachableError, UnreadableError
from tests.each_case import each_case

PY_SPY = """Process 7: python
Python v3.11

Thread 9 (idle): "Thread-1"
    run (x.py:1)
Thread 7 (active): "MainThread"
{}
"""
WAITS = "    all_reduce (torch/distributed/distributed_c10d.py:2806)\n    main (train.py:9)"
LOADS = "    next_batch (loader.py:40)\n    main (train.py:7)"
TRACEBACK = (
    'Thread 0x00007f (most recent call first):\n  File "/a/torch/distributed/distributed_c10d.py", line 3 in barrier\n'
)
RAS_TEXT = """Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      1          8            1          8        8

Communicators... (0.00s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         1         8         8         8   RUNNING  MISMATCH

Warnings
========

#0-0 (27a079b828ff1a75) MISMATCH
  Communicator ranks have different AllReduce operation counts
  7 ranks have launched up to operation 6650
  Rank 5 has launched up to operation 6649 -- GPU 5 managed by process 483072 on node 10.0.0.1

"""


def _ras(launched: list[int], dead: int = -1) -> bytes:
    """One communicator of all ranks."""
    who = [{"rank": rank, "host": "h", "pid": 100 + rank, "cuda_dev": rank} for rank in range(len(launched))]
    here = [
        {**who[rank], "collective_counts": {"AllReduce": count}} for rank, count in enumerate(launched) if rank != dead
    ]
    gone = [{**who[dead], "status": {"unresponsive": True, "considered_dead": True}}] if dead >= 0 else []
    comm = {"hash": "0xab", "size": len(launched), "ranks": here, "missing_ranks": gone}
    return json.dumps({"nccl_version": "2.29.1", "communicators": [comm]}).encode()


def _judged(data: bytes) -> HangVerdict:
    return judge(evidence_from_ras(read_ras(data, "ras")))


def test_ras_names_the_rank_that_launched_fewer_operations_in_json_and_in_text() -> None:
    assert _judged(_ras([51, 51, 50, 51])).initiating == (2,)
    assert _judged(RAS_TEXT.encode()).initiating == (5,)
    assert _judged(_ras([51, 51, 51, 51])).initiating == ()


def test_ras_answer_is_rejected_when_communicators_number_the_processes_differently() -> None:
    answer = json.loads(_ras([51, 51, 50, 51]))
    (first,) = answer["communicators"]
    other = {**first, "hash": "0xcd", "ranks": [{**one, "rank": 3 - one["rank"]} for one in first["ranks"]]}
    answer["communicators"] = [first, other]
    with pytest.raises(UnreadableError, match="number the processes differently"):
        _judged(json.dumps(answer).encode())


def test_a_process_that_ras_considers_dead_is_named() -> None:
    verdict = _judged(_ras([51, 51, 50, 51], dead=2))
    assert verdict.initiating == (2,)
    assert verdict.kind is Kind.DEAD_RANK


def test_ras_json_of_nccl_2_28_is_read_although_it_lacks_a_comma_before_status() -> None:
    data = _ras([51, 51, 50, 51], dead=2).replace(
        b'"cuda_dev": 2, "status"', b'"cuda_dev": 2, "nvml_dev": 2\n "status"'
    )
    with pytest.raises(ValueError, match="delimiter"):
        json.loads(data)
    assert _judged(data).initiating == (2,)


def test_ras_text_is_rejected_when_it_does_not_list_the_ranks_that_gave_no_answer() -> None:
    missing = "#0-0 (27a079b828ff1a75) INCOMPLETE\n  Missing communicator data from 4 ranks\n\nWarnings\n"
    text = RAS_TEXT.replace("Warnings\n", missing).replace("  7 ranks", "  3 ranks")
    with pytest.raises(UnreadableError, match="ncclras -v"):
        _judged(text.encode())


@contextmanager
def _service(answer: bytes, *, with_json: bool) -> Iterator[int]:
    """Serve one client like the RAS service of NCCL. Yields the port."""

    def serve() -> None:
        connection, _ = listening.accept()
        with connection, connection.makefile("rb") as lines:
            for line in lines:
                if line.startswith(b"CLIENT PROTOCOL"):
                    connection.sendall(b"SERVER PROTOCOL 2\n")
                elif line.startswith(b"VERBOSE STATUS"):
                    connection.sendall(answer)
                    return
                else:
                    connection.sendall(
                        b"OK\n" if with_json or line.startswith(b"TIMEOUT") else b"ERROR: Unknown command\n"
                    )

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve)
        thread.start()
        yield listening.getsockname()[1]
        thread.join()


@pytest.mark.parametrize("with_json", [True, False])
def test_ras_service_is_asked_for_json_and_then_for_text_when_it_knows_no_json(with_json: bool) -> None:
    answer = _ras([51, 51, 51, 51, 51, 50, 51, 51]) if with_json else RAS_TEXT.encode()
    with _service(answer, with_json=with_json) as port:
        assert _judged(ask_ras("127.0.0.1", port)).initiating == (5,)


def test_ras_service_that_does_not_answer_in_time_raises_an_unreachable_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(UnreachableError, match="NCCL RAS at"):
        ask_ras("127.0.0.1", silent.getsockname()[1], within_s=0.2)


def test_refused_connection_to_ras_raises_an_error_without_the_errno() -> None:
    with socket.socket() as bound:  # without listen(), connections are refused
        bound.bind(("127.0.0.1", 0))
        with pytest.raises(UnreachableError, match=r"NCCL RAS at 127\.0\.0\.1:\d+: Connection refused"):
            ask_ras("127.0.0.1", bound.getsockname()[1])


def test_inspector_shows_completed_counts_and_names_no_rank() -> None:
    rows = [
        {
            "header": {"id": "0xab", "rank": rank, "n_ranks": 2, "nnodes": 1},
            "metadata": {"inspector_output_format_version": "v4.0", "hostname": "h", "pid": 100 + rank},
            "coll_perf": {"coll": "AllReduce", "coll_sn": 40 + rank, "coll_exec_time_us": 5},
        }
        for rank in range(2)
    ]
    evidence = evidence_from_inspector([("a.log", "\n".join(map(json.dumps, rows)).encode() + b"\n{cut")])
    assert [evidence.ranks[rank].fronts[0].completed for rank in range(2)] == [40, 41]
    assert "1 lines are not records" in evidence.notes[0]
    assert judge(evidence).initiating == ()


def test_stacks_are_read_in_every_form() -> None:
    as_json = [
        {"pid": 7, "thread_name": "MainThread", "os_thread_id": 7,
         "frames": [{"name": "barrier", "filename": "/a/d.py", "short_filename": "torch/distributed/d.py", "line": 3}]}
    ]  # fmt: skip
    agent = {"tool": "py-spy", "threads": [{"main": True, "frames": ["barrier (distributed_c10d.py:3)"]}]}
    page = "<html><h2>Rank 0: http://a:1</h2>\n<pre>" + TRACEBACK.replace('"', "&#34;") + "</pre>"
    dump = f"PARTIAL DATA: 2/3 workers responded\n  Rank 1: x\n\n=== Rank 0: http://a:1 ===\n{TRACEBACK}\n"
    assert stacks_in(PY_SPY.format(WAITS).encode(), "rank0.txt")[0][0].startswith("all_reduce (")
    assert stacks_in(json.dumps(as_json).encode(), "stack-0.json") == {0: ("barrier (torch/distributed/d.py:3)",)}
    assert stacks_in(json.dumps(agent).encode(), "rank_0") == {0: ("barrier (distributed_c10d.py:3)",)}
    assert stacks_in(page.encode(), "stacks.html") == {0: ("barrier (distributed_c10d.py:3)",)}
    assert stacks_in(dump.encode(), "stacks_20260101.txt") == {0: ("barrier (distributed_c10d.py:3)",)}
    with pytest.raises(UnreadableError):
        stacks_in(b"nothing", "rank0")


def _stacks(tops: list[str]) -> HangEvidence:
    return evidence_from_stacks(
        {rank: stacks_in(PY_SPY.format(top).encode(), f"rank{rank}")[rank] for rank, top in enumerate(tops)}
    )


def test_stacks_alone_name_the_only_rank_outside_of_communication() -> None:
    verdict = judge(_stacks([WAITS, WAITS, LOADS, WAITS]))
    assert verdict.initiating == (2,)
    assert "next_batch (loader.py:40)" in verdict.headline
    assert judge(_stacks([WAITS, LOADS, LOADS, WAITS])).initiating == ()
    assert (
        judge(_stacks([WAITS, WAITS, "    train_step (train.py:88)", WAITS])).initiating == ()
    )  # loss.item() waits, too


QUEUE = "    wait (threading.py:320)\n    get (queue.py:171)\n"


@each_case(
    ("top", "is_named"),
    [
        (f"{QUEUE}    _try_get_data (torch/utils/data/dataloader.py:1132)", True),
        ("    read (ssl.py:1134)\n    recv_into (ssl.py:1278)\n    readinto (socket.py:706)", True),
        (f"{QUEUE}    Loader.next (trainer/data/batches.py:73)", True),
        (f"{QUEUE}    WeightLoader.next (weights.py:73)", False),
        (f"{QUEUE}    push (pipeline.py:9)", False),
        (
            "    wait (threading.py:320)\n    result (concurrent/futures/_base.py:451)\n    save (checkpoints.py:9)",
            False,
        ),
        (
            "    poll (multiprocessing/popen_fork.py:27)\n    join (multiprocessing/process.py:149)\n    f (run.py:9)",
            False,
        ),
        ("    get_batch (train.py:120)", False),
        ("    load_weights (model_loader.py:17)", False),
    ],
)
def test_rank_is_named_only_when_its_stack_excludes_a_wait_for_a_thread_or_device(top: str, is_named: bool) -> None:
    assert judge(_stacks([WAITS, WAITS, f"{top}\n    main (train.py:9)", WAITS])).initiating == (
        (2,) if is_named else ()
    )


def _recorded(behind: int, size: int = 4) -> HangEvidence:
    """Dumps of ranks in one group."""
    ranks = {
        rank: RankEvidence(
            rank=rank,
            fronts={0: Front(entered=8 if rank == behind else 9, completed=8)},
            pending=() if rank == behind else (Pending(group=0, seq=9, op="all_reduce"),),
        )
        for rank in range(size)
    }
    group = Group(name="default_pg", members=tuple(range(size)), uid="0")
    return HangEvidence(world_size=size, groups=(group,), ranks=ranks)


def test_verdict_lists_each_source_with_its_own_conclusion() -> None:
    found = [
        Found(name="flight recorder", evidence=_recorded(behind=2)),
        Found(name="NCCL RAS", evidence=evidence_from_ras(read_ras(_ras([51, 51, 50, 51]), "ras"))),
        Found(name="stacks", evidence=_stacks([WAITS, WAITS, LOADS, WAITS])),
    ]
    verdict = judge_together(found)
    assert verdict.initiating == (2,)
    assert "loader.py:40" in verdict.headline
    sources = hang_object(verdict)["sources"]
    assert [source["source"] for source in sources] == ["flight recorder", "NCCL RAS", "stacks"]
    assert all("rank 2" in source["says"] for source in sources)
    assert hang_object(verdict)["contradictions"] == []


def test_no_rank_is_named_when_two_sources_name_different_ranks() -> None:
    found = [
        Found(name="flight recorder", evidence=_recorded(behind=2)),
        Found(name="NCCL RAS", evidence=evidence_from_ras(read_ras(_ras([50, 51, 51, 51]), "ras"))),
    ]
    verdict = judge_together(found)
    assert verdict.initiating == ()
    assert (
        verdict.headline
        == "undecided: the flight recorder and the NCCL RAS do not show the same moment of the same job"
    )
    assert hang_object(verdict)["contradictions"][0]["text"] == (
        "the flight recorder alone names rank 2, the NCCL RAS alone names rank 0"
    )


def test_different_counts_of_one_rank_are_listed_as_a_contradiction() -> None:
    other = _recorded(behind=2)
    ranks = {**other.ranks, 1: replace(other.ranks[1], fronts={0: Front(entered=9, completed=7)})}
    found = [Found(name="flight recorder", evidence=other), Found(name="log", evidence=replace(other, ranks=ranks))]
    verdict = judge_together(found)
    assert [one.text for one in verdict.evidence.contradictions] == [
        "the log says rank 1 completed 7 of default_pg, the flight recorder says 8"
    ]
    assert verdict.initiating == (2,)


def test_source_supplies_a_rank_that_another_source_lacks() -> None:
    dumps = _recorded(behind=2)
    dumps = replace(dumps, ranks={rank: of_rank for rank, of_rank in dumps.ranks.items() if rank != 2})
    verdict = judge_together([
        Found(name="flight recorder", evidence=dumps),
        Found(name="stacks", evidence=_stacks([WAITS, WAITS, LOADS, WAITS])),
    ])  # fmt: skip
    assert verdict.initiating == (2,)
    assert verdict.evidence.missing == ()


def _counting(evidence: HangEvidence, completed: dict[int, int]) -> HangEvidence:
    """The same evidence, but some ranks have completed another number of operations."""
    ranks = {
        rank: replace(evidence.ranks[rank], fronts={0: Front(entered=9, completed=number)})
        for rank, number in completed.items()
    }
    return replace(evidence, ranks={**evidence.ranks, **ranks})


def test_no_rank_is_named_if_two_sources_show_different_counts_of_several_ranks() -> None:
    dumps = _recorded(behind=2)
    found = [Found(name="flight recorder", evidence=dumps), Found(name="log", evidence=_counting(dumps, {0: 7, 1: 7}))]
    verdict = judge_together(found)
    assert (verdict.kind, verdict.initiating) == (Kind.INSUFFICIENT_EVIDENCE, ())
    assert verdict.headline == "undecided: the flight recorder and the log do not show the same moment of the same job"
    assert "--dumps" in verdict.next_step


def test_no_rank_is_named_if_two_sources_disagree_on_the_members_of_a_group() -> None:
    dumps, other = _recorded(behind=2), _recorded(behind=2, size=6)
    late = {rank: other.ranks[rank] for rank in (4, 5)}
    log = replace(other, ranks=late, groups=(replace(other.groups[0], complete=False),))
    verdict = judge_together([Found(name="flight recorder", evidence=dumps), Found(name="log", evidence=log)])
    assert verdict.initiating == ()
    assert verdict.evidence.contradictions[0].text == (
        "the log says rank 4 is in default_pg, the flight recorder says it is not"
    )


def test_no_rank_is_named_if_ras_shows_ranks_behind_that_the_dumps_show_ahead() -> None:
    """RAS alone names no rank, because two ranks are late."""
    ras = Found(name="NCCL RAS", evidence=evidence_from_ras(read_ras(_ras([50, 50, 51, 51]), "ras")))
    verdict = judge_together([Found(name="flight recorder", evidence=_recorded(behind=2)), ras])
    assert verdict.initiating == ()
    assert "the NCCL RAS shows rank 0 behind rank 2 in communicator 0xab, the flight recorder does not" in [
        one.text for one in verdict.evidence.contradictions
    ]


def test_sizes_are_not_compared_between_sources() -> None:
    """Dumps and logs write them in different forms."""
    dumps = _recorded(behind=-1)
    signed = {
        rank: replace(of_rank, pending=(replace(of_rank.pending[0], signature="all_reduce [[8]] Float"),))
        for rank, of_rank in dumps.ranks.items()
    }
    logged = replace(signed[3], pending=(replace(signed[3].pending[0], signature="all_reduce 8/8"),))
    verdict = judge_together([
        Found(name="flight recorder", evidence=replace(dumps, ranks={rank: signed[rank] for rank in range(3)})),
        Found(name="log", evidence=replace(dumps, ranks={3: logged})),
    ])  # fmt: skip
    assert verdict.initiating == ()
    assert verdict.kind is Kind.HUNG_COLLECTIVE


def test_rank_inside_a_traced_collective_of_rankscope_counts_as_waiting() -> None:
    recorded = "    _ending.<locals>.method (telemetry/record/collectives/traced_work.py:128)\n    main (train.py:9)"
    assert judge(_stacks([recorded, WAITS, LOADS, recorded])).initiating == (2,)


def test_gloo_rank_is_not_named_when_it_may_wait_for_a_rank_without_a_dump() -> None:
    """Dumps of gloo do not list members. Rank 2 may wait for rank 3 in a group of these two ranks."""
    dumps = _recorded(behind=2)
    group = replace(dumps.groups[0], complete=False)
    left = {rank: of_rank for rank, of_rank in dumps.ranks.items() if rank != 3}
    assert judge(replace(dumps, groups=(group,))).initiating == (2,)
    verdict = judge(replace(dumps, groups=(group,), ranks=left))
    assert (verdict.kind, verdict.initiating) == (Kind.INSUFFICIENT_EVIDENCE, ())
    assert "add evidence of ranks 2-3: flight-recorder dumps (--dumps)" in verdict.next_step
    assert judge(replace(dumps, ranks=left)).initiating == (2,)


def test_next_step_asks_for_missing_evidence_of_the_suspected_ranks() -> None:
    stacks = Found(name="stacks", evidence=_stacks([WAITS, LOADS, LOADS, WAITS]))
    log = Found(name="log", evidence=replace(stacks.evidence, ranks={1: RankEvidence(rank=1, partial=True)}))
    assert judge_together([stacks, log]).next_step.startswith(
        "add evidence of ranks 1-2: flight-recorder dumps (--dumps) or logs (--logs)."
    )
