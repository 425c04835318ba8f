"""Starting and stopping: who this rank is, and what happens where it cannot be."""

import os
from pathlib import Path

import pytest

import telemetry
from telemetry.errors import UsageError
from telemetry.record.agent_process import CLAIM_NAME
from telemetry.record.session import start_attached
from telemetry.records import role_in
from telemetry.settings import RecordingSettings, default_spool
from telemetry.stages import Stage
from telemetry.topology import Topology
from tests.telemetry.recording import recorded, session

TORCHRUN = {
    "RANK": "5",
    "LOCAL_RANK": "1",
    "WORLD_SIZE": "8",
    "TORCHELASTIC_RUN_ID": "job-17",
    "TORCHELASTIC_RESTART_COUNT": "2",
}


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        *TORCHRUN,
        "RANKSCOPE_RUN",
        "RANKSCOPE_HOST",
        "RANKSCOPE_SPOOL",
        "RANKSCOPE_DISABLED",
        "RANKSCOPE_ROLE",
    ):
        monkeypatch.delenv(name, raising=False)


def test_torchrun_says_who_this_rank_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in TORCHRUN.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("RANKSCOPE_HOST", "gpu-03")
    monkeypatch.setenv("RANKSCOPE_SPOOL", str(tmp_path))
    telemetry.start(meta={"recipe": "tiny"})
    telemetry.stop()
    who = recorded(tmp_path, 5).reader.identity()
    assert (who.run_id, who.attempt, who.rank, who.local_rank, who.host) == ("job-17", 2, 5, 1, "gpu-03")
    assert who.topology == Topology(dp=8)
    assert {**who.meta, "device": "cpu", "recipe": "tiny"} == who.meta


def test_what_is_given_wins_over_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in TORCHRUN.items():
        monkeypatch.setenv(name, value)
    telemetry.start("mine", rank=0, attempt=0, host="here", spool=tmp_path, topology=Topology(dp=4, tp=2))
    telemetry.stop()
    who = recorded(tmp_path, 0).reader.identity()
    assert (who.run_id, who.attempt, who.host, who.topology) == ("mine", 0, "here", Topology(dp=4, tp=2))


def test_a_role_is_part_of_the_identity(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANKSCOPE_ROLE", " Rollout/2\n")
    for given, role in ((None, "rollout-2"), ("actor", "actor"), ("", "")):
        telemetry.start("rl", rank=0, spool=tmp_path, role=given)
        telemetry.stop()
        assert role_in(recorded(tmp_path, 0).reader.identity().meta) == role


def test_without_a_name_a_run_is_named_by_time() -> None:
    settings = RecordingSettings.from_environment({})
    assert settings.run_id.startswith("run-")
    assert settings.spool == default_spool()


def test_ranks_of_one_launcher_get_one_name() -> None:
    launched = {"WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "none"}
    assert len({RecordingSettings.from_environment(launched).run_id for _ in range(3)}) == 1


def test_names_of_any_bytes_are_names_that_can_be_stored() -> None:
    odd = os.fsdecode(b"gpu-\xff")
    settings = RecordingSettings.from_environment({"RANKSCOPE_HOST": odd, "RANKSCOPE_RUN": odd})
    assert (settings.host, settings.run_id) == ("gpu-?", "gpu-?")


def test_a_run_with_a_name_that_cannot_be_used_is_recorded_under_the_nearest_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    started = telemetry.start("../up\x1b[2J\n", rank=0, spool=tmp_path, topology=Topology(), agent=False)
    telemetry.stop()
    assert started.folder == tmp_path / "_._up_[2J_" / "0" / "rank-00000"
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("rankscope: '../up\\x1b[2J\\n' is not a valid run name; recording as '_._up_[2J_'")


def test_a_number_that_is_none_is_a_clear_error() -> None:
    with pytest.raises(UsageError, match="RANK is 'five'"):
        RecordingSettings.from_environment({"RANK": "five"})


def test_switched_off_nothing_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANKSCOPE_DISABLED", "1")
    with session(tmp_path) as started, telemetry.step(0), telemetry.span(Stage.OPTIMIZER):
        pass
    assert not started.recording
    assert list(tmp_path.iterdir()) == []


def test_everything_works_before_start_and_after_stop(tmp_path: Path) -> None:
    for _ in range(2):
        with telemetry.step(0), telemetry.span(Stage.FORWARD_COMPUTE):
            telemetry.mark("note")
            telemetry.sample("loss", 1.0)
        telemetry.stop()
        with session(tmp_path):
            pass
    assert len(recorded(tmp_path).records) == 0


@pytest.mark.parametrize("options", [{"rank": 9}, {"attempt": "x"}])
def test_what_makes_no_sense_is_said_once_and_training_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: dict[str, object]
) -> None:
    given = {"run": "test", "rank": 0, "spool": tmp_path, "topology": Topology(dp=2), "agent": False, **options}
    started = telemetry.start(**given)  # type: ignore[arg-type]
    with telemetry.span(Stage.OPTIMIZER):
        pass
    telemetry.stop()
    assert not started.recording
    assert capsys.readouterr().err.count("not recording") == 1


def test_a_second_start_leaves_the_first_session_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with session(tmp_path) as first:
        assert telemetry.start("other", spool=tmp_path) is first
        assert "twice" in capsys.readouterr().err


def test_a_session_says_what_it_did_and_what_it_cost(tmp_path: Path) -> None:
    with session(tmp_path) as started:
        for _ in range(1000):
            with telemetry.span(Stage.DATA_LOAD):
                pass
        with telemetry.span("no-such-stage"):
            pass
    stats = started.stats()
    assert (recorded(tmp_path).stages.count("data-load"), stats.dropped) == (1000, 1)
    assert stats.own_cost_ns == stats.records * stats.span_cost_ns > 0


def test_a_collector_brings_the_hosts_agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spawned: list[dict[str, object]] = []
    monkeypatch.setattr("telemetry.record.recording.KeptAgent", lambda spawn, _: spawned.append(spawn.keywords))
    for local_rank in (0, 1):
        telemetry.start(
            "test",
            spool=tmp_path,
            topology=Topology(dp=2),
            rank=local_rank,
            local_rank=local_rank,
            collector="http://c",
        )
        telemetry.stop()
    assert spawned == [{"spool": tmp_path, "run_id": "test", "attempt": 0, "collector": "http://c"}]


def test_a_rank_records_if_it_cannot_claim_the_agent(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "mine" / "0"
    folder.mkdir(parents=True, mode=0o700)
    (folder / CLAIM_NAME).symlink_to("elsewhere")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("RANKSCOPE_SPOOL", str(tmp_path))
        environment.setenv("RANKSCOPE_COLLECTOR", "http://127.0.0.1:9")
        started = start_attached(run="mine", rank=0, local_rank=0, world_size=1, starts_agent=None, meta={})
    assert started.recording
    telemetry.stop()
    assert "the agent did not start" in capsys.readouterr().err


def test_after_an_end_that_failed_another_session_can_start(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with session(tmp_path / "gone"):
        (tmp_path / "gone").rename(tmp_path / "elsewhere")
    assert "did not end cleanly" in capsys.readouterr().err
    with session(tmp_path / "next") as started, telemetry.span(Stage.OPTIMIZER):
        pass
    assert started.stats().records == 1


def test_after_a_start_that_failed_the_same_rank_can_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as broken:
        broken.setattr("telemetry.record.clocks.drain.open_device_clock", lambda device: 1 / 0)
        with session(tmp_path) as failed:
            pass
    with session(tmp_path) as started:
        assert started.recording
    assert not failed.recording
