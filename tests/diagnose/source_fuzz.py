"""Fuzzes the readers of evidence that `rankscope diagnose hang` combines: logs, NCCL RAS, NCCL Inspector, stacks.

python -m tests.diagnose.source_fuzz --count 40000 [--seed 0] [--only INDEX]

Each input must give a verdict or an error of the user's, within seconds and bounded memory, with no code run: an audit
hook sees every attempt to import, compile or start something. Exit status 1 and the numbers of the inputs where one
does not. Inputs take turns: of 40,000, each reader gets 10,000.
"""

import argparse
import codecs
import gzip
import io
import json
import random
import resource
import signal
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from diagnose.hang.evidence import HangEvidence
from diagnose.hang.sources.combine import Found, judge_together
from diagnose.hang.sources.from_communicators import evidence_from_inspector, evidence_from_ras
from diagnose.hang.sources.from_logs import evidence_from_logs
from diagnose.hang.sources.from_stacks import evidence_from_stacks, stacks_in
from diagnose.hang.sources.read_logs import read_logs
from diagnose.hang.sources.read_ras import read_ras
from diagnose.report import hang_object
from telemetry.errors import UsageError
from tests.diagnose.dump_fuzz import ENCODINGS
from tests.diagnose.hang.made_sources import ras_answer, write_logs, write_stacks
from tests.diagnose.hang.simulated_job import Backend, Trouble, simulated_job
from tests.diagnose.hostile_dumps import ODD_VALUES, damaged, noise

READERS = ("log", "NCCL RAS", "NCCL Inspector", "stacks")
LIMIT_S = 5
MAX_GROWTH_MIB = 400
FORBIDDEN = ("os.system", "os.exec", "os.fork", "os.posix_spawn", "subprocess", "exec", "compile", "import", "socket")
GREEDY = (
    b"[rank9]:" * 8000, b"[PG ID 0 PG GUID " + b"0" * 70_000, b"WorkNCCL(SeqNum=" + b"9" * 70_000, b"[" * 60_000,
    b'{"communicators": ' + b"[" * 30_000, b"[rank1048575]: world_size=1048576 Error: \n" * 400,
    b"#0-0 (ab) MISMATCH\n" * 3000, b"  0  1  1  1  1048576  1  RUNNING  OK\n#0-0 (ab) MISMATCH\n",
    b"=== Rank 1048575: x ===\n    f (a.py:1)\n", b"<h2>Rank 0: x</h2><pre>" * 3000,
    b"[" + b"1," * 1499 + b"1] finished collective #5", gzip.compress(b"[rank0]: Error: \n" * 200_000),
    b'{"header": {"id": "a", "rank": 1, "n_ranks": 1048576}, "metadata": {"hostname": "h", "pid": 1}, "coll_perf":'
    b' {"coll": "AllReduce", "coll_sn": 4}}\n' * 300,
)  # fmt: skip


@dataclass(slots=True, kw_only=True)
class Outcome:
    """What became of the inputs."""

    read: int = 0
    refused: int = 0
    failures: list[str] = field(default_factory=list)
    slowest_s: float = 0.0
    slowest_index: int = -1
    growth_mib: float = 0.0


class _TooSlow(BaseException):
    """A ``BaseException``, so that no reader swallows it."""


def samples() -> dict[str, list[bytes]]:
    """Good inputs of each reader."""
    found: dict[str, list[bytes]] = {name: [] for name in READERS}
    for seed in range(8):
        job, rng = simulated_job(seed, Backend.NCCL, Trouble.HOST_STOPS), random.Random(seed)
        job.run()
        with tempfile.TemporaryDirectory() as name:
            write_logs(job, Path(name), rng)
            write_stacks(job, Path(name), rng)
            found["log"] += [path.read_bytes()[:20_000] for path in sorted(Path(name).glob("*.log"))[:2]]
            found["stacks"] += [path.read_bytes() for path in sorted(Path(name).glob("*.txt"))[:2]]
        found["NCCL RAS"].append(ras_answer(job)[:40_000])
    stack = {"tool": "py-spy", "threads": [{"main": True, "frames": ["f (a.py:3)"]}]}
    found["stacks"].append(json.dumps(stack).encode())
    found["stacks"].append(b'=== Rank 1: a ===\nThread 0x1 (most recent call first):\n  File "/a/b.py", line 3 in f\n')
    record = {
        "header": {"id": "0xab", "rank": 1, "n_ranks": 2, "nnodes": 1},
        "metadata": {"hostname": "h", "pid": 12},
        "coll_perf": {"coll": "AllReduce", "coll_sn": 7},
    }
    found["NCCL Inspector"].append(b"\n".join([json.dumps(record).encode()] * 5))
    return found


def input_at(seed: int, index: int, good: dict[str, list[bytes]]) -> tuple[str, bytes]:
    """The reader and the input of that number."""
    rng, name = random.Random(f"{seed}/{index}"), READERS[index % len(READERS)]
    sample = rng.choice(good[name])
    match rng.randrange(10):
        case 0:
            return name, noise(rng)
        case 1:
            return name, rng.choice(GREEDY)
        case 2:
            return name, rng.choice(good[rng.choice(READERS)])
        case 3 | 4 if sample[:1] == b"{":
            return name, json.dumps(_confused(rng, sample), default=str).encode()
        case 5:
            return name, damaged(rng, gzip.compress(sample))
        case _:
            return name, damaged(rng, sample)


def _confused(rng: random.Random, sample: bytes) -> Any:
    """Values of other types in some places of a JSON value."""
    value = json.loads(sample.splitlines()[0]) if b'"header"' in sample else _json_or_empty(sample)
    for _ in range(rng.randrange(1, 5)):
        place = value
        while isinstance(place, dict | list) and place:
            keys = list(place) if isinstance(place, dict) else list(range(len(place)))
            key = rng.choice(keys)
            if rng.random() < 0.3 or not isinstance(place[key], dict | list):
                place[key] = rng.choice(ODD_VALUES)(rng)
                break
            place = place[key]
    return value


def _json_or_empty(sample: bytes) -> Any:
    try:
        return json.loads(sample)
    except ValueError:
        return {"communicators": [{"hash": "0x1", "size": 2, "ranks": []}]}


def read(name: str, data: bytes) -> HangEvidence:
    """The evidence, as the command reads it."""
    match name:
        case "log":
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "rank_3.log"
                path.write_bytes(data)
                return evidence_from_logs(read_logs([str(path), "-"], io.BytesIO(data)))
        case "NCCL RAS":
            return evidence_from_ras(read_ras(data, "fuzzed"))
        case "NCCL Inspector":
            return evidence_from_inspector([("fuzzed", data)])
        case _:
            return evidence_from_stacks(stacks_in(data, "rank3.txt"))


def fuzz(seed: int, indices: range) -> Outcome:
    """Read each input, and judge it."""
    good, outcome = samples(), Outcome()
    for name in READERS:
        hang_object(judge_together([Found(name=name, evidence=read(name, good[name][0]))]))
    ran, before_mib = _watch_for_code(), _peak_mib()
    signal.signal(signal.SIGPROF, _too_slow)
    for index in indices:
        name, data = input_at(seed, index, good)
        seen, began = len(ran), time.process_time()
        signal.setitimer(signal.ITIMER_PROF, LIMIT_S)
        try:
            json.dumps(hang_object(judge_together([Found(name=name, evidence=read(name, data))])))
            outcome.read += 1
        except UsageError:
            outcome.refused += 1
        except _TooSlow:
            outcome.failures.append(f"{index}: {name}: not done within {LIMIT_S} s")
        except Exception as error:
            outcome.failures.append(f"{index}: {name}: {type(error).__name__}: {str(error)[:200]}")
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        if len(ran) > seen:
            outcome.failures.append(f"{index}: {name}: ran {ran[seen:][:3]}")
        if (took := time.process_time() - began) > outcome.slowest_s:
            outcome.slowest_s, outcome.slowest_index = took, index
    outcome.growth_mib = _peak_mib() - before_mib
    if outcome.growth_mib > MAX_GROWTH_MIB:
        outcome.failures.append(f"memory grew by {outcome.growth_mib:.0f} MiB")
    return outcome


def _watch_for_code() -> list[str]:
    """Everything forbidden that happens from now on."""
    ran: list[str] = []
    for encoding in ENCODINGS:
        codecs.lookup(encoding)

    def note(event: str, arguments: tuple[Any, ...]) -> None:
        if event.startswith(FORBIDDEN):
            ran.append(f"{event} {arguments!r}"[:200])

    sys.addaudithook(note)
    return ran


def _peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _too_slow(*_: object) -> None:
    raise _TooSlow


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=40_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, help="this input alone")
    given = parser.parse_args()
    outcome = fuzz(given.seed, range(given.count) if given.only is None else range(given.only, given.only + 1))
    print(json.dumps(asdict(outcome), indent=1))
    return int(bool(outcome.failures))


if __name__ == "__main__":
    sys.exit(main())
