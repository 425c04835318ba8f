"""Imports run without garbage collections. Later collections skip the objects that the imports created."""

import subprocess
import sys

import pytest

PROGRAM = """
import gc, json
from telemetry.process.quick_imports import quick_imports
{before}
collections = []
try:
    with quick_imports():
        gc.callbacks.append(lambda phase, info: collections.append(phase))
        made = [[] for _ in range(100_000)]
        num_collections = len(collections)
        {within}
except ImportError:
    pass
seen = {{id(each) for each in gc.get_objects()}}
print(json.dumps([num_collections, any(id(each) in seen for each in made), gc.isenabled()]))
"""


@pytest.mark.parametrize(
    ("before", "within", "enabled"),
    [("", "", "true"), ("", "import no_such_module", "true"), ("gc.disable()", "", "false")],
)
def test_no_garbage_is_collected_during_imports_and_their_objects_are_frozen(
    before: str, within: str, enabled: str
) -> None:
    program = PROGRAM.format(before=before, within=within)
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert ended.stdout == f"[0, false, {enabled}]\n"
