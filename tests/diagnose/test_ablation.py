"""The table of an ablation from stored runs."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from diagnose.ablation import Figure, load_ablation
from diagnose.report import ablation_object, ablation_text
from diagnose.simulate.noise import SILENT
from diagnose.simulate.plan import SimulatedRun
from diagnose.simulate.run import simulate
from diagnose.simulate.store import as_run, put_simulation, samples_table
from diagnose.simulate.truth import parse_fault
from telemetry.errors import UnknownRunError
from telemetry.imports.write import StoreTarget
from telemetry.labels import label_meta
from telemetry.records import FULL_ATTENTION_FLOP
from telemetry.stores.interface import Store, StoreReader
from telemetry.topology import Topology
from tests.memory_store import memory_store

EIGHT = Topology(dp=2, pp=2, tp=2)


def put_run(store: Store, run_id: str, labels: dict[str, str], *faults: str, num_steps: int = 12) -> None:
    plan = SimulatedRun(
        name=run_id,
        topology=EIGHT,
        num_steps=num_steps,
        gpus_per_host=8,
        noise=SILENT,
        faults=tuple(map(parse_fault, faults)),
    )
    simulation = simulate(plan)
    made = as_run(simulation)
    meta = {**made.meta, FULL_ATTENTION_FLOP: "1.25", **label_meta(f"{name}={value}" for name, value in labels.items())}
    put_simulation(replace(made, meta=meta), samples_table(simulation), StoreTarget(store))


def labels(row: int, technique: str, ablation: str = "abl") -> dict[str, str]:
    return {"ablation": ablation, "row": str(row), "technique": technique, "options": f"--row {row}"}


@pytest.fixture(scope="module")
def reader() -> Iterator[StoreReader]:
    with memory_store() as store:
        put_run(store, "older.00.0", labels(0, "baseline", "older"))
        put_run(store, "abl.00.0", labels(0, "baseline"), "slow:rank=5,factor=2")
        put_run(store, "abl.01.0", labels(1, "window"))
        put_run(store, "abl.00.1", labels(0, "baseline"), "slow:rank=5,factor=3")
        put_run(store, "abl.01.1", labels(1, "window"), num_steps=2)  # only the warm-up
        put_run(store, "abl.02.0", {})  # a run of a user
        yield StoreReader(store)


def test_rows_have_the_runs_with_their_labels_and_medians_of_them(reader: StoreReader) -> None:
    table = load_ablation(reader, "abl")
    first, second = table.rows
    assert [(row.number, row.technique, row.options) for row in table.rows] == [
        (0, "baseline", "--row 0"),
        (1, "window", "--row 1"),
    ]
    assert [[run.run_id for run in row.runs] for row in table.rows] == [["abl.00.0", "abl.00.1"], ["abl.01.0"]]
    fast, slow = first.runs
    assert fast.step_s < slow.step_s
    assert first.step_s == Figure(median=(fast.step_s + slow.step_s) / 2, lowest=fast.step_s, highest=slow.step_s)
    assert second.step_s.median < fast.step_s
    assert set(second.exposed_s) == {"dp", "pp"}
    assert first.peak_memory_mib is None


def test_speed_is_relative_to_the_first_row_and_full_attention_counts_more_work(reader: StoreReader) -> None:
    table = load_ablation(reader, "abl")
    first, second = table.rows
    assert first.tokens_per_second is not None
    assert second.tokens_per_second is not None
    assert table.speed(first) == 1
    assert table.speed(second) == second.tokens_per_second.median / first.tokens_per_second.median > 1
    (run,) = second.runs
    assert run.mfu is not None
    assert run.mfu_full == pytest.approx(run.mfu * 1.25)


def test_without_a_name_the_newest_ablation_is_shown(reader: StoreReader) -> None:
    assert load_ablation(reader).name in ("abl", "older")


@pytest.mark.parametrize(("name", "text"), [("missing", "no ablation 'missing'"), ("abl.02", "no ablation 'abl.02'")])
def test_what_is_no_ablation_is_an_error_with_a_hint(reader: StoreReader, name: str, text: str) -> None:
    with pytest.raises(UnknownRunError, match=rf"{text}[\s\S]*rankscope ablate"):
        load_ablation(reader, name)


def test_the_table_in_text_and_json_has_a_row_for_each_technique(reader: StoreReader) -> None:
    table = load_ablation(reader, "abl")
    console = Console(width=200)
    with console.capture() as captured:
        console.print(ablation_text(table))
    text = captured.get()
    assert "ablation abl: 2 rows" in text
    assert "+ window" in text
    assert "row 1: rankscope train --row 1" in text
    found: dict[str, Any] = ablation_object(table)
    assert [row["technique"] for row in found["rows"]] == ["baseline", "window"]
    assert found["rows"][0]["step_s"]["lowest"] < found["rows"][0]["step_s"]["highest"]
