"""The embedded engine releases memory after queries and does not change the state of its process."""

import re
import subprocess
import sys
from pathlib import Path

from telemetry.stores.embedded import EmbeddedStore
from telemetry.stores.engine import CACHE_BYTES
from tests.ui.synthetic_run import SyntheticRun

LARGE = """
SELECT intDiv(number, 4) AS key, quantileExact(0.5)(number), uniqExact(number) FROM numbers(2000000) GROUP BY key
"""
"""Needs 200 MB in small allocations."""


def anonymous_bytes() -> int:
    """Memory of this process that no file backs."""
    found = re.search(r"^Pss_Anon:\s+(\d+) kB", Path("/proc/self/smaps_rollup").read_text(), re.MULTILINE)
    assert found
    return 1024 * int(found[1])


def test_release_memory_frees_the_memory_of_a_large_query(embedded: EmbeddedStore) -> None:
    embedded.release_memory()
    before = anonymous_bytes()
    for _ in range(2):
        embedded.query(LARGE)
    grown = anonymous_bytes() - before
    embedded.release_memory()
    assert grown > 50 * 2**20
    assert anonymous_bytes() - before < grown / 2


def test_caches_of_the_engine_are_bounded(embedded: EmbeddedStore) -> None:
    settings = embedded.query("SELECT name, value FROM system.server_settings")
    values = dict(zip(settings["name"].to_pylist(), settings["value"].to_pylist(), strict=True))
    assert {name: int(values[name]) for name in CACHE_BYTES} == CACHE_BYTES


SIGNALS = """
import ctypes, faulthandler, signal

def handlers():
    actions = {number: ctypes.create_string_buffer(512) for number in range(1, signal.SIGRTMIN)}
    for number, action in actions.items():
        ctypes.CDLL(None).sigaction(number, None, action)
    return {number: action.raw[:8] for number, action in actions.items()}

faulthandler.enable()
signal.pthread_sigmask(signal.SIG_SETMASK, ())
before = handlers()
from telemetry.stores.embedded import EmbeddedStore
store = EmbeddedStore()
store.query("SELECT 1 AS one")
changed = {number for number, action in handlers().items() if action != before[number]}
print(changed, signal.pthread_sigmask(signal.SIG_BLOCK, ()))
store.close()
"""


def test_embedded_store_leaves_signal_handlers_and_signal_mask_unchanged() -> None:
    said = subprocess.run([sys.executable, "-c", SIGNALS], capture_output=True, text=True, check=True).stdout
    assert said == f"{set()} {set()}\n"


ENDS_DURING_QUERIES = """
import threading
from contextlib import suppress
from telemetry.errors import UnreachableError
from telemetry.stores.embedded import EmbeddedStore

store = EmbeddedStore()
asked = threading.Barrier(3)

def ask():
    asked.wait()
    with suppress(UnreachableError):
        while True:
            store.query("SELECT sum(cityHash64(number)) AS sum FROM numbers(3000000)")

for _ in range(2):
    threading.Thread(target=ask, daemon=True).start()
asked.wait()
store.query("SELECT 1 AS one")
"""


def test_process_ends_normally_while_threads_query_the_embedded_store() -> None:
    done = subprocess.run([sys.executable, "-c", ENDS_DURING_QUERIES], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_inserts_do_not_change_the_reference_count_of_none(embedded: EmbeddedStore) -> None:
    """Python 3.11 ends the process when this count reaches zero."""
    run = SyntheticRun(run_id="mine")
    run.introduce(embedded)
    before = sys.getrefcount(None)
    for _ in range(40):
        run.introduce(embedded)
    assert abs(sys.getrefcount(None) - before) < 20
