"""Which ranks `rankscope profile` profiles."""

from typing import Any

import pytest

from telemetry.errors import UsageError
from telemetry.stores.embedded import EmbeddedStore
from telemetry.stores.interface import StoreReader
from tests.ui.ablation_runs import put_run
from ui.cli.commands.profile import ProfileOptions
from ui.cli.profile_store import Attempt, chosen_ranks


@pytest.fixture(scope="module", autouse=True)
def runs(store: EmbeddedStore) -> None:
    put_run(store, "healthy", {})
    put_run(store, "slow", {}, "slow:rank=5,factor=1.5")


def chosen(store: EmbeddedStore, run_id: str, **options: Any) -> tuple[tuple[int, ...], str]:
    return chosen_ranks(Attempt(reader=StoreReader(store), run_id=run_id, number=0), ProfileOptions(**options))


def test_the_suspect_of_the_newest_finding_and_its_peers_are_profiled(store: EmbeddedStore) -> None:
    ranks, finding = chosen(store, "slow")
    assert 5 in ranks
    assert len(ranks) > 1
    assert finding == "compute-straggler"


def test_named_ranks_need_no_finding(store: EmbeddedStore) -> None:
    assert chosen(store, "healthy", ranks="2,6-7") == ((2, 6, 7), "")


@pytest.mark.parametrize(
    ("run_id", "options", "reason"),
    [
        ("healthy", {}, "no finding of run healthy/0 names a rank"),
        ("healthy", {"ranks": "8"}, "ranks of this run are 0 to 7"),
        ("no-such", {"ranks": "0"}, "no rank of run no-such/0 is known"),
    ],
)
def test_profile_without_a_rank_raises_an_error_with_the_reason_and_a_hint(
    run_id: str, options: dict[str, str], reason: str, store: EmbeddedStore
) -> None:
    with pytest.raises(UsageError, match=reason) as raised:
        chosen(store, run_id, **options)
    assert raised.value.hint
