"""What a process does once it is a rank: a session, traced groups, and the seams of the training loop."""

import os
from shlex import quote
from threading import Lock

import torch

from telemetry.attach.adapters.imported import install_adapters
from telemetry.attach.deciding import COLLECTOR, names_of
from telemetry.attach.own_errors import OwnErrors
from telemetry.attach.ray_names import names_of_worker
from telemetry.attach.seams import Seams
from telemetry.attach.step_hooks import STEP_HOOKS
from telemetry.attach.training import Training
from telemetry.record.collectives.process_group import OPERATIONS, register_traced_backend
from telemetry.record.recording import RECORDER, before_end, is_failing, warn
from telemetry.record.session import Session, current_session, start_attached

INFERRED = "inferred"
SPANS = "spans"
"""Key in ``meta`` of an attached rank; its value is ``inferred``."""
MISSING = "attach-missing"
"""Name of the mark that lists what cannot be recorded with this version of torch."""

_seams: Seams | None = None
_once = Lock()


def become_rank(rank: int, world_size: int, *, waits: bool) -> None:
    """Trace this process. ``waits``: start no session yet, because the script may start its own.

    Raises:
        UsageError: a variable of the launcher has a value that cannot be used.
    """
    if not waits and not current_session().recording:
        session = _start_session(rank, world_size)
        if not session.recording:
            return
        if rank == 0:
            warn(_where_to_look(session))
    _follow_training()


def _start_session(rank: int, world_size: int) -> Session:
    names = names_of_worker(names_of(os.environ))
    is_known = names.local_rank is not None
    return start_attached(
        run=names.run,
        rank=rank,
        local_rank=names.local_rank if names.local_rank is not None else rank,
        world_size=world_size,
        role=names.role,
        starts_agent=True if is_known else None,
        meta={SPANS: INFERRED},
    )


def _follow_training() -> None:
    """Replace the functions of torch, once in a process."""
    global _seams
    with _once:
        if _seams is not None:
            return
        training = Training(RECORDER, lambda: OPERATIONS.num_issued)
        _seams = Seams(training, OwnErrors(training.switch_off))
    register_traced_backend(None)
    STEP_HOOKS.register()
    missing = _seams.install()
    if missing:
        names = ", ".join(missing)
        RECORDER.mark(MISSING, names)
        warn(f"cannot record {names} with torch {torch.__version__}. Training is not affected")
    before_end(lambda: training.end(failed=is_failing()))
    os.register_at_fork(after_in_child=training.switch_off)
    install_adapters()


def followed() -> Seams:
    """The seams of this process. It must be a rank already."""
    assert _seams is not None
    return _seams


def _where_to_look(session: Session) -> str:
    identity = session.identity
    assert identity is not None
    assert session.folder is not None
    spool = session.folder.parents[2]
    collector = os.environ.get(COLLECTOR)
    if collector:
        found_at = f"`rankscope diagnose '{identity.run_id}'`, or {_without_user(collector)}"
        return f"recording run {identity.run_id}. See {found_at}"
    return (
        f"recording run {identity.run_id} into {spool}. No collector is set ({COLLECTOR}). "
        f"See `rankscope diagnose --spool {quote(str(spool))}`"
    )


def _without_user(url: str) -> str:
    """An address without a password in it."""
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{rest.rpartition('@')[2]}"
