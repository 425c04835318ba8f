"""Real parts that a test needs: a skip with its reason for users, a failure in CI."""

import os
import shutil
from pathlib import Path

import pytest

CHROMIUM = "chromium-headless-shell"
"""The program of Chromium without windows. It needs less processor time than Chromium itself."""
SYSTEM_PATH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])


def require(program: str) -> str:
    """Path of a program; skips the test where it is missing, fails it where ``CI`` is set."""
    found = shutil.which(program, path=SYSTEM_PATH)
    if found is None:
        _missing(f"{program} is not installed; `make parts` as root on Debian installs it")
    return str(found)


def require_zookeeper(path: Path) -> None:
    """Skips the test where ZooKeeper's file ``path`` is missing, fails it where ``CI`` is set."""
    if not path.exists():
        _missing("zookeeper is not installed; `make cluster` as root on Debian installs it")


def require_root(reason: str) -> None:
    """Skips the test for a user without root, fails it in CI."""
    if os.geteuid() != 0:
        _missing(f"needs root: {reason}")


def _missing(reason: str) -> None:
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)
