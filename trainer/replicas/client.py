"""The client of a keeper, for ranks: sends a part, lists the parts that are held, reads a range of a file."""

import ssl
import time
import zlib
from collections.abc import Iterator

import httpx

from telemetry.errors import RankscopeError, UnreadableError, UsageError
from trainer.json_records import decode
from trainer.replicas.memory_folder import MemoryFolder
from trainer.replicas.parts import Generation, Part, header_of

CONNECT_S, ANSWER_S = 2.0, 10.0
"""``ANSWER_S`` also limits each piece of a request."""
SEND_S = 60.0
"""Time limit for sending a whole part."""
PIECE_BYTES = 1 << 20
HINT = "if no replica is complete, the newest checkpoint in storage is used"


class KeeperClient:
    """A connection to one keeper. Every method raises UnreadableError if the keeper does not answer, or refuses."""

    def __init__(self, address: str, token: str) -> None:
        self.address = address
        self._http = httpx.Client(
            base_url=address,
            headers={"Authorization": f"Bearer {token}"},
            timeout=httpx.Timeout(ANSWER_S, connect=CONNECT_S),
            trust_env=False,
            verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),  # reading certificates takes 20 ms, and keepers use http
        )

    def send(self, part: Part, folder: MemoryFolder) -> None:
        """Return when the keeper holds ``part``, whose files are in ``folder``."""
        header = header_of(part)
        self._answer(
            "POST",
            "/v1/parts",
            content=_pieces(header, part, folder, time.monotonic() + SEND_S),
            headers={"Content-Length": str(len(header) + part.size_bytes)},
        )

    def parts(self) -> list[Part]:
        """The parts that the keeper holds."""
        return decode(list[Part], self._answer("GET", "/v1/parts"))

    def read(self, part: Part, name: str, begin: int, length: int) -> bytes:
        """``length`` bytes of a file, from byte ``begin``."""
        generation = part.generation
        content = self._answer(
            "GET",
            f"/v1/parts/{generation.attempt}/{generation.step}/{generation.writer_id}/{part.rank}/{name}",
            params={"begin": begin, "length": length},
        )
        if len(content) != length:
            raise UnreadableError(f"{self.address} gave {len(content)} bytes instead of {length}", hint=HINT)
        return content

    def read_whole(self, part: Part, name: str) -> bytes:
        """A whole file, after a check of its checksum."""
        file = part.file(name)
        if file is None:
            raise UnreadableError(f"the part of rank {part.rank} has no {name}", hint=HINT)
        content = self.read(part, name, 0, file.size_bytes)
        if zlib.crc32(content) != file.crc32:
            raise UnreadableError(f"{name} from {self.address} is damaged", hint=HINT)
        return content

    def keep_only(self, generation: Generation | None) -> None:
        """Let the keeper drop all other generations. If ``generation`` is None, it drops all."""
        named = generation._asdict() if generation else {}
        self._answer("POST", "/v1/keep", params=named)

    def __enter__(self) -> "KeeperClient":
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def _answer(self, method: str, path: str, **request: object) -> bytes:
        try:
            answer = self._http.request(method, path, **request)  # type: ignore[arg-type]
            answer.raise_for_status()
            return answer.content
        except httpx.HTTPStatusError as error:
            reason = f"{error.response.status_code} {error.response.text[:200]}"
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            reason = str(error) or type(error).__name__
        except RankscopeError as error:
            reason = error.message
        raise UnreadableError(f"the keeper at {self.address} does not answer: {reason}", hint=HINT)


def _pieces(header: bytes, part: Part, folder: MemoryFolder, until_s: float) -> Iterator[bytes]:
    yield header
    for file in part.files:
        with open(folder.open(file.name), "rb") as stream:
            while piece := stream.read(PIECE_BYTES):
                if time.monotonic() > until_s:
                    raise UsageError(f"the part was not sent within {SEND_S:g} s", hint=HINT)
                yield piece
