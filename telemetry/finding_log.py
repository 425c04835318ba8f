"""The findings log: the changes that a watcher stores, and the actions that people take.

    raised --> worse --> resolved        rows of `findings`, from the watcher
       acknowledge, note, silence        rows of `finding_actions`, from the collector

A finding is identified by the fingerprint of its alert and by the time at which the alert began to fire. If several
watchers check a store, the earliest of their times is the time of the finding:

    watcher A   raised 10 ---------------------------> resolved 10
    watcher B        raised 12 --> duplicate 12, raised 10 --> resolved 10
"""

import re
from enum import StrEnum

MAX_NAME = 64
"""Characters of the name of a person."""
MAX_TEXT = 1000
"""Characters of a note, a summary or a next step."""
MAX_PLACES = 4000
"""Characters of a list of hosts or ranks."""
DAY_S = 86_400
MAX_SILENCE_S = 366 * DAY_S
_FINGERPRINT = re.compile(r"[0-9a-f]{16}")


class Change(StrEnum):
    """What happened to a finding. ``worse``: its severity rose. ``duplicate``: the log has it with an earlier time.

    ``raised`` and ``worse`` occur again if a later check finds a better onset. The newest row is valid.
    """

    RAISED = "raised"
    WORSE = "worse"
    RESOLVED = "resolved"
    DUPLICATE = "duplicate"


class Action(StrEnum):
    """What a person did. ``reopen`` withdraws an acknowledgement."""

    ACKNOWLEDGE = "acknowledge"
    REOPEN = "reopen"
    NOTE = "note"
    SILENCE = "silence"
    END_SILENCE = "end-silence"


def is_fingerprint(text: str) -> bool:
    return _FINGERPRINT.fullmatch(text) is not None
