"""What a look saw, in the shape in which tests ask."""

from collections.abc import Iterable

from telemetry.agent.samplers.interface import Event, Look
from telemetry.host_metrics import LINK_ALREADY_DOWN, Happening


def values(look: Look) -> dict[tuple[str, str], float]:
    """By metric and device."""
    return {(reading.metric, reading.device): reading.value for reading in look.readings}


def happened(look: Look) -> list[tuple[str, str]]:
    """Names and devices of events."""
    return [(event.name, event.device) for event in look.events]


def losses(events: Iterable[Event]) -> int:
    """How often the events say that a link was lost since sampling began, by whomever."""
    num_lost = 0
    for event in events:
        if event.name == Happening.LINK_FLAPS:
            num_lost += int(event.text)
        elif event.name == Happening.LINK_TAKEN_DOWN:
            num_lost += event.text.endswith("this removed its carrier")
        elif event.name == Happening.LINK_DOWN:
            num_lost += not event.text.startswith(LINK_ALREADY_DOWN)
    return num_lost
