"""A node keeps two generations and only complete parts, and never fills all of its memory."""

import pytest

from tests.each_case import each_case
from tests.trainer.replicas.made_parts import GIB, hold, made_part
from trainer.replicas.part_store import PartStore, RefusedError


def steps(store: PartStore) -> list[tuple[int, int]]:
    """Attempt and step of each part."""
    return sorted((part.about.attempt, part.about.step) for part in store.parts())


def test_store_keeps_the_newest_two_generations() -> None:
    store = PartStore()
    for step in (5, 6, 7):
        hold(store, made_part(0, step=step))
        hold(store, made_part(1, step=step))
    assert steps(store) == [(0, 6), (0, 6), (0, 7), (0, 7)]


def test_store_drops_the_oldest_generation_before_a_new_part_arrives() -> None:
    store = PartStore()
    for step in (5, 6):
        hold(store, made_part(0, step=step))
    store.begin(made_part(0, step=7), total_bytes=GIB, free_bytes=GIB)
    assert steps(store) == [(0, 6)]


def test_generation_of_the_previous_attempt_is_kept_while_the_new_one_is_incomplete() -> None:
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


@each_case(("content", "reason"), [(b"sha", "incomplete"), (b"shard and more", "more bytes"), (b"SHARD", "damaged")])
def test_torn_or_damaged_part_is_rejected(content: bytes, reason: str) -> None:
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


def test_memory_of_a_generation_that_will_be_dropped_counts_as_free() -> None:
    store, large = PartStore(), b"x" * 1000
    for step in (5, 6):
        hold(store, made_part(0, large, step=step), large)
    assert store.begin(made_part(0, large, step=7), total_bytes=1000, free_bytes=100)


def test_parts_that_arrive_at_the_same_time_share_the_free_memory() -> None:
    store, large = PartStore(), b"x" * 600
    first = store.begin(made_part(0, large), total_bytes=1000, free_bytes=1000)
    with pytest.raises(RefusedError, match="too little free memory"):
        store.begin(made_part(1, large), total_bytes=1000, free_bytes=1000)
    first.add(large[:500])
    assert store.begin(made_part(1, large[:300]), total_bytes=1000, free_bytes=500)


def test_memory_of_an_interrupted_part_is_free_again() -> None:
    store, large = PartStore(), b"x" * 600
    interrupted = store.begin(made_part(0, large), total_bytes=1000, free_bytes=1000)
    del interrupted
    assert store.begin(made_part(1, large), total_bytes=1000, free_bytes=1000)


def test_file_is_found_only_by_its_generation_rank_and_name() -> None:
    store, part = PartStore(), made_part(0)
    hold(store, part)
    assert bytes(store.read(part.generation, 0, "__0_0.distcp") or b"") == b"shard"
    assert store.read(part.generation, 1, "__0_0.distcp") is None
    assert store.read(part.generation._replace(step=6), 0, "__0_0.distcp") is None
    assert store.read(part.generation, 0, "other") is None
