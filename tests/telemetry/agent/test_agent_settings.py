"""Settings of an agent from its arguments and its environment, and the samplers that it opens."""

import pynvml
import pytest

from telemetry.agent.__main__ import _report
from telemetry.agent.sampling import open_samplers
from telemetry.agent.settings import SamplerSettings, parse_settings
from telemetry.errors import UsageError

ARGUMENTS = ["--spool", "spool", "--collector", "http://127.0.0.1:1"]


def test_environment_sets_the_sampling_intervals_and_an_argument_overrides_it(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = parse_settings("agent", ARGUMENTS, collector=None).samplers
    assert (usual.interval_s, usual.network_s) == (1.0, 0.0)
    monkeypatch.setenv("RANKSCOPE_SAMPLE_S", "5")
    monkeypatch.setenv("RANKSCOPE_NETWORK_S", "0.01")
    told = parse_settings("agent", ARGUMENTS, collector=None).samplers
    assert (told.interval_s, told.network_s) == (5.0, 0.01)
    given = parse_settings("agent", [*ARGUMENTS, "--network", "1"], collector=None).samplers
    assert given.network_s == 1.0


@pytest.mark.parametrize("text", ["often", "nan", "inf"])
def test_environment_variable_that_is_not_a_finite_number_raises_usage_error(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANKSCOPE_NETWORK_S", text)
    with pytest.raises(UsageError, match=f"--network: {text!r} is not a finite number"):
        parse_settings("agent", ARGUMENTS, collector=None)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--spool", "spool"], "the address of the collector is missing"),
        ([*ARGUMENTS, "--collector", "foo"], "'foo' is not the address of a collector"),
        ([*ARGUMENTS, "--interval", "0"], "--interval 0 is out of range"),
        ([*ARGUMENTS, "--patience", "-1"], "--patience -1 is negative"),
        ([*ARGUMENTS, "--appear", "-1"], "--appear -1 is negative"),
        ([*ARGUMENTS, "--keep", "-1"], "--keep -1 is negative"),
        (ARGUMENTS[2:], "--spool is missing"),
        ([*ARGUMENTS, "--unknown"], "unknown: --unknown"),
        ([*ARGUMENTS, "--run"], "--run: the value is missing"),
        ([*ARGUMENTS, "--attempt", "x"], "--attempt: 'x' is not a whole number"),
        ([*ARGUMENTS, "--sample", "0.01"], "0.01 s is out of range"),
        ([*ARGUMENTS, "--network", "11"], "11 s are out of range"),
    ],
)
def test_invalid_agent_arguments_raise_an_error_with_a_reason_and_a_hint(
    arguments: list[str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RANKSCOPE_COLLECTOR", raising=False)
    with pytest.raises(UsageError) as wrong:
        parse_settings("agent", arguments, collector=None)
    assert message in wrong.value.message
    assert "argument" not in wrong.value.message
    assert wrong.value.hint


def test_failure_of_the_nvml_library_is_printed_and_other_samplers_still_open(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken() -> None:
        raise OSError("undefined symbol: nvmlInit_v9")

    monkeypatch.setattr(pynvml, "nvmlInit", broken)
    names = []
    for one in open_samplers(SamplerSettings(), ranks=dict):
        names.append(one.sampler.name)
        one.sampler.close()
    assert "host" in names
    assert "nvml" not in names
    told = "rankscope agent: nvml is not sampled: OSError: undefined symbol: nvmlInit_v9\n"
    assert capsys.readouterr().err == told


def test_a_defect_of_the_agent_shows_a_printable_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    assert _report(RuntimeError("our mistake \x1b[2J")) == 70
    assert "RuntimeError: our mistake \\x1b[2J\n" in capsys.readouterr().err
