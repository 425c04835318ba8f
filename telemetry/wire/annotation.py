"""``POST /v1/annotations``: a tag, a note or a saved view, as JSON."""

from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError

from telemetry.annotations import MAX_ADDRESS, MAX_VIEW_NAME, Edit, Kind, checked_address, checked_tag
from telemetry.errors import UsageError
from telemetry.finding_log import MAX_NAME, MAX_TEXT
from telemetry.printable import one_line
from telemetry.wire.body_errors import first_problem

MAX_ANNOTATION_BYTES = 2**14
MAX_RUN_ID = 1000
"""Largest number of characters of the name of a run. Older versions stored longer names than this version does."""
HINT = '{"kind": "tag", "edit": "set", "run_id": "gpt", "name": "baseline", "who": "Ada"}'


@dataclass(frozen=True, slots=True, kw_only=True)
class Annotation:
    """A tag, a note or a view."""

    kind: Kind
    edit: Edit = Edit.SET
    run_id: Annotated[str, Field(max_length=MAX_RUN_ID)] = ""
    """Name of the run; empty for a view of all runs."""
    name: Annotated[str, Field(max_length=MAX_VIEW_NAME)] = ""
    """The tag, or the name of the view. A note has none."""
    text: Annotated[str, Field(max_length=MAX_ADDRESS)] = ""
    """The note, or the address of the view. A tag has none."""
    who: Annotated[str, Field(min_length=1, max_length=MAX_NAME)]
    """The name that the person gives. It is not verified."""


_ADAPTER: TypeAdapter[Annotation] = TypeAdapter(Annotation)


def encode_annotation(annotation: Annotation) -> dict[str, Any]:
    """``annotation`` as a JSON object."""
    return asdict(annotation)


def decode_annotation(body: bytes) -> Annotation:
    """The annotation in a JSON object. Its names and texts are one printable line each.

    Raises:
        UsageError: it is not an annotation, or a value is out of range.
    """
    try:
        annotation = _ADAPTER.validate_json(body)
    except (ValidationError, RecursionError) as error:
        raise UsageError(f"annotation: {first_problem(error)}", hint=f"send {HINT}") from error
    who = one_line(annotation.who, MAX_NAME)
    if not who:
        raise UsageError("annotation: who is empty", hint="give the name of the person")
    if not annotation.run_id and annotation.kind is not Kind.VIEW:
        raise UsageError(f"annotation: a {annotation.kind} needs a run", hint="give the name of the run as run_id")
    return replace(_CHECKED[annotation.kind](annotation), who=who)


def _checked_tag(annotation: Annotation) -> Annotation:
    return replace(annotation, name=checked_tag(annotation.name), text="")


def _checked_note(annotation: Annotation) -> Annotation:
    text = one_line(annotation.text, MAX_TEXT)
    if len(annotation.text) > MAX_TEXT or not text:
        raise UsageError(f"annotation: a note needs a text of at most {MAX_TEXT} characters", hint="change the text")
    if annotation.edit is not Edit.SET:
        raise UsageError("annotation: a note cannot be removed", hint="write another note")
    return replace(annotation, name="", text=text)


def _checked_view(annotation: Annotation) -> Annotation:
    name = one_line(annotation.name, MAX_VIEW_NAME)
    if not name:
        raise UsageError("annotation: a view needs a name", hint="give the name of the view")
    return replace(annotation, name=name, text=checked_address(annotation.text) if annotation.edit is Edit.SET else "")


_CHECKED = {Kind.TAG: _checked_tag, Kind.NOTE: _checked_note, Kind.VIEW: _checked_view}
