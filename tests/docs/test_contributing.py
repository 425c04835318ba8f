"""The examples of CONTRIBUTING work: each module is made as it is written there, registered, and its test is run."""

import re
import sys
from collections.abc import Iterator
from inspect import signature
from types import ModuleType

import pytest

from diagnose import detectors
from diagnose.alerts.hooks.registry import OURS
from tests.diagnose.alerts.hooks.http_receiver import HttpReceiver, http_receiver
from tests.docs.pages import ROOT

EXAMPLES = dict(
    re.findall(
        r"^`([\w/]+\.py)`:\n\n```python\n(.*?)^```$",
        (ROOT / "CONTRIBUTING.md").read_text(),
        re.MULTILINE | re.DOTALL,
    )
)
MAX_LINES = 120


@pytest.fixture
def receiver() -> Iterator[HttpReceiver]:
    with http_receiver() as running:
        yield running


def made(path: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module of an example, importable under the name that its path gives."""
    module = ModuleType(path.removesuffix(".py").replace("/", "."))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(compile(EXAMPLES[path], path, "exec"), module.__dict__)
    return module


@pytest.mark.parametrize(
    ("path", "test"),
    [
        ("diagnose/detectors/zero_gradient.py", "tests/diagnose/detectors/test_zero_gradient.py"),
        ("telemetry/agent/samplers/open_files.py", "tests/telemetry/agent/samplers/test_open_files.py"),
        ("diagnose/alerts/hooks/google_chat.py", "tests/diagnose/alerts/hooks/test_google_chat.py"),
    ],
)
def test_example_of_contributing_passes_its_own_test(
    path: str, test: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    assert len((EXAMPLES[path] + EXAMPLES[test]).splitlines()) < MAX_LINES
    module = made(path, monkeypatch)
    if hasattr(module, "GoogleChatHook"):
        monkeypatch.setitem(OURS, "google-chat", module.GoogleChatHook)  # type: ignore[arg-type]
    if hasattr(module, "detect_zero_gradient"):
        monkeypatch.setattr(detectors, "DETECTORS", (*detectors.DETECTORS, module.detect_zero_gradient))
    tests = [each for name, each in vars(made(test, monkeypatch)).items() if name.startswith("test_")]
    assert tests
    for each in tests:
        wanted = {name: request.getfixturevalue(name) for name in signature(each).parameters}
        if "tmp_path" in wanted:
            wanted["tmp_path"] = wanted["tmp_path"] / each.__name__
            wanted["tmp_path"].mkdir()
        each(**wanted)
