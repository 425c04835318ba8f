"""``POST /v1/finding-actions``: what a person did about a finding, as JSON."""

from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError

from telemetry.errors import UsageError
from telemetry.finding_log import MAX_NAME, MAX_TEXT, Action
from telemetry.printable import one_line
from telemetry.wire.body_errors import first_problem

MAX_ACTION_BYTES = 2**14
HINT = '{"fingerprint": "0123456789abcdef", "action": "note", "who": "Ada", "text": "the fan is replaced"}'


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingAction:
    """An action on a finding."""

    fingerprint: Annotated[str, Field(pattern="^[0-9a-f]{16}$")]
    raised_ns: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """When the finding was raised. 0 for the newest finding with this fingerprint."""
    action: Action
    who: Annotated[str, Field(min_length=1, max_length=MAX_NAME)]
    """The name that the person gives. It is not verified."""
    text: Annotated[str, Field(max_length=MAX_TEXT)] = ""
    until_ns: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """End of a silence, wall clock."""


_ADAPTER: TypeAdapter[FindingAction] = TypeAdapter(FindingAction)


def encode_action(action: FindingAction) -> dict[str, Any]:
    """``action`` as a JSON object."""
    return asdict(action)


def decode_action(body: bytes) -> FindingAction:
    """The action in a JSON object. Its name and text are one printable line each.

    Raises:
        UsageError: it is not an action, or a value is out of range.
    """
    try:
        action = _ADAPTER.validate_json(body)
    except (ValidationError, RecursionError) as error:
        raise UsageError(f"finding action: {first_problem(error)}", hint=f"send {HINT}") from error
    checked = replace(action, who=one_line(action.who, MAX_NAME), text=one_line(action.text, MAX_TEXT))
    if not checked.who:
        raise UsageError("finding action: who is empty", hint="give the name of the person")
    if checked.action is Action.NOTE and not checked.text:
        raise UsageError("finding action: a note needs a text", hint="give the text of the note")
    return checked
