"""Log files of a job, and what their lines say of each rank. Ranks may share a file, or have one each.

    files, folders, globs, -  -->  lines  -->  facts (log_lines.py)  -->  RankLog of each rank  -->  from_logs.py

A line belongs to the rank in its prefix (``[rank3]:``). Otherwise it belongs to the rank of its file, of its launcher's
prefix (``[default3]:``), or of the default group (``[PG ID 0 ... Rank 3]``). A line of no known rank is not used.

A watchdog first reports the operation, and then its group in another line. Both name the number of the operation.
"""

import glob
import gzip
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from io import BufferedIOBase, BufferedReader
from pathlib import Path
from typing import IO

from diagnose.hang.evidence import LogLine
from diagnose.hang.sources.log_lines import INTERESTING, MAX_LINE, RANK_PREFIX, LogFact, LoggedWork, fact_of, stamp_of
from telemetry.errors import UsageError
from telemetry.files.access import open_input
from telemetry.printable import printable
from telemetry.topology import MAX_RANKS

STDIN = "-"
MAX_FILES = 20_000
MAX_LOG_BYTES = 2**31
"""Of one file, after decompression."""
MAX_LINE_BYTES = 2**16
MAX_FACTS = 2_000_000
"""Lines examined of one file."""
MAX_GROUPS = 4096
MAX_WORKS = 64
"""Operations kept of a group, those with the lowest numbers."""
MAX_FAULTS = 20
"""Lines with a fault kept of a rank."""
MAX_TEXT = 500
MAX_LOGGED_RANKS = 100_000
UNLINKED = ""
"""Name of the group of operations whose group no line names (torch 2.1 and 2.2)."""
WORLD_UID, WORLD_NAMES = "0", ("default_pg", "default")
_IN_NAME = re.compile(r"(?:^|[^a-z])rank[_\-.=]?(\d{1,7})(?!\d)", re.IGNORECASE)
_IN_FOLDER = re.compile(r"attempt_\d+/(\d{1,7})/std(?:out|err)\.log(?:\.gz)?$")
_SIGNALS = {-1: "SIGHUP", -2: "SIGINT", -6: "SIGABRT", -7: "SIGBUS", -9: "SIGKILL", -11: "SIGSEGV", -15: "SIGTERM"}


@dataclass(slots=True)
class GroupLog:
    """What a rank logged of one group."""

    desc: str = ""
    place: int = -1
    enqueued: int = -1
    completed: int = -1
    has_counts: bool = False
    works: dict[int, tuple[LoggedWork, int]] = field(default_factory=dict)
    """By number: operations that timed out, and when that was reported."""

    def add_work(self, work: LoggedWork, at_ns: int) -> None:
        self.works.setdefault(work.seq, (work, at_ns))
        if len(self.works) > MAX_WORKS:
            del self.works[max(self.works)]


@dataclass(slots=True)
class RankLog:
    """What the log says of one rank."""

    groups: dict[str, GroupLog] = field(default_factory=dict)
    faults: list[LogLine] = field(default_factory=list)
    ended_by: str = ""
    """From the launcher's table of failures."""
    ended_ns: int = 0
    host: str = ""

    def of(self, uid: str) -> GroupLog:
        if uid not in self.groups and len(self.groups) >= MAX_GROUPS:
            return GroupLog()
        return self.groups.setdefault(uid, GroupLog())


@dataclass(slots=True)
class JobLog:
    """What all files say."""

    ranks: dict[int, RankLog] = field(default_factory=dict)
    joined: list[tuple[tuple[int, ...], int, int]] = field(default_factory=list)
    """Of desync reports."""
    sizes: set[int] = field(default_factory=set)
    """Numbers of ranks that lines state."""
    highest: int = -1
    """The highest rank that a line names."""
    num_files: int = 0
    num_unknown: int = 0
    """Lines that say something of an unknown rank."""
    notes: list[str] = field(default_factory=list)

    def of(self, rank: int) -> RankLog | None:
        if rank >= MAX_RANKS or (rank not in self.ranks and len(self.ranks) >= MAX_LOGGED_RANKS):
            return None
        self.highest = max(self.highest, rank)
        return self.ranks.setdefault(rank, RankLog())


def read_logs(names: Sequence[str], stdin: IO[bytes] | None = None) -> JobLog:
    """All lines of the files, folders and globs ``names``; ``-``: of ``stdin``. Plain text or gzip.

    Raises:
        UsageError: a name that matches no file.
    """
    job = JobLog()
    for name in names:
        if name == STDIN:
            if stdin is not None:
                _read(job, stdin, STDIN, whole_job=len(names) == 1)
            continue
        paths = _files(name)
        for path in paths:
            try:
                with open_input(path) as file, _unpacked(file) as lines:
                    _read(job, lines, str(path), whole_job=len(names) == len(paths) == 1)
            except (OSError, EOFError, zlib.error) as error:
                job.notes.append(f"ignored: {path.name}: {getattr(error, 'strerror', None) or error}"[:200])
    return job


def _files(name: str) -> list[Path]:
    path = Path(name)
    try:
        if path.is_dir():
            found = sorted(below for below in path.rglob("*") if below.is_file())
        else:
            found = [path] if path.exists() else sorted(Path(match) for match in glob.glob(name, recursive=True))
    except (OSError, ValueError) as error:
        raise UsageError(f"{name}: {error}", hint="check the path and the read permission") from None
    if not found:
        raise UsageError(f"{name} matches no file", hint="name log files, folders or globs: --logs 'logs/*.log'")
    if len(found) > MAX_FILES:
        raise UsageError(f"{name} matches {len(found):,} files", hint=f"name at most {MAX_FILES:,}")
    return found


def _unpacked(file: BufferedReader) -> BufferedIOBase:
    """The end of a large plain file: a stall is reported there."""
    if file.peek(2)[:2] == b"\x1f\x8b":
        return gzip.GzipFile(fileobj=file)
    size = file.seek(0, 2)
    file.seek(max(0, size - MAX_LOG_BYTES))
    return file


def lines_of(file: IO[bytes] | BufferedIOBase) -> Iterator[bytes]:
    """Lines that may say something, without the rest of a long one. A progress bar ends lines with ``\\r`` alone."""
    left, is_rest = MAX_LOG_BYTES, False
    prefixes: set[bytes] = set()
    while left > 0 and (block := file.readline(MAX_LINE_BYTES)):
        left -= len(block)
        if not is_rest and INTERESTING.search(block):
            yield from (part for part in block.splitlines() if INTERESTING.search(part))
        elif (found := RANK_PREFIX.search(block)) and found[0] not in prefixes and len(prefixes) < MAX_LOGGED_RANKS:
            prefixes.add(found[0])
            yield block[:MAX_TEXT]
        is_rest = not block.endswith(b"\n")


def _read(job: JobLog, file: IO[bytes] | BufferedIOBase, name: str, *, whole_job: bool) -> None:
    job.num_files += 1
    reader = _FileReader(job, _rank_in(name), alone=whole_job)
    try:
        for number, raw in enumerate(lines_of(file)):
            if number >= MAX_FACTS:
                job.notes.append(f"log: only the first {MAX_FACTS:,} lines with words of a stall were read of one file")
                break
            reader.take(raw[: 4 * MAX_LINE].decode(errors="replace"))
    finally:
        reader.finish()


def _rank_in(name: str) -> int | None:
    found = _IN_NAME.search(Path(name).name) or _IN_FOLDER.search(name)
    return int(found[1]) if found else None


@dataclass(slots=True)
class _FileReader:
    """One file, line by line."""

    job: JobLog
    rank_of_file: int | None
    alone: bool
    """Whether it is the only file: then its local ranks are taken to be those of one host."""
    roles: dict[str, int] = field(default_factory=dict)
    """Prefix of a launcher -> global rank, where a line has both."""
    waiting: list[tuple[LogFact, str]] = field(default_factory=list)
    """Lines with the prefix of a launcher alone."""
    unlinked: dict[tuple[int, int], tuple[LoggedWork, int]] = field(default_factory=dict)
    """By rank and number: operations whose group is not known yet."""
    cells: dict[str, str] = field(default_factory=dict)

    def take(self, line: str) -> None:
        fact = fact_of(line)
        if fact.world_size:
            self.job.sizes.add(min(fact.world_size, MAX_RANKS))
        if fact.other_rank >= 0 and fact.other_rank < MAX_RANKS:
            self.job.highest = max(self.job.highest, fact.other_rank)
        if fact.joined and len(self.job.joined) < MAX_WORKS:
            self.job.joined.append(fact.joined)
        if fact.cell[0]:
            self._take_cell(*fact.cell)
            return
        rank = self._rank(fact)
        if rank is not None:
            self._add(rank, fact, line)
        elif fact.local_rank >= 0 and len(self.waiting) < 10 * MAX_FAULTS * MAX_WORKS:
            self.waiting.append((fact, line))
        elif fact.work or fact.counts:
            self.job.num_unknown += 1

    def _rank(self, fact: LogFact) -> int | None:
        if fact.rank is not None:
            if fact.role and len(self.roles) < MAX_GROUPS:
                self.roles.setdefault(fact.role, fact.rank)
            return fact.rank
        group = fact.group
        if fact.role and fact.role in self.roles:
            return self.roles[fact.role]
        if self.rank_of_file is not None:
            return self.rank_of_file
        if group is not None and is_world(group.uid, group.desc):
            return group.place
        if fact.role:
            return None
        # torch 2.1: no other number. It is the rank in a group; from_logs.py uses it only if all ranks agree.
        return fact.place if fact.work is not None and fact.place >= 0 else None

    def finish(self) -> None:
        """Lines with a local rank alone, once the file shows which ranks these are; operations without a group."""
        one_host = self.alone and all(role.endswith(str(rank)) for role, rank in self.roles.items())
        for fact, line in self.waiting:
            rank = self.roles.get(fact.role, fact.local_rank if one_host else None)
            if rank is not None:
                self._add(rank, fact, line)
            elif fact.work or fact.counts:
                self.job.num_unknown += 1
        for (rank, _), (work, at_ns) in self.unlinked.items():
            if (log := self.job.of(rank)) is not None:
                log.of(UNLINKED).add_work(work, at_ns)

    def _add(self, rank: int, fact: LogFact, line: str) -> None:
        log = self.job.of(rank)
        if log is None:
            return
        if fact.fault and len(log.faults) < MAX_FAULTS:
            text = printable(line.strip())[:MAX_TEXT]
            log.faults.append(LogLine(at_ns=fact.at_ns, fault=fact.fault, text=text))
        if fact.group is None:
            if fact.work is not None and fact.work.ran_ns:
                self._add_unlinked(rank, log, fact.work, fact.at_ns)
            return
        of_group = log.of(fact.group.uid)
        of_group.desc, of_group.place = fact.group.desc or of_group.desc, fact.group.place
        if fact.work is not None and fact.work.ran_ns:
            self.unlinked.pop((rank, fact.work.seq), None)
            of_group.add_work(fact.work, fact.at_ns)
        if fact.work_seq is not None:
            linked = self.unlinked.pop((rank, fact.work_seq), None)
            if linked is not None:
                of_group.add_work(*linked)
        if fact.counts is not None:
            of_group.has_counts = True
            of_group.enqueued = max(of_group.enqueued, fact.counts[0])
            of_group.completed = max(of_group.completed, fact.counts[1])

    def _add_unlinked(self, rank: int, log: RankLog, work: LoggedWork, at_ns: int) -> None:
        """The last words of a process repeat an operation that has been linked."""
        is_linked = any(work.seq in of_group.works for of_group in log.groups.values())
        if not is_linked and len(self.unlinked) < MAX_LOGGED_RANKS:
            self.unlinked.setdefault((rank, work.seq), (work, at_ns))

    def _take_cell(self, column: str, value: str) -> None:
        """The launcher's table: time, host and rank come before the exit status."""
        self.cells[column] = value
        if column != "exit":
            return
        cells, self.cells = self.cells, {}
        log = self.job.of(int(cells["rank"])) if "rank" in cells else None
        if log is not None and not log.ended_by:
            status = int(value)
            log.ended_by = _SIGNALS.get(status, f"exit {status}" if status >= 0 else f"signal {-status}")
            log.ended_ns = stamp_of(cells.get("time", ""))
            log.host = printable(cells.get("host", ""))


def is_world(uid: str, desc: str) -> bool:
    """Whether it is the default group, of all ranks."""
    return uid == WORLD_UID or desc in WORLD_NAMES
