import json
from pathlib import Path

import pytest

from telemetry.errors import UsageError
from telemetry.stages import Stage
from telemetry.topology import Topology
from tests.each_case import each_case
from trainer.faults.inject import (
    DataStall,
    Die,
    Fault,
    GcBursts,
    Hang,
    NanGradients,
    Shape,
    Skip,
    Slow,
    parse_fault,
    write_truth,
)

GRID = Topology(dp=4, pp=2)
GATHER = Stage.PARAMS_ALL_GATHER


@each_case(
    ("spec", "fault"),
    [
        ("none", None),
        ("slow:rank=5,factor=1.4", Slow(rank=5, factor=1.4)),
        ("slow:rank=5,factor=2,first_step=4,last_step=9", Slow(rank=5, factor=2.0, first_step=4, last_step=9)),
        ("hang:rank=3,step=8", Hang(rank=3, step=8)),
        (
            "hang:rank=3,step=8,before=forward-send,how=spin",
            Hang(rank=3, step=8, before=Stage.FORWARD_SEND, how="spin"),
        ),
        ("hang:rank=3,step=8,how=gil", Hang(rank=3, step=8, how="gil")),
        ("die:rank=0,step=2", Die(rank=0, step=2)),
        ("die:rank=0,step=2,how=exit", Die(rank=0, step=2, how="exit")),
        ("data-stall:rank=1,step=3,seconds=0.5", DataStall(rank=1, step=3, seconds=0.5)),
        ("data-stall:rank=1,step=3,seconds=2,every=4", DataStall(rank=1, step=3, seconds=2.0, every=4)),
        ("skip:rank=1,step=3,stage=params-all-gather", Skip(rank=1, step=3, stage=GATHER)),
        ("shape:rank=1,step=3,stage=params-all-gather", Shape(rank=1, step=3, stage=GATHER)),
        (
            "shape:rank=1,step=3,stage=params-all-gather,sizes=double",
            Shape(rank=1, step=3, stage=GATHER, sizes="double"),
        ),
        ("gc:rank=7", GcBursts(rank=7)),
        ("gc:rank=7,every=2", GcBursts(rank=7, every=2)),
        ("nan:rank=7,step=2", NanGradients(rank=7, step=2)),
    ],
)
def test_fault_spec_is_parsed(spec: str, fault: Fault | None) -> None:
    assert parse_fault(spec, GRID, num_steps=10) == fault


@each_case(
    ("spec", "words"),
    [
        ("melt:rank=1", "unknown fault 'melt'"),
        ("slow", "rank= is missing"),
        ("slow:rank=5", "factor= is missing"),
        ("slow:rank=8,factor=1.4", "no rank 8"),
        ("slow:rank=five,factor=1.4", "rank is not a number: 'five'"),
        ("slow:rank=-1,factor=1.4", "no rank -1"),
        ("slow:rank=5,factor=0.5", "factor is 0.5"),
        ("slow:rank=5,factor=nan", "factor is nan"),
        ("slow:rank=5,factor=inf", "factor is inf"),
        ("slow:rank=5,factor=1.4,first_step=-1", "no step -1"),
        ("slow:rank=5,factor=1.4,first_step=10", "no step 10"),
        ("slow:rank=5,factor=1.4,first_step=4,last_step=3", "last_step 3 is smaller than first_step 4"),
        ("hang:rank=1,step=-5", "no step -5"),
        ("hang:rank=1,step=10", "no step 10"),
        ("die:rank=1,step=-1", "no step -1"),
        ("skip:rank=1,step=10,stage=params-all-gather", "no step 10"),
        ("shape:rank=1,step=-1,stage=params-all-gather", "no step -1"),
        ("data-stall:rank=1,step=10,seconds=1", "no step 10"),
        ("data-stall:rank=1,step=3,seconds=-1", "seconds is -1"),
        ("data-stall:rank=1,step=3,seconds=nan", "seconds is nan"),
        ("data-stall:rank=1,step=3,seconds=1,every=-1", "every is -1"),
        ("gc:rank=1,every=0", "every is 0"),
        ("gc:rank=1,objects=-1", "objects is -1"),
        ("slow:rank=5,factor=1.4,colour=red", "unknown setting 'colour'"),
        ("hang:rank=5,step=1,before=lunch", "before is 'lunch'"),
        ("die:rank=5,step=1,how=nicely", "how is 'nicely'"),
        ("hang:rank=5,step=1,before=tp-all-gather", "because tp is 1"),
        ("skip:rank=5,step=1", "stage= is missing"),
        ("skip:rank=5,step=1,stage=forward-compute", "stage is 'forward-compute'"),
        ("shape:rank=5,step=1,stage=tp-all-gather", "because tp is 1"),
        ("shape:rank=5,step=1,stage=params-all-gather,sizes=odd", "sizes is 'odd'"),
        ("nan:rank=5", "step= is missing"),
        ("nan:rank=8,step=1", "no rank 8"),
        ("nan:rank=5,step=10", "no step 10"),
        ("nan:rank=5,step=1,before=optimizer", "unknown setting 'before'"),
        ("", "unknown fault ''"),
    ],
)
def test_invalid_fault_spec_is_rejected_with_a_hint(spec: str, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_fault(spec, GRID, num_steps=10)
    assert words in caught.value.message
    assert caught.value.hint


def test_truth_file_contains_kind_rank_host_and_settings(tmp_path: Path) -> None:
    write_truth(tmp_path / "truth.json", Slow(rank=5, factor=1.4), host="gpu-03", num_steps=40)
    truth = json.loads((tmp_path / "truth.json").read_text())
    assert truth["kind"] == "slow"
    assert (truth["rank"], truth["host"], truth["factor"], truth["num_steps"]) == (5, "gpu-03", 1.4, 40)
    assert (truth["first_step"], truth["last_step"]) == (0, 39)


def test_truth_file_contains_the_group_of_the_affected_collective(tmp_path: Path) -> None:
    fault = Skip(rank=3, step=8, stage=GATHER)
    write_truth(tmp_path / "truth.json", fault, host="gpu-03", num_steps=40, topology=GRID)
    truth = json.loads((tmp_path / "truth.json").read_text())
    assert (truth["kind"], truth["stage"], truth["group"]) == ("skip", "params-all-gather", [1, 3, 5, 7])


def test_truth_file_of_a_healthy_run_has_kind_none(tmp_path: Path) -> None:
    write_truth(tmp_path / "truth.json", None, host="gpu-03", num_steps=40)
    assert json.loads((tmp_path / "truth.json").read_text()) == {"kind": "none", "num_steps": 40}


def test_data_stall_happens_once_or_periodically() -> None:
    once, often = DataStall(rank=1, step=3, seconds=1.0), DataStall(rank=1, step=3, seconds=1.0, every=4)
    assert [step for step in range(12) if once.is_late(step)] == [3]
    assert [step for step in range(12) if often.is_late(step)] == [3, 7, 11]
