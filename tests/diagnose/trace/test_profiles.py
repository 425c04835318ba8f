"""Kineto traces in exported traces: in the processes of their ranks, on the reference clock, or refused."""

import base64
import gzip
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from diagnose.findings import StepWindow
from diagnose.profiles import stored_profiles
from diagnose.trace.choice import choose
from diagnose.trace.export import Format, Written, export_trace
from diagnose.trace.profiles import ProfiledRun, RankProfile, chosen_profiles
from telemetry.errors import UnreadableError, UsageError
from telemetry.profiles import Phase, ProfileOutcome
from telemetry.stages import Stage
from telemetry.stores.interface import Store, StoreReader
from telemetry.stores.queries import Spans
from telemetry.tables import PROFILE_REQUESTS
from tests.diagnose.trace.opened import Opened, Slice, opened_json, opened_protobuf
from tests.telemetry.made_profiles import AUTOGRAD, Profile
from tests.telemetry.made_rows import insert, made

OPENERS: dict[Format, Callable[[Path], Opened]] = {Format.JSON: opened_json, Format.PROTOBUF: opened_protobuf}
EACH_FORM = pytest.mark.parametrize("form", list(Format))
STEP = 6
OLD, NEW = "1" * 32, "2" * 32
"""Stored profiles, of one rank each."""


def profiled_run(store: Store, run: str, world_size: int = 8) -> ProfiledRun:
    return ProfiledRun(reader=StoreReader(store), run_id=run, attempt=0, world_size=world_size)


def exported(
    store: Store, run: str, profiles: list[RankProfile], folder: Path, form: Format, **options: Any
) -> tuple[Written, Opened]:
    reader = StoreReader(store)
    window = options.pop("window", None) or profiled_run(store, run).steps_of(profiles)
    choice = choose(reader, run, 0, window=window, ranks=options.pop("ranks", ""))
    path = folder / "trace"
    written = export_trace(reader, choice, form=form, path=path, note_of=str, profiles=profiles, **options)
    return written, OPENERS[form](path)


def span_of(store: Store, run: str, rank: int, stage: Stage = Stage.FORWARD_COMPUTE, step: int = STEP) -> Any:
    query = Spans(run_id=run, attempt=0, first_step=step, last_step=step, ranks=(rank,), stages=(stage,))
    return StoreReader(store).read(query).to_pylist()[0]


def kineto(store: Store, run: str, rank: int, **told: Any) -> Profile:
    """A trace of ``rank`` in which an operator has exactly the time of its first forward span of a step."""
    span = span_of(store, run, rank)
    base = {"baseTimeNanoseconds": span["start_ns"], "host_name": None}
    made_profile = Profile(rank=rank, world_size=8, told={**base, **told})
    lasts_us = span["duration_ns"] / 1000
    made_profile.host("cpu_op", "outer", 0, lasts_us, shapes=[[2, 3]], text="a\ud800b", number=2**70)
    made_profile.host("cpu_op", "inner", lasts_us / 4, lasts_us / 4)
    made_profile.host("cpu_op", "backward", lasts_us / 2, lasts_us / 4, AUTOGRAD)
    return made_profile.flow(1, lasts_us / 4, lasts_us / 2, to=AUTOGRAD)


def of_kineto(trace: Opened, name: str) -> list[Slice]:
    return [each for each in trace.slices if each.category == "cpu_op" and each.name == name]


@EACH_FORM
def test_kineto_events_are_on_the_clock_of_the_spans_of_their_rank(store: Store, form: Format, tmp_path: Path) -> None:
    """The clocks of the hosts are seconds apart. An event with the raw times of a span has the drawn times of the
    span."""
    files = [kineto(store, "apart", rank).save(tmp_path / "in") for rank in (0, 7)]
    profiles = profiled_run(store, "apart").from_files([tmp_path / "in"], 100)
    written, trace = exported(store, "apart", profiles, tmp_path, form)
    assert (written.first_step, written.last_step) == (STEP, STEP), "by the time of the files"
    assert [(each.rank, each.source, each.events, each.flows) for each in written.profiles] == [
        (rank, str(path), 3, 1) for rank, path in zip((0, 7), files, strict=True)
    ]
    for event in of_kineto(trace, "outer"):
        drawn = min((one for one in trace.slices if one.name == "forward-compute" and one.pid == event.pid), key=start)
        assert (event.start_ns, event.duration_ns) == (drawn.start_ns, drawn.duration_ns)
    assert {each.pid for each in of_kineto(trace, "outer")} == {1, 8}
    assert {name for _, name in trace.threads.values() if "kineto" in name} == {
        "kineto: thread 100", "kineto: thread 101",
    }  # fmt: skip
    trace.check_nesting()


def start(one: Slice) -> int:
    return one.start_ns


@EACH_FORM
def test_flows_of_several_profiles_and_of_spans_do_not_mix(store: Store, form: Format, tmp_path: Path) -> None:
    for rank in (0, 7):
        kineto(store, "apart", rank).save(tmp_path / "in")
    profiles = profiled_run(store, "apart").from_files([tmp_path / "in"], 100)
    written, trace = exported(store, "apart", profiles, tmp_path, form)
    flows = [(a, b) for a, b in trace.arrows.values() if a.category == "cpu_op"]
    assert {(a.pid, a.name, b.pid, b.name) for a, b in flows} == {
        (pid, "inner", pid, "backward") for pid in (1, 8)
    }  # fmt: skip
    assert len(trace.arrows) == written.transfers + written.collectives + 2


@EACH_FORM
def test_arguments_are_kept_also_if_a_format_cannot_hold_them(store: Store, form: Format, tmp_path: Path) -> None:
    path = kineto(store, "single", 2).save(tmp_path)
    _, trace = exported(store, "single", profiled_run(store, "single").from_files([path], 9), tmp_path, form)
    (event,) = of_kineto(trace, "outer")
    expected = {"shapes": [[2, 3]], "text": "a\ud800b", "number": 2**70}
    if form is Format.PROTOBUF:
        expected = {"shapes": "[[2, 3]]", "text": "a?b", "number": str(2**70)}
    assert event.words == expected


def test_only_events_in_the_exported_steps_are_written(store: Store, tmp_path: Path) -> None:
    profile = kineto(store, "single", 2)
    later_us = (span_of(store, "single", 2, step=STEP + 2)["start_ns"] - span_of(store, "single", 2)["start_ns"]) / 1000
    profile.host("cpu_op", "later", later_us, 1).flow(2, 0, later_us)
    profile.events.append({"ph": "X", "cat": "cpu_op", "name": "endless", "pid": 1, "tid": 1, "ts": 0, "dur": 1e13})
    profiles = profiled_run(store, "single").from_files([profile.save(tmp_path)], 9)
    window = StepWindow(first_step=STEP, last_step=STEP)
    written, trace = exported(store, "single", profiles, tmp_path, Format.JSON, window=window)
    assert ([each.events for each in written.profiles], of_kineto(trace, "later")) == ([3], [])
    later, _ = exported(store, "single", profiles, tmp_path, Format.JSON, window=StepWindow(first_step=8, last_step=8))
    assert [each.events for each in later.profiles] == [1]


def test_a_file_of_rankscope_profile_names_its_steps(store: Store, tmp_path: Path) -> None:
    origin = {"run": "single", "attempt": 0, "rank": 2, "first_step": 5, "last_step": 7, "clock_error_ns": 70}
    path = kineto(store, "single", 2, rankscope=origin).save(tmp_path)
    written, trace = exported(
        store, "single", profiled_run(store, "single").from_files([path], 9), tmp_path, Format.JSON
    )
    assert (written.first_step, written.last_step, written.profiles[0].clock_error_ns) == (5, 7, 70)
    (about,) = [words for _, _, name, words in trace.instants if name == "kineto trace"]
    assert about == {"source": str(path), "clock error, ns": 70}


WRONG = {
    "job": ({"distributedInfo": {"rank": 2, "world_size": 4}}, "of a job of 4 ranks"),
    "rank": ({"distributedInfo": {"rank": 9, "world_size": 8}}, "is of rank 9"),
    "no rank": ({"distributedInfo": None}, "does not contain its rank"),
    "run": (
        {"rankscope": {"run": "x", "attempt": 1, "rank": 0, "first_step": 0, "last_step": 0, "clock_error_ns": 0}},
        "is of run x/1",
    ),
    "time": ({"baseTimeNanoseconds": 5}, "has no stored step during"),
}


@pytest.mark.parametrize(("told", "words"), WRONG.values(), ids=WRONG)
def test_a_file_of_another_job_is_refused(store: Store, told: dict[str, Any], words: str, tmp_path: Path) -> None:
    path = kineto(store, "single", 2, **told).save(tmp_path, "trace.json")
    run = profiled_run(store, "single")
    with pytest.raises(UsageError, match=words):
        run.steps_of(run.from_files([path], 9))


def test_a_profile_that_does_not_fit_is_refused_and_nothing_is_written(store: Store, tmp_path: Path) -> None:
    run = profiled_run(store, "single")
    paths = [kineto(store, "single", 2).save(tmp_path)]
    with pytest.raises(UsageError, match="3 events of profiles; a trace takes 2 at most"):
        run.from_files(paths, 2)
    profiles = run.from_files(paths, 3)
    others: list[tuple[dict[str, Any], str]] = [
        ({"max_spans": 4}, "3 events of profiles and .* spans; a trace takes 4"),
        ({"ranks": "0-1"}, "is of rank 2, which has no spans in this trace"),
        ({"window": StepWindow(first_step=2, last_step=2)}, "has no event in the exported steps of rank 2"),
    ]
    for options, words in others:
        with pytest.raises(UsageError, match=words):
            exported(store, "single", profiles, tmp_path, Format.JSON, **options)
    assert [*tmp_path.iterdir()] == paths


def store_profile(store: Store, run: str, rank: int, profile_id: str, steps: tuple[int, int]) -> None:
    """A stored profile of a rank, as its agent stores it."""
    asked = {"profile_id": profile_id, "rank": rank, "at_ns": int(profile_id[0]), "steps": 5, "seconds": 60}
    insert(store, "profile_requests", pa.Table.from_pylist([{**asked, "finding": ""}], PROFILE_REQUESTS), run_id=run)
    file = gzip.compress(json.dumps(kineto(store, run, rank).document()).encode())
    part = {"rank": rank, "profile_id": profile_id, "part": 0, "content": base64.b64encode(file).decode()}
    insert(store, "profile_parts", made("profile_parts", [part]), run_id=run)
    outcome = ProfileOutcome(
        profile_id=profile_id,
        phase=Phase.STORED,
        first_step=steps[0],
        last_step=steps[1],
        clock_error_ns=90,
        parts=1,
        sha256=hashlib.sha256(file).hexdigest(),
    )
    state = {"rank": rank, "profile_id": profile_id, "at_ns": 1, "phase": outcome.phase, "body": outcome.to_json()}
    insert(store, "profile_states", made("profile_states", [state]), run_id=run)


def test_stored_profiles_of_the_ranks_and_steps_are_exported(store: Store, tmp_path: Path) -> None:
    store_profile(store, "chunks", 1, OLD, (4, 6))
    store_profile(store, "chunks", 3, NEW, (6, 7))
    run = profiled_run(store, "chunks", 12)
    every = stored_profiles(run.reader, "chunks", 0)
    for ranks, window, ids in (
        (range(12), None, [NEW]),
        ((0, 1), None, [OLD]),
        (range(12), StepWindow(first_step=6, last_step=6), [NEW, OLD]),
        (range(12), StepWindow(first_step=7, last_step=9), [NEW]),
    ):
        assert [each.profile_id for each in chosen_profiles(every, ranks, window)] == ids
    for ranks, window in (((5,), None), ((1,), StepWindow(first_step=7, last_step=9))):
        with pytest.raises(UsageError, match="no stored profile"):
            chosen_profiles(every, ranks, window)
    profiles = run.from_store(chosen_profiles(every, (1,), None), 9)
    written, trace = exported(store, "chunks", profiles, tmp_path, Format.JSON)
    assert (written.first_step, written.last_step) == (4, 6)
    assert [(each.rank, each.source, each.clock_error_ns) for each in written.profiles] == [(1, "profile 11111111", 90)]
    assert len(of_kineto(trace, "outer")) == 1
    insert(store, "profile_states", made("profile_states", [_incomplete(every[0].outcome)]), run_id="chunks")
    with pytest.raises(UnreadableError, match="is incomplete"):
        run.from_store(chosen_profiles(stored_profiles(run.reader, "chunks", 0), (3,), None), 9)


def _incomplete(outcome: ProfileOutcome | None) -> dict[str, Any]:
    assert outcome is not None
    body = json.dumps({**json.loads(outcome.to_json()), "parts": 2})
    return {"rank": 3, "profile_id": NEW, "at_ns": 2, "phase": "stored", "body": body}
