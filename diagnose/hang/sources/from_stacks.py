"""Python stacks of ranks as evidence: which ranks wait in communication, and which are elsewhere.

    py-spy dump --json          a list of threads                     the rank is in the name of the file
    py-spy dump                 Thread 12 (idle): "MainThread" ...     likewise
    faulthandler, torch         Thread 0x7f... (most recent call first): ...
    rankscope                   the ``stack`` evidence of an agent
    torch.distributed.debug     "=== Rank 3: ..." or an HTML page: all ranks in one file, each in one of the forms above

A rank *waits* if its innermost frame is in torch.distributed, in rankscope's recorder around an operation, or in a
synchronisation with the device. A rank is *elsewhere* if its innermost frame handles no tensor: a data loader, files,
sockets. For other frames, it is unknown whether the rank waits. In autograd's engine, a hook may wait. A call such as
``loss.item()``, or one that moves a batch to the device, waits without a separate frame. A frame that waits for
another thread or process is skipped, and the frame of its caller is used. Stacks are one sample in time. So they name a
rank only if it is the only rank that does not wait.
"""

import html
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from diagnose.hang.evidence import HangEvidence, RankEvidence
from diagnose.hang.job_size import check_num_ranks, plausible_size
from diagnose.ranges import list_some
from telemetry.errors import UnreadableError, UsageError
from telemetry.evidence.stacks import MAX_FRAMES, threads_of_traceback
from telemetry.files.access import read_input
from telemetry.printable import one_line
from telemetry.topology import MAX_RANKS

MAX_BYTES = 2**26
MAX_FILES = 100_000
MAX_LINES = 2_000_000
MOST_NAMED = 3
FORMATS = (
    "accepted: py-spy dump (with --json or without), faulthandler, and torch.distributed.debug. Write one file for "
    "each rank: py-spy dump --json --pid PID > rank3.json"
)
"""Hint for a file without a stack."""
_IN_NAME = re.compile(r"(?:^|[^a-z])rank[_\-.=]?(\d{1,7})(?!\d)", re.IGNORECASE)
_NUMBER = re.compile(r"(\d{1,7})(?!.*\d)")
_SECTION = re.compile(r"^(?:=== |.{0,40}<h2>)Rank (\d{1,7}): ", re.MULTILINE)
_TAG = re.compile(r"<[^<>]{0,200}>")
_THREAD = re.compile(r'^Thread \S{1,40}(?: \([^)]{0,40}\))?: "(?P<name>[^"]{0,100})"|^Thread (?P<id>\S{1,40}) \(')
_FRAME = re.compile(r"^    (?P<frame>\S.{0,300} \(.{1,300}:\d{1,7}\))$")
_WAITS = re.compile(
    r"\((?:.*/)?torch/distributed/(?!.*(?:pipelining|checkpoint|elastic|fsdp|tensor|optim|run))|\((?:.*/)?distributed_c10d\.py:"
    r"|\((?:.*/)?(?:c10d_logger|_functional_collectives|telemetry/record/collectives/\w+)\.py:"
    r"|^(?:torch\.cuda\.)?synchronize \("
    r"|^(?:nccl|c10d::|gloo::|cudaStreamSynch|cudaEventSynch|cudaDeviceSynch|cuStreamSynch|cuEventSynch|cuCtxSynch)|(?:::|_)(?:recvSocket|waitRecv|waitSend)\b"
)
_HANDS_OVER = re.compile(
    r"\((?:.*/)?(?:threading|queue|queues|selectors|connection|process|popen_\w+|synchronize|concurrent/futures/\w+"
    r"|asyncio/\w+)\.py:"
)
"""Frames in which a thread waits for another thread or process. They do not show what the other one does, which may be
communication. So such a frame is skipped, and the frame of its caller is used."""
_HOST_ONLY = re.compile(
    r"\((?:.*/)?(?:socket|ssl|subprocess|shutil|pathlib|gzip|tarfile|zipfile|http/client|sessions|adapters|connectionpool"
    r"|retries|tokenization\w*|(?!\w*(?:model|weight|checkpoint|param|state))\w*(?:loader|dataset|sampler|reader)s?)\.py:"
    r"|^(?!\w*(?i:model|weight|checkpoint|param|state))\w*(?:Loader|Dataset|Sampler)\w*\."
    r"|^(?:\w+\.)*_*(?:\w*next_batch|__next__|fetch|download|read\w*|open|urlopen|sleep|spin|collate\w*|__getitem__"
    r"|tokenize\w*) \("
)
"""Frames of work without a tensor of the device."""
_LEAF = re.compile(
    r"^(?:0x[0-9a-f]+|\?\?|\[?unknown|poll|__poll|select|epoll_wait|futex|syscall|pthread_\w+|clock_nanosleep|sched_yield"
    r"|__sched_yield|std::condition_variable\w*)\b"
)
"""Native frames that are skipped: the frame above them shows what the thread does."""


def read_stacks(names: Iterable[str], num_ranks: int = 0) -> HangEvidence:
    """The stacks in the files and folders ``names``. ``num_ranks``: number of ranks of the job, 0 if it is not known.

    Raises:
        UsageError: a name is no file or folder, or ``num_ranks`` excludes a rank that has a stack.
        UnreadableError: the files have no stack of a rank.
    """
    found: dict[int, tuple[str, ...]] = {}
    notes: list[str] = []
    names, num_read = list(names), 0
    for path in _files(names):
        try:
            found.update(stacks_in(read_input(path, max_bytes=MAX_BYTES), path.name))
            num_read += 1
        except (UnreadableError, OSError) as error:
            notes.append(
                (error.message if isinstance(error, UnreadableError) else f"{path.name}: {error.strerror}")[:200]
            )
    if not found:
        raise UnreadableError(
            f"no Python stack in {list_some(names, MOST_NAMED)} (files: {len(notes)}): {'; '.join(notes[:MOST_NAMED])}",
            hint=FORMATS,
        )
    if notes:
        read = f"{num_read} of {num_read + len(notes)} files of stacks were read"
        notes = [read, *(f"ignored: {note}" for note in notes)]
    evidence = evidence_from_stacks(found, tuple(notes))
    if not num_ranks:
        return evidence
    check_num_ranks(num_ranks, 1 + max(found), "stacks")
    return replace(evidence, world_size=num_ranks, guessed_size=False)


def _files(names: Iterable[str]) -> Iterator[Path]:
    for name in names:
        path = Path(name)
        try:
            below = sorted(path.rglob("*"))[:MAX_FILES] if path.is_dir() else [path] if path.exists() else []
        except (OSError, ValueError):
            below = []
        if not below:
            raise UsageError(
                f"{name} is not a file or folder, or is empty",
                hint="use --stacks with a file or folder; it can be repeated",
            )
        yield from (found for found in below if found.is_file())


def evidence_from_stacks(stacks: dict[int, tuple[str, ...]], notes: tuple[str, ...] = ()) -> HangEvidence:
    """The evidence in stacks. ``stacks``: rank -> frames of its main thread, the innermost first."""
    ranks = {
        rank: RankEvidence(rank=rank, stack=frames, on_host=is_elsewhere(frames), partial=True)
        for rank, frames in sorted(stacks.items())
    }
    return HangEvidence(
        world_size=plausible_size(max(stacks) + 1, len(stacks)), groups=(), ranks=ranks, guessed_size=True, notes=notes
    )


def is_elsewhere(frames: tuple[str, ...]) -> bool | None:
    """Whether a rank is outside of all communication. None if the frames do not show it for certain."""
    own = [frame for frame in frames if not _LEAF.match(frame) and not _HANDS_OVER.search(frame)]
    if not own:
        return None
    if _WAITS.search(own[0]):
        return False
    return True if _HOST_ONLY.search(own[0]) else None


def stacks_in(data: bytes, name: str) -> dict[int, tuple[str, ...]]:
    """Rank -> frames of its main thread.

    Raises:
        UnreadableError: the text has no stack, or its rank is unknown.
    """
    text = data.decode(errors="replace")
    sections = list(_SECTION.finditer(text))
    if sections:
        ends = [*(section.start() for section in sections[1:]), len(text)]
        parts = [(int(section[1]), text[section.end() : end]) for section, end in zip(sections, ends, strict=True)]
        is_page = "<pre>" in text
        bodies = [
            (rank, _body(part) if is_page else part.partition("\n")[2]) for rank, part in parts if rank < MAX_RANKS
        ]
        found = {rank: frames for rank, body in bodies if (frames := _frames(body))}
    else:
        frames = _frames(text)
        found = {_rank_of(name): frames} if frames else {}
    if not found:
        raise UnreadableError(f"{name} holds no Python stack", hint=FORMATS)
    return found


def _body(part: str) -> str:
    """The plain text of a section of an HTML page."""
    return html.unescape(_TAG.sub("", part.partition("<pre>")[2].partition("</pre>")[0]))


def _rank_of(name: str) -> int:
    found = _IN_NAME.search(name) or _NUMBER.search(name.partition(".")[0])
    if found is None or int(found[1]) >= MAX_RANKS:
        raise UnreadableError(f"the rank of {name} is unknown", hint="add the rank to the file name: rank3.json")
    return int(found[1])


def _frames(text: str) -> tuple[str, ...]:
    """Frames of the main thread, in any of the forms."""
    stripped = text.strip()
    try:
        if stripped[:1] in ("[", "{"):
            return _checked(_from_json(json.loads(stripped)))
    except (ValueError, TypeError, KeyError, AttributeError, IndexError, RecursionError):
        return ()
    if "most recent call first" in text:
        threads = threads_of_traceback(text)
        return _checked(threads[0]["frames"]) if threads else ()
    return _checked(_from_text(text))


def _checked(frames: Iterable[Any]) -> tuple[str, ...]:
    return tuple(one_line(str(frame)[:1000], 300) for frame in list(frames)[:MAX_FRAMES])


def _from_json(value: Any) -> list[str]:
    """py-spy's list of threads, or an agent's evidence."""
    if isinstance(value, dict):
        threads = sorted(value["threads"], key=lambda thread: not thread.get("main"))
        return [str(frame) for frame in threads[0]["frames"]]
    threads = [thread for thread in value if thread["frames"]]
    main = [
        thread for thread in threads if thread["thread_name"] == "MainThread" or thread["os_thread_id"] == thread["pid"]
    ]
    chosen = (main or threads)[0]
    return [
        f"{frame['name']} ({frame['short_filename'] or frame['filename']}:{frame['line']})"
        for frame in chosen["frames"]
    ]


def _from_text(text: str) -> list[str]:
    threads: dict[str, list[str]] = {}
    name = ""
    for line in text.splitlines()[:MAX_LINES]:
        if thread := _THREAD.match(line):
            name = thread["name"] or thread["id"]
        elif frame := _FRAME.match(line):
            threads.setdefault(name, []).append(frame["frame"])
    return threads.get("MainThread") or next(iter(threads.values()), [])
