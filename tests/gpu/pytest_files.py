"""The pytest files in this folder, without the configuration and fixtures of the other tests: those need the store."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

from tests.gpu.outcome import LAST_WORDS, say

HERE = Path(__file__).parent
NEEDS = {"test_nvml_real.py": "pynvml"}
"""What a file imports that may be missing."""


def main() -> None:
    left_out = [name for name, package in NEEDS.items() if importlib.util.find_spec(package) is None]
    ignored = [f"--ignore={HERE / name}" for name in left_out]
    result = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", str(HERE), "-c", "/dev/null", "--rootdir", str(HERE.parents[1])),
            *("--noconftest", "--import-mode=importlib", "-p", "no:cacheprovider"),
            *("--disable-warnings", "-q", "-rfEs", "--tb=line", *ignored),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    print(result.stdout, result.stderr)
    if result.returncode:
        say("failed", counts(result.stdout), result.stdout[-LAST_WORDS:])
        return
    reason = (
        f"left out without {', '.join(NEEDS[name] for name in left_out)}: {', '.join(left_out)}" if left_out else ""
    )
    say("passed", counts(result.stdout), reason)


def counts(printed: str) -> dict[str, int]:
    """How many tests passed, failed, were skipped: from the last line of pytest."""
    last = printed.strip().splitlines()[-1] if printed.strip() else ""
    return {word: int(number) for number, word in re.findall(r"(\d+) (passed|failed|skipped|errors?)", last)}


if __name__ == "__main__":
    main()
