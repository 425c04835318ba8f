"""The dashboard's own scripts as one file, and its styles as another.

A browser that has them all still takes milliseconds to look each of them up; one whose address tells what is in it need
not be asked for again.
"""

import hashlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

FOLDER = Path(__file__).parent / "assets"
KEPT = "private, max-age=31536000, immutable"


class Joined(NamedTuple):
    """Files of one kind, one after the other."""

    address: str
    text: str
    media_type: str


def joined(suffix: str, media_type: str) -> Joined:
    """All files whose names end so, those of a folder before those of the folders in it."""
    files = sorted(FOLDER.rglob(f"*.{suffix}"), key=lambda file: (len(file.parts), file))
    text = "\n".join(file.read_text("utf-8") for file in files)
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return Joined(f"/own-assets/{digest}.{suffix}", text, media_type)


SCRIPT, STYLE = joined("js", "text/javascript"), joined("css", "text/css")


def serve_own_assets(server: FastAPI) -> None:
    """At the addresses of :data:`SCRIPT` and :data:`STYLE`."""
    for one in (SCRIPT, STYLE):
        server.add_route(one.address, _answer(one))


def _answer(one: Joined) -> Callable[[Request], Awaitable[Response]]:
    async def answer(_: Request) -> Response:
        return Response(one.text, media_type=one.media_type, headers={"Cache-Control": KEPT})

    return answer
