"""Imports without garbage collections.

Modules create hundreds of thousands of objects, and almost all of them stay. Collections find nothing there and take a
seventh of the time of the imports.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quick_imports() -> Iterator[None]:
    """Import modules in this block, without garbage collection. Later collections ignore all objects of that time.

    So a forked process shares the memory of these objects with its parent. A collection would write into each of them.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()
