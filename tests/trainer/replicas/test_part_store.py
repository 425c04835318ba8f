"""What a node holds: two generations, only whole parts, and never all of its memory."""

import pytest

from tests.trainer.replicas.made_parts import GIB, hold, made_part
from trainer.replicas.part_store import PartStore, RefusedError


def steps(store: PartStore) -> list[tuple[int, int]]:
    """Attempt and step of each part."""
    return sorted((part.about.attempt, part.about.step) for part in store.parts())


def test_a_new_generation_leaves_the_one_before() -> None:
    store = PartStore()
    for step in (5, 6, 7):
        hold(store, made_part(0, step=step))
        hold(store, made_part(1, step=step))
    assert steps(store) == [(0, 6), (0, 6), (0, 7), (0, 7)]


def test_room_is_made_before_the_first_byte_arrives() -> None:
    store = PartStore()
    for step in (5, 6):
        hold(store, made_part(0, step=step))
    store.begin(made_part(0, step=7), total_bytes=GIB, free_bytes=GIB)
    assert steps(store) == [(0, 6)]


def test_the_generation_of_the_attempt_before_stays_until_the_next_one_is_complete() -> None:
    store = PartStore()
    hold(store, made_part(0, step=6))
    hold(store, made_part(0, step=7, attempt=1, writer_id="aa"))
    assert steps(store) == [(0, 6), (1, 7)]


def test_an_earlier_attempt_cannot_replace_a_later_one() -> None:
    store = PartStore()
    hold(store, made_part(0, step=6, attempt=1))
    with pytest.raises(RefusedError, match="newer"):
        hold(store, made_part(0, step=9, attempt=0))
    assert steps(store) == [(1, 6)]


@pytest.mark.parametrize(
    ("content", "reason"), [(b"sha", "cut off"), (b"shard and more", "more bytes"), (b"SHARD", "damaged")]
)
def test_a_torn_or_damaged_part_is_not_held(content: bytes, reason: str) -> None:
    store = PartStore()
    with pytest.raises(RefusedError, match=reason):
        hold(store, made_part(0), content)
    assert store.parts() == []


def test_a_part_that_leaves_too_little_memory_is_refused() -> None:
    store = PartStore()
    part = made_part(0)
    with pytest.raises(RefusedError, match="too little free memory"):
        store.begin(part, total_bytes=GIB, free_bytes=GIB // 10)
    assert store.begin(part, total_bytes=GIB, free_bytes=GIB // 10 + part.size_bytes + 1)


def test_what_an_older_generation_frees_counts_as_free() -> None:
    store, large = PartStore(), b"x" * 1000
    for step in (5, 6):
        hold(store, made_part(0, large, step=step), large)
    assert store.begin(made_part(0, large, step=7), total_bytes=1000, free_bytes=100)


def test_a_file_is_read_from_its_own_generation() -> None:
    store, part = PartStore(), made_part(0)
    hold(store, part)
    assert bytes(store.read(part.generation, 0, "__0_0.distcp") or b"") == b"shard"
    assert store.read(part.generation, 1, "__0_0.distcp") is None
    assert store.read(part.generation._replace(step=6), 0, "__0_0.distcp") is None
    assert store.read(part.generation, 0, "other") is None
