"""The scoreboard's part about hangs: every labelled hang from each source alone, from pairs, and beside a false source.

python -m tests.score.hangs [--tune] [--count 20] [--trials DIR ...] [--rows FILE] [--write]

``--trials``: folders that ``python -m tests.scenarios.hang_trials --out DIR`` left.

Exit status 1 if an innocent rank is named although the true sources contradict it, if a verdict is undecided
without a request for more evidence, or if it says that nothing is stalled. The true sources contradict a false one if
they name faulty ranks by themselves, or if the verdict lists a contradiction.
"""

import argparse
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from itertools import combinations, product
from pathlib import Path

from diagnose.findings import Kind
from diagnose.hang.sources.combine import Found, judge_together
from diagnose.hang.verdict import HangVerdict
from tests.benchmarks.pages import as_table, write_section
from tests.score.cases import REPORTING
from tests.score.hang_cases import FALSE_KINDS, FAMILIES, HangCase, Sources, simulated_case
from tests.score.hang_files import SOURCES, SPOOL
from tests.score.hang_real import published_cases, trial_cases

TITLE = "Hangs, from each source alone and from several"
COMMAND = "python -m tests.score.hangs"
COUNT = 20
EXACT, SOME, OPERATION, UNDECIDED = "exact", "some of the faulty ranks", "operation", "undecided"
UNSAID, NOTHING, INNOCENT = "undecided, nothing asked for", "nothing is stalled", "an innocent rank"
WRONG = (UNSAID, NOTHING, INNOCENT)
ASKS_FOR = ("--dumps", "--stacks", "--logs", "--ras", "--world-size")
ORDER = (SPOOL, *SOURCES)
SETS = (*((one,) for one in ORDER), *combinations(ORDER, 2), SOURCES)
ALL, SOME_GONE = "all", "some"
SOLE = "; only the "
"""In the first line of a verdict, if only one of several sources names the ranks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """The verdict on a case from some of its sources."""

    case: str
    family: str
    sources: str
    """The sources, as in the table."""
    reporting: str
    """``ALL`` or ``SOME_GONE`` of the ranks; empty beside a false source."""
    false: str = ""
    """The kind of the false source."""
    refuted: bool = True
    """Whether the true sources contradict the false one, so that no innocent rank may be named."""
    outcome: str
    headline: str


def outcome_of(verdict: HangVerdict, guilty: frozenset[int]) -> str:
    """The outcome of a verdict, such as exact or wrong."""
    named = set(verdict.initiating)
    if named - guilty:
        return INNOCENT
    if named:
        return EXACT if named == guilty else SOME
    if verdict.kind not in (None, Kind.INSUFFICIENT_EVIDENCE):
        return OPERATION
    if any(option in verdict.next_step for option in ASKS_FOR):
        return UNDECIDED if verdict.kind or verdict.evidence.ranks else NOTHING
    return UNSAID


def judged(case: HangCase) -> Iterator[Judged]:
    """Every set of sources that the case has, and each of its sources beside each false one."""
    for reporting, sources in ((ALL, case.whole), (SOME_GONE, case.partial)):
        for names in SETS:
            if all(name in sources for name in names):
                found = [sources[name] for name in names]
                yield _judged(case, " + ".join(names), found, reporting=reporting)
    for kind, false in case.false.items():
        readable = [name for name, found in case.whole.items() if found is not None]
        for name, other in product(readable, false):
            if name != other:
                both = {name: case.whole[name], other: false[other]}
                yield _beside(case, f"{name}, false {other}", both, other, kind)
        for other in false:
            yield _beside(case, f"all others, false {other}", {**case.whole, other: false[other]}, other, kind)


def _judged(
    case: HangCase, sources: str, found: Sequence[Found | None], *, reporting: str = "", false: str = ""
) -> Judged:
    readable = [one for one in found if one is not None]
    outcome, headline, contradicted = UNDECIDED, "not readable", False  # the error says which files are needed
    if readable:
        verdict = judge_together(readable)
        outcome, headline = outcome_of(verdict, case.guilty), f"{verdict.headline} | next: {verdict.next_step}"
        contradicted = bool(verdict.evidence.contradictions)
    return Judged(
        case=case.name, family=case.family, sources=sources, reporting=reporting, false=false,
        refuted=not false or contradicted, outcome=outcome, headline=headline,
    )  # fmt: skip


def _beside(case: HangCase, sources: str, found: Sources, false: str, kind: str) -> Judged:
    """``false``: the false source among ``found``."""
    row = _judged(case, sources, [found[each] for each in ORDER if each in found], false=kind)
    true = [found[each] for each in ORDER if each in found and each != false]
    return replace(row, refuted=row.refuted or _judged(case, "", true).outcome in (EXACT, SOME))


def _of_seed(family_and_seed: tuple[str, int]) -> list[Judged]:
    with tempfile.TemporaryDirectory(prefix="hangs-") as folder:
        case = simulated_case(*family_and_seed, Path(folder))
        return [] if case is None else list(judged(case))


def all_judged(first: int, count: int, at_once: int, trials: Sequence[Path]) -> list[Judged]:
    """All cases at hand."""
    found: list[Judged] = []
    with tempfile.TemporaryDirectory(prefix="hangs-") as folder:
        jobs = sorted(job.parent for place in trials for job in place.glob("trial-*/job.pickle"))
        for case in (*published_cases(Path(folder) / "dumps"), *trial_cases(jobs, Path(folder) / "trials")):
            found += judged(case)
    seeds = product(FAMILIES, range(first, first + count))
    with ProcessPoolExecutor(at_once) as pool:
        for rows in pool.map(_of_seed, seeds, chunksize=5):
            found += rows
    return found


NOTE = """\
- The second table has verdicts from a single source, from pairs of sources, and from four sources together.
- *Ranks that report*: `all` means that each source has evidence of each rank. `some` means that evidence is missing: up
  to two ranks have no evidence in a source, some ranks were ended before their watchdogs reported, and the stacks of
  some waiting ranks do not show that they wait.
- *Some of the faulty ranks*: the verdict names a part of the faulty ranks, and no healthy rank. *Operation, no rank*:
  the verdict names the operation that is stuck. This is right if a device or the network is stuck. *Undecided*: the
  verdict names no rank, and its next step says which evidence is missing.
- For the real NCCL jobs only dumps were published. Their logs and RAS answers were made from the counts in the dumps.
  The real gloo jobs have no RAS, and some of them ended before the agent collected dumps. In their commands, the number
  of ranks is given (`--world-size`).
- Simulated hangs: seeds begin at {first}. One or two ranks stop, in jobs of 8 to 64 ranks. In half of the commands,
  the number of ranks is given.
- The third table has verdicts from true sources and a *false* one: evidence that does not belong to this hang. The
  fourth table shows the kinds of false sources. *Earlier hang*: another hang of the same job, often with almost equal
  counts. *Healthy moment*: a moment before the hang. *Other numbering*: the ranks have other numbers. *Swapped ranks*:
  the evidence of two ranks is exchanged. A false source has evidence of all ranks. RAS of a healthy moment is read
  twice, as `rankscope diagnose hang` does.
- The third and the fourth table count cases in which the true sources contradict the false one: they name faulty ranks
  by themselves, or the verdict lists a contradiction. All other cases are in the row *nothing contradicts it*. In these
  cases, the verdict can be that of the false source. For example, stacks show no operations. So stacks do not
  contradict dumps of another hang in which a rank issued a wrong collective. No rule can distinguish such a false
  source from a true one. In this row, {innocent} verdicts name an innocent rank. The first line of {sole} of them says
  that only one source names the rank.
"""
HEADINGS = ("exact", "some of the faulty ranks", "operation, no rank", "undecided", "innocent rank named")


def _cells(rows: Iterable[Judged]) -> tuple[str, ...]:
    counts = Counter(one.outcome for one in rows)
    undecided = counts[UNDECIDED] + counts[UNSAID] + counts[NOTHING]
    numbers = (counts.total(), counts[EXACT], counts[SOME], counts[OPERATION], undecided, counts[INNOCENT])
    return tuple(map(str, numbers))


def as_section(found: Sequence[Judged], first: int) -> str:
    """The section of docs/accuracy.md. ``first``: the first seed."""
    names = [" + ".join(one) for one in SETS]
    alone = [(name, reporting) for name in names for reporting in (ALL, SOME_GONE)]
    rows = [
        (name, reporting, *cells)
        for name, reporting in alone
        if (cells := _cells(one for one in found if (one.sources, one.reporting) == (name, reporting)))[0] != "0"
    ]
    beside = [one for one in found if one.false]
    pairs = dict.fromkeys(one.sources for one in beside)
    refuted = [one for one in beside if one.refuted]
    by_pair = [(name, *_cells(one for one in refuted if one.sources == name)) for name in pairs]
    by_kind = [(kind, *_cells(one for one in refuted if one.false == kind)) for kind in FALSE_KINDS]
    by_kind.append(("nothing contradicts it", *_cells(one for one in beside if not one.refuted)))
    wrong = [one for one in beside if one.outcome == INNOCENT]
    families = dict.fromkeys(one.family for one in found)
    numbers = [(name, str(len({one.case for one in found if one.family == name}))) for name in families]
    return "\n\n".join((
        as_table(("hangs", "number"), numbers),
        as_table(("sources", "ranks that report", "cases", *HEADINGS), rows),
        as_table(("sources", "cases", *HEADINGS), by_pair),
        as_table(("kind of false source", "cases", *HEADINGS), by_kind),
        NOTE.format(first=f"{first:,}", sole=sum(SOLE in one.headline for one in wrong), innocent=len(wrong)).strip(),
    ))  # fmt: skip


def main() -> int:
    given = _arguments()
    first = 0 if given.tune else REPORTING
    found = all_judged(first, given.count, given.at_once, given.trials)
    section = as_section(found, first)
    print(section)
    if given.write:
        trials = " --trials DIR" if given.trials else ""
        write_section(TITLE, f"{COMMAND} --count {given.count}{trials}", section)
    if given.rows:
        given.rows.write_text("".join(f"{json.dumps(asdict(one))}\n" for one in found))
    wrong = [one for one in found if one.outcome in WRONG and (one.refuted or one.outcome != INNOCENT)]
    for one in wrong:
        where = f"{one.case}: {one.sources}{f' ({one.false})' if one.false else f', {one.reporting} ranks report'}"
        print(f"wrong: {one.outcome}: {where}: {one.headline}", file=sys.stderr)
    return int(bool(wrong))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tune", action="store_true", help="the seeds that rules may be tuned on")
    parser.add_argument("--count", type=int, default=COUNT, help="seeds for each kind of simulated hang")
    parser.add_argument("--trials", type=Path, nargs="+", default=[], help="folders of `hang_trials --out`")
    parser.add_argument("--rows", type=Path, help="write every verdict into this file, a JSON object in each line")
    parser.add_argument("--at-once", type=int, default=1, help="processes beside one another")
    parser.add_argument("--write", action="store_true", help="write docs/accuracy.md")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
