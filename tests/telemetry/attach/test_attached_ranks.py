"""rankscope attaches to a plain DDP script through environment variables alone."""

import sys
from collections import Counter
from pathlib import Path

import pytest

from diagnose.findings import Kind
from diagnose.pipeline import diagnose_run
from tests.telemetry.attach import plain_ddp
from tests.telemetry.attach.entry_points import installed
from tests.telemetry.attach.forked_ranks import run_forked
from tests.telemetry.recording import recorded
from tests.trainer.launchers import start_script
from ui.cli.readers import open_spool

pytestmark = pytest.mark.gloo
LIMIT_S = 120
SLOW_RANK = 1


def train(folder: Path, **variables: str) -> tuple[list[str], list[str]]:
    """The outputs of the two ranks on stdout, and on stderr."""
    folder.mkdir()
    environment = installed(
        folder,
        WORLD_SIZE="2",
        MEET=f"file://{folder}/meet",
        SLOW_RANK=str(SLOW_RANK),
        CHECKPOINT=str(folder / "model.pt"),
        RANKSCOPE_SPOOL=str(folder / "spool"),
        **variables,
    )
    outputs = run_forked(folder, environment, plain_ddp.__file__, python=sys.executable, limit_s=LIMIT_S)
    return [out for out, _ in outputs], [error for _, error in outputs]


def plain_losses(folder: Path) -> list[list[str]]:
    """Losses of each of two ranks to which rankscope does not attach."""
    folder.mkdir()
    variables = {"WORLD_SIZE": "2", "MEET": f"file://{folder}/meet", "CHECKPOINT": str(folder / "model.pt")}
    logs = [folder / f"rank-{rank}.log" for rank in range(2)]
    ranks = [
        start_script(Path(plain_ddp.__file__), log=log, RANK=str(rank), **variables) for rank, log in enumerate(logs)
    ]
    assert [rank.wait(LIMIT_S) for rank in ranks] == [0, 0], [log.read_text() for log in logs]
    return [losses_in(log.read_text()) for log in logs]


def losses_in(output: str) -> list[str]:
    return [line for line in output.splitlines() if "0x1." in line]


def test_plain_ddp_script_is_traced_with_bit_identical_losses_and_its_slow_rank_is_named(tmp_path: Path) -> None:
    outputs, errors = train(tmp_path / "attached", RANKSCOPE="1", RANKSCOPE_RUN="attached")
    losses = [losses_in(output) for output in outputs]
    assert losses == plain_losses(tmp_path / "plain")
    assert [len(of_rank) for of_rank in losses] == [plain_ddp.STEPS] * 2
    assert "recording run attached" in errors[0]
    spool = tmp_path / "attached" / "spool"
    for rank in range(2):
        found = recorded(spool, rank)
        counts = Counter(found.stages)
        once = ("step", "data-load", "backward-compute", "optimizer")
        assert {stage: counts[stage] for stage in once} == dict.fromkeys(once, plain_ddp.STEPS)
        assert counts["forward-compute"] == 2 * plain_ddp.STEPS  # the model and the loss
        assert counts["grads-all-reduce"] >= plain_ddp.STEPS
        assert counts["evaluation"] == 1
        assert counts["checkpoint-write"] == (rank == 0)
        assert found.reader.identity().meta["spans"] == "inferred"
        assert not {"attach-error", "attach-missing", "spans-dropped"} & {name for name, _ in found.marks}
    with open_spool(spool) as reader:
        findings = diagnose_run(reader, "attached", 0).findings
    stragglers = [finding for finding in findings if finding.kind == Kind.COMPUTE_STRAGGLER]
    assert [list(finding.ranks) for finding in stragglers] == [[SLOW_RANK]]
