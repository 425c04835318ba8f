"""What the fleet page is about, every open choice of its address made."""

from dataclasses import dataclass

from diagnose.model.load import DEFAULT_STEPS
from telemetry.errors import UsageError
from ui.dashboard.data import Reads
from ui.dashboard.data.fleet import HostScene, host_scene
from ui.dashboard.defaults import FAMILY_OF, chosen_steps, findings_of_hosts
from ui.dashboard.figures.host_families import metrics_of
from ui.dashboard.records import RunFacts
from ui.dashboard.view_state import Family, StepRange, ViewState


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """Which host, which of its samples, over which steps."""

    facts: RunFacts
    host: str
    family: Family
    steps: StepRange

    @property
    def ranks(self) -> list[int]:
        return [rank for rank, host in enumerate(self.facts.hosts) if host == self.host]


def scene(state: ViewState, reads: Reads) -> Scene:
    """The detectors are asked only where the address leaves host or samples open.

    Raises:
        UsageError: the run has no such host, or no such steps.
    """
    facts = reads.facts(state)
    steps = chosen_steps(state, facts, newest=DEFAULT_STEPS)
    hosts = hosts_of(facts)
    if not hosts or (state.host and state.host not in hosts):
        raise UsageError(f"No rank told that it ran on host {state.host}", hint="choose one from the list of hosts")
    if state.host and state.family:
        return Scene(facts=facts, host=state.host, family=state.family, steps=steps)
    findings = findings_of_hosts(reads.reports.of(facts.summary), hosts)
    host = state.host or (next(iter(findings), hosts[0]))
    telling = [findings[one].kind for one in (host, *findings) if one in findings]
    family = next((FAMILY_OF[kind] for kind in telling if kind in FAMILY_OF), Family.NETWORK)
    return Scene(facts=facts, host=host, family=state.family or family, steps=steps)


def hosts_of(facts: RunFacts) -> list[str]:
    """All hosts of a run, in the order of their ranks."""
    return list(dict.fromkeys(filter(None, facts.hosts)))


def told(one: Scene, reads: Reads) -> HostScene:
    """What its host told."""
    return host_scene(reads, one.facts, one.host, metrics_of(one.family), one.steps)
