"""Each check measures this machine and finds faults."""

import itertools
import resource
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from diagnose.nodecheck.checks import device, host
from diagnose.nodecheck.checks.tcp import loopback, nic_pair
from diagnose.nodecheck.child_processes import run_bounded
from diagnose.nodecheck.collective import all_to_all, neighbours
from diagnose.nodecheck.network import Interface, Rendezvous
from diagnose.nodecheck.node import EXPECTABLE
from diagnose.nodecheck.result import CheckResult, Verdict
from tests.each_case import each_case
from tests.integration.processes import free_port

LONG_S = 60.0
SHORT = {"measure_s": 0.05}
SMALL = {**SHORT, "size_bytes": 16 << 20}
LOOPBACK = Interface(name="lo", address="127.0.0.1", speed_mbps=None)
NOT_OURS = Interface(name="eth9", address="192.0.2.77", speed_mbps=None)


def in_process(call: object) -> CheckResult:
    """Run the check in a separate process, like the examiner.

    One thread: this process may have used OpenMP, and OpenMP threads do not survive a fork.
    """
    assert callable(call)

    def on_one_thread() -> object:
        torch.set_num_threads(1)
        return call()

    (outcome,) = run_bounded([on_one_thread], LONG_S)
    assert not outcome.error, outcome.error
    assert isinstance(outcome.value, CheckResult)
    return outcome.value


@pytest.mark.parametrize(
    "call",
    [
        partial(host.host_memory, **SMALL),
        partial(host.host_copies, **SMALL),
        partial(device.device_memory, device="cpu", **SMALL),
        partial(device.gemm, device="cpu", size=128, **SHORT),
        partial(host.shared_memory, **SMALL),
        partial(host.shared_memory_room, **SHORT),
        partial(host.disk, folder=Path("/dev/shm"), **SMALL),
        partial(loopback, interface=LOOPBACK, measure_s=0.2),
        partial(nic_pair, source=LOOPBACK, target=LOOPBACK, measure_s=0.2),
        partial(all_to_all, devices=["cpu", "cpu"], deadline_s=LONG_S, measure_s=0.05, size_bytes=1 << 16),
    ],
    ids=lambda call: call.func.__name__,
)
def test_check_measures_a_positive_value_of_a_kind_that_expectations_may_name(call: object) -> None:
    result = in_process(call)
    assert result.verdict is Verdict.MEASURED, result.detail
    assert result.value is not None
    assert result.value > 0
    assert result.measured in EXPECTABLE


def test_device_copies_check_measures_when_copies_are_correct() -> None:
    assert device.device_copies(source="cpu", target="cpu", **SMALL).verdict is Verdict.MEASURED


@each_case("turn", [0, 1, 2])
def test_one_flipped_bit_of_host_memory_is_found(turn: int) -> None:
    base = host.base_words()
    memory = np.empty((2, len(base)), dtype=np.uint64)
    host.write(memory, base, turn)
    host.verify(memory, base, turn)
    memory[1, 12345] ^= np.uint64(1 << 40)
    with pytest.raises(host.WrongDataError, match="block 1, word 12345"):
        host.verify(memory, base, turn)


def test_host_memory_block_with_the_data_of_another_block_is_found() -> None:
    base = host.base_words()
    memory = np.empty((2, len(base)), dtype=np.uint64)
    host.write(memory, base, 0)
    memory[1] = memory[0]
    with pytest.raises(host.WrongDataError, match="block 1, word 0"):
        host.verify(memory, base, 0)


def test_one_flipped_bit_of_device_memory_is_found() -> None:
    base = torch.arange(1 << 16)
    blocks = [torch.empty_like(base) for _ in range(3)]
    device.write(blocks, base, 1)
    assert device.changed(blocks, base, 1) == []
    blocks[2][77] ^= 1 << 62
    assert device.changed(blocks, base, 1) == [2]


def test_gemm_check_fails_when_a_matrix_product_is_wrong_once() -> None:
    turns = itertools.count()

    def multiply(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> None:
        torch.mm(a, b, out=out)
        if next(turns) == 2:
            out[3, 4] = torch.nextafter(out[3, 4], torch.tensor(torch.inf))

    result = device.gemm(device="cpu", size=64, measure_s=0.0, multiply=multiply)
    assert result.verdict is Verdict.FAILED
    assert "the same product differed in 1 of" in result.detail


def test_disk_check_fails_when_the_disk_is_full(tmp_path: Path) -> None:
    result = in_process(partial(with_files_up_to, 12 << 20, partial(host.disk, folder=tmp_path, **SMALL)))
    assert (result.verdict, result.detail) == (Verdict.FAILED, "File too large")


def test_shared_memory_check_fails_when_shared_memory_is_full() -> None:
    result = in_process(partial(with_files_up_to, 8 << 20, partial(host.shared_memory, **SMALL)))
    assert (result.verdict, result.detail) == (Verdict.FAILED, "File too large: 16 MiB needed")


def test_disk_check_fails_when_the_folder_is_missing(tmp_path: Path) -> None:
    result = host.disk(folder=tmp_path / "gone", **SMALL)
    assert (result.verdict, result.detail) == (Verdict.FAILED, "No such file or directory")


def test_disk_check_leaves_no_files(tmp_path: Path) -> None:
    assert host.disk(folder=tmp_path, **SMALL).verdict is Verdict.MEASURED
    assert list(tmp_path.iterdir()) == []


def test_nic_pair_check_fails_for_an_address_of_another_host() -> None:
    result = nic_pair(source=LOOPBACK, target=NOT_OURS, **SHORT)
    assert result.verdict is Verdict.FAILED
    assert "Cannot assign requested address" in result.detail


@pytest.mark.gloo
def test_all_to_all_check_names_the_member_that_fails() -> None:
    result = in_process(partial(all_to_all, devices=["cpu", "broken"], measure_s=0.05, deadline_s=2.0))
    assert result.verdict is Verdict.FAILED
    assert "broken (rank 1) RuntimeError" in result.detail


@pytest.mark.gloo
def test_neighbours_check_measures_an_all_reduce_between_two_nodes() -> None:
    endpoint = f"127.0.0.1:{free_port()}"
    nodes = [Rendezvous(endpoint=endpoint, index=index, nodes=2, patience_s=LONG_S) for index in range(2)]
    calls = [
        partial(neighbours, rendezvous=rendezvous, device="cpu", measure_s=0.05, size_bytes=1 << 16)
        for rendezvous in nodes
    ]
    outcomes = run_bounded(calls, LONG_S)
    assert [outcome.error for outcome in outcomes] == ["", ""]
    assert [outcome.value.verdict for outcome in outcomes] == [Verdict.MEASURED] * 2


def with_files_up_to(size_bytes: int, call: partial[CheckResult]) -> CheckResult:
    """Run the call. The kernel refuses files larger than ``size_bytes``."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, size_bytes))
    return call()
