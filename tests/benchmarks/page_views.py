"""The requests of a browser to a dashboard, without a browser.

GET /?view=...  -->  page: skeleton and parts that are ready  -->  late parts, one by one  -->  updates
"""

from collections.abc import Iterator
from typing import Any

import httpx

LIMIT_S = 120.0
_PAGE = "page.children"
_NEWS = "freshness.data"
_KINDS = ("region", "chart", "canvas")
"""Kinds of parts."""

Json = dict[str, Any]


class Visitor:
    """A user of a dashboard."""

    def __init__(self, address: str) -> None:
        self._client = httpx.Client(base_url=address, timeout=LIMIT_S)
        self._callbacks = {one["output"]: one for one in self._client.get("/_dash-dependencies").json()}
        self._client.get("/_dash-layout").raise_for_status()

    def close(self) -> None:
        self._client.close()

    def visit(self, search: str) -> int:
        """Request a page, all of its parts, and once its updates. Returns the bytes of the answers."""
        self._client.get(f"/{search}").raise_for_status()
        page, size = self._ask(self._named(_PAGE), {"url.search": search})
        for part in _parts(page) if page.get("here") else ():
            size += self._ask_for_part(part, search)
        shown = page.get("page", {}).get("data-drawn")
        known = page.get("known", {}).get("data")
        values = {"url.search": search, "page.data-drawn": shown, "known.data": known, "clock.n_intervals": 1}
        return size + self._ask(self._named(_NEWS), values)[1]

    def _ask_for_part(self, part: dict[str, str], search: str) -> int:
        """Request a part that did not come with its page."""
        kind = next(iter(part))
        here = {"search": search, "some": False}
        return self._ask(self._named(f'{{"{kind}":'), {"url.search": search, "here.data": here}, part)[1]

    def _named(self, start: str) -> Json:
        """The callback whose outputs start with ``start``."""
        return next(one for name, one in self._callbacks.items() if name.lstrip(".").startswith(start))

    def _ask(self, callback: Json, values: Json, part: dict[str, str] | None = None) -> tuple[Json, int]:
        inputs, state = ([_told(one, values, part) for one in callback[kind]] for kind in ("inputs", "state"))
        changed = [name for name in values if any(name == f"{one['id']}.{one['property']}" for one in inputs)]
        question = {
            "output": callback["output"],
            "outputs": [_place(name, part) for name in callback["output"].strip(".").split("...")],
            "inputs": inputs,
            "state": state,
            "changedPropIds": changed,
        }
        answer = self._client.post("/_dash-update-component", json=question)
        answer.raise_for_status()
        return (answer.json()["response"] if answer.content else {}), len(answer.content)


def _told(one: Json, values: Json, part: dict[str, str] | None) -> Json:
    identity = _identity(one["id"], part)
    return {"id": identity, "property": one["property"], "value": values.get(f"{one['id']}.{one['property']}")}


def _place(name: str, part: dict[str, str] | None) -> Json:
    identity, _, prop = name.rpartition(".")
    return {"id": _identity(identity, part), "property": prop}


def _identity(written: str, part: dict[str, str] | None) -> Any:
    """The identity of a component of a callback; ``part`` stands for a wildcard."""
    if not written.startswith("{") or part is None:
        return written
    kind = next(iter(part))
    where = "panel" if '"panel"' in written else part.get("part")
    return {kind: part[kind]} | ({"part": where} if where else {})


def _parts(node: Any) -> Iterator[dict[str, str]]:
    """Identities of the parts of a page."""
    if isinstance(node, list):
        for one in node:
            yield from _parts(one)
    elif isinstance(node, dict):
        identity = node.get("id")
        if isinstance(identity, dict) and next(iter(identity)) in _KINDS and identity.get("part") != "panel":
            yield identity
        for one in node.values():
            yield from _parts(one)
