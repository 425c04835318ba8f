"""One trial: a real job over network namespaces, a disturbance of its network, and the findings.

job starts -> settles -> flap, cut or throttle -> ends -> marks and findings are compared with counts of the kernel
meanwhile: a watcher writes its alerts into a file; a thread reads the hang verdict again and again
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from diagnose.hang.stored import stored_verdict
from telemetry.errors import RankscopeError
from tests.deadline import until
from tests.netns.cluster import DATA_LINK, Cluster
from tests.netns.collector import Collector
from tests.netns.job import Job, quick_config
from tests.netns.zygote import Zygote
from tests.scenarios.fleet_plan import ALERTED, BETWEEN_STEPS, SETTLE_STEPS, SLOW_STEP, Trial

TIMEOUT_S = 60.0
CUT_TIMEOUT_S = 25.0
"""Jobs whose link stays down give up after this."""
LONG_STEP_MICROBATCHES = 8
SEQUENCE_LENGTH = 128
"""Messages of 32 KiB between pipeline stages: large enough for a slow link to matter."""
ALERT_S = 180.0
FAULT_STEP = 15
"""First step with a fault inside the trainer."""
HANGS = ("hung-collective", "dead-rank", "collective-mismatch")


@dataclass(slots=True, kw_only=True)
class Seen:
    """The result of a trial."""

    trial: Trial
    kernel_downs: int = 0
    """Link losses of the card of the host, as the kernel counted them."""
    marks: list[dict[str, Any]] = field(default_factory=list)
    findings: list[dict[str, Any]] = field(default_factory=list)
    verdicts: dict[str, str] = field(default_factory=dict)
    """The first verdict of ``diagnose hang`` of each kind while the job ran, with its evidence."""
    faults_ns: list[int] = field(default_factory=list)
    """Start of each fault that the alert is about."""
    down_s: list[float] = field(default_factory=list)
    """Measured duration of each link loss."""
    alerted_ns: int = 0
    """Time of the first alert line that names the place; 0: none."""
    alert_steps: int | None = None
    """Steps that started between the fault and the alert."""

    @property
    def alert_s(self) -> float | None:
        """Seconds from the newest fault before the alert to the alert."""
        before = [one for one in self.faults_ns if one <= self.alerted_ns]
        return (self.alerted_ns - before[-1]) / 1e9 if before else None

    @property
    def host(self) -> str:
        return f"host-{self.trial.host}"

    def of_kind(self, kind: str) -> list[dict[str, Any]]:
        return [one for one in self.findings if one["kind"] == kind]

    @property
    def counted(self) -> bool:
        """Whether each flap of the card of the host is reported, and no flap of another card."""
        reported = sum(mark["count"] for mark in self.marks)
        places = {(mark["host"], mark["device"]) for mark in self.marks}
        return reported == self.kernel_downs and places <= {(self.host, DATA_LINK)}

    @property
    def innocent(self) -> bool:
        """Whether no other host was named, and no hang was reported without a hang."""
        others = [one for one in self.findings if one["hosts"] and one["hosts"] != [self.host]]
        ends = self.trial.kind in ("permanent link loss", "stalled rank")
        return not others and (ends or not set(self.verdicts) & set(HANGS))

    @property
    def exact(self) -> bool:
        """Whether the whole result is right."""
        return self.counted and self.innocent and self._has_right_findings()

    def _has_right_findings(self) -> bool:
        accusing = [one["kind"] for one in self.findings if one["hosts"]]
        match self.trial.kind:
            case "healthy":
                return not self.findings and not self.marks
            case "one flap":
                return not accusing and all(mark["lasts"] is False for mark in self.marks)
            case "three flaps":
                return accusing == ["nic-flap"]
            case "permanent link loss":
                hung = self.of_kind("hung-collective")
                return bool(hung) and hung[0]["evidence"].get("device") == DATA_LINK
            case "slow link":
                return accusing == ["slow-link"]
            case "stalled rank":
                return accusing == ["hung-collective"]
            case _:
                return accusing == ["compute-straggler"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """The parts that all trials share."""

    cluster: Cluster
    collector: Collector
    zygote: Zygote
    alerts: Path | None
    """The file that a watcher writes into; None: there is no watcher."""
    folder: Path


def run_trial(trial: Trial, ground: Ground) -> Seen:
    """Run the trial to its end."""
    run_id = f"trial-{trial.number:02d}"
    seen = Seen(trial=trial)
    job = Job(
        ground.cluster,
        ground.collector,
        ground.folder / run_id,
        run_id=run_id,
        config=_config(trial),
        collective_timeout_s=CUT_TIMEOUT_S if trial.kind == "permanent link loss" else TIMEOUT_S,
        fault=trial.fault,
        zygote=ground.zygote,
    )
    before = ground.cluster.carrier_downs(trial.host)
    try:
        with job, _recording_hang_verdicts(ground.collector, run_id, seen), _listening(ground.alerts, seen, run_id):
            _disturb(trial, job, ground, seen)
            if trial.kind != "stalled rank":
                job.wait()
                job.wait_until_stored()
        seen.kernel_downs = ground.cluster.carrier_downs(trial.host) - before
    finally:
        ground.cluster.link_up(trial.host)
        ground.cluster.unslow(trial.host)
    report = ground.collector.ask("diagnose", run_id)
    seen.marks, seen.findings = report["marks"], report["findings"]
    return seen


def _config(trial: Trial) -> Any:
    config = quick_config(trial.num_steps)
    if (
        trial.kind == "slow rank"
    ):  # steps of one or two seconds, so that the polling of the watcher is short compared with a step
        return replace(config, parallel=replace(config.parallel, num_microbatches=LONG_STEP_MICROBATCHES))
    return replace(config, model=replace(config.model, sequence_length=SEQUENCE_LENGTH)) if trial.rate else config


def _disturb(trial: Trial, job: Job, ground: Ground, seen: Seen) -> None:
    """Disturb the job as planned, and wait for the alert if one is expected."""
    job.wait_for_step(SLOW_STEP if trial.rate else SETTLE_STEPS)
    threading.Event().wait(trial.phase_s)
    for seconds in trial.flaps_s:
        seen.faults_ns.append(time.time_ns())
        down_ns, up_ns = ground.cluster.flap(trial.host, seconds)
        seen.down_s.append((up_ns - down_ns) / 1e9)
        job.wait_for_steps(BETWEEN_STEPS)
    if trial.rate:
        ground.cluster.slow(trial.host, trial.rate)
    elif trial.kind == "permanent link loss":
        seen.faults_ns.append(ground.cluster.link_down(trial.host))
    elif trial.fault != "none":
        job.wait_for_step(FAULT_STEP)
        seen.faults_ns.append(time.time_ns())
    if trial.watched:
        _wait_for_alert(seen, job)


def _words(trial: Trial) -> tuple[str, ...]:
    """Words in the line of the alert."""
    kind, place = ALERTED[trial.kind], f"host=host-{trial.host}"
    rank = trial.fault.partition("rank=")[2].partition(",")[0]
    return " firing ", f" {kind} ", f" rank={rank}" if rank else place


def _wait_for_alert(seen: Seen, job: Job) -> None:
    """Wait until the alert came, the job ended, or the time limit passed."""
    with suppress(AssertionError):
        until(lambda: seen.alerted_ns or len(job.statuses) == job.world_size, seconds=ALERT_S, what="the alert")
    if seen.alerted_ns and seen.trial.fault != "none":
        seen.alert_steps = job.step - FAULT_STEP


@contextmanager
def _listening(alerts: Path | None, seen: Seen, run_id: str) -> Iterator[None]:
    """Record the time of the first alert line about the fault of the trial."""
    stop = threading.Event()
    wanted = (*_words(seen.trial), f"run_id={run_id} ") if alerts and seen.trial.watched else ()

    def listen() -> None:
        while alerts and not stop.wait(0.1):
            lines = alerts.read_text(errors="replace").splitlines()
            if any(all(word in line for word in wanted) for line in lines):
                seen.alerted_ns = time.time_ns()
                return

    thread = threading.Thread(target=listen, name="listens-for-alerts")
    if wanted:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        if wanted:
            thread.join()


@contextmanager
def _recording_hang_verdicts(collector: Collector, run_id: str, seen: Seen) -> Iterator[None]:
    """Read the hang verdict once a second. Record the first verdict of each kind with its evidence."""
    stop = threading.Event()

    def ask() -> None:
        while not stop.wait(1.0):
            try:
                verdict = stored_verdict(collector, run_id, 0)
            except RankscopeError:
                continue
            if verdict is not None and verdict.kind is not None:
                seen.verdicts.setdefault(str(verdict.kind), f"{verdict.headline}\n{verdict.evidence}")

    thread = threading.Thread(target=ask, name="asks-whether-it-hangs")
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
