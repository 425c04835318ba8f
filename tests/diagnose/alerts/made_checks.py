"""Findings, checks and a state machine with a clock that a test moves."""

from collections.abc import Iterable
from dataclasses import replace

from diagnose.alerts.check import Check
from diagnose.alerts.life import State, advance
from diagnose.alerts.log import LogRow
from diagnose.alerts.notice import Notice, Status
from diagnose.alerts.onset import Onset
from diagnose.alerts.quiet import Quiets
from diagnose.alerts.rules import DEFAULTS, Flapping, Policy, Rule
from diagnose.alerts.sending import Delivery
from diagnose.alerts.sightings import RunFindings, Sighting
from diagnose.findings import Finding, Kind, Role, Severity, StepWindow, Suspect

SECOND_NS = 1_000_000_000
START_NS = 1_790_000_000 * SECOND_NS
RUN = "monday"


def finding(
    kind: Kind = Kind.COMPUTE_STRAGGLER,
    *ranks: int,
    host: str = "",
    severity: Severity = Severity.WARNING,
    stage: str = "",
    seconds_lost: float = 3.0,
    device: str = "",
    steps: tuple[int, int] = (100, 140),
) -> Finding:
    """A finding about ``ranks``. Without a host: eight ranks on each host."""
    return Finding(
        detector=str(kind),
        kind=kind,
        severity=severity,
        suspects=tuple(Suspect(rank=rank, host=host or f"gpu-{rank // 8:02d}", role=Role.INITIATING) for rank in ranks),
        stage=stage,
        window=StepWindow(first_step=steps[0], last_step=steps[1]),
        seconds_lost=seconds_lost,
        confidence=0.9,
        summary=f"{kind} of {list(ranks)}",
        next_step="look at it",
        evidence={"device": device} if device else {},
    )


def policy(*, hooks: tuple[str, ...] = ("log",), resend_s: float = 0.0, dashboard: str = "", **rule: float) -> Policy:
    """The default rules, all with these ``hooks`` and the values of ``rule``."""
    rules = {str(kind): replace(usual, hooks=hooks, **rule) for kind, usual in DEFAULTS.items()}
    return Policy(
        rules=rules,
        flapping=Flapping(times=3, within_s=1800, quiet_s=900),
        resend_s=dict.fromkeys(hooks, resend_s),
        dashboard=dashboard,
    )


def quick(*, for_s: float = 0, keep_firing_for_s: float = 60, **more: object) -> Policy:
    """The same two times for the rules of all kinds."""
    usual = policy(**more)  # type: ignore[arg-type]
    rule = Rule(for_s=for_s, keep_firing_for_s=keep_firing_for_s, hooks=("log",))
    return replace(usual, rules={kind: replace(rule, hooks=usual.rules[kind].hooks) for kind in usual.rules})


class Watched:
    """A state machine and its clock."""

    def __init__(self, rules: Policy, state: State | None = None) -> None:
        self.rules = rules
        self.state = state or State()
        self.now_s = 0.0
        self.deliveries: list[Delivery] = []
        self.log: list[LogRow] = []
        self.quiets = Quiets()

    @property
    def told(self) -> list[Notice]:
        """All notices so far."""
        return [delivery.notice for delivery in self.deliveries]

    def sees(
        self,
        *findings: Finding,
        after_s: float = 5,
        has_known_time: bool = True,
        step_s: float = 1.0,
        onset: Onset | None = None,
        has_ended: bool = False,
    ) -> list[Notice]:
        """The notices of a check, ``after_s`` after the previous check."""
        sightings = tuple(Sighting(finding=one, has_known_time=has_known_time, onset=onset) for one in findings)
        run = RunFindings(run_id=RUN, attempt=0, step_s=step_s, sightings=sightings, has_ended=has_ended)
        return self._advance(after_s, runs=(run,), quiets=self.quiets)

    def is_blind(self, after_s: float = 5) -> list[Notice]:
        """The store did not answer."""
        return self._advance(after_s, blind=True)

    def fails(self, after_s: float = 5) -> list[Notice]:
        """The run could not be checked."""
        return self._advance(after_s, failed=frozenset({(RUN, 0)}))

    def sees_no_run(self, after_s: float = 5, *, known: bool = True) -> list[Notice]:
        """The run is over. Not ``known``: the store does not have it."""
        return self._advance(after_s, known=frozenset({(RUN, 0)} if known else ()))

    def quietly(self, seconds: float, *findings: Finding) -> list[Notice]:
        """The notices of checks every five seconds for ``seconds``."""
        return [notice for _ in range(int(seconds // 5)) for notice in self.sees(*findings)]

    def _advance(self, after_s: float, **check: object) -> list[Notice]:
        self.now_s += after_s
        now_ns = START_NS + int(self.now_s * SECOND_NS)
        outcome = advance(self.state, Check(now_ns=now_ns, **check), self.rules)  # type: ignore[arg-type]
        self.state = outcome.state
        self.deliveries += outcome.deliveries
        self.log += outcome.log
        return [delivery.notice for delivery in outcome.deliveries]


def words(notices: Iterable[Notice]) -> list[str]:
    """``firing compute-straggler``, ``still nic-flap``, ``resolved ...``."""
    return [f"{_status(notice)} {notice.labels['alertname']}" for notice in notices]


def _status(notice: Notice) -> str:
    return "still" if notice.repeated and notice.status is Status.FIRING else str(notice.status)
