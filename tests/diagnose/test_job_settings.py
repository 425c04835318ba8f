"""Advice on the settings of a job: what makes it fail during a short loss of a link, and what limits NCCL."""

from typing import Any

import pytest

from diagnose.nodecheck.check import Check
from diagnose.nodecheck.job_settings import JobSettings, TopologyFile, check_job, read_conf, tcp_gives_up_s
from tests.each_case import each_case


def checked(name: str, *environments: dict[str, str], flap_s: float = 60.0, **fields: Any) -> Check:
    """The check of that name, of ranks with these environments."""
    ranks = {f"rank {number}": given for number, given in enumerate(environments or ({},))}
    job = JobSettings(environments=ranks, flap_s=flap_s, **fields)
    return next(check for check in check_job(job) if check.name == name)


@each_case(
    ("environment", "seconds", "fit"),
    [
        ({}, "30.1 s", False),
        ({"NCCL_IB_TIMEOUT": "18"}, "7.52 s", False),
        ({"NCCL_IB_TIMEOUT": "22"}, "120 s", True),
        ({"NCCL_IB_TIMEOUT": "22", "NCCL_IB_RETRY_CNT": "3"}, "51.5 s", False),
    ],
)
def test_infiniband_retries_must_last_longer_than_the_flap(
    environment: dict[str, str], seconds: str, fit: bool
) -> None:
    check = checked("retries of InfiniBand or RoCE", environment)
    assert check.fit is fit
    assert f"error after {seconds} or later" in check.found
    assert bool(check.hint) is not fit


def test_default_infiniband_retries_last_longer_than_a_flap_of_eight_seconds() -> None:
    assert checked("retries of InfiniBand or RoCE", flap_s=8.0).fit


def test_tcp_retries_are_the_limit_when_rdma_is_not_used() -> None:
    assert tcp_gives_up_s(15) == pytest.approx(924.6)
    assert checked("retries of TCP", {"NCCL_IB_DISABLE": "1"}).fit
    assert checked("retries of TCP", has_infiniband=False).fit
    assert checked("retries of TCP", backend="gloo").fit
    assert not checked("retries of TCP", has_infiniband=False, tcp_retries=5).fit


def test_the_timeout_of_collectives_must_be_longer_than_the_flap() -> None:
    assert checked("timeout of collectives").fit
    short = checked("timeout of collectives", timeout_s=20.0)
    assert (short.fit, short.found) == (
        False,
        "error after 20 s or later (nccl timeout 20 s): not longer than a flap of 60 s",
    )


@each_case(
    ("name", "environment"),
    [
        ("NCCL_IB_TIMEOUT", {"NCCL_IB_TIMEOUT": "3600"}),
        ("errors end the job", {"TORCH_NCCL_ASYNC_ERROR_HANDLING": "0"}),
        ("heartbeat of torch's watchdog", {"TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC": "30"}),
        ("flight recorder", {"TORCH_FR_BUFFER_SIZE": "0"}),
        ("channels", {"NCCL_MIN_NCHANNELS": "16", "NCCL_MAX_NCHANNELS": "8"}),
        ("channels", {"NCCL_MAX_CTAS": "1"}),
        ("channels", {"NCCL_MIN_NCHANNELS": "many"}),
        ("buffers", {"NCCL_BUFFSIZE": "4MB"}),
        ("buffers", {"NCCL_BUFFSIZE": "65536"}),
        ("buffers", {"NCCL_BUFFSIZE": "1073741824"}),
    ],
)
def test_a_setting_that_harms_is_reported_with_a_hint(name: str, environment: dict[str, str]) -> None:
    check = checked(name, environment)
    assert not check.fit
    assert check.hint


def test_usual_settings_are_not_reported() -> None:
    usual = {"NCCL_IB_TIMEOUT": "22", "NCCL_BUFFSIZE": "8388608", "NCCL_MAX_NCHANNELS": "32"}
    assert [check.name for check in check_job(JobSettings(environments={"": usual}, flap_s=60)) if not check.fit] == []


def test_topology_file_must_exist_and_contain_a_topology() -> None:
    environment = {"NCCL_TOPO_FILE": "/etc/topo.xml"}
    missing = checked("topology file", environment, topology=TopologyFile(error="No such file or directory"))
    assert (missing.fit, missing.found) == (False, "/etc/topo.xml: No such file or directory")
    assert not checked("topology file", environment, topology=TopologyFile(text="<html>")).fit
    assert checked("topology file", environment, topology=TopologyFile(text='<system version="1">')).fit


def test_variables_that_differ_between_ranks_are_reported_unless_they_differ_by_design() -> None:
    ranks = [{"NCCL_ALGO": "Ring", "NCCL_IB_HCA": "mlx5_0"}, {"NCCL_IB_HCA": "mlx5_1"}]
    check = checked("same on all ranks", *ranks)
    assert (check.fit, check.found) == (False, "these variables differ: NCCL_ALGO")
    assert checked("same on all ranks", {"NCCL_IB_HCA": "mlx5_0"}, {"NCCL_IB_HCA": "mlx5_1"}).fit


def test_a_conf_file_of_nccl_is_read_without_its_comments() -> None:
    assert read_conf("# site\nNCCL_IB_TIMEOUT=22 # long\n NCCL_BUFFSIZE = 1\nrm -rf\n") == {
        "NCCL_IB_TIMEOUT": "22",
        "NCCL_BUFFSIZE": "1",
    }
