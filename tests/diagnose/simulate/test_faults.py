"""Faults as text: the truth equals the requested fault, and an impossible fault is rejected."""

import pytest

from diagnose.findings import Kind
from diagnose.simulate.role_names import parse_roles
from diagnose.simulate.run import simulate
from diagnose.simulate.truth import KINDS, fault_text, parse_fault, truth_object
from telemetry.errors import UsageError
from telemetry.stages import Stage
from telemetry.topology import Topology
from tests.diagnose.simulate.made_plans import plan
from tests.each_case import each_case

ROLES = parse_roles("rollout=4,reward=2,actor=2")
TEXTS = {
    "slow:factor=1.4,rank=5": (Kind.COMPUTE_STRAGGLER, (5,), None),
    "throttle:factor=1.4,shape=ramp,host=gpu-001": (Kind.GPU_THROTTLED, tuple(range(8, 16)), None),
    "stage:pp=1,factor=1.3": (Kind.STAGE_IMBALANCE, (), 1),
    "duration:factor=1.1,stage=optimizer": (Kind.MFU_DECLINE, (), None),
    "sequences:spread=0.3,shape=heavy": (Kind.DATA_IMBALANCE, (), None),
    "gc:rank=5,every=2": (Kind.LATE_LAUNCH, (5,), None),
    "link:rank=3,factor=4,axis=dp": (Kind.SLOW_LINK, (3,), None),
    "flap:host=gpu-000,times=1": (Kind.NIC_FLAP, tuple(range(8)), None),
    "flap:rank=9,seconds=2": (Kind.NIC_FLAP, tuple(range(8, 16)), None),
    "data-stall:seconds=2": (Kind.DATA_STALL, (), None),
    "drift": (Kind.LATE_LAUNCH, (), None),
    "decline:factor=2,first_step=3": (Kind.MFU_DECLINE, (), None),
    "loss:step=5,how=nan": (Kind.LOSS_ANOMALY, (), None),
    "checkpoint:rank=5,factor=4": (Kind.CHECKPOINT_SLOW, (5,), None),
    "contention:host=gpu-000,factor=2": (Kind.HOST_CONTENTION, tuple(range(8)), None),
}
OF_JOBS = {
    "tail:factor=3,share=0.5": (Kind.ROLLOUT_TAIL, {"topology": Topology(dp=8), "roles": ROLES}),
    "idle:role=reward,factor=4": (Kind.ROLE_IDLE, {"topology": Topology(dp=8), "roles": ROLES}),
    "experts:factor=2,ep=1": (Kind.EXPERT_IMBALANCE, {"topology": Topology.parse("dp=2,ep=4"), "experts": True}),
}
"""Faults of jobs with roles or experts. They name no rank."""


def test_every_kind_of_fault_is_covered_by_these_tests() -> None:
    assert {text.partition(":")[0] for text in (*TEXTS, *OF_JOBS)} == set(KINDS)


@each_case("text", OF_JOBS)
def test_fault_of_roles_or_experts_names_no_rank_and_is_rejected_for_other_jobs(text: str) -> None:
    kind, job = OF_JOBS[text]
    (truth,) = simulate(plan(text, num_steps=2, **job)).truth
    assert (truth.kind, truth.ranks, parse_fault(truth.fault)) == (kind, (), parse_fault(text))
    with pytest.raises(UsageError):
        plan(text)


@each_case("text", ["rollout=4", "rollout=4,actor=0", "rollout=4,actor=4,actor=4", "rollout:4,actor=4"])
def test_invalid_list_of_roles_is_rejected(text: str) -> None:
    with pytest.raises(UsageError, match="not a list of roles"):
        parse_roles(text)


@each_case("text", TEXTS)
def test_fault_text_parses_back_to_the_same_fault(text: str) -> None:
    assert parse_fault(fault_text(parse_fault(text))) == parse_fault(text)


@each_case("text", TEXTS)
def test_truth_of_a_simulation_equals_the_requested_fault(text: str) -> None:
    made = simulate(plan(text, device="cuda" if text.startswith("throttle") else "cpu", checkpoint_every=4))
    kind, ranks, pp = TEXTS[text]
    (truth,) = made.truth
    assert (truth.kind, truth.ranks, truth.pp) == (kind, ranks, pp)
    assert truth.hosts == tuple(dict.fromkeys(made.plan.hosts[rank] for rank in ranks))
    told = truth_object(made.plan, made.truth)["faults"]
    assert parse_fault(told[0]["fault"]) == parse_fault(text)  # type: ignore[index]


def test_truth_of_a_simulation_contains_both_of_its_faults() -> None:
    made = simulate(plan("slow:rank=5,factor=1.4", "stage:pp=1,factor=1.2,first_step=3,last_step=5"))
    assert [(one.kind, one.first_step, one.last_step) for one in made.truth] == [
        ("compute-straggler", 0, 11),
        ("stage-imbalance", 3, 5),
    ]


@each_case(
    ("text", "words"),
    [
        ("melt:rank=1", "unknown fault 'melt'"),
        ("slow:rank=5", "factor= is missing"),
        ("slow:rank=5,factor=x", "factor is not a number: 'x'"),
        ("slow:rank=5,factor=1.4,size=3", "unknown setting 'size'"),
        ("throttle:rank=5,factor=1.4,shape=square", "shape is 'square'"),
        ("throttle:rank=5,factor=1.4,reason=boredom", "reason is 'boredom'"),
        ("slow:factor=1.4", "a fault needs a place"),
        ("slow:rank=99,factor=1.4", "rank 99"),
        ("slow:rank=-4,factor=1.4", "rank is -4"),
        ("slow:host=nowhere,factor=1.4", "'nowhere'"),
        ("slow:rank=5,host=gpu-000,factor=1.4", "rank= and host="),
        ("slow:rank=5,factor=0.5", "factor=0.5"),
        ("slow:rank=5,factor=nan", "factor is nan"),
        ("stage:pp=2,factor=1.3", "stage 2"),
        ("duration:stage=gc,factor=2", "the stage 'gc'"),
        ("sequences:spread=1.5", "spread=1.5"),
        ("data-stall:seconds=1,share=0", "share=0"),
        ("loss:step=12", "from step 12"),
        ("loss:step=-1,how=nan", "step is -1"),
        ("gc:rank=-1", "rank is -1"),
        ("drift:ms=inf", "ms is inf"),
        ("slow:rank=5,factor=1.4,first_step=-5", "first_step is -5"),
        ("slow:rank=5,factor=1.4,first_step=12", "from step 12"),
        ("slow:rank=5,factor=1.4,first_step=5,last_step=4", "from step 5 to 4"),
        ("checkpoint:rank=5,factor=2", "needs a run with checkpoints"),
        ("contention:host=gpu-000,factor=2", "needs compute on the CPU"),
        ("experts:factor=2", "needs a run with experts"),
    ],
)
def test_invalid_fault_is_rejected_with_a_hint(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words) as error:
        plan(text)
    assert error.value.hint


@pytest.mark.parametrize("fsdp", [False, True])
def test_duration_fault_lengthens_only_its_own_stage_on_all_ranks(fsdp: bool) -> None:
    usual, longer = (
        simulate(plan(*faults, noise="none", fsdp=fsdp)).operations
        for faults in ((), ("duration:stage=optimizer,factor=1.5,first_step=6",))
    )
    for stage in (Stage.FORWARD_COMPUTE, Stage.OPTIMIZER):
        ratio = longer[stage].total_ns() / usual[stage].total_ns()
        assert ratio[:6] == pytest.approx(1.0, abs=1e-6)
        assert ratio[6:] == pytest.approx(1.5 if stage is Stage.OPTIMIZER else 1.0, abs=1e-6)


def test_link_fault_is_rejected_when_no_rank_uses_the_network() -> None:
    with pytest.raises(UsageError, match="no rank uses"):
        plan("link:rank=1,factor=2", topology=Topology(tp=2))
    with pytest.raises(UsageError, match="no rank uses"):
        plan("link:rank=1,factor=2,axis=dp", topology=Topology(pp=2))


def test_flap_fault_is_rejected_when_the_nic_carries_no_traffic() -> None:
    for topology in (Topology(dp=4), Topology(pp=4)):
        with pytest.raises(UsageError, match="carries no traffic"):
            plan("flap:rank=1", topology=topology)
    with pytest.raises(UsageError, match="carries no traffic"):
        plan("flap:rank=0", topology=Topology(pp=4), gpus_per_host=2)


def test_throttle_fault_is_rejected_when_the_run_computes_on_the_cpu() -> None:
    with pytest.raises(UsageError, match="needs compute on the GPU"):
        plan("throttle:rank=5,factor=1.4", device="cpu")


@each_case(
    ("wrong", "words"),
    [
        ({"num_steps": 0}, "--steps is 0"),
        ({"num_chunks": 2, "num_microbatches": 3}, "interleaving"),
        ({"num_chunks": 2, "topology": Topology(dp=2)}, "interleaving"),
        ({"host_names": ("one",)}, "1 host names for 16 ranks"),
        ({"num_steps": 10**8}, "spans"),
        ({"noise": "loud"}, "'loud'"),
    ],
)
def test_invalid_plan_is_rejected(wrong: dict[str, object], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        plan(**wrong)  # type: ignore[arg-type]
