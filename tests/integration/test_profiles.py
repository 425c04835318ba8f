"""Profiles on demand, with a real training, agent, collector and command."""

import gzip
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from diagnose.profiles import StoredProfile, stored_profiles, trace_parts
from telemetry.errors import UsageError
from telemetry.imports.kineto_file import read_trace
from telemetry.profiles import Phase
from telemetry.stages import Stage
from telemetry.stores.queries import Spans
from telemetry.wire.client import CollectorClient
from telemetry.wire.profile_order import ProfileOrder
from tests.deadline import until
from tests.diagnose.trace.opened import opened_json
from tests.integration.processes import Part, Road
from tests.integration.profiled_job import RUN, start
from tests.scenarios.command import rankscope
from tests.trainer.launchers import Launched

pytestmark = [pytest.mark.gloo, pytest.mark.timeout(600)]

TOKEN = "full" * 8
NUM_RANKS = 2
EVERY_S = 0.5
"""Time between batches of the agent, and between queries of a test that waits."""
KEY: dict[str, Any] = {"run_id": RUN, "attempt": 0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """A running job with its agent and its collector."""

    folder: Path
    road: Road
    job: Launched
    client: CollectorClient

    def command(self, *arguments: object, **environment: str) -> Any:
        return rankscope(
            "profile", RUN, "--store", self.road.url, *arguments, **{"RANKSCOPE_TOKEN": TOKEN, **environment}
        )

    def profile(self, profile_id: str, rank: int) -> StoredProfile:
        found = stored_profiles(self.client, **KEY)
        return next(profile for profile in found if (profile.profile_id, profile.rank) == (profile_id, rank))

    def order(self, *ranks: int, steps: int) -> str:
        return self.client.order_profile(ProfileOrder(**KEY, ranks=ranks, steps=steps))

    def trace(self, profile: StoredProfile) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(gzip.decompress(b"".join(trace_parts(self.client, **KEY, profile=profile))))
        return found


def steps_of(client: CollectorClient, first_step: int, last_step: int, *ranks: int) -> pa.Table:
    """The spans of steps, as stored."""
    return client.read(Spans(**KEY, first_step=first_step, last_step=last_step, ranks=ranks, stages=(Stage.STEP,)))


def slower_agent(road: Road, folder: Path) -> Part:
    """An agent that sends twice a second: ten batches a second take a large part of a processor."""
    arguments = ("--spool", str(road.spool), "--collector", road.url, "--interval", str(EVERY_S), "--patience", "3")
    return Part("agent", [sys.executable, "-m", "telemetry.agent", *arguments], folder / "agent.log")


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    monkeypatch.setenv("RANKSCOPE_TOKEN", TOKEN)
    road = Road(tmp_path, f"embedded:{tmp_path / 'store'}", num_ranks=0)
    road.agent = slower_agent(road, tmp_path)
    job = start(tmp_path, NUM_RANKS)
    try:
        road.start()
        with CollectorClient(road.url) as client:
            until(lambda: steps_of(client, 0, 10**6, 0, 1).num_rows > 20, seconds=120, every=EVERY_S)
            yield Scene(folder=tmp_path, road=road, job=job, client=client)
    finally:
        for part in (job, *road.parts):
            part.kill()


def test_a_profile_is_ordered_stored_listed_and_fetched_while_the_job_trains(scene: Scene, tmp_path: Path) -> None:
    answer = scene.command("--ranks", "1", "--steps", 3, "--out", tmp_path / "out", "--json")
    assert answer.status == 0, answer.error
    found = json.loads(answer.out)
    (rank,) = found["profiled_ranks"]
    assert (rank["rank"], rank["phase"], rank["last_step"] - rank["first_step"]) == (1, "stored", 2)
    trace = json.loads(gzip.decompress(Path(rank["file"]).read_bytes()))
    assert_on_the_clock_of_the_spans(trace, scene.client, rank)
    imported = read_trace(Path(rank["file"]))
    assert (imported.rank, len(imported.step_numbers)) == (1, 3)
    assert_exported_with_the_spans(scene, rank, tmp_path / "joined.json.gz")
    listed = scene.command("--list")
    assert found["profile"][:8] in listed.out
    again = scene.command("--get", found["profile"], "--out", tmp_path / "again")
    assert again.status == 0, again.error
    assert (tmp_path / "again" / "rank-00001.json.gz").read_bytes() == Path(rank["file"]).read_bytes()
    assert_refusals(scene)
    local = rankscope(
        "profile", "--spool", scene.road.spool, "--ranks", "0-1", "--steps", 2, "--out", tmp_path / "local"
    )
    assert local.status == 0, local.error
    assert sorted(path.name for path in (tmp_path / "local").iterdir()) == ["rank-00000.json.gz", "rank-00001.json.gz"]
    assert not list(scene.road.spool.glob("*/*/rank-*/profile/*"))
    assert_same_losses(scene)
    ended = scene.command("--ranks", "0")
    assert (ended.status, "is not live, its state is ended" in ended.error) == (2, True), ended.error
    scene.road.collector.end()
    without = rankscope("profile", RUN, "--ranks", "0", "--store", f"embedded:{scene.folder / 'store'}")
    assert (without.status, "needs a running collector" in without.error) == (2, True), without.error


def assert_on_the_clock_of_the_spans(trace: dict[str, Any], client: CollectorClient, rank: dict[str, Any]) -> None:
    """Each annotation begins after the stored span of the step before, and before the stored span of its step."""
    annotated = {
        int(event["name"].partition("#")[2]): trace["baseTimeNanoseconds"] + round(event["ts"] * 1000)
        for event in trace["traceEvents"]
        if event["name"].startswith("ProfilerStep#")
    }
    steps = range(rank["first_step"], rank["last_step"] + 1)
    assert sorted(annotated) == [*steps]

    def stored() -> dict[int, tuple[int, int]]:
        rows = steps_of(client, steps[0] - 1, steps[-1], rank["rank"]).to_pylist()
        return {row["step"]: (row["start_ns"], row["start_ns"] + row["duration_ns"]) for row in rows}

    until(lambda: len(stored()) == len(steps) + 1, every=EVERY_S, what="the spans of the profiled steps")
    spans, may_differ_ns = stored(), rank["clock_error_ns"] + 20_000
    for step, begin_ns in annotated.items():
        assert spans[step - 1][1] - may_differ_ns <= begin_ns <= spans[step][0] + may_differ_ns


def assert_exported_with_the_spans(scene: Scene, rank: dict[str, Any], path: Path) -> None:
    """In the trace for Perfetto, each annotation begins with the stored span of its step."""
    answer = rankscope("export", "perfetto", RUN, "--profiles", "--store", scene.road.url, "--out", path, "--json")
    assert answer.status == 0, answer.error
    report = json.loads(answer.out)
    (profile,) = report["profiles"]
    assert (report["first_step"], report["last_step"]) == (rank["first_step"], rank["last_step"])
    assert (profile["rank"], profile["clock_error_ns"]) == (1, rank["clock_error_ns"])
    mine = [each for each in opened_json(path).slices if each.pid == 2]
    spans = {each.words["step"]: each for each in mine if each.name == "step"}
    annotated = {int(each.name.partition("#")[2]): each for each in mine if each.name.startswith("ProfilerStep#")}
    assert spans.keys() == annotated.keys() == {*range(rank["first_step"], rank["last_step"] + 1)}
    may_differ_ns = rank["clock_error_ns"] + 20_000
    for step, span in spans.items():
        assert annotated[step].start_ns - may_differ_ns <= span.start_ns < annotated[step].end_ns


def assert_refusals(scene: Scene) -> None:
    for arguments, environment, said in (
        (("--ranks", "0"), {"RANKSCOPE_TOKEN": "", "RANKSCOPE_READ_TOKEN": "wrong"}, "no token, or a wrong one"),
        (("--ranks", "7"), {}, "ranks of this run are 0 to 1"),
        (("--get", "f" * 32, "--out", "x"), {}, "has no profile"),
        (("--list", "--ranks", "0"), {}, "--list does not work with"),
    ):
        answer = scene.command(*arguments, **environment)
        assert (answer.status, said in answer.error, "hint: " in answer.error) == (2, True, True), answer.error
    with pytest.raises(UsageError, match="no rank 9"):
        scene.order(9, steps=1)
    none = rankscope("profile", RUN, "--ranks", "0", "--store", "http://127.0.0.1:9")
    assert none.status == 3


def assert_same_losses(scene: Scene) -> None:
    """A run that is not profiled has the same losses."""
    (scene.folder / "stop").touch()
    assert scene.job.wait(60) == 0, (scene.folder / "job.log").read_text()
    profiled = (scene.folder / "losses-1").read_text().split()
    plain = scene.folder / "plain"
    plain.mkdir()
    assert start(plain, NUM_RANKS, len(profiled)).wait(300) == 0, (plain / "job.log").read_text()
    assert (plain / "losses-1").read_text().split() == profiled


@pytest.mark.long
def test_a_profile_survives_the_death_of_its_agent_and_of_its_collector(scene: Scene) -> None:
    profile_id = scene.order(0, 1, steps=60)
    until(lambda: scene.profile(profile_id, 0).phase is Phase.RUNNING, seconds=60, what="the profile runs")
    busy = scene.order(0, steps=1)
    until(lambda: scene.profile(busy, 0).phase is Phase.FAILED, seconds=60, what="a second profile is refused")
    assert "another profile of this rank is running" in scene.profile(busy, 0).reason
    scene.road.agent.kill()
    scene.road.collector.kill()
    scene.road.start_collector()
    scene.road.agent.start()
    for rank in range(NUM_RANKS):
        until(
            lambda rank=rank: scene.profile(profile_id, rank).phase.is_final, seconds=120, what="the profile is stored"
        )
        profile = scene.profile(profile_id, rank)
        assert profile.phase is Phase.STORED, profile.reason
        steps = [event for event in scene.trace(profile)["traceEvents"] if event["name"].startswith("ProfilerStep#")]
        assert len(steps) == 60
    until(lambda: not list(scene.road.spool.glob("*/*/rank-*/profile/*")), what="the files are removed")
