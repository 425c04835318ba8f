"""Gives damaged files to every reader of files of other tools, and checks it. The counterpart of ``wire_fuzz.py``.

python -m tests.integration.import_fuzz --count 10000 [--seed 0] [--format NAME] [--only INDEX] [--write]

Each file must give a valid run or a user error, within seconds. No part of it may be executed: no process, no
connection, no library, no class of a pickle. If a file fails, it prints the numbers of the inputs and exits with 1.
"""

import argparse
import faulthandler
import json
import random
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from telemetry.errors import UsageError
from telemetry.imports.interface import ImportOptions, check_sound
from tests.benchmarks.pages import as_table, write_section
from tests.integration.hostile_bytes import damaged
from tests.telemetry import made_formats
from tests.telemetry.made_formats import FIRST_STEP, known_run
from tests.telemetry.made_profiles import NCCL, Profile
from tests.telemetry.made_traces import every_rank, save
from ui.cli.commands.import_run import Format
from ui.cli.import_run import IMPORTERS

LIMIT_S = 5
MAX_GROWTH_MIB = 400
NUM_STEPS = 2
EXECUTES = frozenset(
    (
        *("os.system", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "subprocess.Popen"),
        *("socket.connect", "socket.bind", "pickle.find_class", "ctypes.dlopen", "sqlite3.load_extension"),
        *("sqlite3.enable_load_extension", "os.remove", "os.rename", "shutil.rmtree"),
    )
)
"""Events of ``sys.audit`` that no reader may cause."""
_TOKEN = re.compile(rb'-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?|"(?:[^"\\]|\\.)*"|true|false|null')
_BAD_VALUES = (
    *(b"null", b"true", b"-1", b"0", b"1", b"1.5", b"1e308", b"-1e308", b"NaN", b"Infinity", b"[]", b"{}", b'""'),
    *(b"9223372036854775807", b"9223372036854775808", b"18446744073709551616", b"1048575", b"1048577", b"65536"),
    *(b'"\\ud800"', b'"\\u0000"', b'"a"', b'"-1"', b'"9999999999999999999999"', b"[1, 2]", b"[[[[]]]]", b'{"a": {}}'),
    *(b"1" + b"0" * 400, b'"' + b"x" * 5000 + b'"', b"[" * 500 + b"]" * 500),
)


@dataclass(slots=True, kw_only=True)
class Outcome:
    """Results of all files."""

    read: int = 0
    refused: int = 0
    by_format: dict[str, int] = field(default_factory=dict)
    """Number of files that were read, by format."""
    failures: list[str] = field(default_factory=list)
    slowest_s: float = 0.0
    slowest: str = ""
    peak_mib: float = 0.0


class _TooSlow(BaseException):
    """A reader took too long. A BaseException, so that no reader catches it."""


class _Executed(BaseException):
    """A reader executed something. A BaseException, so that no reader catches it."""


def sample_folders(folder: Path) -> dict[Format, list[Path]]:
    """Folders with small valid inputs of each format."""
    spans = [span for span in known_run(ranks=2) if span.step < FIRST_STEP + NUM_STEPS]
    made = made_formats
    writers: dict[Format, list[made_formats.Writer]] = {
        Format.TORCHTITAN: [made.write_torchtitan],
        Format.NDTIMELINE: [made.write_ndtimeline_log, made.write_ndtimeline_trace],
        Format.MEGASCAN: [made.write_megascan, made.write_megascan_aggregated],
        Format.NCCL_INSPECTOR: [made.write_nccl_inspector],
        Format.NSYS: [made.write_nsys, made.write_nsys_of_a_host],
        Format.CHAKRA: [
            *(made.write_chakra, made.write_chakra_json, made.write_chakra_graph, made.write_chakra_linked),
        ],
        Format.OTLP: [made.write_otlp],
        Format.KINETO: [_write_kineto],
        Format.STRAGGLER_ANALYSIS: [_write_straggler],
    }
    found: dict[Format, list[Path]] = {}
    for form in Format:
        for number, write in enumerate(writers[form]):
            into = folder / f"{form.value}-{number}"
            write(into, spans)
            inner = into / "structured_logs"
            found.setdefault(form, []).append(inner if inner.is_dir() else into)
    return found


def _write_kineto(folder: Path, spans: object) -> None:
    for rank in range(2):
        groups = ({"pg_name": "1", "pg_desc": "mesh_dp", "ranks": [0, 1]},)
        profile = Profile(rank=rank, world_size=2, groups=groups).step(0).step(1)
        profile.host("user_annotation", "Optimizer.step#Adam.step", 5000, 1000)
        profile.kernel("gemm", issued=1000, at=20_000, dur=500)
        profile.kernel("ncclDevKernel_AllReduce_x", issued=2000, at=21_000, dur=9, stream=NCCL, Seq=3)
        profile.save(folder)


def _write_straggler(folder: Path, spans: object) -> None:
    save(folder, every_rank())


def fuzz(seed: int, indices: range, formats: list[Format]) -> Outcome:
    """Read a damaged copy of each format for each index."""
    shm = Path("/dev/shm")
    outcome, before_mib = Outcome(), _peak_mib()
    signal.signal(signal.SIGALRM, _too_slow)
    with tempfile.TemporaryDirectory(prefix="rankscope-fuzz-", dir=shm if shm.is_dir() else None) as folder:
        good = sample_folders(Path(folder) / "good")
        for form in formats:
            for index in indices:
                rng = random.Random(f"{seed}/{form.value}/{index}")
                broken = Path(folder) / "broken"
                shutil.rmtree(broken, ignore_errors=True)
                shutil.copytree(rng.choice(good[form]), broken)
                victim = rng.choice(sorted(broken.iterdir()))
                victim.write_bytes(_damaged(rng, victim.read_bytes()))
                _read(form, broken, f"{form.value} {index}", outcome)
    outcome.peak_mib = _peak_mib()
    if outcome.peak_mib - before_mib > MAX_GROWTH_MIB:
        outcome.failures.append(f"memory grew from {before_mib:.0f} to {outcome.peak_mib:.0f} MiB")
    return outcome


def _damaged(rng: random.Random, content: bytes) -> bytes:
    """Damaged bytes, or text with replaced values, which passes more checks."""
    tokens = list(_TOKEN.finditer(content)) if rng.random() < 0.6 else []
    if not tokens:
        return damaged(rng, content)
    for token in sorted(
        rng.sample(tokens, min(rng.choice([1, 1, 2, 8]), len(tokens))), key=lambda found: -found.start()
    ):
        content = content[: token.start()] + rng.choice(_BAD_VALUES) + content[token.end() :]
    return content


def _read(form: Format, folder: Path, what: str, outcome: Outcome) -> None:
    began = time.perf_counter()
    signal.setitimer(signal.ITIMER_REAL, LIMIT_S)
    try:
        with _nothing_executed():
            check_sound(IMPORTERS[form]([folder], ImportOptions(name="fuzz")))
        outcome.read += 1
        outcome.by_format[form.value] = outcome.by_format.get(form.value, 0) + 1
    except UsageError as error:
        outcome.refused += 1
        if "hint: " not in str(error):
            outcome.failures.append(f"{what}: no hint: {str(error)[:200]}")
    except _TooSlow:
        outcome.failures.append(f"{what}: not done within {LIMIT_S} s")
    except _Executed as error:
        outcome.failures.append(f"{what}: executed {error}")
    except Exception as error:
        outcome.failures.append(f"{what}: {type(error).__name__}: {str(error)[:200]}")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    took = time.perf_counter() - began
    if took > outcome.slowest_s:
        outcome.slowest_s, outcome.slowest = took, what


_watching = False


@contextmanager
def _nothing_executed() -> Iterator[None]:
    global _watching
    _watching = True
    try:
        yield
    finally:
        _watching = False


def _audit(event: str, _: tuple[object, ...]) -> None:
    if _watching and event in EXECUTES:
        raise _Executed(event)


def _peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _too_slow(*_: object) -> None:
    raise _TooSlow


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=10_000, help="damaged files of each format")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--format", type=Format, help="this format alone")
    parser.add_argument("--only", type=int, help="this input alone")
    parser.add_argument("--write", action="store_true", help="put the outcome into docs/accuracy.md")
    given = parser.parse_args()
    faulthandler.enable()
    sys.addaudithook(_audit)
    warnings.simplefilter("error")
    formats = list(Format) if given.format is None else [given.format]
    indices = range(given.count) if given.only is None else range(given.only, given.only + 1)
    outcome = fuzz(given.seed, indices, formats)
    print(json.dumps(asdict(outcome), indent=1))
    if given.write:
        command = f"python -m tests.integration.import_fuzz --count {given.count} --seed {given.seed}"
        write_section("Untrusted files", command, as_section(outcome, given.count))
    return int(bool(outcome.failures))


def as_section(outcome: Outcome, count: int) -> str:
    """The results as a section of docs/accuracy.md."""
    headings = (
        "formats",
        "files of each",
        "read",
        "refused",
        "crashed, hung, executed or grew",
        "slowest",
        "peak memory",
    )
    counts = (len(Format), count, outcome.read, outcome.refused, len(outcome.failures))
    return as_table(headings, [(*map(str, counts), f"{outcome.slowest_s:.2f} s", f"{outcome.peak_mib:.0f} MiB")])


if __name__ == "__main__":
    sys.exit(main())
