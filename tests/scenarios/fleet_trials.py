"""Many jobs with disturbed networks: each flap must be counted on the right card, and no other host may be named.
With ``--alerts``, a few jobs of each kind: the time to the alert.

python -m tests.scenarios.fleet_trials [--alerts] [--seed 0] [--only N ...] [--out DIR] [--write]

Needs root; with ``--alerts`` a machine that does nothing else. ``--write`` puts the table into docs/accuracy.md. Exit
status 1 if a trial was not exact, or an alert was late.
"""

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median

from tests.benchmarks.pages import as_table, write_section
from tests.deadline import until
from tests.netns.cluster import SWITCH, Cluster
from tests.netns.collector import ENVIRONMENT, URL, Collector
from tests.netns.zygote import Zygote
from tests.scenarios.fleet_plan import KINDS, Trial, alert_plan, plan
from tests.scenarios.fleet_trial import Ground, Seen, run_trial

TITLE, ALERTS_TITLE = "Disturbed networks", "Time to the alert"
MAX_ALERT_S = 15.0
MAX_ALERT_STEPS = 20
HEADINGS = ("fault", "jobs", "exact", "link losses counted by the kernel", "link losses reported", "others named")
ALERTS_HEADINGS = ("fault", "jobs", "exact", "seconds, median (worst)", "steps, median (worst)", "bound")
NOTES = """\
Four hosts with two ranks each train with gloo (dp2 x pp2 x tp2). The hosts are network namespaces of one machine, and a
bridge connects them. In the trials with a link loss, the link of one host goes down at a random moment, for 0.5, 3
or 8 s or permanently. In the trials with a slow link, the kernel limits the rate of the link of one host (`tbf`) during
the run. *Exact* means that all of this is true:

- Each link loss that the kernel counted is reported for the right card, and nothing else is named.
- Three flaps are a finding, one flap is not.
- A flap is never reported as a hang.
- A permanent link loss is a hung collective with this card as its cause.
- A slow link is reported with its host."""
ALERTS_NOTES = """\
The jobs are those of [Disturbed networks](#disturbed-networks), with a slow rank (factor 3) or a stalled rank in
addition. `rankscope alerts run` runs on the same two cores as the job.

- *Seconds* and *steps* begin at the fault: the third flap, the permanent link loss, the stop of the rank, or the first
  slow step. They end when the watcher writes the alert.
- *Exact*: as for disturbed networks. For a stalled or slow rank, the alert names this rank and no other.
- *Bound*: the longest time or largest number of steps that is accepted."""


@contextmanager
def watching(cluster: Cluster, folder: Path) -> Iterator[Path]:
    """Run a real watcher on the management network. Gives the file of its alerts."""
    alerts = folder / "alerts.log"
    alerts.touch()
    (folder / "alerts.toml").write_text(f'[hooks.file]\ntype = "log"\npath = "{alerts}"\n')
    command = [sys.executable, "-m", "ui.cli", "alerts", "run", "--store", URL, "--config", folder / "alerts.toml"]
    command += ["--state", folder / "alerts.sqlite"]
    with (folder / "watcher.log").open("ab") as log:
        process = cluster.run_in(SWITCH, command, ENVIRONMENT, stdout=log, stderr=log)
        try:
            until(lambda: "watching" in (folder / "watcher.log").read_text(), seconds=60, what="the watcher")
            yield alerts
        finally:
            process.terminate()
            process.wait(30)


def run_trials(trials: Sequence[Trial], folder: Path, *, watched: bool) -> list[Seen]:
    """Run the trials one after another on one cluster."""
    with ExitStack() as stack:
        cluster = stack.enter_context(Cluster())
        collector = stack.enter_context(Collector(cluster, folder / "store"))
        zygote = stack.enter_context(Zygote(folder))
        alerts = stack.enter_context(watching(cluster, folder)) if watched else None
        ground = Ground(cluster=cluster, collector=collector, zygote=zygote, alerts=alerts, folder=folder)
        return [_print_result(run_trial(trial, ground), folder) for trial in trials]


def _print_result(seen: Seen, folder: Path) -> Seen:
    """Print the result of a trial. If it was not exact, write its verdicts into ``folder``."""
    if not seen.exact:
        for kind, words in seen.verdicts.items():
            (folder / f"{seen.trial.number:02d}-{kind}.txt").write_text(words)
    words = "exact" if seen.exact else f"NOT EXACT (counted {seen.counted}, innocent {seen.innocent})"
    alert = "" if seen.alert_s is None else f", alert after {seen.alert_s:.1f} s, {seen.alert_steps} steps"
    found = "; ".join(f"{one['kind']}: {one['summary'][:160]}" for one in seen.findings) or "nothing"
    downs = f"downs {seen.kernel_downs}/{sum(mark['count'] for mark in seen.marks)}"
    print(f"{seen.trial.name}: {words}, {downs}, {[*seen.verdicts]}{alert}: {found}", file=sys.stderr, flush=True)
    return seen


def kind_row(kind: str, seen: Sequence[Seen]) -> tuple[str, ...]:
    """A row under ``HEADINGS``."""
    return (
        *(kind, str(len(seen)), str(sum(one.exact for one in seen)), str(sum(one.kernel_downs for one in seen))),
        str(sum(mark["count"] for one in seen for mark in one.marks)),
        str(sum(not one.innocent for one in seen)),
    )


def alert_row(kind: str, seen: Sequence[Seen]) -> tuple[str, ...]:
    """A row under ``ALERTS_HEADINGS``."""
    seconds = [one.alert_s for one in seen if one.alert_s is not None]
    steps = [float(one.alert_steps) for one in seen if one.alert_steps is not None]
    in_steps = kind == "slow rank"
    return (
        *(kind, str(len(seen)), str(sum(one.exact for one in seen))),
        *(_spread(seconds), _spread(steps) if in_steps else "-"),
        f"{MAX_ALERT_STEPS} steps" if in_steps else f"{MAX_ALERT_S:.0f} s",
    )


def _spread(values: Sequence[float]) -> str:
    return f"{median(values):.1f} ({max(values):.1f})" if values else "never"


def in_time(seen: Seen) -> bool:
    """Whether the alert came soon enough."""
    if seen.trial.kind == "slow rank":
        return seen.alert_steps is not None and seen.alert_steps <= MAX_ALERT_STEPS
    return not seen.trial.watched or (seen.alert_s is not None and seen.alert_s <= MAX_ALERT_S)


def main() -> int:
    given = _arguments()
    planned = (alert_plan if given.alerts else plan)(given.seed)
    trials = [trial for trial in planned if not given.only or trial.number in given.only]
    with tempfile.TemporaryDirectory(prefix="rankscope-fleet-") as temporary:
        folder = given.out or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        seen = run_trials(trials, folder, watched=given.alerts)
    title, flag = (ALERTS_TITLE, "--alerts ") if given.alerts else (TITLE, "")
    section = page_section(seen, alerts=given.alerts)
    print(section)
    if given.write:
        write_section(title, f"python -m tests.scenarios.fleet_trials {flag}--seed {given.seed}", section)
    return int(not all(one.exact and in_time(one) for one in seen))


def page_section(seen: Sequence[Seen], *, alerts: bool) -> str:
    """The section of docs/accuracy.md about these trials."""
    headings, row, notes = (ALERTS_HEADINGS, alert_row, ALERTS_NOTES) if alerts else (HEADINGS, kind_row, NOTES)
    of_kind = {kind: [one for one in seen if one.trial.kind == kind] for kind in KINDS}
    return f"{as_table(headings, [row(kind, of) for kind, of in of_kind.items() if of])}\n\n{notes}"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--alerts", action="store_true", help="time the watcher")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, nargs="+", default=[], help="these trials alone")
    parser.add_argument("--out", type=Path, help="keep everything here")
    parser.add_argument("--write", action="store_true", help="write docs/accuracy.md")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
