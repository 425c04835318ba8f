"""What agents on the hosts would have told of the run: links that were lost, GPUs that were held down.

    gradients of rank 9     |--|               |---------------------|       the link goes as all have come to meet
    eth0 of gpu-001     ------------------------.               .-----       and stays away as long as was drawn
                                      link-down '---------------' link-up

Times are those of each host's own clock. A run without such a fault is told nothing of.
"""

import numpy as np

from diagnose.model.fleet import NO_FLEET, Fleet, HostEvent
from diagnose.simulate.clocks import Timeline
from diagnose.simulate.conditions import Conditions, Silence
from diagnose.simulate.gpu_looks import look_at_gpus
from diagnose.simulate.noise import Draws
from diagnose.simulate.plan import SimulatedRun
from telemetry.host_metrics import Happening

NS_PER_S = 1_000_000_000


def told_by_agents(plan: SimulatedRun, conditions: Conditions, draws: Draws, timeline: Timeline) -> Fleet:
    """Events and samples of all hosts that have something to tell."""
    if not conditions.silences and not conditions.held_down:
        return NO_FLEET
    gpus = look_at_gpus(plan, conditions, draws, timeline)
    links = [event for silence in conditions.silences for event in _lost_link(silence, timeline)]
    events = sorted((*links, *gpus.events), key=lambda event: (event.at_ns, event.host, event.device, event.name))
    return Fleet(series=gpus.series, events=tuple(events))


def _lost_link(silence: Silence, timeline: Timeline) -> tuple[HostEvent, HostEvent]:
    """Both ends of an outage: from when the first of the card's groups had met."""
    down_ns = timeline.met_ns[silence.row, list(silence.ranks)].min()
    up_ns = down_ns + round(silence.seconds * NS_PER_S)
    down, up = timeline.clocks.read(silence.host, np.array([down_ns, up_ns])).tolist()
    return (
        _event(silence, down, Happening.LINK_DOWN, "no carrier"),
        _event(silence, up, Happening.LINK_UP, "carrier"),
    )


def _event(silence: Silence, at_ns: int, name: Happening, text: str) -> HostEvent:
    return HostEvent(host=silence.host, device=silence.device, at_ns=at_ns, name=name.value, text=text)
