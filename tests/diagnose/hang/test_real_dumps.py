"""Real hangs of sixteen ranks. The verdict names the faulty ranks. It names no innocent rank if dumps are missing."""

import random
from pathlib import Path

import pytest

from diagnose.findings import Kind
from diagnose.hang.dump import DumpSet, read_dumps
from diagnose.hang.from_dumps import evidence_from_dumps
from diagnose.hang.verdict import HangVerdict, State, judge
from tests.diagnose.hang.real_dumps import cases, injected, needs_real_dumps
from tests.each_case import each_case

pytestmark = needs_real_dumps()
NUM_TRIALS = 60


def _without(dumps: DumpSet, gone: tuple[int, ...]) -> HangVerdict:
    left = {rank: dump for rank, dump in dumps.by_rank.items() if rank not in gone}
    return judge(evidence_from_dumps(DumpSet(by_rank=left, notes=())))


@each_case("case", cases())
def test_verdict_names_exactly_the_injected_ranks(case: Path) -> None:
    verdict = judge(evidence_from_dumps(read_dumps(case)))
    assert set(verdict.initiating) == injected(case)
    assert verdict.kind is Kind.HUNG_COLLECTIVE
    assert {verdict.states[rank] for rank in injected(case)} == {State.BEHIND}


@each_case("case", cases())
def test_all_other_ranks_wait_and_their_wait_chain_ends_at_an_injected_rank(case: Path) -> None:
    verdict = judge(evidence_from_dumps(read_dumps(case)))
    for rank in set(verdict.states) - injected(case):
        assert verdict.states[rank] is State.WAITING
        assert set(verdict.chain(rank)[-1].on) & injected(case)


@each_case("num_missing", [1, 3])
@each_case("case", cases())
def test_no_innocent_rank_is_named_when_dumps_are_missing(case: Path, num_missing: int) -> None:
    dumps = read_dumps(case)
    draw = random.Random(f"{case.name} {num_missing}")
    for _ in range(NUM_TRIALS):
        gone = tuple(sorted(draw.sample(sorted(dumps.by_rank), num_missing)))
        verdict = _without(dumps, gone)
        assert set(verdict.initiating) <= injected(case), gone
        assert verdict.evidence.missing == gone
        assert injected(case) - set(gone) <= set(verdict.initiating), gone


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_dump_file_names_do_not_change_the_named_ranks(case: Path, tmp_path: Path) -> None:
    for path in case.glob("_dump_*"):
        rank = path.name.rpartition("_")[2]
        (tmp_path / f"trace-{int(rank) * 7 + 100}.bin").write_bytes(path.read_bytes())
    assert set(judge(evidence_from_dumps(read_dumps(tmp_path))).initiating) == injected(case)
