"""A profile of this rank, on request of the agent. It starts and ends when a step begins, on the thread that trains.

    word of the state page   |  new
    step                     |   7   |   8   |   9   |  10  |
                                 start   ProfilerStep#8, #9  stop, save, outcome        (steps=2)

Without a request a step costs one load and one comparison. With one, the thread that trains does the work, because
torch requires it, and writing the trace holds the interpreter's lock. Nothing is raised into the training: a failure
becomes an outcome, or a mark if the request cannot be read.

A thread ends the profile after a time, also during a long evaluation: it has the interpreter run the end on the main
thread (``Py_AddPendingCall``). While that thread is inside a call that hangs, nothing is recorded and nothing is
written. Then the agent reports that the profile did not end.
"""

import ctypes
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from time import monotonic_ns

from telemetry.files.private_files import Folder
from telemetry.printable import one_line
from telemetry.profiles import MAX_TRACE_BYTES, PROFILED, TRACE, Phase, ProfileOutcome, ProfileRequest, profiled_text
from telemetry.record.clocks.interface import Anchor, measure_anchor
from telemetry.record.kineto_trace import KinetoTrace, RefusedError, forget_trace
from telemetry.record.profile_files import SECOND_NS, open_own_profile, read_own_request, write_outcome
from telemetry.record.recorder import Recorder

REFUSED = "profile-refused"
"""Name of the mark of a request that cannot be read; its text is the reason."""
WATCH = -1
"""Result of :meth:`StepProfiler.see`: the recorder must call it again at the next step."""
MIN_FREE_BYTES = 2 * MAX_TRACE_BYTES
MAX_GROWTH_BYTES = 2**30
"""A profile ends at the next step if the memory of the process has grown by more."""
MAX_REASON = 300


class StepProfiler:
    """Makes the profiles of this process. ``see`` is called by the recorder as a step begins."""

    def __init__(self, folder: Path, anchor: Anchor, recorder: Recorder) -> None:
        self._folder = folder
        self._anchor = anchor
        self._recorder = recorder
        self._profile: _Profile | None = None

    def see(self, step: int, word: int) -> int:
        """Begin, continue or end a profile before ``step`` begins. Never raises."""
        try:
            if self._profile is not None:
                self._profile.go_on(step)
            else:
                self._profile = self._begin(step)
            if self._profile is not None and self._profile.is_over:
                self._drop(self._profile)
        except Exception as error:
            if self._profile is not None:
                self._profile.discard()
            self._profile = None
            self._recorder.mark(REFUSED, one_line(repr(error), MAX_REASON))
        return word if self._profile is None else WATCH

    def end(self) -> None:
        """The recording ends. A profile ends with it."""
        profile, self._profile = self._profile, None
        if profile is not None:
            profile.end("the recording ended")
            self._drop(profile)

    def abandon(self) -> None:
        """Forget the profile, in a forked child."""
        if self._profile is not None and not self._profile.is_over:
            self._profile.forget()
            forget_trace()
        self._profile = None

    def _drop(self, profile: "_Profile") -> None:
        """A profile is over. Its steps are marked, because they took longer."""
        self._profile = None
        if text := profile.in_words():
            self._recorder.mark(PROFILED, text)

    def _begin(self, step: int) -> "_Profile | None":
        request = read_own_request(self._folder)
        if monotonic_ns() > request.until_ns:
            return None
        profile = _Profile(request, self._folder, self._anchor)
        profile.begin(step)
        return profile


class _Profile:
    """One profile. Except for the time limit, only the thread that trains uses it."""

    def __init__(self, request: ProfileRequest, folder: Path, anchor: Anchor) -> None:
        self._request, self._folder, self._anchor = request, folder, anchor
        self._trace = KinetoTrace(give_way=lambda: self.end("the training started its own profiler"))
        self._outcome = ProfileOutcome(profile_id=request.profile_id, phase=Phase.RUNNING)
        self._now = anchor
        self._step = self._num_completed = 0
        self._rss_bytes = 0
        self._ends_ns = 0
        self._limit: _TimeLimit | None = None
        self.is_over = False

    def begin(self, step: int) -> None:
        with open_own_profile(self._folder) as folder:
            try:
                _check_room(folder)
                self._now = measure_anchor()
                self._trace.start()
                began_ns = self._anchor.to_wall_ns(self._now.monotonic_ns)
                self._outcome = replace(self._outcome, first_step=step, last_step=step - 1, began_ns=began_ns)
                write_outcome(folder, self._outcome)
                self._trace.annotate(step)
            except Exception as error:
                self._trace.discard()
                self._fail(folder, error)
                return
            self._step, self._rss_bytes = step, _rss_bytes()
            self._ends_ns = monotonic_ns() + self._request.seconds * SECOND_NS
            self._limit = _TimeLimit(self._request.seconds, self._on_limit)

    def go_on(self, step: int) -> None:
        if self.is_over or not self._trace.is_own_thread():
            return
        if step != self._step:  # otherwise it begins again: an evaluation was mistaken for it (telemetry/attach)
            self._outcome = replace(self._outcome, last_step=self._step)
            self._step, self._num_completed = step, self._num_completed + 1
        if not self._is_wanted():
            self.discard()
        elif self._num_completed >= self._request.steps:
            self.end()
        elif monotonic_ns() >= self._ends_ns:
            self._on_limit()
        elif _rss_bytes() - self._rss_bytes > MAX_GROWTH_BYTES:
            self.end(f"the process grew by more than {MAX_GROWTH_BYTES >> 20} MiB")
        else:
            self._trace.annotate(step)

    def end(self, reason: str = "") -> None:
        """End and write the trace, if it is not over. Never raises. ``reason``: why it ends before its last step."""
        if self.is_over or not self._trace.is_own_thread():
            return
        self.is_over = True
        if self._limit is not None:
            self._limit.cancel()
        with suppress(Exception), open_own_profile(self._folder) as folder:
            try:
                self._trace.stop()
                if not self._is_wanted():
                    return
                self._set_clock()
                self._outcome = replace(self._outcome, phase=Phase.DONE, reason=reason, size_bytes=self._save(folder))
                write_outcome(folder, self._outcome)
            except Exception as error:
                self._fail(folder, error)
        self._trace.discard()  # if the folder is gone

    def in_words(self) -> str:
        """The text of the mark: the profiled steps, also if there is no trace of them. Empty if there are none."""
        outcome = self._outcome
        return profiled_text(outcome.first_step, outcome.last_step) if outcome.began_ns else ""

    def _is_wanted(self) -> bool:
        """Whether the request still exists. It is removed when the trace is not needed any more."""
        with suppress(OSError, ValueError):
            return read_own_request(self._folder).profile_id == self._request.profile_id
        return False

    def discard(self) -> None:
        """End without a trace: after an error, or if the request was removed. Never raises."""
        self.is_over = True
        if self._limit is not None:
            self._limit.cancel()
        self._trace.discard()

    def forget(self) -> None:
        """Forget the profile in a forked child: it belongs to the parent."""
        self.is_over = True

    def _on_limit(self) -> None:
        self.end(f"the time limit of {self._request.seconds} s was reached")

    def _set_clock(self) -> None:
        """Set the clock offset. The clock of spans is monotonic. Kineto's is the wall clock, which may be set."""
        before, after = self._now, measure_anchor()
        offsets_ns = [self._anchor.to_wall_ns(now.monotonic_ns) - now.wall_ns for now in (before, after)]
        self._outcome = replace(
            self._outcome,
            ended_ns=self._anchor.to_wall_ns(after.monotonic_ns),
            clock_offset_ns=sum(offsets_ns) // 2,
            clock_error_ns=abs(offsets_ns[1] - offsets_ns[0]) // 2 + max(before.error_ns, after.error_ns),
        )

    def _save(self, folder: Folder) -> int:
        size_bytes = self._trace.save(folder, TRACE)
        if size_bytes > MAX_TRACE_BYTES:
            folder.remove(TRACE)
            raise RefusedError(
                f"the trace has {size_bytes >> 20} MiB, the limit is {MAX_TRACE_BYTES >> 20}: use fewer steps"
            )
        return size_bytes

    def _fail(self, folder: Folder, error: Exception) -> None:
        self.is_over = True
        reason = str(error) if isinstance(error, RefusedError) else repr(error)
        self._outcome = replace(self._outcome, phase=Phase.FAILED, reason=one_line(reason, MAX_REASON))
        write_outcome(folder, self._outcome)


class _TimeLimit:
    """Calls ``on_limit`` on the main thread after a time, between two instructions of Python."""

    def __init__(self, seconds: float, on_limit: Callable[[], None]) -> None:
        self._cancelled = threading.Event()
        # The object is kept here, because the interpreter holds only its address.
        self._call = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(lambda _: self._run(on_limit))
        threading.Thread(target=self._wait, args=(seconds,), name="rankscope-profile", daemon=True).start()

    def cancel(self) -> None:
        self._cancelled.set()

    def _wait(self, seconds: float) -> None:
        if not self._cancelled.wait(seconds):
            _LIMITS.append(self)  # until the process ends: the call may come late
            ctypes.pythonapi.Py_AddPendingCall(self._call, None)

    def _run(self, on_limit: Callable[[], None]) -> int:
        with suppress(Exception):
            if not self._cancelled.is_set():
                on_limit()
        return 0


_LIMITS: list[_TimeLimit] = []


def _check_room(folder: Folder) -> None:
    found = os.fstatvfs(folder.descriptor)
    free_bytes = found.f_bavail * found.f_frsize
    if free_bytes < MIN_FREE_BYTES:
        raise RefusedError(f"the disk of the spool has {free_bytes >> 20} MiB left, {MIN_FREE_BYTES >> 20} are needed")


def _rss_bytes() -> int:
    """Memory of this process; 0 if it is not known."""
    with suppress(OSError, ValueError, IndexError), open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0
