"""What agents leave, put together: one text that makes no sense costs no more than itself."""

import json
from typing import Any

import pytest

from diagnose.hang.from_bodies import Body, evidence_from_bodies
from diagnose.hang.verdict import judge
from telemetry.errors import UnreadableError
from tests.diagnose.hang.made_dumps import dump
from tests.diagnose.hang.made_states import behind_in_tp

BEHIND = 3


def _bodies(**wrong: Any) -> list[Body]:
    """States of a grid in which rank 3 is behind; ``wrong`` takes the place of rank 0's."""
    states = behind_in_tp(BEHIND)
    texts = {rank: json.dumps(one) for rank, one in states.items()} | {0: json.dumps({**states[0], **wrong})}
    return [Body(rank=rank, kind="state", text=text) for rank, text in texts.items()]


@pytest.mark.parametrize(
    "wrong",
    [{"topology": None}, {"process": "zombie"}, {"rank": float("inf")}, {"open": 3}, {"operations": [{}]}],
    ids=str,
)
def test_a_state_that_makes_no_sense_is_left_out_and_told(wrong: dict[str, Any]) -> None:
    evidence = evidence_from_bodies(_bodies(**wrong))
    assert evidence.missing == (0,)
    assert any("rank 0" in note for note in evidence.notes)
    assert judge(evidence).initiating == (BEHIND,)


def test_stack_and_log_join_the_state() -> None:
    stack = {"tool": "py-spy", "threads": [{"name": "other", "main": False, "frames": ["wait (threading.py:1)"]}]}
    stack["threads"].append({"name": "MainThread", "main": True, "frames": ["load (loader.py:88)"]})  # type: ignore[attr-defined]
    log = [{"at_ns": 5, "stream": "stderr", "fault": "xid", "text": "NVRM: Xid 79"}]
    more = [
        Body(rank=BEHIND, kind="stack", text=json.dumps(stack)),
        Body(rank=BEHIND, kind="log", text=json.dumps(log)),
    ]
    verdict = judge(evidence_from_bodies([*_bodies(), *more]))
    assert "load (loader.py:88)" in verdict.headline
    assert verdict.evidence.ranks[BEHIND].log[0].fault == "xid"


def test_nothing_that_can_be_read_is_an_error_with_a_hint() -> None:
    with pytest.raises(UnreadableError, match="hint"):
        evidence_from_bodies([Body(rank=0, kind="state", text="[")])


def test_a_recorder_in_which_nothing_is_pending_leaves_the_verdict_to_the_states() -> None:
    """NCCL stands idle while the job hangs in a group under gloo."""
    idle = dump({"0": list(range(8))}, {"0": (9, 9)}, [])
    recorders = [Body(rank=rank, kind="flight-recorder", text=json.dumps(idle)) for rank in range(8)]
    assert judge(evidence_from_bodies([*_bodies(), *recorders])).initiating == (BEHIND,)
