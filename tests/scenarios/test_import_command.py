"""`rankscope import` as a user runs it: a trace becomes a normal run, or is rejected completely with a reason."""

import json
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from telemetry.stores.embedded import EmbeddedStore
from telemetry.stores.queries import LAST_STEP, Runs, Spans
from tests.scenarios.command import Answer, rankscope, run_code
from tests.telemetry.made_profiles import Profile
from tests.telemetry.made_traces import every_rank, save, table
from tests.telemetry.served import collecting

OPEN_STORE = "import sys; from telemetry.stores.open import open_store; open_store(sys.argv[1]).close()"
IMPORT_AND_DIE = """
import os, signal, sys
from pathlib import Path
from telemetry.imports.interface import ImportOptions
from telemetry.imports.straggler_analysis import import_straggler_analysis
from telemetry.imports.write import StoreTarget, put_run
from telemetry.stores.open import open_store

class Dying(StoreTarget):
    max_puts = int(sys.argv[3])

    def put(self, table, rows, run):
        super().put(table, rows, run)
        self.max_puts -= 1
        if not self.max_puts:
            os.kill(os.getpid(), signal.SIGKILL)

put_run(import_straggler_analysis([Path(sys.argv[1])], ImportOptions()), Dying(open_store(sys.argv[2])))
"""


@pytest.fixture(scope="module")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a store that stays empty."""
    folder = tmp_path_factory.mktemp("empty") / "store"
    assert run_code(OPEN_STORE, f"embedded:{folder}").status == 0
    return folder


@pytest.fixture
def store(empty_store: Path, tmp_path: Path) -> str:
    """The address of an empty store: a copy."""
    shutil.copytree(empty_store, tmp_path / "store", symlinks=True)  # symlinks connect the parts of a store
    return f"embedded:{tmp_path / 'store'}"


def stored_runs(store: str) -> list[dict[str, object]]:
    answer = rankscope("runs", "--store", store, "--json")
    assert answer.status == 0, answer.error
    return list(json.loads(answer.out)["runs"])


def refused(answer: Answer, *words: str) -> None:
    assert answer.status == 2, answer.error
    assert "Traceback" not in answer.error
    assert "hint: " in answer.error
    for word in words:
        assert word in answer.error


def test_an_imported_run_is_listed_and_diagnosed_like_any_other(store: str, tmp_path: Path) -> None:
    path = save(tmp_path, every_rank(steps=range(20), slow=2.0))
    answer = rankscope("import", "straggler-analysis", path, "--store", store)
    assert (answer.status, answer.out) == (
        0,
        f"made: 4 ranks, 20 steps, 320 spans; next: rankscope diagnose made --store {store}\n",
    )
    (run,) = stored_runs(store)
    assert (run["run_id"], run["num_ranks"], run["first_step"], run["last_step"]) == ("made", 4, 0, 19)
    report = json.loads(rankscope("diagnose", "made", "--store", store, "--json").out)
    assert [finding["ranks"] for finding in report["findings"]] == [[3]]


def test_profile_is_imported_from_a_folder_and_reported_as_json(store: str, tmp_path: Path) -> None:
    for rank in range(2):
        Profile(rank=rank, world_size=2).step(1).kernel("gemm", issued=100_001, at=100_005, dur=9).save(
            tmp_path / "job"
        )
    answer = rankscope("import", "kineto", tmp_path / "job", "--store", store, "--json")
    assert (answer.status, json.loads(answer.out)) == (
        0,
        {
            "schema": 1,
            "run": "job",
            "attempt": 0,
            "ranks": 2,
            "steps": 1,
            "spans": 4,
            "topology": {"dp": 2, "pp": 1, "tp": 1},
            "mesh": "dp=2,pp=1,tp=1",
        },
    )
    assert [run["run_id"] for run in stored_runs(store)] == ["job"]


DAMAGES: dict[str, Callable[[Path], object]] = {
    "not a complete parquet file": lambda path: path.write_bytes(path.read_bytes()[:-100]),
    "no operation": lambda path: save(path.parent, table(every_rank()).slice(0, 0)),
    "no column seq_id": lambda path: save(path.parent, table(every_rank()).drop_columns(["seq_id"])),
    "start_ts is nan": lambda path: save(path.parent, _with_nan()),
    "unknown optype mystery": lambda path: save(path.parent, _with_mystery()),
    "is missing": lambda path: (path.parent / "meta-made.yaml").unlink(),
    "dp_size": lambda path: (path.parent / "meta-made.yaml").write_text("pp_size: 2\n"),
}


def _with_nan() -> pa.Table:
    rows = table(every_rank())
    return rows.set_column(rows.column_names.index("start_ts"), "start_ts", pa.array([float("nan")] * len(rows)))


def _with_mystery() -> pa.Table:
    rows = table(every_rank())
    return rows.set_column(rows.column_names.index("optype"), "optype", pa.array(["mystery"] * len(rows)))


@pytest.mark.parametrize("words", DAMAGES)
def test_damaged_trace_is_rejected_before_a_store_is_created(words: str, tmp_path: Path) -> None:
    path = save(tmp_path / "traces", every_rank())
    DAMAGES[words](path)
    store = tmp_path / "store"
    refused(rankscope("import", "straggler-analysis", path, "--store", f"embedded:{store}"), words)
    assert not store.exists()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        pytest.param("<html></html>", "not complete JSON", marks=pytest.mark.long),
        ("", "not complete JSON"),
        pytest.param("{}", "no traceEvents", marks=pytest.mark.long),
        ('{"traceEvents": []}', "no operation"),
    ],
)
def test_import_of_several_files_is_rejected_when_one_file_is_invalid(content: str, words: str, tmp_path: Path) -> None:
    good, store = Profile(rank=0, world_size=2).step(1).save(tmp_path), tmp_path / "store"
    (tmp_path / "rank1.json").write_text(content)
    refused(rankscope("import", "kineto", good, tmp_path / "rank1.json", "--store", f"embedded:{store}"), words)
    assert not store.exists()


def test_file_of_another_format_is_rejected_and_the_store_does_not_change(store: str, tmp_path: Path) -> None:
    trace, profile = save(tmp_path, every_rank()), Profile().step(1).save(tmp_path)
    refused(rankscope("import", "kineto", trace, "--store", store), "not complete JSON")
    refused(rankscope("import", "straggler-analysis", profile, "--meta", tmp_path / "meta-made.yaml", "--store", store))
    assert stored_runs(store) == []


@pytest.mark.parametrize(
    "arguments",
    [
        ("kineto",),
        ("chrome", "x.json"),
        ("kineto", "x.json", "--dp", "0"),
        pytest.param((), marks=pytest.mark.long),
        pytest.param(("kineto", "x.json", "--nope"), marks=pytest.mark.long),
    ],
)
def test_invalid_import_arguments_exit_with_status_2(arguments: tuple[str, ...]) -> None:
    answer = rankscope("import", *arguments)
    assert answer.status == 2
    assert "Traceback" not in answer.error


def test_missing_file_is_rejected_and_creates_no_store(tmp_path: Path) -> None:
    address = f"embedded:{tmp_path / 'store'}"
    layout = save(tmp_path, every_rank()).with_name("meta-made.yaml")
    refused(rankscope("import", "kineto", tmp_path / "nope.json", "--store", address), "nope.json")
    nope = ("straggler-analysis", tmp_path / "nope.parquet", "--meta", layout)
    refused(rankscope("import", *nope, "--store", address), "no file", "nope.parquet")
    assert not (tmp_path / "store").exists()


@pytest.mark.long
def test_import_under_a_stored_run_name_is_rejected_and_another_name_is_accepted(store: str, tmp_path: Path) -> None:
    path = save(tmp_path, every_rank())
    assert rankscope("import", "straggler-analysis", path, "--store", store).status == 0
    refused(rankscope("import", "straggler-analysis", path, "--store", store), "'made' is stored already", "--name")
    assert rankscope("import", "straggler-analysis", path, "--store", store, "--name", "other one").status == 0
    assert sorted(str(run["run_id"]) for run in stored_runs(store)) == ["made", "other one"]


@pytest.mark.chaos
@pytest.mark.parametrize("num_puts", [1, pytest.param(2, marks=pytest.mark.long)])
def test_killed_import_leaves_no_listed_run_and_a_repeated_import_completes_it(
    num_puts: int, store: str, tmp_path: Path
) -> None:
    path = save(tmp_path, every_rank())
    assert run_code(IMPORT_AND_DIE, path, store, num_puts).status == -signal.SIGKILL
    assert stored_runs(store) == []
    answer = rankscope("import", "straggler-analysis", path, "--store", store)
    assert (answer.status, answer.out.split(";")[0]) == (0, "made: 4 ranks, 2 steps, 32 spans")
    (run,) = stored_runs(store)
    assert (run["num_ranks"], run["last_step"]) == (4, 2)


def test_import_through_a_collector_stores_the_same_spans_as_a_direct_import(
    embedded: EmbeddedStore, tmp_path: Path
) -> None:
    path = save(tmp_path, every_rank(steps=range(10)))
    with collecting(embedded) as client:
        answer = rankscope("import", "straggler-analysis", path, "--store", client.url)
        assert (answer.status, answer.out.partition(":")[0]) == (0, "made")
        refused(rankscope("import", "straggler-analysis", path, "--store", client.url), "--name")
        posted = client.read(Spans(run_id="made", attempt=0, first_step=0, last_step=LAST_STEP))
        (run,) = client.read(Runs()).to_pylist()
    address = f"embedded:{tmp_path / 'store'}"
    assert rankscope("import", "straggler-analysis", path, "--store", address).status == 0
    assert json.loads(run_code(PRINT_SPANS, address).out) == posted.to_pylist()
    assert (run["num_ranks"], run["last_step"]) == (4, 9)


PRINT_SPANS = """
import json, sys
from telemetry.stores.open import open_store
from telemetry.stores.queries import LAST_STEP, Spans
from telemetry.stores.interface import StoreReader
query = Spans(run_id="made", attempt=0, first_step=0, last_step=LAST_STEP)
print(json.dumps(StoreReader(open_store(sys.argv[1])).read(query).to_pylist()))
"""


def test_import_exits_with_status_3_when_the_collector_is_down(tmp_path: Path) -> None:
    path = save(tmp_path, every_rank())
    answer = rankscope("import", "straggler-analysis", path, "--store", "http://127.0.0.1:9")
    assert answer.status == 3
    assert "hint: " in answer.error
