"""A real training over namespaces. Its records are stored, it survives a flap, and it ends after a lost link."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from telemetry.errors import UsageError
from telemetry.stages import Stage
from telemetry.stores.queries import Ranks, Spans
from tests.netns.cluster import DATA_LINK, Cluster
from tests.netns.collector import Collector
from tests.netns.job import ATTEMPT, Job, quick_config
from tests.netns.zygote import Zygote
from tests.parts import require, require_root
from tests.trainer.jobs import alive
from trainer.config import TrainConfig

pytestmark = [pytest.mark.netns, pytest.mark.gloo, pytest.mark.timeout(180)]

NUM_STEPS = 5
FLAPPED, CUT = 2, 3
FLAP_S, CUT_TIMEOUT_S = 1.0, 4.0
PLACED = (0, 0, FLAPPED, FLAPPED)
"""Host of each rank of the job with the flap. Its data-parallel groups are on both hosts."""
SPREAD = (0, 1, 2, 3, 3, 2, 1, 0)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    require_root("makes network namespaces")
    require("ip")
    with Cluster() as made:
        yield made


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cluster")


@pytest.fixture(scope="module")
def zygote(folder: Path) -> Iterator[Zygote]:
    with Zygote(folder) as made:
        yield made


@pytest.fixture(scope="module")
def collector(zygote: Zygote, cluster: Cluster, folder: Path) -> Iterator[Collector]:
    """The collector. It starts while the zygote loads."""
    with Collector(cluster, folder / "store") as made:
        yield made


@pytest.fixture(scope="module")
def finished(cluster: Cluster, collector: Collector, folder: Path, zygote: Zygote) -> Job:
    """A job that finished despite a flap, with all its records stored."""
    config = quick_config(NUM_STEPS, tp=1)
    job = Job(cluster, collector, folder / "flapped", run_id="flapped", config=config, placement=PLACED, zygote=zygote)
    with job:
        job.wait_for_step(2)
        before = cluster.carrier_downs(FLAPPED)
        cluster.flap(FLAPPED, FLAP_S)
        assert job.wait() == dict.fromkeys(range(4), 0), job.log(0)
        assert set(job.wait_until_stored().values()) == {0}, job.agent_log(0)
        assert cluster.carrier_downs(FLAPPED) == before + 1
    return job


def test_every_rank_is_stored_under_its_own_host(finished: Job, collector: Collector) -> None:
    rows = collector.read(Ranks(run_id=finished.run_id, attempt=ATTEMPT)).to_pylist()
    assert [(row["rank"], row["host"], row["local_rank"]) for row in rows] == [
        (rank, f"host-{host}", rank % 2) for rank, host in enumerate(PLACED)
    ]


def test_every_step_of_every_rank_is_stored(finished: Job, collector: Collector) -> None:
    rows = steps_of(finished, collector)
    assert sorted((row["step"], row["rank"]) for row in rows) == [
        (step, rank) for step in range(NUM_STEPS) for rank in range(4)
    ]


def test_one_step_of_every_rank_lasts_at_least_as_long_as_the_flap(finished: Job, collector: Collector) -> None:
    rows = [row for row in steps_of(finished, collector) if row["duration_ns"] >= FLAP_S * 1e9 and row["step"] > 0]
    assert {row["rank"] for row in rows} == set(range(4))


def test_command_reaches_the_collector_over_the_management_network(finished: Job, collector: Collector) -> None:
    told = collector.ask("diagnose", "hang", finished.run_id)
    assert (told["run"], told["findings"]) == (finished.run_id, [])


def test_flap_is_reported_with_its_network_card_and_delayed_steps_and_no_finding(
    finished: Job, collector: Collector
) -> None:
    """One flap is not a finding. For several flaps and lost links, see ``tests/scenarios/test_fleet.py``."""
    told = collector.ask("diagnose", finished.run_id)
    (mark,) = told["marks"]
    assert (mark["host"], mark["device"], mark["count"], mark["lasts"]) == (f"host-{FLAPPED}", DATA_LINK, 1, False)
    assert mark["seconds"] == pytest.approx(FLAP_S, abs=1.0)
    assert mark["stretched"]
    assert [one for one in told["findings"] if one["hosts"]] == []


@pytest.mark.long
def test_lost_link_ends_every_rank_after_the_collective_timeout(
    cluster: Cluster, collector: Collector, folder: Path, zygote: Zygote
) -> None:
    job = Job(
        cluster,
        collector,
        folder / "cut",
        run_id="cut",
        placement=SPREAD,
        collective_timeout_s=CUT_TIMEOUT_S,
        zygote=zygote,
    )
    try:
        with job:
            job.wait_for_step(2)
            cluster.link_down(CUT)
            assert job.wait(60) == dict.fromkeys(range(8), 1)
    finally:
        cluster.link_up(CUT)
    assert all("RuntimeError" in job.log(rank) for rank in range(8))
    assert any(f"Timed out waiting {CUT_TIMEOUT_S * 1000:.0f}ms" in job.log(rank) for rank in job.ranks_on(CUT))


@pytest.mark.long
def test_unfinished_job_leaves_no_processes_behind(
    cluster: Cluster, collector: Collector, folder: Path, zygote: Zygote
) -> None:
    with Job(cluster, collector, folder / "left", run_id="left", zygote=zygote) as job:
        started = [*job.pids, *(agent.pid for agent in job.agents.values())]
        assert all(map(alive, started))
    assert not any(map(alive, started))
    assert zygote.running


@pytest.mark.parametrize("seconds", [0, -1.0, float("nan"), float("inf")])
def test_invalid_collective_timeout_is_refused(seconds: float) -> None:
    with pytest.raises(UsageError, match="collective_timeout_s"):
        TrainConfig(collective_timeout_s=seconds)


def steps_of(job: Job, collector: Collector) -> list[dict[str, int]]:
    asked = Spans(run_id=job.run_id, attempt=ATTEMPT, first_step=0, last_step=NUM_STEPS, stages=(int(Stage.STEP),))
    rows: list[dict[str, int]] = collector.read(asked).to_pylist()
    return rows
