"""The ledger and the driver each define the names of decisions. The names must match."""

import re
from pathlib import Path

import trainer.drive
from diagnose.findings import Kind
from diagnose.goodput.decisions import CHECK_PAIRS, FAULTS, HANGS, NEXT_MOVES, OPERATOR, RESULTS, SAVES_FIRST
from diagnose.goodput.share import JOB_IS_OVER
from trainer.drive.failed_ranks import NO_CHECKPOINT, NOT_STARTED, RANK_FAILED, RANK_STOPPED, STEP_NOT_FINITE
from trainer.drive.findings import CAN_SAVE
from trainer.drive.records import Action

FOLDER = Path(trainer.drive.__file__).parent
FAULTS_OF_RANKS = {RANK_FAILED, RANK_STOPPED, STEP_NOT_FINITE, NOT_STARTED, NO_CHECKPOINT}
WRITTEN = {
    name for file in FOLDER.glob("*.py") for name in re.findall(r'(?:decide|fault)\(\s*"([a-z-]+)"', file.read_text())
} | {*FAULTS_OF_RANKS, *(str(action) for action in Action)}


def test_the_driver_makes_every_decision_that_the_ledger_knows() -> None:
    named = {*FAULTS, *HANGS, *SAVES_FIRST, *OPERATOR, *RESULTS, *NEXT_MOVES, *JOB_IS_OVER, CHECK_PAIRS}
    assert named - WRITTEN - {*Kind} == set()


def test_the_ledger_knows_every_fault_of_the_driver() -> None:
    faults = {name for file in FOLDER.glob("*.py") for name in re.findall(r'fault\(\s*"([a-z-]+)"', file.read_text())}
    faults |= FAULTS_OF_RANKS
    assert faults <= FAULTS | SAVES_FIRST
    assert SAVES_FIRST >= CAN_SAVE
