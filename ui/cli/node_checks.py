"""`rankscope doctor --node`: every self-check of this machine, as a table."""

import time
from collections.abc import Sequence
from dataclasses import asdict

from rich.markup import escape
from rich.table import Table

from diagnose.nodecheck.expectations import Expectations, compared
from diagnose.nodecheck.node import Begun, NodeChecks, check_node
from diagnose.nodecheck.result import CheckResult, Verdict
from ui.cli.output import out, progress

STYLES = {
    Verdict.OK: "green",
    Verdict.MEASURED: "green",
    Verdict.SLOW: "yellow",
    Verdict.FAILED: "red",
    Verdict.SKIPPED: "dim",
}
NUMBERS = ("value", "expected", "s")


def check_this_node(checks: NodeChecks, expectations: Expectations, *, json: bool) -> bool:
    """Run, print; whether something is amiss."""
    begun = time.monotonic()
    results = compared(_run(checks), expectations)
    seconds = time.monotonic() - begun
    if json:
        out.print_json(data={"schema": 1, "checks": [asdict(one) for one in results], "seconds": round(seconds, 3)})
    else:
        out.print(_table(results))
        out.print(_sum(results, seconds), highlight=False)
    return any(result.is_amiss for result in results)


def _run(checks: NodeChecks) -> list[CheckResult]:
    results = []
    with progress.status("starting") as status:
        for told in check_node(checks):
            if isinstance(told, Begun):
                status.update(f"checking {told.check}")
            else:
                results.append(told)
    return results


def _table(results: Sequence[CheckResult]) -> Table:
    table = Table(box=None, header_style="bold")
    for heading in ("", "check", "of", "value", "expected", "s"):
        table.add_column(heading, justify="right" if heading in NUMBERS else "left", no_wrap=True)
    table.add_column("")
    for one in results:
        verdict = f"[{STYLES[one.verdict]}]{one.verdict}[/]"
        value, expected = _number(one.value, one.measured), _number(one.expected, one.measured)
        words = (one.check, escape(one.subject), value, expected, f"{one.seconds:.1f}", escape(one.detail))
        table.add_row(verdict, *words)
    return table


def _number(value: float | None, measured: str) -> str:
    return "" if value is None else f"{value:.3g} {_unit(measured)}"


def _unit(measured: str) -> str:
    """From the end of the name of what was measured."""
    units = {"_gb_s": "GB/s", "_tflops": "TFLOP/s", "_gib": "GiB"}
    return next((unit for ending, unit in units.items() if measured.endswith(ending)), "")


def _sum(results: Sequence[CheckResult], seconds: float) -> str:
    amiss = [f"{one.check} {one.subject}".strip() + f" {one.verdict}" for one in results if one.is_amiss]
    return f"{', '.join(amiss) if amiss else 'nothing amiss'} ({seconds:.0f} s)"
