"""A replica is complete or absent, and never mixes two steps or two attempts."""

import random
from dataclasses import replace

import pytest

from telemetry.errors import UsageError
from tests.trainer.replicas.made_parts import RUN, made_part
from trainer.drive.records import Rollback
from trainer.json_records import encode
from trainer.replicas.parts import Part, header_of, newest_complete, read_header

A, B, C = "http://a", "http://b", "http://c"


def chosen(**held: list[Part]) -> tuple[int, dict[int, tuple[str, ...]]] | None:
    """Step and sources of the replica that is used."""
    addresses = {"a": A, "b": B, "c": C}
    found = newest_complete({addresses[name]: parts for name, parts in held.items()}, run_id=RUN, world_size=2)
    return None if found is None else (found.about.step, dict(found.sources))


def test_newest_complete_replica_is_used() -> None:
    older, newer = [made_part(0), made_part(1)], [made_part(0, step=6), made_part(1, step=6)]
    assert chosen(a=older, b=newer) == (6, {0: (B,), 1: (B,)})


def test_replica_is_used_when_its_parts_are_on_several_nodes() -> None:
    assert chosen(a=[made_part(0)], b=[made_part(0), made_part(1)]) == (5, {0: (A, B), 1: (B,)})


def test_replica_with_a_missing_part_is_not_used() -> None:
    complete = [made_part(0), made_part(1)]
    assert chosen(a=complete, b=[made_part(0, step=6)]) == (5, {0: (A,), 1: (A,)})
    assert chosen(a=[made_part(0, step=6)], b=[made_part(1, step=5)]) is None
    assert chosen() is None


def test_parts_of_two_attempts_are_not_mixed() -> None:
    assert chosen(a=[made_part(0, attempt=1)], b=[made_part(1, attempt=2)]) is None
    assert chosen(a=[made_part(0, writer_id="aa")], b=[made_part(1, writer_id="bb")]) is None


def test_replica_of_a_later_attempt_is_preferred_to_a_higher_step() -> None:
    """The earlier attempt can be one that was left behind by a rollback."""
    earlier = [made_part(rank, step=9, attempt=0) for rank in range(2)]
    later = [made_part(rank, step=6, attempt=1) for rank in range(2)]
    assert chosen(a=[*earlier, *later]) == (6, {0: (A,), 1: (A,)})


def test_replica_of_a_rolled_back_step_is_not_used() -> None:
    held = {A: [made_part(rank, step=step) for rank in range(2) for step in (5, 6)]}
    held[B] = [made_part(rank, step=7, attempt=3) for rank in range(2)]

    def step(attempt: int, before_step: int) -> int | None:
        rollback = Rollback(attempt=attempt, before_step=before_step)
        found = newest_complete(held, run_id=RUN, world_size=2, rollback=rollback)
        return found.about.step if found else None

    assert step(attempt=2, before_step=6) == 7, "it is of a later attempt"
    assert step(attempt=3, before_step=6) == 5
    assert step(attempt=3, before_step=5) is None


def test_replica_of_another_grid_run_or_format_is_not_used() -> None:
    assert chosen(a=[made_part(rank, world_size=4) for rank in range(4)]) is None
    assert chosen(a=[made_part(rank, run_id="other") for rank in range(2)]) is None
    other = [made_part(rank) for rank in range(2)]
    assert chosen(a=[replace(part, about=replace(part.about, format=1)) for part in other]) is None


def test_newest_complete_step_is_used_when_random_parts_are_missing() -> None:
    draws = random.Random(0)
    for _ in range(500):
        held = {
            name: [made_part(draws.randrange(2), step=draws.randrange(5, 8)) for _ in range(draws.randrange(4))]
            for name in "abc"
        }
        complete = {
            step
            for step in range(5, 8)
            if {part.rank for parts in held.values() for part in parts if part.about.step == step} == {0, 1}
        }
        found = chosen(**held)
        assert (found[0] if found else None) == max(complete, default=None)


def test_a_header_is_read_back() -> None:
    part = made_part(1)
    assert read_header(header_of(part)[8:]) == part


def test_invalid_header_is_rejected() -> None:
    part = made_part(1)
    wrong = [
        replace(part, rank=2),
        replace(part, files=part.files * 2),
        replace(part, files=(replace(part.files[0], size_bytes=-1),)),
    ]
    for content in [b"", b"{}", *map(encode, wrong)]:
        with pytest.raises(UsageError):
            read_header(content)
