"""The files of a profile in the folder of a rank, for the rank and for the agent and the command that make requests.

    agent, command                                        rank
    profile/request is linked into place
    the word of the state page gets a new value  ----->   sees it as its next step begins, reads the request
                                                          profile/outcome: running
                                                          ... steps ...
    reads the outcome                            <-----   profile/trace.json, then profile/outcome: done or failed
    removes the request, ships the trace, removes it

A request is linked under its name only when it is complete. So if two requests are made at the same time, one is
refused. Each file is opened below the rank's folder without following a link, and belongs to the folder's owner
(``private_files.py``). The rank also requires that no other user can write into these folders.
"""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic_ns
from typing import BinaryIO

from telemetry.files.private_files import Folder, make_folder, open_folder
from telemetry.profiles import (
    FOLDER,
    MAX_SECONDS,
    MAX_TEXT_BYTES,
    MAX_TRACE_BYTES,
    OUTCOME,
    REQUEST,
    TRACE,
    Phase,
    ProfileOutcome,
    ProfileRequest,
)
from telemetry.record.layout import RANK_FOLDER_DEPTH, WORD_PROFILE
from telemetry.record.state_page import FILE_NAME as STATE_PAGE

SECOND_NS = 10**9
WORD_BYTES = 8
GRACE_S = 60
"""Time to write a trace. An older request counts as left over."""
START_GRACE_S = 15
"""Time to start the profiler."""


@contextmanager
def open_profile(rank_folder: Path) -> Iterator[Folder]:
    """The folder ``profile`` of a rank.

    Raises:
        OSError: it is missing, or is not safe to use.
    """
    with open_folder(rank_folder, below=RANK_FOLDER_DEPTH) as rank, rank.folder(FOLDER) as folder:
        yield folder


@contextmanager
def open_own_profile(rank_folder: Path) -> Iterator[Folder]:
    """The folder ``profile``, for the rank itself. It is created if it is missing.

    Raises:
        OSError: it cannot be created, or another user owns it or a folder above it, or can write there.
    """
    with make_folder(rank_folder / FOLDER, below=RANK_FOLDER_DEPTH + 1) as folder:
        yield folder


def place_request(rank_folder: Path, request: ProfileRequest, *, now_ns: int | None = None) -> ProfileRequest | None:
    """Hand ``request`` to the rank. Returns it as written; None if another request of this rank is open.

    Raises:
        OSError: the files cannot be written.
    """
    now_ns = monotonic_ns() if now_ns is None else now_ns
    written = ProfileRequest(
        profile_id=request.profile_id,
        rank=request.rank,
        steps=request.steps,
        seconds=request.seconds,
        local=request.local,
        until_ns=now_ns + request.seconds * SECOND_NS,
    )
    with open_folder(rank_folder, below=RANK_FOLDER_DEPTH) as rank, rank.folder(FOLDER, make=True) as folder:
        if _open_request(folder, now_ns):
            return None
        for left_over in (OUTCOME, TRACE):
            with suppress(FileNotFoundError):
                folder.remove(left_over)
        if not _link(folder, written.to_json().encode()):
            return None
        page = rank.open(STATE_PAGE, os.O_RDWR)
        try:
            os.pwrite(page, now_ns.to_bytes(WORD_BYTES, "little"), WORD_BYTES * WORD_PROFILE)
        finally:
            os.close(page)
    return written


def _open_request(folder: Folder, now_ns: int) -> bool:
    """Whether a request is open. A request that is damaged or left over is removed."""
    try:
        before = _request_in(folder)
    except FileNotFoundError:
        return False
    except (OSError, ValueError):
        folder.remove(REQUEST)
        return False
    if is_over(before, now_ns):
        folder.remove(REQUEST)
        return False
    return True


def is_over(request: ProfileRequest, now_ns: int) -> bool:
    """Whether no outcome of a request is expected any more. The monotonic clock starts again with the machine."""
    over_ns = request.until_ns + (request.seconds + GRACE_S) * SECOND_NS
    return now_ns > over_ns or request.until_ns > now_ns + MAX_SECONDS * SECOND_NS


def _link(folder: Folder, content: bytes) -> bool:
    """Create the file of a request. Returns False if there is one already."""
    new = f"{REQUEST}.{threading.get_native_id()}.new"
    try:
        with os.fdopen(folder.make(new), "wb") as file:
            file.write(content)
        os.link(new, REQUEST, src_dir_fd=folder.descriptor, dst_dir_fd=folder.descriptor, follow_symlinks=False)
    except FileExistsError:
        return False
    finally:
        with suppress(FileNotFoundError):
            folder.remove(new)
    return True


def read_request(rank_folder: Path) -> ProfileRequest:
    """The open request, for the agent.

    Raises:
        OSError: there is none.
        ValueError: it is damaged.
    """
    with open_profile(rank_folder) as folder:
        return _request_in(folder)


def read_own_request(rank_folder: Path) -> ProfileRequest:
    """The open request, for the rank itself. Raises as :func:`read_request`."""
    with open_own_profile(rank_folder) as folder:
        return _request_in(folder)


def _request_in(folder: Folder) -> ProfileRequest:
    return ProfileRequest.parse(folder.read(REQUEST, MAX_TEXT_BYTES))


def write_outcome(folder: Folder, outcome: ProfileOutcome) -> None:
    """Replace the outcome.

    Raises:
        OSError: it cannot be written.
    """
    folder.write(OUTCOME, outcome.to_json().encode())


def read_outcome(rank_folder: Path, profile_id: str) -> ProfileOutcome | None:
    """The outcome of a request so far; None if the rank has not written one.

    Raises:
        OSError: another file is in its place.
        ValueError: it is damaged.
    """
    try:
        with open_profile(rank_folder) as folder:
            outcome = ProfileOutcome.parse(folder.read(OUTCOME, MAX_TEXT_BYTES))
    except FileNotFoundError:
        return None
    return outcome if outcome.profile_id == profile_id else None


def final_outcome(rank_folder: Path, request: ProfileRequest, *, now_ns: int | None = None) -> ProfileOutcome | None:
    """The outcome of a placed request if it does not change any more: done or failed. None if it may still change.

    Raises:
        OSError, ValueError: as :func:`read_outcome`.
    """
    now_ns = monotonic_ns() if now_ns is None else now_ns
    found = read_outcome(rank_folder, request.profile_id)
    if found is not None and found.phase in (Phase.DONE, Phase.FAILED):
        return found
    if found is None and now_ns > request.until_ns + START_GRACE_S * SECOND_NS:
        return failed(request, f"the rank began no step within {request.seconds} s")
    if is_over(request, now_ns):
        return failed(request, "the rank did not end the profile: it may hang")
    return None


def failed(request: ProfileRequest, reason: str) -> ProfileOutcome:
    return ProfileOutcome(profile_id=request.profile_id, phase=Phase.FAILED, reason=reason)


def open_trace(rank_folder: Path) -> BinaryIO:
    """The trace of the rank, open for reading.

    Raises:
        OSError: it is missing, or another file is in its place.
        ValueError: it is too large.
    """
    with open_profile(rank_folder) as folder:
        file = os.fdopen(folder.open(TRACE), "rb")
    if os.fstat(file.fileno()).st_size > MAX_TRACE_BYTES:
        file.close()
        raise ValueError("the trace is too large")
    return file


def remove_profile(rank_folder: Path, *names: str) -> None:
    """Remove these files, where they exist."""
    with suppress(OSError), open_profile(rank_folder) as folder:
        for name in names:
            with suppress(OSError):
                folder.remove(name)
