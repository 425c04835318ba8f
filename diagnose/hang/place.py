"""The place of a stall in the code: one frame of a stack.

wait (threading.py:320)                                         waits for another thread
_ending.<locals>.method (telemetry/record/.../traced_work.py)   rankscope, around the operation
all_reduce (torch/distributed/distributed_c10d.py:2806)         the operation
reduce_grads (megatron/core/distributed/grads.py:88)            the place
train_step (train.py:12)
"""

import re
from collections.abc import Sequence

_PYTHON = re.compile(r"\(.*\.pyx?:\d+\)$")
_PASSED_OVER = re.compile(
    r"\((?:.*/)?(?:"
    r"(?:threading|selectors|socket|queue|queues|(?:concurrent/futures|asyncio|multiprocessing)/\w+)\.py:"
    r"|(?:distributed_c10d|c10d_logger|_functional_collectives)\.py:"
    r"|telemetry/(?:record|attach|process)/|rankscope/(?:__init__|adapters)\.py:|rankscope_attach\.py:)"
)
"""Frames of the standard library and of torch that only wait, and those of the recorder and of its hooks."""


def place_of(stack: Sequence[str]) -> str:
    """The innermost frame of the job or of its framework. If there is none, the innermost frame. Empty without a stack.

    ``stack``: the innermost frame first.
    """
    code = [frame for frame in stack if _PYTHON.search(frame)] or stack
    return next((frame for frame in code if not _PASSED_OVER.search(frame)), code[0] if code else "")
