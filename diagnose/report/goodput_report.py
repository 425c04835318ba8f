"""The goodput ledger as text for the terminal, and as one JSON object, schema 1."""

from collections.abc import Iterator
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from diagnose.goodput.records import Incident, Ledger
from diagnose.model.run_state import NS_PER_S, local_time
from diagnose.report.as_json import SCHEMA
from diagnose.report.as_text import line

MOST_INCIDENTS = 50
"""Number of incidents in the text: the newest ones. JSON has all of them."""


def goodput_object(ledger: Ledger) -> dict[str, Any]:
    """The ledger as plain values. The seconds of ``classes`` add up to ``wall_s``."""
    return {
        "schema": SCHEMA,
        "run": ledger.run_id,
        "attempts": list(ledger.attempts),
        "wall_s": ledger.wall_ns / NS_PER_S,
        "goodput": None if ledger.goodput is None else round(ledger.goodput, 6),
        "classes": {str(name): ns / NS_PER_S for name, ns in ledger.classes_ns.items()},
        "incidents": [_incident_object(incident) for incident in ledger.incidents],
        "unknown": list(ledger.unknown),
    }


def _incident_object(incident: Incident) -> dict[str, Any]:
    return {
        "attempt": incident.attempt,
        "cause": incident.cause,
        "reason": incident.reason,
        "nodes": list(incident.nodes),
        "began_ns": incident.began_ns,
        "detected_ns": incident.detected_ns,
        "resumed_ns": incident.resumed_ns,
        "cost_s": incident.cost_ns / NS_PER_S,
    }


def goodput_text(ledger: Ledger) -> RenderableType:
    """The ledger as a text for rich."""
    share = "goodput unknown: no completed step" if ledger.goodput is None else f"goodput {ledger.goodput:.1%}"
    number = len(ledger.attempts)
    attempts = f"{number} attempt{'s' if number != 1 else ''}"
    headline = f"run {ledger.run_id}, {attempts}, wall time {ledger.wall_ns / NS_PER_S:.1f} s, {share}"
    parts: list[RenderableType] = [line(headline, style="bold"), Text(), _classes(ledger)]
    if ledger.incidents:
        parts += [Text(), _incidents(ledger)]
        shown = ledger.incidents[-MOST_INCIDENTS:]
        parts += [Text(), *(line(_sentence(incident)) for incident in shown)]
    left_out = len(ledger.incidents) - MOST_INCIDENTS
    if left_out > 0:
        parts.append(line(f"{left_out:,} older incidents are not shown: use --json", style="dim"))
    unknown = [line(f"unknown: {sentence}", style="dim") for sentence in ledger.unknown]
    return Group(*parts, *([Text(), *unknown] if unknown else []))


def _classes(ledger: Ledger) -> Table:
    table = Table(box=None, header_style="bold")
    for name in ("class", "seconds", "percent"):
        table.add_column(name, justify="left" if name == "class" else "right")
    for name, ns in ledger.classes_ns.items():
        share = ns / ledger.wall_ns if ledger.wall_ns else 0.0
        table.add_row(str(name), f"{ns / NS_PER_S:,.1f}", f"{share:.1%}")
    return table


def _incidents(ledger: Ledger) -> Table:
    table = Table(box=None, header_style="bold")
    for name in ("attempt", "incident", "began", "detected", "resumed", "cost"):
        table.add_column(name, justify="left" if name in ("incident", "began") else "right", no_wrap=True)
    for incident in ledger.incidents[-MOST_INCIDENTS:]:
        table.add_row(*(line(cell) for cell in _cells(incident)))
    return table


def _cells(incident: Incident) -> Iterator[str]:
    yield str(incident.attempt)
    yield incident.cause
    yield local_time(incident.began_ns)
    for at_ns in (incident.detected_ns, incident.resumed_ns):
        yield "" if at_ns is None else f"+{(at_ns - incident.began_ns) / NS_PER_S:.1f} s"
    yield f"{incident.cost_ns / NS_PER_S:.1f} s"


def _sentence(incident: Incident) -> str:
    """An incident in words: ``attempt 0, rank-failed on node-b: rank 3 was killed by SIGKILL``."""
    where = f" on {', '.join(incident.nodes)}" if incident.nodes else ""
    return f"attempt {incident.attempt}, {incident.cause}{where}: {incident.reason or 'no reason is stored'}"
