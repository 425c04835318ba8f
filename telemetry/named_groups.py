"""How a span identifies its group while the mesh is not known: by the axes in the group's description and its size.

    peer = -2 - code      code   bit 28   27 ........ 7    6 ......... 0
                                      1   ranks of it      axes, in the order of MESH_AXES

Masks of axes (``telemetry/topology.py``) are below 128 and are valid in one mesh only. Names are valid in every mesh.
So a code becomes a mask when the span is read, once the mesh is known. Older versions read it as a group that the mesh
does not have.
"""

from collections.abc import Iterable
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from telemetry.topology import GROUP_BASE, MAX_RANKS, MESH_AXES, NO_PEER, Topology, peer_of_mask

NAMED = 1 << 28
SIZE_SHIFT = len(MESH_AXES)
Peers = npt.NDArray[np.signedinteger[Any]]


def peer_of_axes(names: Iterable[str], size: int) -> int:
    """What ``peer`` of a span holds for a group of ``size`` ranks along these axes; ``NO_PEER`` without names."""
    bits = sum(1 << MESH_AXES.index(name) for name in set(names))
    return GROUP_BASE - (NAMED | size << SIZE_SHIFT | bits) if bits and 1 < size <= MAX_RANKS else NO_PEER


def axes_of_peer(peer: int) -> tuple[str, ...]:
    """The names that ``peer`` holds, in the order of ``MESH_AXES``; none where it holds something else."""
    code = GROUP_BASE - peer
    return tuple(name for at, name in enumerate(MESH_AXES) if code >> at & 1) if code >= NAMED else ()


def settled(peers: Peers, topology: Topology) -> Peers:
    """``peers`` with the mask in place of names, shape as given; ``NO_PEER`` for a group that ``topology`` lacks."""
    named = peers <= GROUP_BASE - NAMED
    if not named.any():
        return peers
    codes, place = np.unique(peers[named], return_inverse=True)
    answer = peers.copy()
    answer[named] = np.array([_settled(int(peer), topology) for peer in codes], dtype=peers.dtype)[place]
    return answer


def _settled(peer: int, topology: Topology) -> int:
    """The size tells whether the names say all: a group of data parallel ranks may hold those of other axes too."""
    mask = topology.wide_mask(*axes_of_peer(peer))
    degrees = dict(topology.mesh)
    size = (GROUP_BASE - peer - NAMED) >> SIZE_SHIFT
    return peer_of_mask(mask) if size == prod(degrees[name] for name in topology.axes_of(mask)) else NO_PEER
