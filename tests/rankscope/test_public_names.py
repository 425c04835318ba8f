"""``import rankscope``: the recorder under the name of the project."""

import subprocess
import sys

import rankscope
import telemetry
from telemetry.record import session

LIGHT = """
import sys, rankscope, telemetry, diagnose
assert rankscope.__version__
print("numpy" in sys.modules, *(hasattr(package, "nothing") for package in (rankscope, telemetry, diagnose)))
"""


def test_rankscope_and_telemetry_export_the_same_recorder() -> None:
    for name in set(rankscope.__all__) - {"__version__"}:
        assert getattr(rankscope, name) is getattr(telemetry, name) is getattr(session, name)
    assert set(telemetry.__all__) < set(session.__all__)


def test_packages_import_without_numpy_and_have_no_unknown_names() -> None:
    answer = subprocess.run([sys.executable, "-c", LIGHT], capture_output=True, text=True, check=True)
    assert answer.stdout.split() == ["False"] * 4
