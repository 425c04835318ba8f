"""Evidence from the texts that agents stored. An invalid text is left out, and the other texts are used."""

import json
from typing import Any

import pytest

from diagnose.hang.from_bodies import Body, evidence_from_bodies
from diagnose.hang.verdict import judge
from telemetry.errors import UnreadableError
from tests.diagnose.hang.made_dumps import dump
from tests.diagnose.hang.made_states import behind_in_tp
from tests.each_case import each_case

BEHIND = 3


def _bodies(**wrong: Any) -> list[Body]:
    """States of a grid in which rank 3 is behind. ``wrong`` replaces fields of the state of rank 0."""
    states = behind_in_tp(BEHIND)
    texts = {rank: json.dumps(one) for rank, one in states.items()} | {0: json.dumps({**states[0], **wrong})}
    return [Body(rank=rank, kind="state", text=text) for rank, text in texts.items()]


@each_case(
    "wrong",
    [{"topology": None}, {"process": "zombie"}, {"rank": float("inf")}, {"open": 3}, {"operations": [{}]}],
)
def test_invalid_state_is_left_out_and_noted(wrong: dict[str, Any]) -> None:
    evidence = evidence_from_bodies(_bodies(**wrong))
    assert evidence.missing == (0,)
    assert any("rank 0" in note for note in evidence.notes)
    assert judge(evidence).initiating == (BEHIND,)


def test_stack_and_log_of_a_rank_are_added_to_its_state() -> None:
    stack = {"tool": "py-spy", "threads": [{"name": "other", "main": False, "frames": ["wait (threading.py:1)"]}]}
    stack["threads"].append(
        {"name": "MainThread", "main": True, "frames": ["begin (telemetry/record/spans.py:3)", "load (loader.py:88)"]}
    )  # type: ignore[attr-defined]
    log = [{"at_ns": 5, "stream": "stderr", "fault": "xid", "text": "NVRM: Xid 79"}]
    more = [
        Body(rank=BEHIND, kind="stack", text=json.dumps(stack)),
        Body(rank=BEHIND, kind="log", text=json.dumps(log)),
    ]
    verdict = judge(evidence_from_bodies([*_bodies(), *more]))
    assert "load (loader.py:88)" in verdict.headline
    assert verdict.evidence.ranks[BEHIND].log[0].fault == "xid"


def test_evidence_without_a_readable_text_raises_an_error_with_a_hint() -> None:
    with pytest.raises(UnreadableError, match="hint"):
        evidence_from_bodies([Body(rank=0, kind="state", text="[")])


def test_states_decide_the_verdict_when_the_flight_recorders_show_nothing_pending() -> None:
    """NCCL is idle while the job hangs in a gloo group."""
    idle = dump({"0": list(range(8))}, {"0": (9, 9)}, [])
    recorders = [Body(rank=rank, kind="flight-recorder", text=json.dumps(idle)) for rank in range(8)]
    assert judge(evidence_from_bodies([*_bodies(), *recorders])).initiating == (BEHIND,)
