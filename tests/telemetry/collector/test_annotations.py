"""Tags, notes and saved views: who may write one, what is refused, and which row is valid."""

import os
from typing import Any

import httpx
import pytest

from telemetry.annotations import MAX_ADDRESS, MAX_TAGS, Edit, Kind
from telemetry.collector.annotations import MOST, AnnotationLog
from telemetry.errors import UsageError
from telemetry.finding_log import MAX_TEXT
from telemetry.stores.embedded import EmbeddedStore
from telemetry.stores.interface import StoreReader
from telemetry.stores.queries import AnnotationCount, Annotations
from telemetry.wire.annotation import Annotation
from tests.each_case import each_case
from tests.telemetry.made_rows import insert, made
from tests.telemetry.served import collecting

TOKENS = {"token": "all", "write_token": "in", "read_token": "out"}
TAG = {"kind": "tag", "run_id": "gpt", "name": "baseline", "who": "Ada"}
VIEW = {"kind": "view", "name": "slow steps", "text": "?view=heatmap&steps=80-179", "who": "Ada"}
PATH = "/v1/annotations"


@pytest.fixture(autouse=True)
def _nothing_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("RANKSCOPE_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def store(embedded: EmbeddedStore) -> EmbeddedStore:
    """A store with one run."""
    insert(embedded, "ranks", made("ranks", [{"rank": 0, "started_ns": 5}]), run_id="gpt")
    return embedded


def valid(store: EmbeddedStore, kind: Kind = Kind.TAG) -> list[tuple[str, str]]:
    rows = StoreReader(store).read(Annotations(kinds=(kind,))).to_pylist()
    return [(row["run_id"], row["name"] or row["text"]) for row in rows]


def test_annotation_requires_a_token_that_may_write_and_leaves_a_line_with_the_name(
    store: EmbeddedStore, capfd: pytest.CaptureFixture[str]
) -> None:
    with collecting(store, **TOKENS) as client, httpx.Client(base_url=client.url, verify=False) as http:
        statuses = {
            token: http.post(PATH, json=TAG, headers={"Authorization": f"Bearer {token}"}).status_code
            for token in ("wrong", "out", "in", "all")
        }
        foreign = http.post(PATH, json=TAG, headers={"Authorization": "Bearer all", "Sec-Fetch-Site": "cross-site"})
        form = http.post(PATH, data=TAG, headers={"Authorization": "Bearer all"})
    assert statuses == {"wrong": 401, "out": 403, "in": 200, "all": 200}
    assert (foreign.status_code, form.status_code) == (403, 415)
    assert StoreReader(store).read(AnnotationCount())["num_rows"].to_pylist() == [2]
    assert valid(store) == [("gpt", "baseline")]
    said = capfd.readouterr().err
    assert "set tag 'baseline' of run gpt by 'Ada'" in said
    assert "Bearer" not in said


def test_newest_row_of_a_tag_is_valid_also_if_the_clock_of_the_collector_was_set_back(store: EmbeddedStore) -> None:
    reader = StoreReader(store)
    tag = Annotation(kind=Kind.TAG, run_id="gpt", name="baseline", who="Ada")
    removed = Annotation(kind=Kind.TAG, edit=Edit.REMOVE, run_id="gpt", name="baseline", who="Ada")
    for number, annotation in enumerate((tag, removed, tag, removed)):
        AnnotationLog(store=store, reader=reader, clock_ns=lambda at=10**18 - number: at).accept(annotation)
        assert valid(store) == ([] if annotation is removed else [("gpt", "baseline")])
    with pytest.raises(UsageError, match="there is no tag 'baseline'"):
        AnnotationLog(store=store, reader=reader).accept(removed)


def test_run_has_a_limited_number_of_tags_and_a_tag_may_be_set_again(
    store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert MOST[Kind.TAG] == MAX_TAGS
    monkeypatch.setitem(MOST, Kind.TAG, 3)
    log = AnnotationLog(store=store, reader=StoreReader(store))
    for name in ("t0", "t1", "t2", "t0"):
        log.accept(Annotation(kind=Kind.TAG, run_id="gpt", name=name, who="Ada"))
    with pytest.raises(UsageError, match="at most 3 tags"):
        log.accept(Annotation(kind=Kind.TAG, run_id="gpt", name="more", who="Ada"))


def test_notes_are_all_kept_and_a_view_with_the_same_name_is_replaced(store: EmbeddedStore) -> None:
    with collecting(store) as client:
        for text in ("first", "second"):
            client.annotate(Annotation(kind=Kind.NOTE, run_id="gpt", text=text, who="Ada"))
            address = f"?view=heatmap&stage={text}"
            client.annotate(Annotation(kind=Kind.VIEW, name="slow", text=address, who="Ada"))
    assert valid(store, Kind.NOTE) == [("gpt", "second"), ("gpt", "first")]
    (view,) = StoreReader(store).read(Annotations(kinds=(Kind.VIEW,))).to_pylist()
    assert (view["run_id"], view["name"], view["text"]) == ("", "slow", "?view=heatmap&stage=second")


@each_case(
    ("body", "status", "why"),
    [
        ({**TAG, "run_id": "other"}, 404, "no run other"),
        ({**TAG, "run_id": ""}, 400, "a tag needs a run"),
        ({**TAG, "kind": "star"}, 400, "kind"),
        ({**TAG, "edit": "delete"}, 400, "edit"),
        ({**TAG, "edit": "remove"}, 404, "there is no tag"),
        ({**TAG, "who": " \t"}, 400, "who"),
        ({**TAG, "who": "x" * 65}, 400, "who"),
        ({**TAG, "name": ""}, 400, "not a valid tag"),
        ({**TAG, "name": "two words"}, 400, "not a valid tag"),
        ({**TAG, "name": "-old"}, 400, "not a valid tag"),
        ({**TAG, "name": "x" * 33}, 400, "not a valid tag"),
        ({**TAG, "name": "<b>"}, 400, "not a valid tag"),
        ({**TAG, "kind": "note", "text": " "}, 400, "a note needs a text"),
        ({**TAG, "kind": "note", "text": "x" * (MAX_TEXT + 1)}, 400, "a note needs a text"),
        ({**TAG, "kind": "note", "text": "x", "edit": "remove"}, 400, "a note cannot be removed"),
        ({**VIEW, "name": "\n"}, 400, "a view needs a name"),
        ({**VIEW, "text": "https://evil.example/?view=runs"}, 400, "not the address of a view"),
        ({**VIEW, "text": "//evil.example/?view=runs"}, 400, "not the address of a view"),
        ({**VIEW, "text": "?view=runs#x"}, 400, "not the address of a view"),
        ({**VIEW, "text": "?view=runs\n"}, 400, "not the address of a view"),
        ({**VIEW, "text": "?" + "x" * MAX_ADDRESS}, 400, "text"),
    ],
)
def test_invalid_annotation_is_refused_with_a_reason(
    store: EmbeddedStore, body: dict[str, Any], status: int, why: str
) -> None:
    with collecting(store) as client, httpx.Client(base_url=client.url, verify=False) as http:
        answer = http.post(PATH, json=body)
        batch = http.post("/v1/batches/annotations", content=b"", headers={"Content-Type": "x"})
    assert (answer.status_code, batch.status_code) == (status, 415)
    assert why in answer.json()["error"]
    assert StoreReader(store).read(AnnotationCount()).num_rows == 0


def test_texts_are_stored_as_one_printable_line(store: EmbeddedStore) -> None:
    body = {"kind": "note", "run_id": "gpt", "who": "A\x1b[2J", "text": "two\nlines \u202e <b>"}
    with collecting(store) as client, httpx.Client(base_url=client.url, verify=False) as http:
        assert http.post(PATH, json=body).status_code == 200
    (row,) = StoreReader(store).read(Annotations()).to_pylist()
    assert (row["who"], row["text"]) == ("A\\x1b[2J", "two lines \\u202e <b>")
