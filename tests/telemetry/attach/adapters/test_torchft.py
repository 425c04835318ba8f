"""A real torchft: its replica groups are one run, and the slow group is named."""

import subprocess
from pathlib import Path

import pytest

from diagnose.findings import Kind
from diagnose.pipeline import diagnose_run
from tests.telemetry.attach.adapters.framework_ranks import LIMIT_S, PYTHON, RUN, needs, script
from tests.telemetry.attach.entry_points import installed
from tests.telemetry.recording import recorded
from ui.cli.readers import open_spool

STEPS = 16
SLOW_GROUP = 1


def train(folder: Path, *, slow: bool = False, **variables: str) -> list[str]:
    """The losses that both groups print."""
    folder.mkdir()
    environment = installed(
        folder,
        RANKSCOPE_SPOOL=str(folder / "spool"),
        SLOW_RANK=str(SLOW_GROUP) if slow else "",
        WORLD_SIZE="1",
        RANK="0",
        LOCAL_RANK="0",
        **variables,
    )
    command = [PYTHON, script("torchft_job")]
    job = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, timeout=LIMIT_S)
    assert job.returncode == 0, job.stderr[-4000:]
    return sorted(line for line in job.stdout.splitlines() if line.startswith("group"))


@pytest.mark.gloo
@pytest.mark.long
@needs("torchft")
def test_real_replica_groups_keep_their_bits_and_are_one_run(tmp_path: Path) -> None:
    plain = train(tmp_path / "plain", slow=True)
    assert train(tmp_path / "attached", slow=True, RANKSCOPE="1", RANKSCOPE_RUN=RUN) == plain
    spool = tmp_path / "attached" / "spool"
    for rank in range(2):
        found = recorded(spool, rank)
        identity = found.reader.identity()
        assert (identity.rank, str(identity.topology)) == (rank, "dp_replicate=2,dp=1,pp=1,tp=1")
        assert found.stages.count("step") >= STEPS - 1
    with open_spool(spool) as reader:
        findings = diagnose_run(reader, RUN, 0).findings
    stragglers = [list(finding.ranks) for finding in findings if finding.kind is Kind.COMPUTE_STRAGGLER]
    assert stragglers == [[SLOW_GROUP]]
