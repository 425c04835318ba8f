"""The content of a sample, in the form that tests compare."""

from collections.abc import Iterable

from telemetry.agent.samplers.interface import Event, Sample
from telemetry.host_metrics import LINK_ALREADY_DOWN, Happening


def values(sample: Sample) -> dict[tuple[str, str], float]:
    """Values by metric and device."""
    return {(reading.metric, reading.device): reading.value for reading in sample.readings}


def happened(sample: Sample) -> list[tuple[str, str]]:
    """Names and devices of events."""
    return [(event.name, event.device) for event in sample.events]


def losses(events: Iterable[Event]) -> int:
    """Number of link losses in the events since sampling began, including losses that the owner caused."""
    num_lost = 0
    for event in events:
        if event.name == Happening.LINK_FLAPS:
            num_lost += int(event.text)
        elif event.name == Happening.LINK_TAKEN_DOWN:
            num_lost += event.text.endswith("this removed its carrier")
        elif event.name == Happening.LINK_DOWN:
            num_lost += not event.text.startswith(LINK_ALREADY_DOWN)
    return num_lost
