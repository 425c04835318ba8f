"""The GPU of each rank: reported by the rank, or assumed from its position on the host, with the UUID of NVML."""

import csv
import io
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families
from typer.testing import CliRunner, Result

from telemetry.stores.embedded import EmbeddedStore
from tests.docs.blocks import blocks
from tests.memory_store import memory_store
from tests.parts import require
from tests.telemetry.made_rows import insert, made
from tests.telemetry.served import collecting
from ui.cli.main import app

NAME = "gpt"
RANKS = [
    {"rank": 0, "host": "a", "meta": json.dumps({"device": "cuda", "gpu_uuid": "0000"})},
    {"rank": 1, "host": "a", "meta": json.dumps({"device": "cuda", "gpu_uuid": "gone"})},
    {"rank": 2, "host": "b", "meta": json.dumps({"device": "cuda"})},
    {"rank": 3, "host": "b", "meta": json.dumps({"device": "cuda"})},
    {"rank": 4, "host": "c", "meta": json.dumps({"device": "cuda"})},
    {"rank": 5, "host": "d", "meta": json.dumps({"device": "cpu"})},
]
SEEN = [("a", "gpu1", "GPU-0000"), ("b", "gpu0", "GPU-2222"), ("b", "gpu1", "GPU-3333")]
EXPECTED = [
    ("0", "a", "gpu1", "GPU-0000", "reported"),
    ("1", "a", "", "GPU-gone", "reported"),
    ("2", "b", "gpu0", "GPU-2222", "assumed"),
    ("3", "b", "gpu1", "GPU-3333", "assumed"),
    ("4", "c", "gpu0", "", "assumed"),
]
"""Rank, host, device, UUID, source."""


@pytest.fixture(scope="module")
def collector() -> Iterator[str]:
    with memory_store() as store:
        store_run(store)
        with collecting(store) as client:
            yield client.url


def store_run(store: EmbeddedStore) -> None:
    insert(store, "ranks", made("ranks", [{"dp_size": 6, "started_ns": 1, **row} for row in RANKS]), run_id=NAME)
    events = [
        {"host": host, "device": device, "name": "gpu-seen", "text": uuid, "at_ns": 1} for host, device, uuid in SEEN
    ]
    insert(store, "host_events", made("host_events", events), run_id=NAME)


def export(collector: str, *arguments: object) -> Result:
    answer = CliRunner().invoke(app, ["export", "gpus", NAME, "--store", collector, *map(str, arguments)])
    assert answer.exit_code == 0, answer.output
    return answer


def test_gpu_table_has_a_line_for_each_rank_with_a_gpu(collector: str) -> None:
    rows = list(csv.DictReader(io.StringIO(export(collector).stdout)))
    assert [(row["rank"], row["host"], row["device"], row["uuid"], row["source"]) for row in rows] == EXPECTED
    assert {(row["run"], row["attempt"]) for row in rows} == {(NAME, "0")}


def test_metric_has_the_uuid_in_the_label_that_dcgm_uses(collector: str, tmp_path: Path) -> None:
    export(collector, "--format", "prometheus", "--out", tmp_path / "gpus.prom")
    (family,) = text_string_to_metric_families((tmp_path / "gpus.prom").read_text())
    assert {(sample.name, sample.value) for sample in family.samples} == {("rankscope_rank_gpu_info", 1)}
    assert [(sample.labels["rank"], sample.labels["UUID"]) for sample in family.samples] == [
        (rank, uuid) for rank, _, _, uuid, _ in EXPECTED if uuid
    ]


@pytest.mark.prometheus
def test_query_of_the_guide_adds_run_and_rank_to_a_metric_of_dcgm(collector: str, tmp_path: Path) -> None:
    """With the labels of DCGM's exporter, evaluated by Prometheus."""
    export(collector, "--format", "prometheus", "--out", tmp_path / "gpus.prom")
    exported = re.findall(r"^(rankscope_rank_gpu_info\{.*\}) 1", (tmp_path / "gpus.prom").read_text(), re.MULTILINE)
    (query,) = [block for block in blocks("kubernetes.md", "DCGM exporter", "") if "DCGM_FI" in block]
    temperatures = {"GPU-0000": 61, "GPU-2222": 72, "GPU-3333": 58, "GPU-of-another-job": 90}
    of_dcgm = 'DCGM_FI_DEV_GPU_TEMP{{gpu="0",UUID="{uuid}",device="nvidia0",modelName="NVIDIA H100",Hostname="a"}}'
    series = [{"series": one, "values": "1"} for one in exported]
    series += [{"series": of_dcgm.format(uuid=uuid), "values": str(value)} for uuid, value in temperatures.items()]
    hottest = f"topk(2, {query.strip().replace('gpt-13b', NAME)})"
    labels = '{{gpu="0",UUID="{}",device="nvidia0",modelName="NVIDIA H100",Hostname="a",run="gpt",rank="{}"}}'
    expected = [
        {"labels": labels.format(uuid, rank), "value": temperatures[uuid]}
        for uuid, rank in (("GPU-2222", 2), ("GPU-0000", 0))
    ]
    case = {"expr": hottest, "eval_time": "0m", "exp_samples": expected}
    rules = {"tests": [{"interval": "1m", "input_series": series, "promql_expr_test": [case]}]}
    (tmp_path / "test.yml").write_text(yaml.safe_dump(rules))
    done = subprocess.run(
        [require("promtool"), "test", "rules", tmp_path / "test.yml"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_command_says_how_many_gpus_are_assumed_or_unknown(collector: str) -> None:
    note = "gpt: 5 ranks with a GPU, 3 assumed from the order of the ranks on the host, 1 without a known UUID"
    assert note in " ".join(export(collector).stderr.split())
    found = json.loads(export(collector, "--json").stdout)["gpus"]
    assert len(found) == len(EXPECTED)
