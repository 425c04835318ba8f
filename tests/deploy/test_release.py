"""``scripts/release`` in a small repository with its own changelog: it changes everything or nothing."""

import subprocess
from pathlib import Path
from shutil import copy

import pytest

ROOT = Path(__file__).parents[2]
CHANGELOG = "# Changelog\n\n## Unreleased\n\n### Fixed\n\n- A thing.\n\n## 0.1.0 - 2026-01-01\n\n- The first.\n"


def git(folder: Path, *arguments: str) -> str:
    who = ["-c", "user.name=t", "-c", "user.email=t@example.com"]
    done = subprocess.run(["git", *who, *arguments], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for role in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{role}_NAME", "t")
        monkeypatch.setenv(f"GIT_{role}_EMAIL", "t@example.com")
    (tmp_path / "telemetry").mkdir()
    for name in ("telemetry/version.py", "docker-compose.yml"):
        copy(ROOT / name, tmp_path / name)
    (tmp_path / "CHANGELOG.md").write_text(CHANGELOG)
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "--message", "Begin")
    return tmp_path


def release(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([ROOT / "scripts" / "release", *arguments], cwd=folder, capture_output=True, text=True)


def test_release_sets_the_version_dates_the_changelog_section_and_adds_a_tag(clone: Path) -> None:
    assert release(clone, "0.2.0").returncode == 0
    assert '__version__ = "0.2.0"' in (clone / "telemetry/version.py").read_text()
    assert "image: rankscope:0.2.0\n" in (clone / "docker-compose.yml").read_text()
    changelog = (clone / "CHANGELOG.md").read_text()
    assert "## Unreleased\n\n## 0.2.0 - " in changelog
    assert changelog.index("## 0.2.0") < changelog.index("- A thing.") < changelog.index("## 0.1.0")
    assert git(clone, "describe") == "v0.2.0"
    assert git(clone, "status", "--porcelain") == ""


def test_release_without_changelog_entries_is_rejected_and_changes_nothing(clone: Path) -> None:
    release(clone, "0.2.0")
    refused = release(clone, "0.3.0")
    assert refused.returncode == 2
    assert "no entry under Unreleased" in refused.stderr
    assert git(clone, "status", "--porcelain") == ""


def test_release_is_rejected_for_an_invalid_version_or_a_changed_tree(clone: Path) -> None:
    assert release(clone, "two").returncode == 2
    (clone / "CHANGELOG.md").write_text(CHANGELOG + "more\n")
    assert "tree has changes" in release(clone, "0.2.0").stderr
