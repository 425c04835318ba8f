"""Parts of replicas, without tensors."""

import zlib
from collections.abc import Iterator
from contextlib import contextmanager

from tests.telemetry.served import serving
from trainer.checkpoint.folder import About
from trainer.replicas.keeper import keeper_settings, make_app
from trainer.replicas.part_store import PartStore
from trainer.replicas.parts import Part, PartFile

TOKEN = "t" * 64
GIB = 1 << 30
RUN = "job"


def made_about(step: int = 5, *, attempt: int = 0, world_size: int = 2, run_id: str = RUN) -> About:
    return About(step=step, run_id=run_id, attempt=attempt, world_size=world_size, training={"seed": 0})


def made_part(rank: int, content: bytes = b"shard", *, writer_id: str = "4f1c", **about: object) -> Part:
    """A part of one file."""
    file = PartFile(name=f"__{rank}_0.distcp", size_bytes=len(content), crc32=zlib.crc32(content))
    return Part(about=made_about(**about), rank=rank, writer_id=writer_id, files=(file,))  # type: ignore[arg-type]


def hold(store: PartStore, part: Part, content: bytes = b"shard") -> None:
    """Let ``store`` receive a part."""
    incoming = store.begin(part, total_bytes=GIB, free_bytes=GIB)
    incoming.add(content)
    store.end(incoming)


@contextmanager
def keeping(store: PartStore) -> Iterator[str]:
    """The address of a keeper of ``store``, served by this process."""
    with serving(make_app(store, keeper_settings("127.0.0.1", TOKEN))) as url:
        yield url
