"""A profile on demand: the records that command, collector, agent and rank exchange.

    SPOOL/<run>/<attempt>/rank-00003/profile/
        request       JSON, made by the agent or by `rankscope profile --spool`, and removed by it
        outcome       JSON, written by the rank: running, done or failed
        trace.json    the trace that Kineto wrote, until it is shipped

Both texts come from files or from the network, so they are checked before use: a wrong one raises ValueError.
"""

import json
import re
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from typing import Self, TypeVar, get_type_hints

MAX_STEPS = 100
MAX_SECONDS = 600
USUAL_STEPS, USUAL_SECONDS = 5, 60
TAKE_S = 30
"""A request that no agent has taken within this time is not handed out any more."""
MAX_RANKS = 64
"""Largest number of ranks of one request. A profile slows its rank, and so the job."""
MAX_TEXT_BYTES = 8192
"""Largest size of a request or an outcome."""
MAX_TRACE_BYTES = 512 * 2**20
"""Largest size of a trace, uncompressed."""
FOLDER, REQUEST, OUTCOME, TRACE = "profile", "request", "outcome", "trace.json"
PROFILED = "profiled"
"""Name of the mark of a profile that is over. Its text names the profiled steps, which took longer than others."""
SUPPORTED = "profiles"
"""Key in the identity's ``meta`` of a rank that can be profiled."""
MAX_PARTS = 4096
MAX_PART_TEXT = 4 * 2**20
"""Characters of one part of a trace, in base64."""
Record = TypeVar("Record")
_ID = re.compile(r"[0-9a-f]{32}")
_STEPS = re.compile(r"steps (\d{1,10}) to (\d{1,10})")


def profiled_text(first_step: int, last_step: int) -> str:
    """The text of the mark ``PROFILED``. At least the first step is profiled, perhaps not to its end."""
    return f"steps {first_step} to {max(first_step, last_step)}"


def profiled_steps(text: str) -> tuple[int, int] | None:
    """The first and the last step in the text of a mark; None if it names no steps."""
    found = _STEPS.match(text)
    return (int(found[1]), int(found[2])) if found else None


def is_profile_id(text: str) -> bool:
    return _ID.fullmatch(text) is not None


class Phase(StrEnum):
    """The state of the profile of a rank."""

    REQUESTED = "requested"
    """The collector has stored the request."""
    TAKEN = "taken"
    """The agent has handed it to the rank."""
    RUNNING = "running"
    DONE = "done"
    """The rank has written the trace. It is not stored yet."""
    STORED = "stored"
    FAILED = "failed"

    @property
    def is_final(self) -> bool:
        return self in (Phase.STORED, Phase.FAILED)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileRequest:
    """A request to one rank.

    Raises:
        ValueError: a value is out of range.
    """

    profile_id: str
    """32 hexadecimal digits. One request to several ranks has one id."""
    rank: int
    steps: int = USUAL_STEPS
    seconds: int = USUAL_SECONDS
    """The rank must begin a step within this time. The profile ends after the same time at the latest."""
    local: bool = False
    """Whether the command on the rank's machine made the request. The agent ignores such a request."""
    until_ns: int = 0
    """The rank does not begin after this time (CLOCK_MONOTONIC). 0 if the request is not handed to the rank yet."""

    def __post_init__(self) -> None:
        if not _ID.fullmatch(self.profile_id):
            raise ValueError("the id of a profile has 32 hexadecimal digits")
        ranges = {"rank": (0, 2**32 - 1), "steps": (1, MAX_STEPS), "seconds": (1, MAX_SECONDS), "until_ns": (0, 2**63)}
        for name, (least, most) in ranges.items():
            if not least <= getattr(self, name) <= most:
                raise ValueError(f"{name} is not in the range from {least} to {most}")

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def parse(cls, text: str | bytes) -> Self:
        """The request in ``text``.

        Raises:
            ValueError: ``text`` is not a request.
        """
        return _parsed(cls, text)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileOutcome:
    """The result of a request. Times are wall-clock nanoseconds, on the clock of the rank's spans."""

    profile_id: str
    phase: str
    """``running``, ``done`` or ``failed``; ``stored`` once the collector has the trace."""
    reason: str = ""
    """Why the profile failed, or ended early."""
    first_step: int = 0
    last_step: int = -1
    """Lower than ``first_step`` if no step was completed."""
    began_ns: int = 0
    ended_ns: int = 0
    clock_offset_ns: int = 0
    """Add it to the times in Kineto's file. They are then on the clock of the rank's spans."""
    clock_error_ns: int = 0
    """Largest error of the offset, without the error of Kineto's own conversion."""
    size_bytes: int = 0
    """Size of the trace, uncompressed."""
    parts: int = 0
    """Number of parts of the stored trace, which is compressed by gzip."""
    sha256: str = ""
    """Hash of the stored trace."""

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def parse(cls, text: str | bytes) -> Self:
        """The outcome in ``text``.

        Raises:
            ValueError: ``text`` is not an outcome.
        """
        outcome = _parsed(cls, text)
        if not _ID.fullmatch(outcome.profile_id) or outcome.phase not in [*Phase] or len(outcome.reason) > 1000:
            raise ValueError("not the outcome of a profile")
        if any(abs(getattr(outcome, name)) >= 2**63 for name, kind in get_type_hints(cls).items() if kind is int):
            raise ValueError("a number is out of range")
        return outcome


def _parsed(kind: type[Record], text: str | bytes) -> Record:
    """The record in a JSON object with its fields or some of them. Each value has the type of its field."""
    try:
        values = json.loads(text)
    except (RecursionError, UnicodeDecodeError) as error:
        raise ValueError("not JSON") from error
    types = get_type_hints(kind)
    known = {field.name for field in fields(kind)}  # type: ignore[arg-type]
    if not isinstance(values, dict) or not set(values) <= known:
        raise ValueError("not a JSON object with the fields of this record")
    if any(type(value) is not types[name] for name, value in values.items()):
        raise ValueError("a field has the wrong type")
    try:
        return kind(**values)
    except TypeError as error:
        raise ValueError("a field is missing") from error
