"""Entry points for frameworks: they give no callbacks unless recording is requested, and never raise."""

import subprocess
import sys
from pathlib import Path

import pytest

import rankscope.adapters
from tests.telemetry.attach.entry_points import installed

FACTORIES = ("lightning_callbacks", "pytorch_lightning_callbacks", "fabric_callbacks", "lightning_fabric_callbacks")
WITHOUT = f"""
import sys, rankscope_attach
made = [getattr(rankscope_attach, name)() for name in {FACTORIES}]
heavy = {{name.partition(".")[0] for name in sys.modules}} & {{"telemetry", "torch", "numpy", "lightning"}}
print(made, heavy)
"""
MISSING = """
import rankscope_attach
print(rankscope_attach._callbacks("lightning", "no_such_package"))
"""


def test_entry_point_imports_nothing_without_variables_and_session(tmp_path: Path) -> None:
    assert run(WITHOUT, installed(tmp_path)) == ("[[], [], [], []] set()\n", "")


def test_adapter_that_cannot_be_imported_is_skipped_and_reported(tmp_path: Path) -> None:
    out, error = run(MISSING, installed(tmp_path, RANKSCOPE="1"))
    assert out == "[]\n"
    assert "the adapter of no_such_package cannot be used: ModuleNotFoundError" in error


def run(program: str, environment: dict[str, str]) -> tuple[str, str]:
    """The output of a program on stdout, and on stderr."""
    ended = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    return ended.stdout, ended.stderr


def test_adapters_are_listed_by_name_and_an_unknown_name_raises() -> None:
    assert set(rankscope.adapters.__all__) == set(rankscope.adapters.MODULES)
    with pytest.raises(AttributeError, match="no attribute 'NoSuchAdapter'"):
        rankscope.adapters.NoSuchAdapter  # type: ignore[attr-defined]  # noqa: B018
