"""Reports of Nsight Systems, exported to SQLite: ``nsys export --type sqlite report.nsys-rep``.

    table                                    read for
    CUPTI_ACTIVITY_KIND_KERNEL               work on the GPU, NCCL's kernels among it
    CUPTI_ACTIVITY_KIND_RUNTIME              when and on which thread the host launched a kernel
    NVTX_EVENTS                              steps ("step 7", "iteration 7"), backward, optimizer
    StringIds                                names
    TARGET_INFO_SESSION_START_TIME           wall clock at which the times begin
    TARGET_INFO_SYSTEM_ENV, MPI_RANKS        the host, and the rank of each process

A report holds one process for each rank of a host, or one. The rank of a process:

    MPI_RANKS                        the rank there
    one process in each file         the number in the name of the file: report_rank3.sqlite
    several processes in a file      ordered by their device, from 0; the files of several hosts follow in order

Then it is a trace like one of the PyTorch profiler (``kineto_work.py``). The file does not state the group of an NCCL
kernel. So collectives are imported only if the mesh has one axis, except broadcasts and all-to-alls.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from telemetry.errors import UnreadableError
from telemetry.imports.interface import ImportedRun, ImportOptions
from telemetry.imports.intervals import Ints, Ranges
from telemetry.imports.kineto import run_of_traces
from telemetry.imports.kineto_document import rank_in_name
from telemetry.imports.kineto_file import Group, Kernels, TraceFile, one_step
from telemetry.imports.kineto_work import UNPLACED
from telemetry.imports.span_rows import LAST_NS, name_of, refuse_meta
from telemetry.imports.sqlite_input import Tables, open_tables
from telemetry.imports.stated_grid import topology_of_options
from telemetry.imports.text_input import find_inputs, text
from telemetry.stores.queries import LAST_STEP
from telemetry.topology import MAX_RANKS, Topology

FORMAT = "nsys"
HINT = "give the .sqlite files that `nsys export --type sqlite` wrote, or their folder"
KERNEL_HINT = "record the GPU: nsys profile --trace cuda,nvtx"
MAX_ROWS = 20_000_000
STEP = re.compile(r"(?:ProfilerStep|(?:train|training|global)?[ _]?(?:step|iteration|iter))[ #:_=]*(\d{1,9})", re.I)
"""Name of an NVTX range that is a step."""
_AUTOGRAD = "autograd::engine::evaluate_function"
_OPTIMIZER = "Optimizer."
_PROCESS = ~0xFFFFFF
"""The bits of a ``globalTid`` without those of the thread: the ``globalPid``."""


@dataclass(slots=True)
class _Process:
    """The rows of one process in a file. Times are nanoseconds since 1970."""

    kernels: list[tuple[int, int, int, str, int]] = field(default_factory=list)
    """Begin, end, stream, name, correlation."""
    ranges: list[tuple[int, int, int, str]] = field(default_factory=list)
    """Begin, end, thread, name."""
    launches: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Correlation -> begin, thread."""
    device: int = 0
    rank: int | None = None


def import_nsys(paths: Sequence[Path], options: ImportOptions) -> ImportedRun:
    """The run in exported reports: see :class:`telemetry.imports.interface.Importer`."""
    refuse_meta(options, FORMAT)
    files = find_inputs(paths, (".sqlite",), "the .sqlite file of each rank or host")
    traces = _by_rank([_traces_of(path) for path in files])
    world_size = max(traces) + 1
    topology = topology_of_options(options, world_size) or Topology(dp=world_size)
    if sum(degree > 1 for _, degree in topology.mesh) > 1:
        traces = {rank: replace(trace, groups={"": Group(desc=UNPLACED)}) for rank, trace in traces.items()}
    return run_of_traces(traces, topology, options, format_name=FORMAT, found_name=name_of(files))


def _by_rank(files: Sequence[Sequence[TraceFile]]) -> dict[int, TraceFile]:
    found: dict[int, TraceFile] = {}
    numbered = all(len(traces) == 1 for traces in files) and len(files) > 1
    for trace in (trace for traces in files for trace in traces):
        rank = trace.rank if trace.rank is not None else rank_in_name(trace.path) if numbered else len(found)
        if rank is None:
            hint = "put the rank into the name of the file: report_rank3.sqlite"
            raise UnreadableError(f"{trace.path} does not contain its rank", hint=hint)
        if rank in found or rank >= MAX_RANKS:
            raise UnreadableError(
                f"{trace.path} is of rank {rank}, and so is another file", hint="give one file for each rank"
            )
        found[rank] = trace
    return dict(sorted(found.items()))


def _traces_of(path: Path) -> list[TraceFile]:
    """One trace for each process with kernels, ordered by device."""
    with open_tables(path, HINT) as tables:
        processes = _processes(tables, path)
        host = next((text(value) for name, value in _env(tables) if name == "Hostname"), "")
    used = [process for process in processes.values() if process.kernels]
    if not used:
        raise UnreadableError(f"{path} has no kernel", hint=KERNEL_HINT)
    return [_trace(path, host, process) for process in sorted(used, key=lambda process: process.device)]


def _env(tables: Tables) -> list[tuple[Any, ...]]:
    return tables.rows("TARGET_INFO_SYSTEM_ENV", ("name", "value"), max_rows=100_000)


def _processes(tables: Tables, path: Path) -> dict[int, _Process]:
    names = {
        number: text(name, most=2**12)
        for number, name in tables.rows("StringIds", ("id", "value"), max_rows=MAX_ROWS)
        if isinstance(number, int)
    }
    (base_ns,) = next(iter(tables.rows("TARGET_INFO_SESSION_START_TIME", ("utcEpochNs",), max_rows=1000)), (0,))
    found: dict[int, _Process] = {}
    for row in _times(tables, path, "CUPTI_ACTIVITY_KIND_KERNEL", base_ns, _KERNEL_COLUMNS):
        begin_ns, end_ns, process, device, stream, correlation, short, full = row
        of = found.setdefault(_number(process), _Process(device=_number(device)))
        of.kernels.append((begin_ns, end_ns, _number(stream), _kernel_name(names, short, full), _number(correlation)))
    for begin_ns, _, thread, correlation in _times(
        tables, path, "CUPTI_ACTIVITY_KIND_RUNTIME", base_ns, ("globalTid", "correlationId")
    ):
        if (launching := found.get(_number(thread) & _PROCESS)) is not None:
            launching.launches[_number(correlation)] = begin_ns, _number(thread)
    relevant = {number for number, name in names.items() if _is_relevant(name)}
    for begin_ns, end_ns, thread, own, number in _times(
        tables, path, "NVTX_EVENTS", base_ns, ("globalTid", "text", "textId")
    ):
        name = names[number] if number in relevant else text(own)
        marked = found.get(_number(thread) & _PROCESS)
        if marked is not None and _is_relevant(name):
            marked.ranges.append((begin_ns, end_ns, _number(thread), name))
    for thread, rank in _mpi_ranks(tables):
        if (named := found.get(_number(thread) & _PROCESS)) is not None:
            named.rank = rank if isinstance(rank, int) and 0 <= rank < MAX_RANKS else None
    return found


_KERNEL_COLUMNS = ("globalPid", "deviceId", "streamId", "correlationId", "shortName", "demangledName")


def _mpi_ranks(tables: Tables) -> list[tuple[Any, ...]]:
    key = "globalTid" if "globalTid" in tables.columns_of("MPI_RANKS") else "globalPid"
    return tables.rows("MPI_RANKS", (key, "rank"), max_rows=MAX_RANKS)


def _times(tables: Tables, path: Path, table: str, base_ns: Any, columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    """Begin and end since 1970, and ``columns``, of the rows with both times. NVTX marks have no end."""
    base_ns = _number(base_ns)
    for begin, end, *others in tables.rows(table, ("start", "end", *columns), max_rows=MAX_ROWS):
        if not isinstance(begin, int) or not isinstance(end, int):
            continue
        if not (0 <= begin + base_ns <= end + base_ns <= LAST_NS):
            text = f"{path}: times of a row of {table} are not valid: it begins at {begin} and ends at {end}"
            raise UnreadableError(text, hint=HINT)
        yield base_ns + begin, base_ns + end, *others


def _number(value: Any) -> int:
    return value if isinstance(value, int) else 0


def _kernel_name(names: Mapping[int, str], short: Any, full: Any) -> str:
    """The short name of a kernel. For NCCL it is the full one: some versions shorten these names to ``ncclKernel``."""
    found = names.get(short, "")
    return names.get(full, found) if not found or "nccl" in found.lower() else found


def _is_relevant(name: str) -> bool:
    lower = name[:200].lower()
    return bool(STEP.fullmatch(name)) or "backward" in lower or lower.startswith(("optim", _AUTOGRAD))


def _trace(path: Path, host: str, process: _Process) -> TraceFile:
    threads: dict[int, int] = {}

    def ranges(rows: Sequence[tuple[int, int, int, str]]) -> Ranges:
        return Ranges(
            name=tuple(row[3] for row in rows),
            begin_ns=_column(rows, 0),
            end_ns=_column(rows, 1),
            thread=np.array([threads.setdefault(row[2], len(threads)) for row in rows], dtype=np.int64),
        )

    issued = [process.launches.get(kernel[4], (0, -1)) for kernel in process.kernels]
    kernels = Kernels(
        ranges=ranges([kernel[:4] for kernel in process.kernels]),
        issue_ns=_column(issued, 0),
        issue_thread=np.array([threads.setdefault(thread, len(threads)) for _, thread in issued], dtype=np.int64),
        args=({},) * len(process.kernels),
    )
    steps, numbers = _steps(process, ranges) or one_step(path, kernels)
    return TraceFile(
        path=path,
        rank=process.rank,
        world_size=None,
        host=host,
        groups={},
        steps=steps,
        step_numbers=numbers,
        annotations=ranges([(*row[:3], _phase_name(row[3])) for row in process.ranges if not STEP.fullmatch(row[3])]),
        ops=ranges([row for row in process.ranges if row[3].startswith(_AUTOGRAD)]),
        kernels=kernels,
    )


def _steps(process: _Process, ranges: Any) -> tuple[Ranges, Ints] | None:
    """The steps and their numbers; None if there are none. If several ranges have the same number, the longest is
    used."""
    found: dict[int, tuple[int, int, int, str]] = {}
    for row in process.ranges:
        match = STEP.fullmatch(row[3])
        number = int(match[1]) if match else LAST_STEP
        if number < LAST_STEP and (number not in found or row[1] - row[0] > found[number][1] - found[number][0]):
            found[number] = row
    if not found:
        return None
    return ranges(list(found.values())), np.array(list(found), dtype=np.int64)


def _phase_name(name: str) -> str:
    """The name of a range, changed so that ``kineto_work.py`` recognizes the optimizer."""
    return _OPTIMIZER + name if name.lower().startswith("optim") and not name.startswith(_OPTIMIZER) else name


def _column(rows: Sequence[tuple[Any, ...]], place: int) -> Ints:
    return np.array([row[place] for row in rows], dtype=np.int64)
