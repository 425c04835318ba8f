"""What ranks print: the last lines of each, less what healthy runs say too, known faults marked.

    /proc/PID/fd/1, fd/2 --> regular files? --> read on from where we were --> last lines of the rank
                                                                                |
    a step goes by: what the ranks have said so far was no sign of a stall ---> what is usual --> left out

No cooperation of the rank is needed. Ranks that share one file are told apart by the ``[rank3]:`` that torch puts in
front of a line. Pipes and terminals are somebody else's and are left alone.
"""

import json
import os
import re
import stat
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from telemetry.agent.known_faults import fault_of

Stream = Literal["stdout", "stderr"]
STREAMS: dict[int, Stream] = {1: "stdout", 2: "stderr"}
READ_BYTES = 256 * 1024
"""At one look; of what is more, the last."""
KEEP_LINES = 200
MAX_LINE = 500
MAX_REST = 4 * MAX_LINE
"""Bytes of a line that has not ended; as many characters as are told have room, whatever they are."""
MAX_PATTERNS = 4000
SAID_OFTEN = 3
"""A line that one rank alone says (progress, say) is usual once steps went by after it so many times."""
_CHANGING = re.compile(r"0x[0-9a-fA-F]+|[0-9a-f]{8,}|\d+")
_LINE_END = re.compile(rb"[\r\n]")
"""A progress bar ends its lines with a carriage return alone."""
_RANK = re.compile(r"\[rank(\d+)\]")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    """One line of one rank."""

    at_ns: int
    """When it was in the file at the latest: the file's last change, or our look."""
    stream: Stream
    fault: str
    text: str

    @property
    def pattern(self) -> str:
        """The line with what changes from time to time taken out."""
        return _CHANGING.sub("#", self.text)


@dataclass(slots=True)
class LogFile:
    """A file that grows, read on from look to look."""

    path: Path
    stream: Stream
    _offset: int = 0
    """Nothing before it is read: an earlier attempt may have printed into the same file."""
    _rest: bytes = b""

    def read_on(self) -> Iterator[LogLine]:
        """Whole lines that have come since."""
        try:
            size, changed_ns = self._stat()
            if size == self._offset:
                return
            raw = self._read(size)
        except OSError:
            return
        *lines, rest = _LINE_END.split(self._rest + raw)
        self._rest = rest[:MAX_REST]
        at_ns = min(time.time_ns(), changed_ns)
        for line in lines:
            text = line.decode(errors="replace").rstrip()[:MAX_LINE]
            if text:
                yield LogLine(at_ns=at_ns, stream=self.stream, fault=fault_of(text), text=text)

    def _stat(self) -> tuple[int, int]:
        found = self.path.stat()
        return found.st_size, found.st_mtime_ns

    def _read(self, size: int) -> bytes:
        if size < self._offset:
            self._offset, self._rest = 0, b""
        if size - self._offset > READ_BYTES:
            self._offset, self._rest = size - READ_BYTES, b""
        with self.path.open("rb") as file:
            file.seek(self._offset)
            raw = file.read(size - self._offset)
        self._offset += len(raw)
        return raw


def log_files_of(pid: int, offsets: str = "", proc: Path = Path("/proc")) -> list[LogFile]:
    """The regular files that a process prints into, from where it began (``offsets``, as the identity's meta tells);
    one that it prints everything into comes once."""
    words = offsets.split()
    begin = dict(zip(STREAMS, map(int, words), strict=False)) if all(word.isdigit() for word in words) else {}
    found: dict[tuple[int, int], LogFile] = {}
    for number, stream in STREAMS.items():
        link = proc / str(pid) / "fd" / str(number)
        try:
            status = link.stat()
            path = Path(os.readlink(link))
        except OSError:
            continue
        if stat.S_ISREG(status.st_mode) and path.is_absolute() and path.exists():
            found.setdefault((status.st_dev, status.st_ino), LogFile(path, stream, begin.get(number, 0)))
    return list(found.values())


@dataclass(slots=True)
class RankLog:
    """The last lines of one rank."""

    files: list[LogFile]
    lines: deque[LogLine] = field(default_factory=lambda: deque(maxlen=KEEP_LINES))
    fresh: list[LogLine] = field(default_factory=list)
    """Since the last step began."""

    def take(self, lines: Iterable[LogLine]) -> None:
        taken = list(lines)[-KEEP_LINES:]
        self.lines.extend(taken)
        self.fresh = [*self.fresh, *taken][-KEEP_LINES:]

    @property
    def shows_fault(self) -> bool:
        """Whether a known fault has shown since the last step began."""
        return any(line.fault for line in self.fresh)


class JobLogs:
    """The logs of the ranks of one job on this host."""

    def __init__(self) -> None:
        self._ranks: dict[int, RankLog] = {}
        self._said: OrderedDict[str, Counter[int]] = OrderedDict()
        """Pattern -> rank -> how often steps went by after it."""

    def follow(self, rank: int, pid: int, offsets: str = "") -> None:
        """Read what a process prints. What it said in an earlier life stays."""
        files = log_files_of(pid, offsets)
        before = self._ranks.get(rank)
        known = {file.path: file for file in before.files} if before else {}
        log = before or RankLog([])
        log.files = [known.get(file.path, file) for file in files] or log.files
        self._ranks[rank] = log

    def read_on(self) -> None:
        """Take in what the ranks have printed since."""
        owners: dict[Path, list[int]] = {}
        for rank, log in self._ranks.items():
            for file in log.files:
                owners.setdefault(file.path, []).append(rank)
        for path, ranks in owners.items():
            self._take(path, ranks)

    def step_went_by(self) -> None:
        """What was said so far is what healthy ranks say."""
        for rank, log in self._ranks.items():
            for pattern in {line.pattern for line in log.fresh if not line.fault}:
                self._said.setdefault(pattern, Counter())[rank] += 1
                self._said.move_to_end(pattern)
            log.fresh = []
        while len(self._said) > MAX_PATTERNS:
            self._said.popitem(last=False)

    def shows_fault(self, rank: int) -> bool:
        """Whether a rank has printed a known fault since its last step began."""
        log = self._ranks.get(rank)
        return log is not None and log.shows_fault

    def body(self, rank: int) -> str | None:
        """The ``log`` text: a JSON list, oldest first; None where nothing can be read of this rank."""
        log = self._ranks.get(rank)
        if log is None or not log.files:
            return None
        told = [line for line in log.lines if line.fault or not self._is_usual(line.pattern)]
        return json.dumps(
            [{"at_ns": one.at_ns, "stream": one.stream, "fault": one.fault, "text": one.text} for one in told]
        )

    def _is_usual(self, pattern: str) -> bool:
        said = self._said.get(pattern)
        return said is not None and (2 * len(said) > len(self._ranks) or max(said.values()) >= SAID_OFTEN)

    def _take(self, path: Path, ranks: list[int]) -> None:
        """Lines of one file; where ranks share it, those that say whose they are."""
        (file, *_) = (file for file in self._ranks[ranks[0]].files if file.path == path)
        lines = list(file.read_on())
        if len(ranks) == 1:
            self._ranks[ranks[0]].take(lines)
            return
        for line in lines:
            if (found := _RANK.search(line.text)) and int(found[1]) in ranks:
                self._ranks[int(found[1])].take([line])
