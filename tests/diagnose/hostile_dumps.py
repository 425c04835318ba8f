"""Inputs that a reader of flight-recorder dumps may meet: damaged, nonsensical and hostile ones, each from its seed."""

import io
import json
import os
import pickle
import pickletools
import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

Maker = Callable[[random.Random], bytes]
MAX_BYTES = 1 << 16
CANARY = Path("/tmp") / f"rankscope-fuzz-canary-{os.getpid()}"
"""Made by every piece of code in these inputs that should not run."""


def made_dump(rank: int = 0) -> dict[str, Any]:
    """A small dump as torch 2.13 writes them."""
    entry = {
        "record_id": 7, "pg_id": 1, "process_group": ("3", "TENSOR_MODEL_PARALLEL_GROUP"), "collective_seq_id": 5,
        "p2p_seq_id": 0, "op_id": 6, "profiling_name": "nccl:all_reduce", "time_created_ns": 1_758_610_505_592_849_034,
        "input_sizes": [[8, 2]], "input_dtypes": ["Float"], "output_sizes": [[8, 2]], "output_dtypes": ["Float"],
        "state": "scheduled", "retired": False, "timeout_ms": 600_000, "is_p2p": False,
    }  # fmt: skip
    transfer = {**entry, "record_id": 8, "profiling_name": f"nccl:send {rank}->1", "is_p2p": True, "p2p_seq_id": 2}
    return {
        "version": "2.10",
        "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2, 3]"},
                      "3": {"name": "3", "desc": "TENSOR_MODEL_PARALLEL_GROUP", "ranks": "[0, 1]"}},
        "pg_status": {"0": {"last_enqueued_collective": 4, "last_started_collective": -1,
                            "last_completed_collective": 4}},
        "entries": [entry, transfer],
    }  # fmt: skip


def input_at(seed: int, index: int, samples: list[bytes]) -> bytes:
    """The input of that number; ``samples`` are good dumps to damage."""
    chosen = random.Random(f"{seed}/{index}")
    makers: list[Maker] = [
        lambda rng: damaged(rng, rng.choice(samples)),
        lambda rng: damaged(rng, json.dumps(made_dump()).encode()),
        opcodes,
        confused,
        hostile,
        greedy,
        deep,
        noise,
    ]
    return chosen.choice(makers)(chosen)


def noise(rng: random.Random) -> bytes:
    """Bytes of no meaning, sometimes behind a pickle's first two."""
    return rng.choice([b"", b"\x80\x04", b"\x80\x05\x95", b"{", b"[", b"\xff\xfe"]) + rng.randbytes(rng.randrange(200))


def damaged(rng: random.Random, good: bytes) -> bytes:
    """A dump with bytes flipped, dropped, repeated, or its end cut off."""
    data = bytearray(good)
    for _ in range(rng.choice([1, 1, 2, 8, 64])):
        at = rng.randrange(len(data)) if data else 0
        match rng.randrange(5):
            case 0 if data:
                data[at] = rng.randrange(256)
            case 1:
                del data[at : at + rng.randrange(1, 32)]
            case 2:
                data[at:at] = rng.randbytes(rng.randrange(1, 16))
            case 3:
                data[at:at] = data[at : at + rng.randrange(1, 64)]
            case 4 if rng.random() < 0.2:
                del data[at:]
    return bytes(data[:MAX_BYTES])


def opcodes(rng: random.Random) -> bytes:
    """A pickle of real opcodes in no sensible order."""
    out = io.BytesIO()
    out.write(rng.choice([b"", b"\x80\x02", b"\x80\x04"]))
    for _ in range(rng.randrange(1, 60)):
        code = rng.choice(pickletools.opcodes)
        out.write(code.code.encode("latin-1") + _argument(rng, code.arg))
    out.write(rng.choice([b".", b""]))
    return out.getvalue()


def _argument(rng: random.Random, kind: Any) -> bytes:
    if kind is None:
        return b""
    size = rng.choice([0, 1, 3, 200, 2**31 - 1, 2**32 - 1])
    text = rng.randbytes(rng.randrange(4))
    lengths = {"1": "<B", "4": "<I", "8": "<Q"}
    if kind.name[-1:] in lengths and kind.n < 0:
        big = size % 256 if kind.name.endswith("1") else size << (31 if kind.name.endswith("8") else 0)
        return struct.pack(lengths[kind.name[-1]], big) + text
    if kind.n >= 0:
        return rng.randbytes(kind.n)
    word = rng.choice([b"0", b"-1", b"9" * 30, b"1e999", b"nan", b"'x'", b"os", b"\xff", b""])
    return word + b"\n" + (rng.choice([b"system", b"x"]) + b"\n" if "pair" in kind.name else b"")


ODD_VALUES: tuple[Callable[[random.Random], Any], ...] = (
    lambda rng: None,
    lambda rng: rng.choice([True, -1, 2**63, 2**64, -(2**200), 10**400]),
    lambda rng: rng.choice([float("inf"), float("nan"), 1e308, -0.0]),
    lambda rng: rng.choice(["", "x" * 5000, "9" * 6000, "[0, 1", "[0, -1]", "[999999999999]", "send 0->99", "\ud800"]),
    lambda rng: rng.choice([[], [[]], [None], [1, "2"], list(range(500))]),
    lambda rng: rng.choice([{}, {"name": []}, {"": {}}, {"x": None}]),
    lambda rng: rng.choice([(), (1,), ("a", "b", "c"), b"bytes", bytearray(b"x"), {1, 2}, frozenset("ab")]),
)


def confused(rng: random.Random) -> bytes:
    """A dump with values of other types in some places."""
    dump = made_dump(rng.randrange(4))
    for _ in range(rng.randrange(1, 5)):
        _put(rng, dump, rng.choice(ODD_VALUES)(rng))
    if rng.random() < 0.5:
        return pickle.dumps(dump, protocol=rng.randrange(6))
    return json.dumps(dump, default=str).encode()


def _put(rng: random.Random, place: Any, value: Any) -> None:
    """Replace something somewhere below ``place``."""
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        if not keys:
            return
        key = rng.choice(keys)
        if rng.random() < 0.4 or not isinstance(place[key], dict | list) or not place[key]:
            place[key] = value
            return
        place = place[key]


class _Runs:
    """Unpickled, it would call ``function``."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self._call = (function, arguments)

    def __reduce__(self) -> Any:
        return self._call


def hostile(rng: random.Random) -> bytes:
    """A dump that would run code, were it read by a plain unpickler."""
    touch = f"touch {CANARY}"
    bomb = rng.choice([
        _Runs(os.system, touch), _Runs(eval, f"__import__('os').system('{touch}')"), _Runs(exec, "1/0"),
        _Runs(getattr, "", "format"), _Runs(__import__, "antigravity"), _Runs(bytearray, 10**12), _Runs(CANARY.touch),
    ])  # fmt: skip
    if rng.random() < 0.3:
        return rng.choice([
            f"cos\nsystem\n(S'{touch}'\ntR.".encode(), f"(S'{touch}'\nios\nsystem\n.".encode(),
            b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x04true\x85R.", b"\x80\x02\x82\x01.", b"\x80\x02U\x01xQ.",
            b"Pid\n.", b"\x80\x04\x97\x98.", b"\x80\x02]q\x00(h\x00oo.",
        ])  # fmt: skip
    dump = made_dump()
    _put(rng, dump, bomb)
    return pickle.dumps(dump, protocol=rng.randrange(6))


def greedy(rng: random.Random) -> bytes:
    """Few bytes that ask for much memory or time."""
    if rng.random() < 0.3:
        return _doubling(rng)
    return rng.choice([
        b"\x80\x04B" + struct.pack("<I", 2**32 - 1), b"\x80\x04\x8e" + struct.pack("<Q", 2**62),
        b"\x80\x04\x8d" + struct.pack("<Q", 2**63), b"\x80\x04\x95" + struct.pack("<Q", 2**62),
        b"\x80\x04\x96" + struct.pack("<Q", 2**40), b"]r\xff\xff\xff\xff.", b"]r\x00\x00\x00\x40.",
        b"\x8b" + struct.pack("<I", 2**31 - 1), b"\x8b" + struct.pack("<i", -1), b"p999999999\n.",
        b"I" + b"9" * 20_000 + b"\n.", b"L" + b"9" * 20_000 + b"L\n.", b"F" + b"1" * 20_000 + b"\n.",
        b'{"entries": [' + b"9" * 20_000 + b"]}", b'{"entries": [], "pg_config": {"0": {"ranks": [1e999]}}}',
        b"(" * 60_000, b"\x80\x04" + b"\x94" * 60_000, b"}" + b"}" * 10_000 + b".",
    ])  # fmt: skip


def _doubling(rng: random.Random) -> bytes:
    """A value that holds itself twice, forty times over: small in memory, without end as a text."""
    value: Any = rng.choice([[], "x" * 50, 1])
    for _ in range(40):
        value = rng.choice([[value, value], (value, value), {"name": value, "ranks": value}])
    dump = made_dump()
    _put(rng, dump, value)
    return pickle.dumps(dump, protocol=rng.randrange(6))


def deep(rng: random.Random) -> bytes:
    """Nested far beyond sense."""
    times = rng.choice([900, 5_000, 30_000])
    return rng.choice([
        b'{"entries": ' + b"[" * times + b"]" * times + b"}",
        b'{"entries": ' + b'{"a":' * times + b"1" + b"}" * times + b"}",
        b"]" + b"]" * times + b"a" * times + b".",
        b"\x80\x02}U\x07entries" + b"]" * times + b"a" * (times - 1) + b"s.",
        b"\x80\x02}U\x07version" + b")" + b"\x85" * times + b"s.",
        b"\x80\x02}(U\x07entries]U\x07version" + b")" + b"\x85" * times + b"u.",
        b"(" * times + b"l" * times + b".",
    ])  # fmt: skip
