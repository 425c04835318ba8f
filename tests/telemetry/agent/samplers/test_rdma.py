"""Readings and events of the RDMA sampler, for the files of several drivers."""

import shutil
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from telemetry.agent.samplers.interface import GoneError
from telemetry.agent.samplers.rdma import RdmaSampler
from telemetry.host_metrics import LINK_ALREADY_DOWN, Metric
from tests.telemetry.agent.samplers.made_sysfs import (
    BNXT_COUNTERS,
    MANA_COUNTERS,
    MLX5_COUNTERS,
    PORT_COUNTERS,
    RXE_COUNTERS,
    made_h100_node,
    made_port,
)
from tests.telemetry.agent.samplers.sample_values import happened, values


def standing_clock() -> int:
    return 0


def sampler_of(root: Path, *, rescan_every: int = 1000) -> RdmaSampler:
    """A sampler whose samples never reach their time limit."""
    return RdmaSampler(root, clock=standing_clock, rescan_every=rescan_every)


def test_every_counter_of_all_eight_ports_is_read(tmp_path: Path) -> None:
    made_h100_node(tmp_path)
    sample = sampler_of(tmp_path).sample(1)
    read = values(sample)
    assert {device for _, device in read} == {f"mlx5_{number}/1" for number in range(8)}
    assert len(read) == 8 * (len(PORT_COUNTERS) + len(MLX5_COUNTERS) - 1 + 2)
    assert read[Metric.RDMA_UP, "mlx5_3/1"] == 1
    assert read[Metric.RDMA_RATE_GBPS, "mlx5_3/1"] == 400
    assert read["rdma-out_of_buffer", "mlx5_3/1"] == MLX5_COUNTERS.index("out_of_buffer")
    assert sample.events == ()


def test_rdma_data_counters_are_reported_in_bytes(tmp_path: Path) -> None:
    port = made_port(tmp_path, "mlx5_0")
    (port / "counters" / "port_xmit_data").write_text("1000\n")
    (port / "counters" / "port_rcv_data").write_text("250\n")
    read = values(sampler_of(tmp_path).sample(1))
    assert (read["rdma-port_xmit_data", "mlx5_0/1"], read["rdma-port_rcv_data", "mlx5_0/1"]) == (4000, 1000)


@pytest.mark.parametrize(
    ("device", "hw_counters"), [("mana_0", MANA_COUNTERS), ("bnxt_re0", BNXT_COUNTERS), ("rxe0", RXE_COUNTERS)]
)
def test_counters_of_any_driver_are_reported_under_their_file_names(
    tmp_path: Path, device: str, hw_counters: tuple[str, ...]
) -> None:
    made_port(tmp_path, device, counters=(), hw_counters=hw_counters, rate="100 Gb/sec (4X EDR)")
    read = values(sampler_of(tmp_path).sample(1))
    names = {f"rdma-{name}" for name in hw_counters} - {"rdma-lifespan"}
    assert set(read) == {(name, f"{device}/1") for name in (*names, Metric.RDMA_UP, Metric.RDMA_RATE_GBPS)}


def test_a_counter_that_stands_in_both_folders_is_reported_once(tmp_path: Path) -> None:
    port = made_port(tmp_path, "mlx5_0", counters=("port_rcv_errors",), hw_counters=("port_rcv_errors",))
    (port / "counters" / "port_rcv_errors").write_text("11\n")
    (port / "hw_counters" / "port_rcv_errors").write_text("22\n")
    told = [reading.value for reading in sampler_of(tmp_path).sample(1).readings if "errors" in reading.metric]
    assert told == [11]


def test_link_loss_of_a_port_is_reported_once_when_its_count_rises_later(tmp_path: Path) -> None:
    port = made_port(tmp_path, "mlx5_0")
    sampler = sampler_of(tmp_path)
    sampler.sample(1)
    (port / "state").write_text("1: DOWN\n")
    (port / "phys_state").write_text("2: Polling\n")
    lost = sampler.sample(2)
    assert [(event.at_ns, event.name, event.text) for event in lost.events] == [(2, "link-down", "port DOWN, Polling")]
    assert values(lost)[Metric.RDMA_UP, "mlx5_0/1"] == 0
    assert (Metric.RDMA_RATE_GBPS, "mlx5_0/1") not in values(lost)
    (port / "counters" / "link_downed").write_text("3\n")
    assert sampler.sample(3).events == ()
    (port / "state").write_text("4: ACTIVE\n")
    back = sampler.sample(4)
    assert happened(back) == [("link-up", "mlx5_0/1")]
    assert values(back)[Metric.RDMA_RATE_GBPS, "mlx5_0/1"] == 400


def test_link_losses_between_two_samples_are_reported_from_the_count(tmp_path: Path) -> None:
    port = made_port(tmp_path, "mlx5_0")
    sampler = sampler_of(tmp_path)
    sampler.sample(1)
    downed = port / "counters" / "link_downed"
    downed.write_text(f"{int(downed.read_text()) + 3}\n")
    (event,) = sampler.sample(2).events
    assert (event.name, event.text) == ("link-flaps", "3")


def test_port_that_is_not_active_at_the_first_sample_is_reported_as_already_down(tmp_path: Path) -> None:
    made_port(tmp_path, "mlx5_0", state="2: INIT")
    (event,) = sampler_of(tmp_path).sample(1).events
    assert event.text.startswith(LINK_ALREADY_DOWN)
    assert "INIT" in event.text


def test_driver_counter_of_32_bits_continues_to_grow_after_a_wrap(tmp_path: Path) -> None:
    port = made_port(tmp_path, "mlx5_0", hw_counters=("out_of_sequence",))
    sampler = sampler_of(tmp_path)
    told = []
    for number in (2**32 - 10, 5, 2**31, 2**32 - 1, 4):
        (port / "hw_counters" / "out_of_sequence").write_text(f"{number}\n")
        told.append(values(sampler.sample(1))["rdma-out_of_sequence", "mlx5_0/1"])
    assert told == [2**32 - 10, 2**32 + 5, 2**32 + 2**31, 2 * 2**32 - 1, 2 * 2**32 + 4]


def test_infiniband_counter_is_reported_unchanged_when_it_saturates_or_is_reset(tmp_path: Path) -> None:
    port = made_port(tmp_path, "mlx5_0", counters=("symbol_error",))
    sampler = sampler_of(tmp_path)
    told = []
    for number in (65_534, 65_535, 65_535, 2**32 - 1, 7):
        (port / "counters" / "symbol_error").write_text(f"{number}\n")
        told.append(values(sampler.sample(1))["rdma-symbol_error", "mlx5_0/1"])
    assert told == [65_534, 65_535, 65_535, 2**32 - 1, 7]


def test_other_counters_are_read_when_some_files_are_invalid_or_missing(tmp_path: Path) -> None:
    port = made_port(tmp_path, "mlx5_0", hw_counters=MLX5_COUNTERS)
    spoil: dict[str, bytes] = {
        "np_cnp_sent": b"",
        "rp_cnp_handled": b"\xff\xfe\0",
        "out_of_buffer": b"N/A (no hw support)",
    }
    spoil |= {"packet_seq_err": b"9" * 200, "rx_read_requests": b"-1"}
    for name, content in spoil.items():
        (port / "hw_counters" / name).write_bytes(content)
    for name in ("req_cqe_error", "resp_cqe_error"):
        (port / "hw_counters" / name).unlink()
    (port / "hw_counters" / "req_cqe_error").mkdir()
    (port / "hw_counters" / "resp_cqe_error").symlink_to(tmp_path / "nowhere")
    sampler = sampler_of(tmp_path)
    missing = {f"rdma-{name}" for name in (*spoil, "req_cqe_error", "resp_cqe_error", "lifespan")}
    expected = {f"rdma-{name}" for name in (*PORT_COUNTERS, *MLX5_COUNTERS)} - missing
    for at_ns in range(6):
        sample = sampler.sample(at_ns)
        assert {reading.metric for reading in sample.readings if reading.is_counter} == expected
        assert sample.events == ()


def test_ignored_counter_file_is_read_again_after_a_rescan_when_it_holds_a_number(tmp_path: Path) -> None:
    port = made_port(tmp_path, "mlx5_0")
    file = port / "hw_counters" / "out_of_sequence"
    file.write_text("busy\n")
    sampler = sampler_of(tmp_path, rescan_every=10)
    for at_ns in range(5):
        sampler.sample(at_ns)
    file.write_text("12\n")
    told = [values(sampler.sample(at_ns)).get(("rdma-out_of_sequence", "mlx5_0/1")) for at_ns in range(5, 11)]
    assert told == [None, None, None, None, 12, 12]


@pytest.mark.parametrize("state", ["", "garbage", "4 ACTIVE", "\x00"])
def test_unknown_port_state_is_reported_neither_as_up_nor_as_down(tmp_path: Path, state: str) -> None:
    made_port(tmp_path, "mlx5_0", state=state)
    sample = sampler_of(tmp_path).sample(1)
    assert (Metric.RDMA_UP, "mlx5_0/1") not in values(sample)
    assert sample.events == ()
    assert ("rdma-link_downed", "mlx5_0/1") in values(sample)


@pytest.mark.parametrize("rate", ["", "fast", "nan", "-1", "²"])
def test_port_rate_that_is_not_a_valid_number_is_left_out(tmp_path: Path, rate: str) -> None:
    made_port(tmp_path, "mlx5_0", rate=rate)
    assert (Metric.RDMA_RATE_GBPS, "mlx5_0/1") not in values(sampler_of(tmp_path).sample(1))


def test_removed_device_is_reported_gone_and_a_new_device_is_added(tmp_path: Path) -> None:
    made_port(tmp_path, "mlx5_0")
    made_port(tmp_path, "mlx5_1")
    sampler = sampler_of(tmp_path, rescan_every=2)
    sampler.sample(1)
    shutil.rmtree(tmp_path / "class" / "infiniband" / "mlx5_1")
    made_port(tmp_path, "mlx5_2")
    sample = sampler.sample(2)
    assert happened(sample) == [("device-gone", "mlx5_1/1")]
    assert sampler.devices == ("mlx5_0/1", "mlx5_2/1")


def test_rdma_sampler_raises_gone_error_when_no_device_is_left(tmp_path: Path) -> None:
    made_port(tmp_path, "mlx5_0")
    sampler = sampler_of(tmp_path, rescan_every=1)
    shutil.rmtree(tmp_path / "class")
    with pytest.raises(GoneError):
        sampler.sample(1)


def test_sample_at_its_time_limit_reads_states_first_and_the_next_sample_continues(tmp_path: Path) -> None:
    made_h100_node(tmp_path)
    ticks: Iterator[int] = count(0, 1_500_000)
    sampler = RdmaSampler(tmp_path, clock=lambda: next(ticks))
    num_counters = 8 * (len(PORT_COUNTERS) + len(MLX5_COUNTERS) - 1)
    seen: set[tuple[str, str]] = set()
    num_looks = 0
    while len(seen) < num_counters + 2 * 8:
        sample = sampler.sample(num_looks)
        num_looks += 1
        assert sum(reading.metric == Metric.RDMA_UP for reading in sample.readings) == 8
        assert len(sample.readings) < 64
        seen |= set(values(sample))
    assert num_looks == 24
