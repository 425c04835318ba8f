from trainer.checkpoint.shared_reads import Stored, assign_readers

A, B, C = Stored("__0_0.distcp", 0, 100), Stored("__0_0.distcp", 100, 100), Stored("__1_0.distcp", 0, 100)


def test_each_tensor_has_one_reader_among_the_ranks_that_need_it() -> None:
    assigned = assign_readers([[A, B], [B, C], [C]])
    assert {stored: set(ranks) for stored, ranks in assigned.items()} == {A: {0}, B: {0, 1}, C: {1, 2}}
    assert len({ranks[0] for ranks in assigned.values()}) == 3


def test_readers_share_the_bytes() -> None:
    assigned = assign_readers([[A, B, C, C]] * 3)
    assert sorted(ranks[0] for ranks in assigned.values()) == [0, 1, 2]


def test_order_of_transfers_does_not_depend_on_the_order_of_needs() -> None:
    assert list(assign_readers([[C, A], [B]])) == list(assign_readers([[A, C], [B]])) == [A, B, C]
