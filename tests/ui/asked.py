"""A question to the server's callbacks, as a browser asks it."""

from collections.abc import Sequence
from typing import Any

import httpx

Identity = str | dict[str, str]
Place = tuple[Identity, str]
"""A component and one of its properties."""
Told = tuple[Identity, str, object]
"""The same, with its value."""


def ask(
    address: str,
    outputs: Sequence[Place | list[Place]],
    inputs: Sequence[Told | list[Told]],
    state: Sequence[Told],
    changed: Sequence[str],
) -> dict[str, Any]:
    """New properties by component; none where nothing changes. A list among ``outputs`` or ``inputs``: all components
    that one wildcard stands for. ``changed``: inputs that have, as "component.property"."""
    question = {
        "output": f"..{'...'.join(_named(one) for one in outputs)}..",
        "outputs": [_place(one) for one in outputs],
        "inputs": [_told(one) for one in inputs],
        "state": [_told(one) for one in state],
        "changedPropIds": [*changed],
    }
    httpx.get(f"{address}_dash-dependencies").raise_for_status()  # Dash sets up its callbacks with its first answer
    answer = httpx.post(f"{address}_dash-update-component", json=question, timeout=60).raise_for_status()
    found: dict[str, Any] = answer.json()["response"]
    return found


def _place(one: Place | list[Place]) -> object:
    if isinstance(one, list):
        return [_place(each) for each in one]
    identity, name = one
    return {"id": identity, "property": name}


def _told(one: Told | list[Told]) -> object:
    if isinstance(one, list):
        return [_told(each) for each in one]
    identity, name, value = one
    return {"id": identity, "property": name, "value": value}


def _named(one: Place | list[Place]) -> str:
    """As Dash names an output of a callback: a wildcard in place of what differs between its components."""
    stands_for = "ALL" if isinstance(one, list) else "MATCH"
    identity, name = one[0] if isinstance(one, list) else one
    if isinstance(identity, str):
        return f"{identity}.{name}"
    kind, *rest = identity
    written = [f'"{kind}":["{stands_for}"]', *(f'"{other}":"{identity[other]}"' for other in rest)]
    return f"{{{','.join(written)}}}.{name}"
