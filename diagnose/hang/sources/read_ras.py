"""The answer of NCCL's RAS service: JSON (NCCL 2.28.7 and newer) or text (2.24 and newer), from a file or its socket.

    -> CLIENT PROTOCOL 2      <- SERVER PROTOCOL 2
    -> TIMEOUT 5              <- OK
    -> SET FORMAT json        <- OK, or ERROR from older versions: then the text is requested
    -> VERBOSE STATUS         <- the answer, until the end of the connection

RAS counts the operations that each rank has *launched*. Source: src/ras/client_support.cc of NCCL.
"""

import json
import re
import socket
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from diagnose.hang.sources.communicators import MAX_COMMUNICATORS, CommRank, Communicator, Member, checked
from telemetry.errors import UnreachableError, UnreadableError, UsageError
from telemetry.files.access import read_input
from telemetry.files.plain_pickle import MalformedError
from telemetry.plain_errors import why_malformed, without_errno
from telemetry.printable import one_line

MAX_BYTES = 2**28
ANSWER_S = 30.0
"""RAS itself waits up to 5 s for each of its ranks."""
RAS_TIMEOUT_S = 5
MAX_GREETING = 4096
USUAL_PORT = 28028
_MAX_COUNT = 2**63
_ADDRESS = re.compile(r"^(?P<host>[A-Za-z0-9_.\-]+|\[[0-9a-fA-F:.]+\]):(?P<port>\d{1,5})$")
_NO_COMMA = re.compile(rb'("nvml_dev": \d{1,4})(\s{1,40}"status")')
"""NCCL 2.28.9 leaves out a comma if a rank gives no answer."""
_HEAD = re.compile(r"^#(?P<group>\d{1,7})-(?P<number>\d{1,7}) \((?P<uid>[0-9a-f]{1,32})\) (?P<error>[A-Z,]{1,60})\s*$")
_ROW = re.compile(r"^ *(?P<group>\d{1,7}) +\d+ +\S+ +\S+ +(?P<size>\d{1,7}) +\d+ +[A-Z,]+ +[A-Z,]+\s*$")
_TOTAL = re.compile(r"^ +\d+ +\S+ +\S+ +\d+ +(?P<gpus>\d{1,7})\s*$")
_DIFFER = re.compile(r"^  Communicator ranks have different (?P<name>\w{1,40}) operation counts|"
                     r"^  Communicator ranks have different collective operation counts")  # fmt: skip
_MANY = re.compile(
    r"^  (?P<number>\d{1,7}) ranks have (?:launched up to operation (?P<count>\d{1,18})|not launched any)"
)
_ONE = re.compile(r"^  Rank (?P<rank>\d{1,7}) has (?:launched up to operation (?P<count>\d{1,18})|not launched any)")
_LISTED = re.compile(r"^  Rank (?P<rank>\d{1,7}) --|^  The missing ranks?: (?P<ranks>[\d, ]{1,10000})$")
_WHO = re.compile(r"-- GPU (?P<gpu>\d{1,4}).* managed by process (?P<pid>\d{1,10}) on node (?P<host>\S{1,255})")
_DEAD = re.compile(r"^  Process (?P<pid>\d{1,10}) on node (?P<host>\S{1,255}) managing GPUs? (?P<gpu>\d{1,4})")


def read_ras(data: bytes, name: str) -> list[Communicator]:
    """The communicators in an answer of RAS; errors call it ``name``.

    Raises:
        UnreadableError: it is no such answer.
    """
    try:
        found = _from_json(data) if data.lstrip()[:1] == b"{" else _from_text(data.decode(errors="replace"))
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError, MemoryError) as error:
        raise UnreadableError(
            f"{name} is not an answer of NCCL RAS ({one_line(why_malformed(error), 120)})",
            hint="accepted: the JSON or the text of ncclras. Write it with: ncclras -f json",
        ) from None
    if len(found) > MAX_COMMUNICATORS:
        raise UnreadableError(
            f"{name} has {len(found):,} communicators", hint="check that the file is an answer of NCCL RAS"
        )
    return found


def _from_json(data: bytes) -> list[Communicator]:
    content = json.loads(_NO_COMMA.sub(rb"\1,\2", data))
    found = [_communicator(item) for item in content["communicators"]]
    return [comm for comm in found if comm.size > 1]


def _communicator(item: Mapping[str, Any]) -> Communicator:
    here = [_rank(one) for one in item.get("ranks") or []]
    missing = [_rank(one, is_missing=True) for one in item.get("missing_ranks") or []]
    return Communicator(uid=str(item["hash"])[:64], size=checked(item["size"]), ranks=(*here, *missing))


def _rank(item: Mapping[str, Any], *, is_missing: bool = False) -> CommRank:
    status = item.get("status") or {}
    member: Member = (
        one_line(str(item.get("host"))[:256], 255),
        checked(item["pid"], 2**31),
        checked(item.get("cuda_dev", 0), 2**16),
    )
    counts = {
        str(name)[:40]: checked(count, _MAX_COUNT) for name, count in (item.get("collective_counts") or {}).items()
    }
    # A rank that answers, but is not in the communicator (any more), is not missing.
    gave_no_answer = is_missing and bool(status.get("unresponsive", True))
    return CommRank(
        rank=checked(item["rank"]),
        member=member,
        counts=counts,
        is_missing=gave_no_answer,
        is_dead=is_missing and status.get("considered_dead") is True,
    )


@dataclass(slots=True)
class _TextComm:
    """A communicator as the text shows it: only ranks that differ from the others."""

    uid: str
    size: int
    members: dict[int, Member] = field(default_factory=dict)
    missing: set[int] = field(default_factory=set)
    counts: dict[str, list[tuple[int, int, list[int]]]] = field(default_factory=dict)
    """Function -> rows of: number of ranks, their count, and which of these ranks are listed."""


def _from_text(text: str) -> list[Communicator]:
    """Only the communicator of all processes. For others, the text does not show which processes their ranks are."""
    if "Communicators..." not in text and "RAS" not in text and "Job summary" not in text:
        raise MalformedError("neither JSON nor the text of ncclras")
    sizes: dict[str, int] = {}
    dead: set[Member] = set()
    comms: dict[str, _TextComm] = {}
    comm: _TextComm | None = None
    section, function, num_gpus = "", "", 0
    for line in text.splitlines()[: MAX_BYTES // 16]:
        line = line[:20_000]
        if total := _TOTAL.match(line):
            num_gpus = checked(int(total["gpus"]))
        elif row := _ROW.match(line):
            sizes[row["group"]] = checked(int(row["size"]))
        elif head := _HEAD.match(line):
            uid = f"0x{head['uid'].lstrip('0')}"  # a communicator has one paragraph for each kind of error
            comm = comms.setdefault(uid, _TextComm(uid=uid, size=sizes.get(head["group"], 0)))
            section, function = head["error"], ""
        elif line.strip() in ("DEAD", "INCOMPLETE", "TIMEOUT"):
            section = line.strip()
        elif differ := _DIFFER.match(line):
            function = differ["name"] or "AllReduce"
        elif (process := _DEAD.match(line)) and section == "DEAD":
            dead.add((process["host"], int(process["pid"]), int(process["gpu"])))
        elif comm is not None and section not in ("DEAD", "TIMEOUT"):
            _take(comm, section, function, line)
    of_all = next((comm for comm in comms.values() if comm.size == max(num_gpus, *sizes.values(), 2)), None)
    return [] if of_all is None else [_filled(of_all, dead)]


def _take(comm: _TextComm, section: str, function: str, line: str) -> None:
    rows = comm.counts.setdefault(function, []) if function else []
    if many := _MANY.match(line):
        rows.append((int(many["number"]), int(many["count"] or 0), []))
    elif one := _ONE.match(line):
        rows.append((1, int(one["count"] or 0), [int(one["rank"])]))
        _add_member(comm, int(one["rank"]), line)
    elif listed := _LISTED.match(line):
        ranks = [int(part) for part in (listed["ranks"] or listed["rank"]).replace(" ", "").split(",") if part]
        for rank in ranks:
            _add_member(comm, rank, line)
        if "INCOMPLETE" in section and not function:
            comm.missing.update(ranks)
        elif rows:
            rows[-1][2].extend(ranks)


def _add_member(comm: _TextComm, rank: int, line: str) -> None:
    if who := _WHO.search(line):
        comm.members[rank] = (one_line(who["host"]), int(who["pid"]), int(who["gpu"]))


def _filled(comm: _TextComm, dead: set[Member]) -> Communicator:
    """The communicator with all its ranks. A rank that is not listed has the only count whose ranks are not listed."""
    counts: dict[int, dict[str, int]] = {rank: {} for rank in range(comm.size) if rank not in comm.missing}
    for function, rows in comm.counts.items():
        if not function:
            continue
        if sum(number for number, _, _ in rows) != len(counts):
            raise MalformedError(f"communicator {comm.uid} does not list all ranks that give no answer: use ncclras -v")
        listed = {rank: count for _, count, ranks in rows for rank in ranks}
        unlisted = [count for number, count, ranks in rows if len(ranks) < number]
        for rank, of_rank in counts.items():
            if rank in listed:
                of_rank[function] = listed[rank]
            elif len(unlisted) == 1:
                of_rank[function] = unlisted[0]
            elif rows:
                raise MalformedError(f"communicator {comm.uid} does not list the ranks that differ: use ncclras -v")
    known: dict[int, Member] = {rank: comm.members.get(rank, ("", rank, 0)) for rank in range(comm.size)}
    ranks = [CommRank(rank=rank, member=known[rank], counts=of_rank) for rank, of_rank in counts.items()]
    ranks += [
        CommRank(rank=rank, member=known[rank], is_missing=True, is_dead=known[rank] in dead)
        for rank in sorted(comm.missing)
        if rank < comm.size
    ]
    return Communicator(uid=comm.uid, size=comm.size, ranks=tuple(ranks))


def load_ras(place: str) -> bytes:
    """The answer in the file ``place``, or of the service at ``HOST:PORT``.

    Raises:
        UsageError: no such file.
        UnreachableError: the service gives no answer in time.
    """
    address = _ADDRESS.match(place)
    path = Path(place)
    if address is None or path.exists():
        try:
            return read_input(path, max_bytes=MAX_BYTES)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise UsageError(f"{place}: {reason}", hint=f"--ras FILE or HOST:PORT (usually {USUAL_PORT})") from None
    return ask_ras(address["host"].strip("[]"), int(address["port"]))


def ask_ras(host: str, port: int, within_s: float = ANSWER_S) -> bytes:
    """The answer of the service.

    Raises:
        UnreachableError: no answer in time, or one that is too large.
    """
    try:
        deadline_s = time.monotonic() + within_s
        with socket.create_connection((host, port), timeout=min(within_s, 5.0)) as connection:
            for command in ("CLIENT PROTOCOL 2", f"TIMEOUT {RAS_TIMEOUT_S}", "SET FORMAT json"):
                _send(connection, command)
                _line(connection, deadline_s)
            _send(connection, "VERBOSE STATUS")
            return b"".join(_answer(connection, deadline_s))
    except (OSError, EOFError, OverflowError, ValueError) as error:
        raise UnreachableError(
            f"NCCL RAS at {host}:{port}: {one_line(without_errno(error), 120)}",
            hint=f"run this on a host of the job. RAS listens on localhost:{USUAL_PORT} (NCCL_RAS_ADDR)",
        ) from None


def _send(connection: socket.socket, command: str) -> None:
    connection.sendall(f"{command}\n".encode())


def _line(connection: socket.socket, deadline_s: float) -> bytes:
    """One line of the greeting."""
    line = b""
    while not line.endswith(b"\n"):
        line += _receive(connection, deadline_s, 1)
        if len(line) > MAX_GREETING:
            raise ValueError("the answer is not one of NCCL RAS")
    return line


def _answer(connection: socket.socket, deadline_s: float) -> Iterator[bytes]:
    size = 0
    while True:
        try:
            block = _receive(connection, deadline_s, 65_536)
        except EOFError:
            return
        size += len(block)
        if size > MAX_BYTES:
            raise ValueError(f"the answer has more than {MAX_BYTES} bytes")
        yield block


def _receive(connection: socket.socket, deadline_s: float, size: int) -> bytes:
    left_s = deadline_s - time.monotonic()
    if left_s <= 0:
        raise TimeoutError("no complete answer in time")
    connection.settimeout(left_s)
    block = connection.recv(size)
    if not block:
        raise EOFError("the connection was closed")
    return block
