"""Start and stop of a session: the identity of the rank, invalid settings and failures."""

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


def test_rank_identity_is_read_from_the_torchrun_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_arguments_of_start_override_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_run_without_a_name_gets_a_default_name_and_the_default_spool() -> None:
    settings = RecordingSettings.from_environment({})
    assert settings.run_id.startswith("run-")
    assert settings.spool == default_spool()


def test_ranks_of_one_launcher_get_the_same_run_name() -> None:
    launched = {"WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "none"}
    assert len({RecordingSettings.from_environment(launched).run_id for _ in range(3)}) == 1


def test_invalid_utf8_bytes_in_host_and_run_names_are_replaced() -> None:
    odd = os.fsdecode(b"gpu-\xff")
    settings = RecordingSettings.from_environment({"RANKSCOPE_HOST": odd, "RANKSCOPE_RUN": odd})
    assert (settings.host, settings.run_id) == ("gpu-?", "gpu-?")


def test_run_with_an_invalid_name_is_recorded_under_a_corrected_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    started = telemetry.start("../up\x1b[2J\n", rank=0, spool=tmp_path, topology=Topology(), agent=False)
    telemetry.stop()
    assert started.folder == tmp_path / "_._up_[2J_" / "0" / "rank-00000"
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("rankscope: '../up\\x1b[2J\\n' is not a valid run name; recording as '_._up_[2J_'")


def test_rank_variable_that_is_not_a_number_raises_a_clear_error() -> None:
    with pytest.raises(UsageError, match="RANK is 'five'"):
        RecordingSettings.from_environment({"RANK": "five"})


def test_nothing_is_recorded_when_rankscope_is_disabled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANKSCOPE_DISABLED", "1")
    with session(tmp_path) as started, telemetry.step(0), telemetry.span(Stage.OPTIMIZER):
        pass
    assert not started.recording
    assert list(tmp_path.iterdir()) == []


def test_calls_outside_a_session_record_nothing_and_do_not_raise(tmp_path: Path) -> None:
    for _ in range(2):
        with telemetry.step(0), telemetry.span(Stage.FORWARD_COMPUTE):
            telemetry.mark("note")
            telemetry.sample("loss", 1.0)
        telemetry.stop()
        with session(tmp_path):
            pass
    assert len(recorded(tmp_path).records) == 0


@pytest.mark.parametrize("options", [{"rank": 9}, {"attempt": "x"}])
def test_invalid_start_options_disable_recording_and_print_one_message(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: dict[str, object]
) -> None:
    given = {"run": "test", "rank": 0, "spool": tmp_path, "topology": Topology(dp=2), "agent": False, **options}
    started = telemetry.start(**given)  # type: ignore[arg-type]
    with telemetry.span(Stage.OPTIMIZER):
        pass
    telemetry.stop()
    assert not started.recording
    assert capsys.readouterr().err.count("not recording") == 1


def test_second_start_returns_the_first_session_and_prints_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with session(tmp_path) as first:
        assert telemetry.start("other", spool=tmp_path) is first
        assert "twice" in capsys.readouterr().err


def test_session_stats_report_records_dropped_spans_and_own_cost(tmp_path: Path) -> None:
    with session(tmp_path) as started:
        for _ in range(1000):
            with telemetry.span(Stage.DATA_LOAD):
                pass
        with telemetry.span("no-such-stage"):
            pass
    stats = started.stats()
    assert (recorded(tmp_path).stages.count("data-load"), stats.dropped) == (1000, 1)
    assert stats.own_cost_ns == stats.records * stats.span_cost_ns > 0


def test_first_local_rank_starts_the_agent_when_a_collector_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_session_can_start_after_the_previous_session_failed_to_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with session(tmp_path / "gone"):
        (tmp_path / "gone").rename(tmp_path / "elsewhere")
    assert "did not end cleanly" in capsys.readouterr().err
    with session(tmp_path / "next") as started, telemetry.span(Stage.OPTIMIZER):
        pass
    assert started.stats().records == 1


def test_rank_can_start_a_session_after_a_failed_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as broken:
        broken.setattr("telemetry.record.clocks.drain.open_device_clock", lambda device: 1 / 0)
        with session(tmp_path) as failed:
            pass
    with session(tmp_path) as started:
        assert started.recording
    assert not failed.recording
