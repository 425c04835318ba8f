"""Finds the nodes that answer this node."""

import errno
import selectors
import socket
import time
from collections.abc import Mapping
from contextlib import ExitStack

PROBE_S = 3.0
"""How long the other nodes may take to answer."""
ANSWERS = (0, errno.ECONNREFUSED)


def unreached_among(peers: Mapping[str, str], own_address: str) -> tuple[str, ...]:
    """The nodes that do not answer ``own_address`` within PROBE_S. ``peers``: name -> ``address:port``.

    A refusal is an answer, so the port may be closed.
    """
    waiting, unreached = dict[str, socket.socket](), list[str]()
    with ExitStack() as opened, selectors.DefaultSelector() as selector:
        for name, endpoint in peers.items():
            address, _, port = endpoint.rpartition(":")
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            try:
                waiting[name] = opened.enter_context(socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK))
                waiting[name].bind((own_address, 0))  # without this, another network of this node could be used
                status = waiting[name].connect_ex((address, int(port)))
            except (OSError, ValueError, OverflowError):  # no such address, or this process has too many files open
                unreached.append(name)
                continue
            if status == errno.EINPROGRESS:
                selector.register(waiting[name], selectors.EVENT_WRITE, name)
            elif status not in ANSWERS:
                unreached.append(name)
        deadline_s = time.monotonic() + PROBE_S
        while selector.get_map() and (left_s := deadline_s - time.monotonic()) > 0:
            for key, _ in selector.select(left_s):
                if waiting[key.data].getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) not in ANSWERS:
                    unreached.append(key.data)
                selector.unregister(key.fileobj)
        unreached += [key.data for key in selector.get_map().values()]
    return tuple(sorted(unreached))
