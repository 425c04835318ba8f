"""torchft: the collectives between replica groups. torchft creates these process groups itself, not through torch.

    Manager --> ProcessGroupGloo, ProcessGroupNCCL: a ProcessGroupWrapper
                      '- parent --> a plain group of torch, another one after each change of the quorum
                            ^
                            '- replaced by a traced group when it is used for the first time

The wrapper keeps the traced group in place of the plain one. So torchft aborts and frees both together.

Steps and stages are inferred. If torchft does not commit a step, its time counts to the next step.

Source: ``torchft/process_group.py`` and ``torchft/manager.py`` of torchft 2026.10.
"""

import sys
from collections.abc import Sequence
from typing import Any

import torch.distributed as dist

from telemetry.attach.adapters.loop import ADAPTER
from telemetry.attach.own_errors import ATTACH_ERROR
from telemetry.record.collectives.process_group import TracedGroup, traced_group
from telemetry.record.recording import RECORDER
from telemetry.record.session import current_session

GROUPS = "torchft.process_group"
_UNTRACED = "collectives-untraced"


class _GroupOfReplicas(TracedGroup):
    """A group over replica groups. Ranks are numbered over all replica groups. The mesh of a group is not learned."""

    def first_rank(self) -> int:
        return 0

    def show(self) -> None:
        pass


def install() -> None:
    """Trace every process group of torchft in this process: existing and future ones. Later calls do nothing.

    Raises:
        AttributeError: this version of torchft has other groups.
    """
    wrapper = sys.modules[GROUPS].ProcessGroupWrapper
    plain = wrapper.parent.fget
    if plain.__module__ == __name__:
        return

    def parent(self: Any) -> Any:
        group = plain(self)
        if type(group) is not dist.ProcessGroup:
            return group  # another wrapper, or a traced group
        return _trace_in_place(self, group)

    wrapper.parent = property(parent)
    RECORDER.mark(ADAPTER, "torchft")


def _trace_in_place(wrapper: Any, group: dist.ProcessGroup) -> dist.ProcessGroup:
    """Replace ``group`` by a traced group. Returns ``group`` if its ranks are not known. Never raises."""
    try:
        replicas = tuple(wrapper._global_ranks or ())
        ranks = ranks_at_own_place(replicas)
        if not is_place_of(group, ranks):
            RECORDER.mark(_UNTRACED, f"torchft: replicas {replicas}")
            return group
        wrapper._pg = traced_group(group, ranks, kind=_GroupOfReplicas)
        return wrapper._pg  # type: ignore[no-any-return]
    except Exception as error:
        RECORDER.mark(ATTACH_ERROR, repr(error))
        return group


def ranks_at_own_place(replicas: Sequence[int]) -> tuple[int, ...]:
    """The ranks of the run that have the position of this process in each of these replica groups."""
    session = current_session()
    if session.identity is None:
        return ()
    size = session.identity.topology.world_size // session.replica_group.count
    return tuple(replica * size + session.identity.rank % size for replica in replicas)


def is_place_of(group: dist.ProcessGroup, ranks: Sequence[int]) -> bool:
    """Whether ``ranks`` are possible ranks of ``group``, in which this process has the rank of its session."""
    identity = current_session().identity
    if identity is None or len(ranks) != group.size() or len(set(ranks)) != len(ranks):
        return False
    return ranks[group.rank()] == identity.rank and max(ranks) < identity.topology.world_size
