"""What commands and pages say of a run that has not ended and ships nothing: one sentence, and what to do."""

import time
from dataclasses import dataclass

from diagnose.model.run_state import NS_PER_S, Heard


@dataclass(frozen=True, slots=True, kw_only=True)
class NotShipping:
    """``sentence``: since when; ``next_step``: what to do."""

    sentence: str
    next_step: str = "check that agents run on the hosts of the run and reach the collector"


def not_shipping(heard: Heard | None) -> NotShipping | None:
    """None for a run that ships or has ended: what is stored of it is up to date."""
    if heard is None or not heard.is_silent:
        return None
    since = local_time(heard.heard_ns)
    return NotShipping(
        sentence=f"not shipping: no heartbeat since {since}, and no rank reported its end. Newer steps are not stored."
    )


def local_time(at_ns: int) -> str:
    """Date and time of this machine, to the second."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at_ns / NS_PER_S))
