"""Calls callbacks of the dashboard server, as a browser does."""

from collections.abc import Sequence
from typing import Any

import httpx

Identity = str | dict[str, str]
Property = tuple[Identity, str]
"""A component and one of its properties."""
PropertyValue = tuple[Identity, str, object]
"""A component, one of its properties, and the value of the property."""


def ask(
    address: str,
    outputs: Sequence[Property | list[Property]],
    inputs: Sequence[PropertyValue | list[PropertyValue]],
    state: Sequence[PropertyValue],
    changed: Sequence[str],
) -> dict[str, Any]:
    """New properties by component. Empty if nothing changes. A list in ``outputs`` or ``inputs`` contains all
    components of one wildcard. ``changed``: the inputs that have changed, as "component.property"."""
    request = {
        "output": f"..{'...'.join(_named(one) for one in outputs)}..",
        "outputs": [_place(one) for one in outputs],
        "inputs": [_property_value(one) for one in inputs],
        "state": [_property_value(one) for one in state],
        "changedPropIds": [*changed],
    }
    with httpx.Client(base_url=address, verify=False, timeout=60) as http:  # plain HTTP: no certificates are read
        http.get("_dash-dependencies").raise_for_status()  # Dash sets up its callbacks with its first answer
        answer = http.post("_dash-update-component", json=request).raise_for_status()
    found: dict[str, Any] = answer.json()["response"]
    return found


def _place(one: Property | list[Property]) -> object:
    if isinstance(one, list):
        return [_place(each) for each in one]
    identity, name = one
    return {"id": identity, "property": name}


def _property_value(one: PropertyValue | list[PropertyValue]) -> object:
    if isinstance(one, list):
        return [_property_value(each) for each in one]
    identity, name, value = one
    return {"id": identity, "property": name, "value": value}


def _named(one: Property | list[Property]) -> str:
    """Dash's name for an output of a callback, with a wildcard for the values that differ between components."""
    stands_for = "ALL" if isinstance(one, list) else "MATCH"
    identity, name = one[0] if isinstance(one, list) else one
    if isinstance(identity, str):
        return f"{identity}.{name}"
    kind, *rest = identity
    written = [f'"{kind}":["{stands_for}"]', *(f'"{other}":"{identity[other]}"' for other in rest)]
    return f"{{{','.join(written)}}}.{name}"
