"""A disturbed network, end to end: a real job over namespaces, real agents and a real collector.

``tests/netns/test_job.py`` has one flap in every test run. ``make fleet`` has many more jobs, slow links, and the time
to the alert.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.netns.cluster import DATA_LINK, Cluster
from tests.netns.collector import Collector
from tests.netns.zygote import Zygote
from tests.parts import require, require_root
from tests.scenarios.fleet_plan import Trial
from tests.scenarios.fleet_trial import HANGS, Ground, Seen, run_trial

pytestmark = [pytest.mark.netns, pytest.mark.gloo]


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    require_root("network namespaces")
    require("ip")
    require("tc")
    folder = tmp_path_factory.mktemp("fleet")
    with Cluster() as cluster, Collector(cluster, folder / "store") as collector, Zygote(folder) as zygote:
        yield Ground(cluster=cluster, collector=collector, zygote=zygote, alerts=None, folder=folder)


def only_of(seen: Seen, kind: str) -> dict[str, Any]:
    """The only finding above info that names a host. It must be of this kind."""
    accusing = [one for one in seen.findings if one["hosts"] and one["severity"] != "info"]
    assert [one["kind"] for one in accusing] == [kind], seen.findings
    assert accusing[0]["hosts"] == [seen.host]
    return accusing[0]


@pytest.mark.long
def test_flaps_of_a_card_are_counted_and_named_and_never_reported_as_a_hang(ground: Ground, tmp_path: Path) -> None:
    seen = run_trial(
        Trial(number=0, kind="three flaps", host=1, flaps_s=(0.5, 3.0, 0.5)),
        replace(ground, folder=tmp_path),
    )
    assert seen.kernel_downs == 3
    assert [(mark["host"], mark["device"]) for mark in seen.marks] == [("host-1", DATA_LINK)] * 3
    assert [mark["seconds"] for mark in seen.marks] == pytest.approx(seen.down_s, abs=1.0)
    finding = only_of(seen, "nic-flap")
    assert finding["evidence"]["device"] == DATA_LINK
    longest = next(mark for mark in seen.marks if mark["seconds"] > 2)
    assert longest["held_s"] > 2
    assert any({"2", "3"} & set(words_of(one)) for one in longest["stretched"]), longest
    assert not set(seen.verdicts) & set(HANGS)


def words_of(stretched: str) -> list[str]:
    """The ranks of ``grads-all-reduce of ranks 0, 4 took 3.1 s longer in step 7``."""
    return stretched.partition(" ranks ")[2].partition(" took ")[0].replace(",", " ").replace("-", " ").split()


@pytest.mark.long
def test_permanent_link_loss_is_a_hung_collective_with_the_card_as_its_cause(ground: Ground, tmp_path: Path) -> None:
    seen = run_trial(Trial(number=1, kind="permanent link loss", host=2), replace(ground, folder=tmp_path))
    assert only_of(seen, "hung-collective")["evidence"]["device"] == DATA_LINK
    assert [mark["lasts"] for mark in seen.marks] == [True]
