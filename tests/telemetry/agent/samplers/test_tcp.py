"""TCP retransmissions, as read from /proc."""

from pathlib import Path

import pytest

from telemetry.agent.samplers.network import TcpSampler
from telemetry.host_metrics import Metric
from tests.telemetry.agent.samplers.sample_values import values

TABLE = """\
Ip: Forwarding DefaultTTL InReceives
Ip: 1 64 5000
Tcp: RtoAlgorithm RtoMin ActiveOpens InSegs OutSegs RetransSegs InErrs
Tcp: 1 200 31 900 800 {retransmits} 0
Udp: InDatagrams NoPorts
Udp: 17 2
"""


def snmp(proc: Path, text: str) -> None:
    (proc / "net").mkdir(exist_ok=True)
    (proc / "net" / "snmp").write_text(text)


def test_retransmitted_segments_are_found_by_the_name_of_their_column(tmp_path: Path) -> None:
    snmp(tmp_path, TABLE.format(retransmits=42))
    sampler = TcpSampler(tmp_path)
    (reading,) = sampler.sample(1).readings
    assert (reading.metric, reading.device, reading.value, reading.is_counter) == (Metric.TCP_RETRANSMITS, "", 42, True)


def test_each_sample_reads_the_file_again(tmp_path: Path) -> None:
    snmp(tmp_path, TABLE.format(retransmits=42))
    sampler = TcpSampler(tmp_path)
    sampler.sample(1)
    snmp(tmp_path, TABLE.format(retransmits=43))
    assert values(sampler.sample(2)) == {(Metric.TCP_RETRANSMITS, ""): 43}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Tcp: RetransSegs\n",
        "Tcp: RetransSegs\nTcp:\n",
        "Tcp: RetransSegs\nTcp: many\n",
        "Tcp: InSegs\nTcp: 1\n",
        "\0",
    ],
)
def test_invalid_snmp_table_gives_no_readings(tmp_path: Path, text: str) -> None:
    snmp(tmp_path, text)
    assert TcpSampler(tmp_path).sample(1).readings == ()


def test_tcp_table_of_this_machine_is_read() -> None:
    sampler = TcpSampler(Path("/proc"))
    assert [reading.value >= 0 for reading in sampler.sample(1).readings] == [True]
    sampler.close()
    sampler.close()
