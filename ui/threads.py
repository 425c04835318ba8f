"""Threads in which pages wait for the store: the server's loop never does, and a slow question holds up few others."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import TypeVar

Answer = TypeVar("Answer")

AT_ONCE = 32
"""Parts of pages that are drawn at the same time. They wait far more than they compute: for the store, or for another
that is working out what they show, too."""

_THREADS = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="page")


async def in_thread(work: Callable[..., Answer], *args: object) -> Answer:
    """``work(*args)``, while the loop goes on."""
    call = partial(copy_context().run, work, *args)
    return await asyncio.get_running_loop().run_in_executor(_THREADS, call)
