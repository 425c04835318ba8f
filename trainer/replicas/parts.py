"""The part of one rank in a replica, and which replica can be used.

    body of a request:   length of the header, 8 bytes | header: a Part as JSON | content of each file, in its order

    files of a part      __3_0.distcp  rank-00003.json          those of a checkpoint in storage
                         .metadata                              rank 0 only: torch's index without places

A *generation* is one step of one attempt. A replica is complete if the nodes hold the parts of all ranks, of one
generation. Parts of two generations are never mixed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from telemetry.errors import UsageError
from trainer.checkpoint.folder import FORMAT, About
from trainer.drive.records import Rollback
from trainer.json_records import decode, encode

LENGTH_BYTES = 8
MAX_HEADER_BYTES = 1 << 20
MAX_FILES = 8
"""Largest number of files of one part."""


class Generation(NamedTuple):
    """One step of one attempt. Later ones compare as larger."""

    attempt: int
    step: int
    writer_id: str
    """Differs in each attempt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartFile:
    """One file of a part."""

    name: str
    size_bytes: int
    crc32: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What one rank sends after a step."""

    about: About
    rank: int
    writer_id: str
    files: tuple[PartFile, ...]

    @property
    def generation(self) -> Generation:
        return Generation(self.about.attempt, self.about.step, self.writer_id)

    @property
    def size_bytes(self) -> int:
        """Size of all files together."""
        return sum(file.size_bytes for file in self.files)

    def file(self, name: str) -> PartFile | None:
        return next((file for file in self.files if file.name == name), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """A complete replica."""

    about: About
    generation: Generation
    parts: Mapping[int, Part]
    """The part of each rank."""
    sources: Mapping[int, tuple[str, ...]]
    """Rank -> addresses of the keepers that hold its part."""


def header_of(part: Part) -> bytes:
    """The first bytes of the request that sends ``part``."""
    content = encode(part)
    return len(content).to_bytes(LENGTH_BYTES) + content


def read_header(content: bytes) -> Part:
    """The part that a header describes. ``content``: the header, without the length before it.

    Raises:
        UsageError: ``content`` is no header of a part.
    """
    part = decode(Part, content)
    names = {file.name for file in part.files}
    numbers = (part.rank, part.about.step, part.about.attempt, *(file.size_bytes for file in part.files))
    if (
        min(numbers) < 0
        or part.rank >= part.about.world_size
        or len(names) != len(part.files)
        or len(names) > MAX_FILES
    ):
        raise UsageError("the content is not a part of a replica", hint="use the same version on all nodes")
    return part


def newest_complete(
    held: Mapping[str, Sequence[Part]], *, run_id: str, world_size: int, rollback: Rollback | None = None
) -> Replica | None:
    """The newest replica of a job of ``world_size`` ranks of which every part is held; None if there is none.

    Args:
        held: the parts that each keeper holds, by its address.
        rollback: steps in which the training went wrong. Their replicas are not used.
    """
    found: dict[Generation, dict[int, tuple[Part, list[str]]]] = {}
    for address, parts in held.items():
        for part in parts:
            fits = (part.about.run_id, part.about.world_size, part.about.format) == (run_id, world_size, FORMAT)
            if not fits or _is_rolled_back(part, rollback):
                continue
            ranks = found.setdefault(part.generation, {})
            known, addresses = ranks.setdefault(part.rank, (part, []))
            if known == part:  # a different part of the same rank and generation would be an error of the sender
                addresses.append(address)
    complete = [generation for generation, ranks in found.items() if set(ranks) == set(range(world_size))]
    if not complete:
        return None
    generation = max(complete)
    ranks = found[generation]
    return Replica(
        about=ranks[0][0].about,
        generation=generation,
        parts={rank: part for rank, (part, _) in ranks.items()},
        sources={rank: tuple(addresses) for rank, (_, addresses) in ranks.items()},
    )


def _is_rolled_back(part: Part, rollback: Rollback | None) -> bool:
    about = part.about
    return rollback is not None and about.attempt <= rollback.attempt and about.step >= rollback.before_step
