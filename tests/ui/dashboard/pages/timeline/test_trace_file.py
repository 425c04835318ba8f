"""The trace file of a timeline: it contains every span and arrow in view, up to a limit."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import httpx
import pytest
from fastapi import FastAPI

from diagnose.trace.export import Format
from telemetry.collector.guard import TokenGate
from telemetry.credentials import Tokens
from telemetry.errors import UsageError
from telemetry.stores.embedded import EmbeddedStore
from telemetry.stores.interface import StoreReader
from telemetry.stores.queries import Spans
from telemetry.topology import Topology
from tests.diagnose.trace.counted import Window, num_collective_arrows, num_spans, num_transfers
from tests.diagnose.trace.opened import Opened, opened_json, opened_protobuf
from tests.each_case import each_case
from tests.telemetry.made_profiles import Profile
from tests.ui.made_profiles import store_profiles
from tests.ui.served_dashboard import serving, serving_app
from tests.ui.synthetic_run import SyntheticRun
from ui.dashboard.address import parse_search
from ui.dashboard.app import mount_dashboard
from ui.dashboard.data import Reads
from ui.dashboard.data.settings import ReadSettings
from ui.dashboard.pages.timeline import trace_file as trace
from ui.dashboard.pages.timeline.perfetto import PUBLIC, VARIABLE, perfetto_from_environment
from ui.dashboard.serving.drawing import draw_region
from ui.dashboard.view_state import Group, View, ViewState

GRID = Topology(dp=2, pp=2, tp=2)
ALL = ViewState(view=View.TIMELINE, run="made", group=Group.ALL, rank=0, step=20)
OPENERS = {Format.JSON: opened_json, Format.PROTOBUF: opened_protobuf}


@pytest.fixture(scope="module")
def reads(reads_of_store: Reads) -> Reads:
    return reads_of_store


@pytest.fixture(scope="module")
def client(store: EmbeddedStore, run: SyntheticRun) -> Iterator[httpx.Client]:
    with serving(StoreReader(store)) as address, httpx.Client(base_url=address, verify=False, timeout=60) as client:
        yield client


def links(state: ViewState, reads: Reads) -> list[str]:
    """The addresses of the trace files of the page."""
    return re.findall(r'"href": "(trace[^"]*)"', panel(state, reads))


def panel(state: ViewState, reads: Reads) -> str:
    drawn = draw_region("trace", state, reads, by_clock=False)
    assert drawn is not None
    return json.dumps(drawn.make(), ensure_ascii=False)


def opened(client: httpx.Client, address: str, folder: Path) -> Opened:
    answer = client.get(address)
    answer.raise_for_status()
    name = unquote(answer.headers["content-disposition"].partition("''")[2])
    form = Format.JSON if name.endswith(".json.gz") else Format.PROTOBUF
    path = folder / name
    path.write_bytes(answer.content)
    return OPENERS[form](path)


def test_each_file_holds_the_spans_and_arrows_that_the_store_counts(
    client: httpx.Client, store: EmbeddedStore, reads: Reads, tmp_path: Path
) -> None:
    found = links(ALL, reads)
    windows = [Window(run="made", first_step=20, last_step=20)] * 2 + [
        Window(run="made", first_step=15, last_step=24)
    ] * 2
    assert len(found) == len(windows), "each window in both forms"
    for address, window in zip(found, windows, strict=True):
        opened_trace = opened(client, address, tmp_path)
        assert len(opened_trace.slices) == num_spans(store, window)
        arrows = num_transfers(store, window) + num_collective_arrows(store, window, GRID)
        assert len(opened_trace.arrows) == arrows > 0


def test_trace_file_with_profiles_has_the_kineto_events_of_the_ranks_in_view(
    client: httpx.Client, store: EmbeddedStore, reads: Reads, tmp_path: Path
) -> None:
    """Ranks 1 and 5 have stored profiles of steps 20 to 24."""
    profiled = SyntheticRun(run_id="profiled")
    profiled.introduce(store)
    profiled.advance(store, 26)
    spans = StoreReader(store).read(Spans(run_id="profiled", attempt=0, first_step=20, last_step=20, ranks=(5,)))
    told = {"baseTimeNanoseconds": spans["start_ns"][0].as_py()}
    document = Profile(told=told).host("cpu_op", "aten::mm", 1, 2).document()
    store_profiles(store, "profiled", at_ns=profiled.now_ns, trace=json.dumps(document).encode())
    view = ViewState(view=View.TIMELINE, run="profiled", group=Group.PP, rank=5, step=20)
    assert "with profiles of rank 5" in panel(view, reads)
    found = links(view, reads)
    plain, with_profile = found[0], next(address for address in found if "profiles=1" in address)
    for address, pids in ((plain, []), (with_profile, [6])):
        trace = opened(client, address, tmp_path)
        assert [each.pid for each in trace.slices if each.name == "aten::mm"] == pids


def test_trace_file_contains_only_the_ranks_in_view(client: httpx.Client, reads: Reads, tmp_path: Path) -> None:
    pipeline = ViewState(view=View.TIMELINE, run="made", group=Group.PP, rank=5, step=20)
    found = opened(client, links(pipeline, reads)[0], tmp_path)
    assert {one.pid - 1 for one in found.slices} == {5, 7}
    assert {one.words["step"] for one in found.slices} == {20}


def test_trace_link_contains_the_values_that_the_address_left_out(reads: Reads) -> None:
    state = parse_search(links(ViewState(view=View.TIMELINE, run="made"), reads)[0].partition("trace")[2]).state
    assert None not in (state.attempt, state.group, state.rank, state.step, state.steps)


def test_page_and_route_name_the_command_when_the_trace_is_too_large(
    client: httpx.Client, reads: Reads, monkeypatch: pytest.MonkeyPatch
) -> None:
    (step, *_, wide) = links(ALL, reads)
    monkeypatch.setattr(trace, "MAX_SPANS", 2000)
    command = "rankscope export perfetto made --attempt 0 --first-step 15 --last-step 24"
    assert command in panel(ALL, reads)
    assert len(links(ALL, reads)) == 2, "the step alone is small enough"
    answer = client.get(wide)
    assert (answer.status_code, answer.headers["content-type"]) == (400, "text/plain; charset=utf-8")
    assert command in answer.text
    assert client.get(step).status_code == 200


@each_case(
    ("address", "status", "words"),
    [
        ("trace?view=timeline&run=nope", 404, "No run is called nope"),
        ("trace?view=timeline&run=made&step=999", 400, "Step 999 is not stored"),
        ("trace?view=timeline&run=made&steps=900-999", 400, "are not stored"),
        ("trace?view=timeline&run=made&rank=99", 400, "There is no rank 99"),
        ("trace?view=timeline&run=made&form=<script>", 400, "form is one of: json, protobuf"),
    ],
)
def test_trace_route_explains_an_unknown_run_step_rank_or_format(
    client: httpx.Client, address: str, status: int, words: str
) -> None:
    answer = client.get(address)
    assert answer.status_code == status
    assert words.lower() in answer.text.lower()
    assert answer.headers["content-type"].startswith("text/plain")


def test_trace_file_requires_the_token(store: EmbeddedStore, run: SyntheticRun) -> None:
    server = FastAPI()
    mount_dashboard(server, StoreReader(store))
    server.add_middleware(TokenGate, tokens=Tokens(full="secret"))
    with serving_app(server) as address, httpx.Client(base_url=address, verify=False) as client:
        where = f"trace{ALL.search()}"
        assert client.get(where).status_code == 401
        assert client.get(where, auth=("anyone", "secret")).status_code == 200


def test_the_page_opens_perfetto_unless_it_is_switched_off(store: EmbeddedStore, run: SyntheticRun) -> None:
    for value, address in (("", PUBLIC), ("off", ""), ("http://perfetto.example/", "http://perfetto.example/")):
        assert perfetto_from_environment({VARIABLE: value}) == address
        found = panel(ALL, Reads(StoreReader(store), settings=ReadSettings(perfetto=address)))
        assert found.count(f'"data-perfetto": "{address}"') == (2 if address else 0)
    for wrong in ("perfetto.example", "ftp://a", "http://", "http://[", "javascript:alert(1)"):
        with pytest.raises(UsageError, match=f"{VARIABLE} is"):
            perfetto_from_environment({VARIABLE: wrong})
