"""Fuzzes the reader of flight-recorder dumps.

python -m tests.diagnose.dump_fuzz --count 100000 [--seed 0] [--only INDEX] [--write]

Each input must give a record or ``UnreadableError``, within seconds, with nothing run: an audit hook sees every attempt
to import, compile or start something. Exit status 1 and the numbers of the inputs where one does not. ``--write`` puts
the outcome into docs/accuracy.md.
"""

import argparse
import codecs
import json
import pickle
import resource
import signal
import sys
import time
import warnings
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from diagnose.hang.dump import read_dump
from telemetry.errors import UnreadableError
from tests.benchmarks.pages import as_table, write_section
from tests.benchmarks.torch_analyzer import labelled_cases
from tests.diagnose.hostile_dumps import CANARY, input_at, made_dump

ENCODINGS = ("utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be", "utf-8-sig", "raw-unicode-escape", "latin-1", "ascii")
LIMIT_S = 5
MAX_PEAK_MIB = 3072
FORBIDDEN = ("os.system", "os.exec", "os.fork", "os.posix_spawn", "subprocess", "exec", "compile", "import", "socket")


@dataclass(slots=True, kw_only=True)
class Outcome:
    """What became of the inputs."""

    read: int = 0
    refused: int = 0
    failures: list[str] = field(default_factory=list)
    slowest_s: float = 0.0
    slowest_index: int = -1
    peak_mib: float = 0.0


class _TooSlow(BaseException):
    """A ``BaseException``, so that no reader swallows it."""


def fuzz(seed: int, indices: range) -> Outcome:
    """Read each input."""
    outcome, ran = Outcome(), _watch_for_code()
    samples = _samples()
    signal.signal(signal.SIGALRM, _too_slow)
    for index in indices:
        data = input_at(seed, index, samples)
        before, began = len(ran), time.perf_counter()
        signal.setitimer(signal.ITIMER_REAL, LIMIT_S)
        try:
            _read(data, index, outcome)
        except _TooSlow:
            outcome.failures.append(f"{index}: not done within {LIMIT_S} s")
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        took = time.perf_counter() - began
        if took > outcome.slowest_s:
            outcome.slowest_s, outcome.slowest_index = took, index
        if len(ran) > before or CANARY.exists():
            outcome.failures.append(f"{index}: ran {ran[before:]}")
            CANARY.unlink(missing_ok=True)
    outcome.peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    if outcome.peak_mib > MAX_PEAK_MIB:
        outcome.failures.append(f"memory grew to {outcome.peak_mib:.0f} MiB")
    return outcome


def _read(data: bytes, index: int, outcome: Outcome) -> None:
    try:
        read_dump(data, "fuzzed")
        outcome.read += 1
    except UnreadableError:
        outcome.refused += 1
    except Exception as error:
        outcome.failures.append(f"{index}: {type(error).__name__}: {str(error)[:200]}")


def _too_slow(*_: object) -> None:
    raise _TooSlow


def _watch_for_code() -> list[str]:
    """Everything forbidden that happens from now on."""
    ran: list[str] = []
    for encoding in ("utf-8", "utf-16", "utf-32"):  # afterwards, late imports are done
        json.loads(json.dumps(made_dump()).encode(encoding))
    for encoding in ENCODINGS:
        codecs.lookup(encoding)
    read_dump(json.dumps(made_dump()).encode(), "first")

    def note(event: str, arguments: tuple[Any, ...]) -> None:
        if event.startswith(FORBIDDEN):
            ran.append(f"{event} {arguments!r}"[:200])

    sys.addaudithook(note)
    return ran


def _samples() -> list[bytes]:
    """Good dumps: made ones, and real ones where they are at hand."""

    made = [pickle.dumps(made_dump(rank), protocol=rank) for rank in range(6)]
    return made + [path.read_bytes() for case in labelled_cases() for path in sorted(Path(case.folder).glob("_dump_*"))]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, help="this input alone")
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    outcome = fuzz(given.seed, range(given.count) if given.only is None else range(given.only, given.only + 1))
    print(json.dumps(asdict(outcome), indent=1))
    if given.write:
        command = f"python -m tests.diagnose.dump_fuzz --count {given.count} --seed {given.seed}"
        write_section("Invalid flight-recorder dumps", command, as_section(outcome, given.count))
    return int(bool(outcome.failures))


def as_section(outcome: Outcome, count: int) -> str:
    """Damaged, confused, greedy and hostile inputs, and what became of them."""
    headings = ("inputs", "read", "refused", "crashed, hung or ran code", "slowest", "peak memory")
    counts = map(str, (count, outcome.read, outcome.refused, len(outcome.failures)))
    return as_table(headings, [(*counts, f"{outcome.slowest_s:.2f} s", f"{outcome.peak_mib:.0f} MiB")])


if __name__ == "__main__":
    sys.exit(main())
