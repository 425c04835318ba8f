"""From ``import torch`` to the first sign that this process is a rank.

import torch --> wait_for_rank()      two light hooks in torch, nothing else
                   |- the first process group       its rank and its size are those of the job
                   '- the first step of an optimizer, in a job of one rank without a group
                         |
                   become_rank()      a session, traced groups, the seams of the training loop

A helper of the job (a worker of a DataLoader or of torch.compile, a launcher) does neither, so it is not traced.

If the script imports rankscope itself, it is expected to call ``rankscope.start``. The session is then started at the
first step of an optimizer, and only if there is none.
"""

import os
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

from telemetry.attach.deciding import is_no_rank, is_single_rank, wants_attachment
from telemetry.attach.step_hooks import STEP_HOOKS
from telemetry.errors import UsageError
from telemetry.printable import log

OWN_RECORDING = ("rankscope", "telemetry.record.session")
"""Modules of a script that records itself."""
Helper = Callable[..., Any]


def wait_for_rank() -> None:
    """Attach to this process as soon as it is a rank. Prints one line if the environment or this torch cannot be used.

    Raises:
        Exception: an error of rankscope. The caller reports it.
    """
    try:
        if not wants_attachment(os.environ) or is_no_rank(sys.argv):
            return
    except UsageError as error:
        log(f"rankscope: not attached: {error}")
        return
    c10d = sys.modules.get("torch.distributed.distributed_c10d")
    plain = getattr(c10d, "_new_process_group_helper", None)
    if c10d is not None and plain is None:
        log(
            "rankscope: not attached: this version of torch is not supported, because it creates process groups in "
            "another way"
        )
        return
    becoming = Becoming()
    if plain is not None:
        _watch_groups(c10d, plain, becoming)
    STEP_HOOKS.first = becoming.see_step
    STEP_HOOKS.register()


class Becoming:
    """What is known about this process before it is a rank. The methods do not raise."""

    def __init__(self) -> None:
        self._rank_and_size: tuple[int, int] | None = None
        self._is_over = False

    def see_group(self, size: object = -1, rank: object = -1, ranks: object = None, backend: object = "") -> None:
        """A process group is about to be created. Takes the arguments of torch's helper."""
        if self._rank_and_size is not None or str(backend).lower() == "fake":
            return
        if not isinstance(size, int) or not isinstance(rank, int) or not 0 <= rank < size:
            log("rankscope: not attached: this backend does not give the rank before its first process group exists")
            return
        self._rank_and_size = rank, size
        self._become_rank(waits=any(name in sys.modules for name in OWN_RECORDING))

    def see_step(self, *_: Any) -> None:
        """An optimizer is about to step."""
        if self._is_over:
            return
        if self._rank_and_size is None and is_single_rank(os.environ):
            self._rank_and_size = 0, 1
        self._become_rank(waits=False)

    def _become_rank(self, *, waits: bool) -> None:
        """Start to record as this rank. ``waits``: the script may still start its own session."""
        self._is_over = not waits
        if self._rank_and_size is None:
            return
        try:
            import_module("telemetry.attach.rank").become_rank(*self._rank_and_size, waits=waits)
        except Exception as error:
            self._is_over = True
            log(f"rankscope: not attached: {error}" if isinstance(error, UsageError) else f"rankscope: {error!r}")


def _watch_groups(c10d: Any, plain: Helper, becoming: Becoming) -> None:
    """Report the first group to ``becoming``, before torch creates it."""

    def _new_process_group_helper(*arguments: Any, **keywords: Any) -> Any:
        is_outermost = c10d._new_process_group_helper is _new_process_group_helper
        if is_outermost:
            c10d._new_process_group_helper = plain
        becoming.see_group(*arguments[:4])
        # A rank replaces the helper by one that wraps groups. A script may have wrapped this function.
        return (c10d._new_process_group_helper if is_outermost else plain)(*arguments, **keywords)

    c10d._new_process_group_helper = _new_process_group_helper
