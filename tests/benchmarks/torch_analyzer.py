"""The flight-recorder analyzer of torch compared with rankscope, on labelled real cases, as a user runs both."""

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.benchmarks.pages import as_table

LIMIT_S = 120
PREFIX = "_dump_"
_MISSING = re.compile(r"^missing ranks: \{(.*)\}")
_INJECTED = re.compile(r"^Rank (\d+),", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A folder of dumps and the ranks that were broken."""

    folder: Path
    injected: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """The result of a program on a case."""

    ranks: tuple[int, ...]
    """Every rank that it names."""
    verdicts: int
    """Number of sets of ranks that it names, one after another."""
    lines: int
    status: int
    first_line: str


def labelled_cases() -> list[Case]:
    """The labelled cases. Empty without the folder of real data."""
    root = Path(os.environ.get("RANKSCOPE_REAL_DATA", Path(__file__).parents[3] / "shared" / "data"))
    logs = sorted((root / "flight-recorder").glob("*/fault_injection.log"))
    return [Case(folder=log.parent, injected=_injected(log)) for log in logs]


def _injected(log: Path) -> tuple[int, ...]:
    return tuple(sorted(int(rank) for rank in _INJECTED.findall(log.read_text())))


def ask_torch(case: Case, *arguments: str) -> Said:
    """``fr_trace`` on the folder. It names the ranks that it reports as missing from a collective."""
    done = _run("torch.distributed.flight_recorder.fr_trace", str(case.folder), *arguments)
    lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    sets = {found[1] for line in lines if (found := _MISSING.match(line))}
    ranks = sorted({int(rank) for one in sets for rank in one.split(",")})
    told = next((line for line in reversed(lines) if done.returncode), lines[0] if lines else "")
    return Said(
        ranks=tuple(ranks), verdicts=len(sets), lines=len(lines), status=done.returncode, first_line=told.strip()
    )


def ask_ours(case: Case) -> Said:
    """``rankscope diagnose hang`` on the folder: its object for the ranks, its text for the lines."""
    judged = _run("ui.cli", "diagnose", "hang", "--dumps", str(case.folder), "--json")
    findings = json.loads(judged.stdout)["findings"]
    told = _run("ui.cli", "diagnose", "hang", "--dumps", str(case.folder))
    lines = [line for line in told.stdout.splitlines() if line.strip()]
    return Said(
        ranks=tuple(sorted(rank for finding in findings for rank in finding["ranks"])),
        verdicts=len(findings),
        lines=len(lines),
        status=told.returncode,
        first_line=lines[0],
    )


def _run(module: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "NO_COLOR": "1", "COLUMNS": "200"}
    command = [sys.executable, "-m", module, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False, env=environment)


HEADINGS = ("case", "faulty ranks", "program", "ranks named", "exact", "verdicts", "lines", "exit status")
NOTES = """\
For `fr_trace`, *ranks named* are all ranks that it reports as missing from a collective, and *verdicts* is the number
of different sets of such ranks. Its exit status is 0 also if it reports a mismatch. `fr_trace` takes the number of a
rank from the file name after the prefix. So the prefix must be complete (`-p {prefix}`). With `-p {short}`, `fr_trace`
ends with `{short_says}` (exit status {short_status}).
"""


def beside_torch(cases: list[Case]) -> tuple[str, bool]:
    """The section of ``docs/accuracy.md``, and whether all of ours are exact."""
    rows, heads, exact = [], [], True
    for case in cases:
        ours, theirs = ask_ours(case), ask_torch(case, "-p", PREFIX)
        exact &= ours.ranks == case.injected
        rows += [_row(case, "`rankscope diagnose hang`", ours), _row(case, "torch `fr_trace`", theirs)]
        heads.append(f"{case.folder.name}: `{ours.first_line}`")
    short = ask_torch(cases[0], "-p", PREFIX.rstrip("_"))
    notes = NOTES.format(
        prefix=PREFIX, short=PREFIX.rstrip("_"), short_says=short.first_line, short_status=short.status
    )
    return "\n".join(
        [
            as_table(HEADINGS, rows),
            "",
            notes,
            "First line of `rankscope diagnose hang`:",
            "",
            *(f"- {head}" for head in heads),
        ]
    ), exact


def _row(case: Case, program: str, said: Said) -> tuple[str, ...]:
    return (
        case.folder.name,
        _ranks(case.injected),
        program,
        _ranks(said.ranks),
        "yes" if said.ranks == case.injected else "no",
        *map(str, (said.verdicts, said.lines, said.status)),
    )


def _ranks(ranks: tuple[int, ...]) -> str:
    return ", ".join(map(str, ranks)) or "none"
