"""One trace of torch's profiler (Kineto) of the thread that trains.

    start()        the profiler of this thread begins
    annotate(n)    ProfilerStep#n, as torch.profiler names a step
    stop()         on the same thread: torch 2.13 ends the profiler of a thread only there
    save()         Kineto writes Chrome's JSON. It holds the interpreter's lock meanwhile

The mode that records all threads is not used: in torch 2.13 its end can crash other threads (pytorch's test
``ProfilerGlobalCallbackRaceTest``). Threads of autograd inherit the profiler of the thread that trains.

``torch.autograd.profiler`` is used, because ``torch.profiler`` imports the compiler, which takes seconds.

torch has one profiler for each process. A profiler of the user has priority. If it runs or is prepared, this trace does
not start. If it is prepared later, this trace ends first: torch's functions that start a profiler are wrapped for that.
"""

import gc
import json
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from threading import get_ident
from types import ModuleType
from typing import Any

from telemetry.files.private_files import Folder

STARTERS = ("_prepare_profiler", "_enable_profiler")
"""Functions in ``torch.autograd.profiler``. Each way to start a profiler calls one of them."""


class RefusedError(Exception):
    """This process cannot be profiled now. The message says why."""


class KinetoTrace:
    """The trace of the current thread, from :meth:`start` on.

    Args:
        give_way: called on the thread that is about to start another profiler. It must call :meth:`stop`.

    Raises:
        RefusedError: from :meth:`start`.
        Exception: from every method, whatever torch raises.
    """

    def __init__(self, give_way: Callable[[], None]) -> None:
        self._give_way = give_way
        self._thread = 0
        self._profiler: Any = None
        self._step: Any = None
        self._wrapped: dict[str, Any] = {}
        self._is_running = False

    def start(self) -> None:
        torch = sys.modules.get("torch")
        if torch is None:
            raise RefusedError("this rank does not use torch")
        if not torch.profiler.kineto_available():
            raise RefusedError("this build of torch has no Kineto")
        if _is_profiled(torch):
            raise RefusedError("the training runs its own profiler")
        on_gpu = torch.cuda.is_initialized()
        if on_gpu and torch.cuda.is_current_stream_capturing():
            raise RefusedError("the training captures a CUDA graph")
        if on_gpu:
            _keep_cupti(torch)
        profiler = torch.autograd.profiler.profile(use_kineto=True, use_device="cuda" if on_gpu else None)
        try:
            profiler.__enter__()
        except BaseException:
            torch.autograd.profiler._run_on_profiler_stop()  # torch notes the start before it starts
            raise
        self._profiler, self._thread, self._is_running = profiler, get_ident(), True
        self._wrap(torch.autograd.profiler)
        with suppress(Exception):
            torch.autograd._add_metadata_json("distributedInfo", json.dumps(_distributed(torch)))

    def is_own_thread(self) -> bool:
        """Whether this is the thread of the trace."""
        return self._thread == get_ident()

    def annotate(self, step: int) -> None:
        """A step begins. The step before it ends."""
        self._end_step()
        self._step = sys.modules["torch"].profiler.record_function(f"ProfilerStep#{step}")
        self._step.__enter__()

    def stop(self) -> None:
        """End the trace, on its own thread. On a GPU this waits for the work that is issued."""
        assert self.is_own_thread()
        self._is_running = False
        self._unwrap()
        with suppress(Exception):
            self._end_step()
        self._profiler.__exit__(None, None, None)

    def discard(self) -> None:
        """End the trace and drop it, after an error. Never raises."""
        if self._is_running:
            with suppress(Exception):
                self.stop()

    def save(self, folder: Folder, name: str) -> int:
        """Write the trace into a private folder. Returns its size in bytes.

        Kineto writes ``name.tmp`` and renames it. The path leads through the descriptor of the folder, so no link is
        followed, and the file exists before with the mode of a private file.
        """
        os.close(folder.make(f"{name}.tmp"))
        try:
            self._profiler.export_chrome_trace(f"/proc/self/fd/{folder.descriptor}/{name}")
            descriptor = folder.open(name)
        finally:
            with suppress(OSError):
                folder.remove(f"{name}.tmp")
        try:
            return os.fstat(descriptor).st_size
        finally:
            os.close(descriptor)

    def _end_step(self) -> None:
        step, self._step = self._step, None
        if step is not None:
            step.__exit__(None, None, None)

    def _wrap(self, module: ModuleType) -> None:
        for name in STARTERS:
            if (starter := getattr(module, name, None)) is not None:
                self._wrapped[name] = starter
                setattr(module, name, self._giving_way(starter))

    def _giving_way(self, starter: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(starter)
        def start(*args: Any, **named: Any) -> Any:
            if self.is_own_thread():
                self._give_way()
            return starter(*args, **named)

        return start

    def _unwrap(self) -> None:
        module = sys.modules["torch"].autograd.profiler
        for name, starter in self._wrapped.items():
            setattr(module, name, starter)
        self._wrapped = {}


def _is_profiled(torch: ModuleType) -> bool:
    """Whether a profiler runs on this thread, or one of the process is prepared (the warm-up of a schedule)."""
    module = torch.autograd.profiler
    if torch.autograd._profiler_enabled() or module._is_profiler_enabled:
        return True
    profilers = (found for found in gc.get_objects() if type(found) is module.profile)
    return any(getattr(found, "entered", False) and found.kineto_results is None for found in profilers)


def _distributed(torch: ModuleType) -> dict[str, object]:
    """The facts about the job that torch.profiler writes into its files."""
    dist = torch.distributed
    if not dist.is_available() or not dist.is_initialized():
        return {}
    return {
        "backend": dist.get_backend(),
        "rank": dist.get_rank(),
        "world_size": dist.get_world_size(),
        "pg_config": dist.distributed_c10d._get_all_pg_configs(),
    }


def _keep_cupti(torch: ModuleType) -> None:
    """Keep CUPTI loaded, as torch.profiler does: before CUDA 12.6, CUDA graphs crash if CUPTI is loaded again."""
    version = [int(part) for part in (torch.version.cuda or "0").split(".")[:2]]
    if version < [12, 6]:
        os.environ.setdefault("DISABLE_CUPTI_LAZY_REINIT", "1")
        os.environ.setdefault("TEARDOWN_CUPTI", "0")


def forget_trace() -> None:
    """Call in a forked child. It then records nothing more of its parent's trace."""
    if (torch := sys.modules.get("torch")) is not None:
        with suppress(Exception):
            torch._C._autograd._clear_callbacks()
