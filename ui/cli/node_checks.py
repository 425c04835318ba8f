"""`rankscope doctor --node`: all checks of this node, as a table.

`rankscope doctor --pairs`: the part of this node in the paired test, and the verdict.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict

from rich.markup import escape
from rich.table import Table

from diagnose.nodecheck.node import Begun, NodeChecks, check_node, compared
from diagnose.nodecheck.pairs.paired_test import PairedTest, RoundBegun, run_paired_test
from diagnose.nodecheck.pairs.records import BadNode, PairedVerdict, verdict_object
from diagnose.nodecheck.result import CheckResult, Verdict
from telemetry.printable import printable
from telemetry.units import with_unit
from ui.cli.output import out, progress

STYLES = {
    Verdict.OK: "green",
    Verdict.MEASURED: "green",
    Verdict.SLOW: "yellow",
    Verdict.FAILED: "red",
    Verdict.SKIPPED: "dim",
}
NUMBERS = ("value", "expected", "s")


def check_this_node(checks: NodeChecks, expectations: Mapping[str, float], *, json: bool) -> bool:
    """Run all checks and print them. Returns whether there is a problem."""
    begun = time.monotonic()
    results = compared(_run(checks), expectations)
    seconds = time.monotonic() - begun
    if json:
        out.print_json(data={"schema": 1, "checks": [asdict(one) for one in results], "seconds": round(seconds, 3)})
    else:
        out.print(_table(results))
        out.print(_summary(results, seconds), highlight=False)
    return any(result.is_amiss for result in results)


def _run(checks: NodeChecks) -> list[CheckResult]:
    results = []
    with progress.status("starting") as status:
        for report in check_node(checks):
            if isinstance(report, Begun):
                status.update(f"checking {report.check}")
            else:
                results.append(report)
    return results


def _table(results: Sequence[CheckResult]) -> Table:
    table = Table(box=None, header_style="bold")
    for heading in ("", "check", "of", "value", "expected", "s"):
        table.add_column(heading, justify="right" if heading in NUMBERS else "left", no_wrap=True)
    table.add_column("")
    for result in results:
        table.add_row(
            f"[{STYLES[result.verdict]}]{result.verdict}[/]",
            result.check,
            escape(result.subject),
            _number(result.value, result.measured),
            _number(result.expected, result.measured),
            f"{result.seconds:.1f}",
            escape(result.detail),
        )
    return table


def _number(value: float | None, measured: str) -> str:
    return "" if value is None else with_unit(value, measured)


def _summary(results: Sequence[CheckResult], seconds: float) -> str:
    problems = [
        f"{result.check} {result.subject}".strip() + f" {result.verdict}" for result in results if result.is_amiss
    ]
    return f"{', '.join(problems) if problems else 'no problem found'} ({seconds:.0f} s)"


def pair_this_node(test: PairedTest, *, json: bool) -> bool:
    """Take part in the paired test, and print the verdict. Returns whether there is a problem."""
    verdict = _take_part(test)
    if json:
        out.print_json(data={"schema": 1} | verdict_object(verdict))
    else:
        out.print("\n".join(_lines(verdict)), markup=False, highlight=False)
    return verdict.is_amiss


def _take_part(test: PairedTest) -> PairedVerdict:
    with progress.status(f"waiting for {test.rendezvous.nodes} nodes at {test.rendezvous.endpoint}") as status:
        for report in run_paired_test(test):
            if isinstance(report, RoundBegun):
                status.update(f"round {report.round + 1}: {' '.join(f'{a}-{b}' for a, b in report.pairs)}")
            else:
                return report
    raise AssertionError("the test ended without a verdict")


def _lines(verdict: PairedVerdict) -> Iterator[str]:
    for bad in verdict.judgement.bad:
        yield f"{_named(bad.node, verdict)} is bad: {_how(bad)}; {verdict.cause_of(bad)}"
    if verdict.absent:
        yield f"missing: node {_listed(verdict.absent)}"
    if verdict.judgement.undecided:
        undecided = _listed(verdict.judgement.undecided)
        yield f"undecided: node {undecided} (slow or failed in every pair, but the partners can be the cause)"
    elif not verdict.judgement.bad and not verdict.absent:
        yield "no bad node"
    if verdict.is_insufficient:
        yield "fewer than three nodes: if a pair is slow or fails, the test cannot show which node is the cause"
    usual = verdict.judgement.usual_s
    speed = "" if usual is None else f"; usual time of an iteration {usual * 1e3:.3g} ms"
    yield f"{len(verdict.hosts)} nodes, {verdict.num_rounds} round{'s' * (verdict.num_rounds != 1)}{speed}"


def _named(node: int, verdict: PairedVerdict) -> str:
    return f"node {node} ({printable(verdict.hosts[node])})"


def _listed(nodes: tuple[int, ...]) -> str:
    return ", ".join(map(str, nodes))


def _how(bad: BadNode) -> str:
    return "failed with every partner" if bad.failed else f"{bad.ratio:.1f}x the usual time or more with every partner"
