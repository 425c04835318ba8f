"""What a reader must know to trust a comparison."""

from collections.abc import Iterator

import numpy as np

from diagnose.compare.records import Side
from diagnose.model.roles import role_of_ranks
from diagnose.ranges import list_some, name_some

MAX_HOSTS = 3


def notes_on(a: Side, b: Side) -> Iterator[str]:
    """Sentences on differences between the sides that limit the comparison."""
    if a.view.topology != b.view.topology:
        yield (
            f"the meshes differ: {a.view.topology} and {b.view.topology}. Step time and stages are compared, ranks are "
            "not. A stage can change because a rank has other work"
        )
    elif a.ranks != b.ranks:
        yield "the sides are different ranks, so ranks are not compared one by one"
        if _places(a) != _places(b):
            yield "the ranks of the two sides belong to different pipeline stages or roles, which do different work"
    if a.has_steps_of(b):
        yield "both sides are ranks of the same steps, so their step time is the same and is not compared"
    elif shared := a.num_shared_steps(b):
        yield f"the sides share {shared} steps, which makes a difference smaller"
    if not a.has_steps_of(b) and (a.ranks or b.ranks):
        yield "the step time is that of the whole job, not of the chosen ranks"
    yield from _moved(a, b)


def _places(side: Side) -> set[tuple[int, str]]:
    view = side.view
    roles = role_of_ranks(view.meta, view.topology.world_size)
    ranks = side.ranks or range(view.topology.world_size)
    return {(int(view.pp_of_rank[rank]), roles[rank]) for rank in ranks}


def _moved(a: Side, b: Side) -> Iterator[str]:
    """A note that names the ranks that run on another host in B."""
    if not a.has_ranks_of(b):
        return
    moved = np.flatnonzero(np.array(a.view.hosts) != np.array(b.view.hosts)).tolist()
    if moved and len(moved) < len(a.view.hosts):
        hosts = list_some(list(dict.fromkeys(b.view.hosts[rank] or "unknown" for rank in moved)), MAX_HOSTS)
        yield f"{'rank' if len(moved) == 1 else 'ranks'} {name_some(moved)}: on other hosts in B ({hosts})"
