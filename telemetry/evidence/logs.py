"""Log output of ranks: the last lines of each, without lines that healthy steps also print. Known faults are marked.

    /proc/PID/fd/1, fd/2 --> regular files? --> kept open, read from the last position --> last lines of the rank
                                                                                |
    a step completes: lines so far are no sign of a stall ---> usual lines --> left out

The rank does not take part. Ranks that share one file are distinguished by the ``[rank3]:`` that torch puts in front of
a line. Pipes and terminals are not read: opening one can disturb its reader.

A file is opened once, from the process itself and with the rights of its user, and never again by its path.
"""

import json
import os
import re
import stat
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal

from telemetry.evidence.known_faults import fault_of
from telemetry.evidence.rank_state import open_process
from telemetry.files.access import rights_of

Stream = Literal["stdout", "stderr"]
STREAMS: dict[int, Stream] = {1: "stdout", 2: "stderr"}
READ_BYTES = 256 * 1024
"""Bytes read at once. If a file grew by more, only its last bytes are read."""
KEEP_LINES = 200
MAX_LINE = 500
MAX_REST = 4 * MAX_LINE
"""Bytes of an incomplete line: enough for ``MAX_LINE`` characters of any kind."""
MAX_PATTERNS = 4000
MAX_OFFSET_DIGITS = 19
USUAL_AFTER = 3
"""A line of one rank (such as progress) is usual after this number of completed steps."""
_CHANGING = re.compile(r"0x[0-9a-fA-F]+|[0-9a-f]{8,}|\d+")
_LINE_END = re.compile(rb"[\r\n]")
"""A progress bar ends its lines with a carriage return alone."""
_RANK = re.compile(r"\[rank(\d+)\]")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    """One line of one rank."""

    at_ns: int
    """The time of the file's last change, or of the read."""
    stream: Stream
    fault: str
    text: str

    @property
    def pattern(self) -> str:
        """The line without numbers and addresses."""
        return _CHANGING.sub("#", self.text)


FileKey = tuple[int, int]
"""Device and inode."""


@dataclass(slots=True)
class LogFile:
    """A file that grows. Each read continues at the last position."""

    descriptor: int  # -1: closed
    key: FileKey
    stream: Stream
    _offset: int = 0
    """Earlier bytes are not read: an earlier attempt may have printed into the same file."""
    _rest: bytes = b""

    def read_on(self) -> Iterator[LogLine]:
        """Complete lines since the last call."""
        if self.descriptor < 0:
            return
        try:
            status = os.fstat(self.descriptor)
            if status.st_size == self._offset:
                return
            raw = self._read(status.st_size)
        except OSError:
            return
        *lines, rest = _LINE_END.split(self._rest + raw)
        self._rest = rest[:MAX_REST]
        at_ns = min(time.time_ns(), status.st_mtime_ns)
        for line in lines:
            text = line.decode(errors="replace").rstrip()[:MAX_LINE]
            if text:
                yield LogLine(at_ns=at_ns, stream=self.stream, fault=fault_of(text), text=text)

    def close(self) -> None:
        """Read no more. Safe to repeat."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
        self.descriptor = -1

    def _read(self, size: int) -> bytes:
        if size < self._offset:
            self._offset, self._rest = 0, b""
        if size - self._offset > READ_BYTES:
            self._offset, self._rest = size - READ_BYTES, b""
        raw = os.pread(self.descriptor, size - self._offset, self._offset)
        self._offset += len(raw)
        return raw


def log_files_of(pid: int, offsets: str = "", uid: int = -1) -> list[LogFile]:
    """The regular files that a process of user ``uid`` prints into. The caller closes them.

    Reading starts at ``offsets``, from the identity's meta. A file for both streams is returned once.
    """
    numbers = offsets.split()
    valid = all(number.isascii() and number.isdecimal() and len(number) < MAX_OFFSET_DIGITS for number in numbers)
    begin = dict(zip(STREAMS, map(int, numbers), strict=False)) if valid else {}
    found: dict[FileKey, LogFile] = {}
    with suppress(OSError), open_process(pid, uid) as process:
        user = os.fstat(process)
        with rights_of(user.st_uid, user.st_gid):
            for number, stream in STREAMS.items():
                _open_log(process, number, stream, begin.get(number, 0), found)
    return list(found.values())


def _open_log(process: int, number: int, stream: Stream, offset: int, found: dict[FileKey, LogFile]) -> None:
    """Open a log and add it to ``found``. The file is checked before: opening a pipe or a device has effects."""
    with suppress(OSError):
        place = os.open(f"fd/{number}", os.O_PATH | os.O_CLOEXEC, dir_fd=process)
        try:
            status = os.fstat(place)
            key = status.st_dev, status.st_ino
            if stat.S_ISREG(status.st_mode) and key not in found:
                descriptor = os.open(f"/proc/self/fd/{place}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
                found[key] = LogFile(descriptor, key, stream, offset)
        finally:
            os.close(place)


@dataclass(slots=True)
class RankLog:
    """The last lines of one rank."""

    files: list[LogFile]
    followed: bool = False
    lines: deque[LogLine] = field(default_factory=lambda: deque(maxlen=KEEP_LINES))
    fresh: deque[LogLine] = field(default_factory=lambda: deque(maxlen=KEEP_LINES))

    def take(self, lines: Iterable[LogLine]) -> None:
        taken = list(lines)[-KEEP_LINES:]
        self.lines.extend(taken)
        self.fresh.extend(taken)


class JobLogs:
    """The logs of the ranks of one job on this host."""

    def __init__(self) -> None:
        self._ranks: dict[int, RankLog] = {}
        self._open: dict[FileKey, LogFile] = {}
        self._usual: OrderedDict[str, Counter[int]] = OrderedDict()
        """Pattern -> rank -> number of steps that completed after it."""

    def follow(self, rank: int, pid: int, offsets: str = "", uid: int = -1) -> None:
        """Read what a process of user ``uid`` prints. Lines of an earlier process of the rank stay."""
        log = self._ranks.setdefault(rank, RankLog([]))
        log.followed = True
        log.files = [self._known(file) for file in log_files_of(pid, offsets, uid)] or log.files
        self._close_unread()

    def follows(self, rank: int) -> bool:
        return rank in self._ranks and self._ranks[rank].followed

    def leave(self, rank: int) -> None:
        """Read no more of what a rank prints; its lines stay. Safe to repeat."""
        if rank in self._ranks:
            self._ranks[rank].followed = False
            self._close_unread()

    def close(self) -> None:
        """Read no more of any rank. Safe to repeat."""
        for rank in self._ranks:
            self.leave(rank)

    def read_on(self) -> None:
        """Add the lines that the ranks have printed since the last call."""
        owners: dict[FileKey, list[int]] = {}
        for rank, log in self._ranks.items():
            for file in log.files:
                if file.key in self._open:
                    owners.setdefault(file.key, []).append(rank)
        for key, ranks in owners.items():
            self._take(key, ranks)

    def step_went_by(self) -> None:
        """Note that a step completed: the lines since the last call are no sign of a stall."""
        for rank, log in self._ranks.items():
            for pattern in {line.pattern for line in log.fresh if not line.fault}:
                self._usual.setdefault(pattern, Counter())[rank] += 1
                self._usual.move_to_end(pattern)
            log.fresh.clear()
        while len(self._usual) > MAX_PATTERNS:
            self._usual.popitem(last=False)

    def shows_fault(self, rank: int) -> bool:
        """Whether a rank has printed a known fault since its last step began."""
        log = self._ranks.get(rank)
        return log is not None and any(line.fault for line in log.fresh)

    def body(self, rank: int) -> str | None:
        """The ``log`` text: a JSON list, oldest first; None if nothing of this rank can be read."""
        log = self._ranks.get(rank)
        if log is None or not log.files:
            return None
        rows = []
        for line in log.lines:
            ranks = self._usual.get(line.pattern, Counter())
            is_usual = 2 * len(ranks) > len(self._ranks) or max(ranks.values(), default=0) >= USUAL_AFTER
            if line.fault or not is_usual:
                rows.append({"at_ns": line.at_ns, "stream": line.stream, "fault": line.fault, "text": line.text})
        return json.dumps(rows)

    def _known(self, file: LogFile) -> LogFile:
        """The open file with the same key, or ``file`` itself. Ranks that share a file read each line once."""
        known = self._open.setdefault(file.key, file)
        if known is not file:
            file.close()
        return known

    def _close_unread(self) -> None:
        wanted = {file.key for log in self._ranks.values() if log.followed for file in log.files}
        for key in self._open.keys() - wanted:
            self._open.pop(key).close()

    def _take(self, key: FileKey, ranks: list[int]) -> None:
        """Add the new lines of one file to its ranks. If ranks share it, only lines with a rank prefix are used."""
        lines = list(self._open[key].read_on())
        if len(ranks) == 1:
            self._ranks[ranks[0]].take(lines)
            return
        for line in lines:
            if (found := _RANK.search(line.text)) and int(found[1]) in ranks:
                self._ranks[int(found[1])].take([line])
