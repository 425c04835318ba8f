"""Text of a verdict: in past tense with the end time if the job has ended, in present tense if it runs."""

import io
import json
from dataclasses import replace

from rich.console import Console

from diagnose.findings import StepWindow
from diagnose.hang.evidence import HangEvidence, Process
from diagnose.hang.from_bodies import Body, evidence_from_bodies
from diagnose.hang.verdict import HangVerdict, judge
from diagnose.model.run_state import local_time, state_of
from diagnose.report import hang_text
from tests.diagnose.hang.made_states import NOW_NS, behind_in_tp
from tests.diagnose.hang.test_bodies import BEHIND
from tests.each_case import each_case

ENDED_NS = NOW_NS + 5_000_000_000


def alive() -> HangEvidence:
    bodies = [Body(rank=rank, kind="state", text=json.dumps(one)) for rank, one in behind_in_tp(BEHIND).items()]
    return evidence_from_bodies(bodies, "made", 0)


def ended(evidence: HangEvidence) -> HangVerdict:
    return judge(replace(evidence, has_ended=True, ended_ns=ENDED_NS))


def with_process(evidence: HangEvidence, process: Process) -> HangEvidence:
    ranks = {**evidence.ranks, BEHIND: replace(evidence.ranks[BEHIND], process=process)}
    return replace(evidence, ranks=ranks)


def text_of(verdict: HangVerdict) -> str:
    out = io.StringIO()
    Console(file=out, width=200).print(hang_text(verdict))
    return out.getvalue()


@each_case(
    ("process", "present", "past"),
    [
        (Process.ALIVE, "rank 3 is behind: never entered", "rank 3 was behind: never entered"),
        (Process.STOPPED, "rank 3 is stopped", "rank 3 was stopped"),
        (Process.ENDED, "ended while others still wait in step", "ended while others still waited in step"),
        (Process.DEAD, "; others wait in", "; others waited in"),
    ],
)
def test_headline_is_in_present_tense_for_a_running_job_and_in_past_tense_for_an_ended_job(
    process: Process, present: str, past: str
) -> None:
    evidence = with_process(alive(), process)
    assert present in judge(evidence).headline
    assert past in ended(evidence).headline


def test_next_step_does_not_suggest_kill_cont_when_the_job_has_ended() -> None:
    evidence = with_process(alive(), Process.STOPPED)
    assert "kill -CONT" in judge(evidence).next_step
    assert "kill -CONT" not in ended(evidence).next_step


def test_text_shows_when_the_job_ended() -> None:
    text = text_of(ended(alive()))
    assert f"run made, attempt 0, ended {local_time(ENDED_NS)}" in text
    assert "no rank had made progress for 60 s at the time of the check" in text
    assert "no rank has made progress for 60 s" in text_of(judge(alive()))


def test_run_has_ended_only_when_every_rank_has_ended_or_died() -> None:
    def has_ended(gone: int, well: int) -> bool:
        beats = {"heard_ns": 5, "num_ranks": 4, "num_ended": well, "num_gone": gone}
        return state_of(beats, None, last_end_ns=0, last_ns=0, now_ns=6).has_ended

    assert not has_ended(gone=1, well=0)
    assert has_ended(gone=1, well=3)
    assert not state_of(None, None, last_end_ns=0, last_ns=0, now_ns=10**12).has_ended


def test_window_of_one_step_is_printed_in_the_singular() -> None:
    assert StepWindow(first_step=8, last_step=8).in_words == "step 8"
    assert StepWindow(first_step=8, last_step=9).in_words == "steps 8 to 9"
