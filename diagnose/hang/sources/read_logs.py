"""Read the log files of a job: what their lines show about each rank. Ranks may share a file, or have one each.

    files, folders, globs, -  -->  lines  -->  facts (log_lines.py)  -->  RankLog of each rank  -->  from_logs.py

A line belongs to the rank in its prefix (``[rank3]:``), or in the default group (``[PG ID 0 ... Rank 3]``). Otherwise
it belongs to the rank of its launcher's prefix (``[default3]:``) or of its file, if that stands for one rank. A line of
no known rank is not used.

A watchdog first reports the operation, and then its group in another line. Both name the number of the operation.
"""

import glob
import gzip
import re
import zlib
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from io import BufferedIOBase, BufferedReader
from pathlib import Path
from typing import IO

from diagnose.hang.evidence import LogLine
from diagnose.hang.sources.job_log import MAX_GROUPS, MAX_LOGGED_RANKS, MAX_WORKS, UNLINKED, JobLog, RankLog
from diagnose.hang.sources.log_lines import INTERESTING, MAX_LINE, RANK_PREFIX, LogFact, fact_of, stamp_of
from telemetry.errors import UsageError
from telemetry.files.access import open_input
from telemetry.printable import printable
from telemetry.topology import MAX_RANKS

STDIN = "-"
MAX_FILES = 20_000
MAX_LOG_BYTES = 2**31
"""Number of bytes that are read of one file, after decompression."""
MAX_LINE_BYTES = 2**16
MAX_FACTS = 2_000_000
"""Number of lines of one file that are examined."""
MAX_DEFERRED = 20_000
"""Number of lines of one file that are kept until its end: the last ones."""
MAX_FAULTS = 20
"""Number of lines with a fault that are kept of a rank."""
MAX_TEXT = 500
_IN_NAME = re.compile(
    r"(?:^|[^a-z])(?<!local[_\-.])(?<!node[_\-.])(?<!group[_\-.])(?<!\b[tpdce]p[_\-.])(?<!_[tpdce]p[_\-.])"
    r"rank[_\-.=]?(\d{1,7})(?!\d)",
    re.IGNORECASE,
)
"""A rank in the name of a file, but not a local rank, or the rank of a node or of a group."""
_ATTEMPT = re.compile(r"^attempt_(\d{1,7})$")
"""Folder of torchrun for one attempt. The folders in it are named after local ranks."""
_COLUMNS = ("time", "host", "rank", "exit")
"""Columns of the launcher's table of failures."""
_SIGNALS = {-1: "SIGHUP", -2: "SIGINT", -6: "SIGABRT", -7: "SIGBUS", -9: "SIGKILL", -11: "SIGSEGV", -15: "SIGTERM"}


def read_logs(names: Sequence[str], stdin: IO[bytes] | None = None) -> JobLog:
    """Read the files, folders and globs ``names``, plain text or gzip. The name ``-`` is ``stdin``.

    Raises:
        UsageError: a name matches no file.
    """
    job = JobLog()
    for name in names:
        if name == STDIN:
            if stdin is not None:
                _read(job, stdin, STDIN)
            continue
        paths = _files(name)
        newest = _of_newest_attempts(paths)
        if len(newest) < len(paths):
            job.notes.append(f"log: {len(paths) - len(newest)} files of earlier attempts were not used")
        for path in newest:
            try:
                with open_input(path) as file, _unpacked(file) as lines:
                    _read(job, lines, str(path))
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
        raise UsageError(f"{name} matches no file", hint="give log files, folders or globs: --logs 'logs/*.log'")
    if len(found) > MAX_FILES:
        raise UsageError(f"{name} matches {len(found):,} files", hint=f"give at most {MAX_FILES:,}")
    return found


def _of_newest_attempts(paths: Sequence[Path]) -> list[Path]:
    """``paths`` without those in folders of older attempts: torchrun has started another attempt after them."""
    attempts = {path: _attempt_of(path) for path in paths}
    newest: dict[Path, int] = {}
    for folder, attempt in attempts.values():
        newest[folder] = max(newest.get(folder, -1), attempt)
    return [path for path, (folder, attempt) in attempts.items() if attempt == newest[folder]]


def _attempt_of(path: Path) -> tuple[Path, int]:
    """The folder with all attempts, and the number of the attempt. For other files: the path itself, and -1."""
    for parent in path.parents:
        if found := _ATTEMPT.match(parent.name):
            return parent.parent, int(found[1])
    return path, -1


def _unpacked(file: BufferedReader) -> BufferedIOBase:
    """The file as plain text. Of a large file that is not compressed, only the end: a stall is reported there."""
    if file.peek(2)[:2] == b"\x1f\x8b":
        return gzip.GzipFile(fileobj=file)
    size = file.seek(0, 2)
    file.seek(max(0, size - MAX_LOG_BYTES))
    return file


def lines_of(file: IO[bytes] | BufferedIOBase) -> Iterator[bytes]:
    """Lines that may show a fact, without the rest of a long line. A progress bar ends lines with ``\\r`` alone."""
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


def _read(job: JobLog, file: IO[bytes] | BufferedIOBase, name: str) -> None:
    job.files.append(name)
    reader = _FileReader(job, _rank_in(name))
    try:
        for number, raw in enumerate(lines_of(file)):
            if number >= MAX_FACTS:
                job.notes.append(f"log: only the first {MAX_FACTS:,} lines about a stall were read of one file")
                break
            reader.take(raw[: 4 * MAX_LINE].decode(errors="replace"))
    finally:
        reader.finish()


def _rank_in(name: str) -> int | None:
    found = _IN_NAME.search(Path(name).name)
    return int(found[1]) if found else None


@dataclass(slots=True)
class _FileReader:
    """Reads one file line by line. Lines without the prefix of torch are kept until the end of the file: only then it
    is known whether a prefix of a launcher, or the name of the file, stands for one rank."""

    job: JobLog
    rank_of_file: int | None
    roles: dict[str, set[int]] = field(default_factory=dict)
    """Prefix of a launcher -> global ranks, where a line has both."""
    prefixes: set[int] = field(default_factory=set)
    with_unlinked: set[int] = field(default_factory=set)
    """Ranks with an operation whose group is not known yet."""
    deferred: deque[tuple[LogFact, str]] = field(default_factory=lambda: deque(maxlen=MAX_DEFERRED))
    cells: dict[str, str] = field(default_factory=dict)

    def take(self, line: str) -> None:
        fact = fact_of(line)
        if fact.world_size:
            self.job.sizes.add(min(fact.world_size, MAX_RANKS))
        if 0 <= fact.other_rank < MAX_RANKS:
            self.job.highest = max(self.job.highest, fact.other_rank)
        if fact.joined and len(self.job.joined) < MAX_WORKS:
            self.job.joined.append(fact.joined)
        if fact.cell[0]:
            self._take_cell(*fact.cell)
            return
        rank = fact.rank if fact.rank is not None else _place_in_world(fact)
        if rank is not None and fact.role and len(self.roles) < MAX_GROUPS:
            self.roles.setdefault(fact.role, set()).add(rank)
        if fact.rank is None or self._may_be_local(fact):
            self.deferred.append((fact, line))
            return
        if len(self.prefixes) < MAX_LOGGED_RANKS:
            self.prefixes.add(fact.rank)
        self._add(fact.rank, fact, line)

    def _may_be_local(self, fact: LogFact) -> bool:
        """torchrun writes ``[rank3]:`` for a local rank, too, if the role of the job is ``rank``."""
        return not fact.role and f"rank{fact.rank}" in self.roles

    def finish(self) -> None:
        """Add the lines whose rank only the whole file shows, and the operations whose group is not known."""
        for fact, line in self.deferred:
            rank = self._rank_by_file(fact)
            if rank is not None:
                self._add(rank, fact, line)
            elif fact.work or fact.counts:
                self.job.num_unknown += 1
        for rank in self.with_unlinked:
            self.job.ranks[rank].put_unlinked(UNLINKED)

    def _rank_by_file(self, fact: LogFact) -> int | None:
        place = _place_in_world(fact)
        if place is not None:
            return place
        if role := fact.role or (f"rank{fact.rank}" if fact.rank is not None else ""):
            ranks = self.roles.get(role, set())
            return next(iter(ranks)) if len(ranks) == 1 else None
        if self.prefixes:
            return next(iter(self.prefixes)) if len(self.prefixes) == 1 else None
        if self.rank_of_file is not None:
            return self.rank_of_file
        # torch 2.1: no other number. It is the rank in a group; from_logs.py does not compare such ranks.
        return fact.place if fact.work is not None and fact.place >= 0 else None

    def _add(self, rank: int, fact: LogFact, line: str) -> None:
        log = self.job.of(rank)
        if log is None:
            return
        if fact.fault and len(log.faults) < MAX_FAULTS:
            text = printable(line.strip())[:MAX_TEXT]
            log.faults.append(LogLine(at_ns=fact.at_ns, fault=fact.fault, text=text))
        work = fact.work if fact.work is not None and fact.work.ran_ns else None
        if work is not None or fact.counts is not None:
            self.job.add_report(fact.at_ns, work.ran_ns if work is not None else 0)
        if fact.group is not None:
            _add_to_group(log, fact)
        elif work is not None:
            log.add_unlinked(work, fact.at_ns)
            self.with_unlinked.add(rank)

    def _take_cell(self, column: str, value: str) -> None:
        """Take a cell of the launcher's table: time, host, rank or exit status, in this order. Cells in another order
        are ignored, because rows of two tables may be mixed up."""
        self.cells = {} if column == _COLUMNS[0] else self.cells
        if len(self.cells) != _COLUMNS.index(column):
            self.cells = {}
            return
        self.cells[column] = value
        log = self.job.of(int(self.cells["rank"])) if column == "exit" else None
        if log is not None and not log.ended_by:
            status = int(value)
            log.ended_by = _SIGNALS.get(status, f"exit {status}" if status >= 0 else f"signal {-status}")
            log.ended_ns = stamp_of(self.cells["time"])
            log.host = printable(self.cells["host"])


def _place_in_world(fact: LogFact) -> int | None:
    """The global rank, if the line names the default group."""
    group = fact.group
    return group.place if group is not None and group.is_world else None


def _add_to_group(log: RankLog, fact: LogFact) -> None:
    group = fact.group
    assert group is not None
    of_group = log.of(group.uid)
    of_group.desc, of_group.place = group.desc or of_group.desc, group.place
    if fact.work is not None and fact.work.ran_ns:
        of_group.add_work(fact.work, fact.at_ns, is_sure=True)
    elif fact.work_seq is not None:
        log.link(group.uid, fact.work_seq)
    if fact.counts is not None:
        of_group.add_counts(*fact.counts)
