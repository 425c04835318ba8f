"""Files of PyTorch's profiler in the form that libkineto writes, with GPU events but without a GPU.

Host times are in microseconds. Step ``number`` starts at ``STEP_US * number``.
"""

import gzip
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

BASE_NS = 1_700_000_000_000_000_000
STEP_US = 100_000
HOST, AUTOGRAD = 100, 101
"""Threads of a process."""
COMPUTE, NCCL = 7, 20
"""Streams of a GPU."""


def world(size: int) -> dict[str, Any]:
    return {"pg_name": "0", "pg_desc": "default_pg", "pg_size": size, "ranks": list(range(size))}


@dataclass(slots=True, kw_only=True)
class Profile:
    """A profiler file under construction."""

    rank: int = 0
    world_size: int = 1
    groups: Sequence[dict[str, Any]] = ()
    events: list[Any] = field(default_factory=list)
    told: dict[str, Any] = field(default_factory=dict)
    """Top-level keys that replace the usual ones. None removes a key."""

    def host(self, category: str, name: str, at: float, dur: float, thread: int = HOST, **args: Any) -> "Profile":
        self.events.append(
            {"ph": "X", "cat": category, "name": name, "pid": 1, "tid": thread, "ts": at, "dur": dur, "args": args}
        )
        return self

    def step(self, number: int) -> "Profile":
        return self.host("user_annotation", f"ProfilerStep#{number}", number * STEP_US, STEP_US)

    def kernel(
        self, name: str, issued: float, at: float, dur: float, *, thread: int = HOST, stream: int = COMPUTE, **args: Any
    ) -> "Profile":
        correlation = len(self.events) + 1
        self.host("cuda_runtime", "cudaLaunchKernel", issued, 5, thread, correlation=correlation)
        told = {"stream": stream, "correlation": correlation, **args}
        self.events.append(
            {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": stream, "ts": at, "dur": dur, "args": told}
        )
        return self

    def flow(self, number: int, source: float, target: float, *, thread: int = HOST, to: int = HOST) -> "Profile":
        """A flow between two events of the host, by their starts."""
        for phase, at, tid in (("s", source, thread), ("f", target, to)):
            flow = {"ph": phase, "id": number, "pid": 1, "tid": tid, "ts": at, "cat": "fwdbwd", "name": "fwdbwd"}
            self.events.append(flow | ({"bp": "e"} if phase == "f" else {}))
        return self

    def document(self) -> dict[str, Any]:
        config = [world(self.world_size), *self.groups]
        info = {"backend": "nccl", "rank": self.rank, "world_size": self.world_size, "pg_config": config}
        whole = {
            "schemaVersion": 1,
            "distributedInfo": info,
            "host_name": f"node-{self.rank // 2}",
            "baseTimeNanoseconds": BASE_NS,
            "traceEvents": [{"ph": "M", "name": "process_name", "pid": 1, "ts": 0, "args": {}}, *self.events],
            **self.told,
        }
        return {key: value for key, value in whole.items() if value is not None}

    def save(self, folder: Path, name: str = "") -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / (name or f"rank{self.rank}.json")
        text = json.dumps(self.document()).encode()
        path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
        return path
