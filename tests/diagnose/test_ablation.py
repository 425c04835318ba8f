"""The table of an ablation from stored runs."""

from collections.abc import Iterator
from typing import Any

import pytest
from rich.console import Console

from diagnose.ablation import Figure, load_ablation
from diagnose.report import ablation_object, ablation_text
from telemetry.errors import UnknownRunError
from telemetry.stores.interface import StoreReader
from tests.memory_store import memory_store
from tests.ui.ablation_runs import labels, put_run


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


def test_rows_list_their_labelled_runs_and_the_medians(reader: StoreReader) -> None:
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
    assert set(second.exposed_s) == {"dp", "pp", "tp"}
    assert first.peak_memory_mib is None


def test_speed_is_relative_to_the_first_row(reader: StoreReader) -> None:
    table = load_ablation(reader, "abl")
    first, second = table.rows
    assert first.tokens_per_second is not None
    assert second.tokens_per_second is not None
    assert table.speed(first) == 1
    assert table.speed(second) == second.tokens_per_second.median / first.tokens_per_second.median > 1
    (run,) = second.runs
    assert run.mfu is not None
    assert run.mfu_with_skipped == run.mfu  # no window, so nothing is skipped


def test_newest_ablation_is_loaded_when_no_name_is_given(reader: StoreReader) -> None:
    assert load_ablation(reader).name == "abl"


@pytest.mark.parametrize(("name", "text"), [("missing", "no ablation 'missing'"), ("abl.02", "no ablation 'abl.02'")])
def test_unknown_ablation_name_raises_an_error_with_a_hint(reader: StoreReader, name: str, text: str) -> None:
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
