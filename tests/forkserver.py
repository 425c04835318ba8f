"""Real processes, forked from one that has loaded what they need: a start costs no second of imports.

pytest ---> fork server (modules are loaded, nothing runs) --fork--> rank, agent, collector, `rankscope` ...

The engine of embedded stores is not among them: it has threads as soon as it is loaded.
"""

import multiprocessing
import os
import signal
from multiprocessing.connection import wait

WIDE = {"NO_COLOR": "1", "COLUMNS": "200"}
"""A terminal whose lines do not wrap."""
os.environ.update(WIDE)  # consoles are made as modules load
FORKED = multiprocessing.get_context("forkserver")
FORKED.set_forkserver_preload(["tests.preloaded"])


def end_with_pytest() -> None:
    """In a thread of the child: it ends with pytest, however that ends."""
    harness = multiprocessing.parent_process()
    assert harness is not None
    wait([harness.sentinel])
    os.kill(os.getpid(), signal.SIGKILL)
