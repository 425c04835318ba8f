"""Profiles of a rank on request: they start and end at step boundaries, and never disturb the training."""

import gzip
import io
import json
import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic_ns
from typing import Any

import pytest
import torch

import telemetry
from telemetry.profile_file import about_file, compressed_parts
from telemetry.profiles import OUTCOME, REQUEST, TRACE, Phase, ProfileOutcome, ProfileRequest
from telemetry.record import profiling
from telemetry.record.profile_files import (
    final_outcome,
    open_trace,
    place_request,
    read_outcome,
    read_request,
    remove_profile,
)
from telemetry.record.profiling import REFUSED
from telemetry.record.recording import RECORDER
from telemetry.record.session import current_session
from telemetry.stages import Stage
from tests.deadline import until
from tests.telemetry.recording import recorded, session

FIRST, SECOND = "1" * 32, "2" * 32
KINETO_ERROR_NS = 20_000
"""Error of Kineto's conversion from the processor's counter to wall-clock time."""


@pytest.fixture
def rank(tmp_path: Path) -> Iterator[Path]:
    """The folder of a rank that records."""
    with session(tmp_path) as started:
        assert started.folder is not None
        yield started.folder


def request(profile_id: str = FIRST, **changes: int) -> ProfileRequest:
    return ProfileRequest(**{"profile_id": profile_id, "rank": 0, "steps": 2, "seconds": 60, **changes})


def train(first: int, count: int) -> float:
    """Steps of a small training. The loss of the last one."""
    torch.manual_seed(first)
    weights = torch.ones(8, 8, requires_grad=True)
    loss = torch.zeros(())
    for step in range(first, first + count):
        with telemetry.step(step), telemetry.span(Stage.FORWARD_COMPUTE):
            loss = (torch.randn(8, 8) @ weights).square().mean()
            loss.backward()
    return loss.item()


def outcome_of(rank: Path, profile_id: str = FIRST) -> ProfileOutcome:
    found = read_outcome(rank, profile_id)
    assert found is not None
    return found


def trace_of(rank: Path, outcome: ProfileOutcome) -> dict[str, Any]:
    """The decoded trace file that a user gets."""
    with open_trace(rank) as file:
        about = about_file("test", 0, 0, outcome)
        content = b"".join(compressed_parts(file, offset_ns=outcome.clock_offset_ns, about=about))
    found: dict[str, Any] = json.loads(gzip.decompress(content))
    return found


def steps_in(trace: dict[str, Any]) -> dict[int, tuple[int, int]]:
    """Begin and duration of each step that the profiler annotated, nanoseconds."""
    base_ns = trace["baseTimeNanoseconds"]
    return {
        int(event["name"].partition("#")[2]): (base_ns + round(event["ts"] * 1000), round(event["dur"] * 1000))
        for event in trace["traceEvents"]
        if event["name"].startswith("ProfilerStep#")
    }


def test_profile_holds_the_requested_steps_with_times_that_match_the_spans(rank: Path, tmp_path: Path) -> None:
    train(0, 2)
    assert place_request(rank, request()) is not None
    train(2, 4)
    outcome = outcome_of(rank)
    assert (outcome.phase, outcome.reason, outcome.first_step, outcome.last_step) == (Phase.DONE, "", 2, 3)
    trace = trace_of(rank, outcome)
    annotated = steps_in(trace)
    assert sorted(annotated) == [2, 3]
    assert trace["rankscope"]["rank"] == 0
    assert any(event["name"] == "aten::mm" for event in trace["traceEvents"])
    telemetry.stop()
    found = recorded(tmp_path)
    assert found.marks == [("profiled", "steps 2 to 3")]
    anchor = found.reader.live().anchor
    own = {int(row["step"]): row for row in found.spans if row["stage"] == Stage.STEP}
    for step, (begin_ns, duration_ns) in annotated.items():
        start_ns = anchor.to_wall_ns(int(own[step]["start_ns"]))
        ended_before_ns = anchor.to_wall_ns(int(own[step - 1]["start_ns"] + own[step - 1]["duration_ns"]))
        may_differ_ns = outcome.clock_error_ns + KINETO_ERROR_NS
        assert ended_before_ns - may_differ_ns <= begin_ns <= start_ns + may_differ_ns
        assert begin_ns + duration_ns >= start_ns + int(own[step]["duration_ns"]) - may_differ_ns


def test_profile_times_are_corrected_when_the_wall_clock_was_set(rank: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The wall clock was set forward by one hour after the session had measured its anchor."""
    profiler = current_session()._profiler
    assert profiler is not None
    hour_ns = 3600 * 10**9
    before = profiler._anchor
    monkeypatch.setattr(
        profiler, "_anchor", type(before)(monotonic_ns=before.monotonic_ns, wall_ns=before.wall_ns - hour_ns)
    )
    place_request(rank, request(steps=1))
    train(0, 2)
    outcome = outcome_of(rank)
    assert abs(outcome.clock_offset_ns + hour_ns) < 10**9
    with open_trace(rank) as file:
        moved = b"".join(compressed_parts(file, offset_ns=outcome.clock_offset_ns, about={}))
        file.seek(0)
        plain = b"".join(compressed_parts(file, offset_ns=0, about={}))
    moved_ns, plain_ns = (json.loads(gzip.decompress(content))["baseTimeNanoseconds"] for content in (moved, plain))
    assert moved_ns - plain_ns == outcome.clock_offset_ns


def test_profiler_callback_runs_only_after_a_profile_request(rank: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    RECORDER.at_profile_word(lambda step, word: calls.append(step) or word)
    train(0, 20)
    assert calls == []
    place_request(rank, request())
    train(20, 20)
    assert calls == [20]


def test_a_second_request_is_refused_while_the_first_is_open(rank: Path) -> None:
    assert place_request(rank, request(FIRST)) is not None
    assert place_request(rank, request(SECOND)) is None
    train(0, 4)
    assert outcome_of(rank, FIRST).phase == Phase.DONE
    assert read_outcome(rank, SECOND) is None
    remove_profile(rank, REQUEST)
    assert place_request(rank, request(SECOND)) is not None
    train(4, 4)
    assert outcome_of(rank, SECOND).first_step == 4


def test_only_one_of_several_concurrent_profile_requests_is_accepted(rank: Path) -> None:
    placed: list[ProfileRequest | None] = []
    threads = [
        threading.Thread(target=lambda number=number: placed.append(place_request(rank, request(f"{number:032x}"))))
        for number in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (only,) = [written for written in placed if written is not None]
    assert read_request(rank) == only


def test_expired_profile_request_starts_no_profile(rank: Path) -> None:
    place_request(rank, request(seconds=1), now_ns=monotonic_ns() - 2 * 10**9)
    train(0, 3)
    assert read_outcome(rank, FIRST) is None
    given_up = final_outcome(rank, read_request(rank), now_ns=monotonic_ns() + 20 * 10**9)
    assert given_up is not None
    assert "began no step" in given_up.reason


def test_profile_that_does_not_end_is_reported_as_failed(rank: Path) -> None:
    placed = place_request(rank, request(steps=50))
    assert placed is not None
    train(0, 1)
    assert final_outcome(rank, placed) is None
    given_up = final_outcome(rank, placed, now_ns=monotonic_ns() + 200 * 10**9)
    assert given_up is not None
    assert (given_up.phase, given_up.reason) == (Phase.FAILED, "the rank did not end the profile: it may hang")


def test_profile_request_fails_and_does_not_disturb_a_running_user_profiler(rank: Path) -> None:
    with torch.profiler.profile() as own:
        place_request(rank, request())
        train(0, 3)
    assert outcome_of(rank).phase == Phase.FAILED
    assert "own profiler" in outcome_of(rank).reason
    assert any(event.key == "aten::mm" for event in own.key_averages())


def test_profile_request_fails_while_a_user_profiler_warms_up(rank: Path) -> None:
    schedule = torch.profiler.schedule(wait=0, warmup=2, active=1, repeat=1)
    with torch.profiler.profile(schedule=schedule) as own:
        place_request(rank, request())
        train(0, 1)
        for step in range(1, 4):
            train(step, 1)
            own.step()
    assert outcome_of(rank).phase == Phase.FAILED


def test_profile_ends_when_the_user_starts_a_profiler(rank: Path) -> None:
    place_request(rank, request(steps=50))
    train(0, 3)
    with torch.profiler.profile() as own:
        train(3, 3)
    outcome = outcome_of(rank)
    assert (outcome.phase, outcome.last_step) == (Phase.DONE, 1)
    assert "own profiler" in outcome.reason
    assert any(event.key == "aten::mm" for event in own.key_averages())


def test_profile_counts_steps_correctly_when_step_numbers_jump_or_repeat(rank: Path) -> None:
    """A repeated number is the same step."""
    place_request(rank, request(steps=3))
    for number in (10, 10, 20, 30, 40):
        train(number, 1)
    outcome = outcome_of(rank)
    assert (outcome.phase, outcome.first_step, outcome.last_step) == (Phase.DONE, 10, 30)
    assert sorted(steps_in(trace_of(rank, outcome))) == [10, 20, 30]


def test_profile_ends_at_its_time_limit_between_two_steps(rank: Path) -> None:
    place_request(rank, request(steps=50, seconds=1))
    train(0, 2)
    until(lambda: outcome_of(rank).phase == Phase.DONE, what="the profile ended in a long evaluation")
    assert "time limit of 1 s" in outcome_of(rank).reason
    train(2, 2)


def test_withdrawn_request_ends_the_profile_and_leaves_no_trace_file(rank: Path, tmp_path: Path) -> None:
    place_request(rank, request(steps=50))
    train(0, 2)
    remove_profile(rank, REQUEST, OUTCOME)
    train(2, 2)
    assert not torch.autograd._profiler_enabled()
    assert list((rank / "profile").iterdir()) == []
    telemetry.stop()
    assert recorded(tmp_path).marks == [("profiled", "steps 0 to 1")]  # the steps still took longer


def test_profile_ends_when_the_recording_stops(rank: Path) -> None:
    place_request(rank, request(steps=50))
    train(0, 3)
    telemetry.stop()
    assert "recording ended" in outcome_of(rank).reason
    assert sorted(steps_in(trace_of(rank, outcome_of(rank)))) == [0, 1, 2]


def test_a_trace_that_is_too_large_is_removed(rank: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profiling, "MAX_TRACE_BYTES", 100)
    place_request(rank, request())
    train(0, 4)
    assert "use fewer steps" in outcome_of(rank).reason
    assert not (rank / "profile" / TRACE).exists()


def test_a_profile_ends_if_the_memory_of_the_process_grows(rank: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profiling, "MAX_GROWTH_BYTES", 128 << 20)
    place_request(rank, request(steps=50))
    train(0, 3)
    assert outcome_of(rank).phase == Phase.RUNNING
    grown = torch.ones(64 << 20)
    train(3, 1)
    outcome = outcome_of(rank)
    assert (outcome.phase, outcome.reason) == (Phase.DONE, "the process grew by more than 128 MiB")
    assert grown[-1] == 1


def test_profile_is_refused_when_the_disk_is_full(rank: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profiling, "MIN_FREE_BYTES", 2**80)
    place_request(rank, request())
    train(0, 4)
    assert "MiB left" in outcome_of(rank).reason


def test_losses_are_bit_identical_while_steps_are_profiled(rank: Path) -> None:
    plain = [train(step, 1) for step in range(6)]
    place_request(rank, request(steps=3))
    assert [train(step, 1) for step in range(6)] == plain
    assert outcome_of(rank).phase == Phase.DONE


def test_no_profiler_stays_active_when_the_disk_is_full_at_profile_start(
    rank: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    place_request(rank, request())
    monkeypatch.setattr(profiling, "write_outcome", full)
    train(0, 4)
    assert not torch.autograd._profiler_enabled()
    assert torch.autograd.profiler._enable_profiler is torch.autograd._enable_profiler


def test_no_profiler_stays_active_when_the_rank_folder_disappears(rank: Path) -> None:
    place_request(rank, request())
    train(0, 1)
    rank.rename(rank.with_name("moved"))
    rank.write_text("a file")
    train(1, 4)
    rank.unlink()
    rank.with_name("moved").rename(rank)
    assert not torch.autograd._profiler_enabled()


def test_forked_child_does_not_change_the_profile_of_its_parent(rank: Path) -> None:
    place_request(rank, request(steps=3))
    train(0, 1)
    child = multiprocessing.get_context("fork").Process(target=train, args=(100, 5))
    child.start()
    child.join(60)
    assert child.exitcode == 0
    train(1, 3)
    assert (outcome_of(rank).phase, outcome_of(rank).last_step) == (Phase.DONE, 2)


def test_files_of_a_profile_are_private(rank: Path) -> None:
    before = os.umask(0)
    try:
        place_request(rank, request())
        train(0, 4)
    finally:
        os.umask(before)
    assert (rank / "profile").stat().st_mode & 0o777 == 0o700
    for name in (REQUEST, OUTCOME, TRACE):
        assert (rank / "profile" / name).stat().st_mode & 0o777 == 0o600, name
    assert sorted(path.name for path in (rank / "profile").iterdir()) == [OUTCOME, REQUEST, TRACE]


def planted(make: Callable[[Path], None]) -> Any:
    return pytest.param(make, id=make.__name__)


def garbage(place: Path) -> None:
    place.write_bytes(os.urandom(100))


def nothing(place: Path) -> None:
    place.write_bytes(b"")


def very_long(place: Path) -> None:
    place.write_bytes(b"[" * 10**6)


def huge_numbers(place: Path) -> None:
    place.write_text(json.dumps({"profile_id": FIRST, "rank": 0, "steps": 10**30, "seconds": 60, "until_ns": 2**62}))


def wrong_types(place: Path) -> None:
    place.write_text(json.dumps({"profile_id": FIRST, "rank": True, "steps": 2.5, "seconds": 60, "until_ns": 2**62}))


def path_as_id(place: Path) -> None:
    place.write_text(json.dumps({"profile_id": "../../x", "rank": 0, "steps": 2, "seconds": 60, "until_ns": 2**62}))


def link(place: Path) -> None:
    target = place.parent.parent / "elsewhere"
    target.write_text(request(until_ns=2**62).to_json())
    place.symlink_to(target)


def second_name(place: Path) -> None:
    target = place.parent.parent / "elsewhere"
    target.write_text(request(until_ns=2**62).to_json())
    os.link(target, place)


def pipe(place: Path) -> None:
    os.mkfifo(place)


def other_owner(place: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    place.write_text(request(until_ns=2**62).to_json())
    os.chown(place, 12345, 12345)


def folder_of_others(place: Path) -> None:
    place.write_text(request(until_ns=2**62).to_json())
    place.parent.chmod(0o777)


@pytest.mark.parametrize(
    "make",
    [
        *map(planted, (garbage, nothing, very_long, huge_numbers, wrong_types, path_as_id)),
        *map(planted, (link, second_name, pipe, other_owner, folder_of_others)),
    ],
)
def test_invalid_or_unsafe_request_file_starts_no_profile(
    make: Callable[[Path], None], rank: Path, tmp_path: Path
) -> None:
    (rank / "profile").mkdir(mode=0o700)
    make(rank / "profile" / REQUEST)
    RECORDER.words[14] = monotonic_ns()
    train(0, 3)
    assert not torch.autograd._profiler_enabled()
    assert sorted(path.name for path in (rank / "profile").iterdir()) == [REQUEST]
    telemetry.stop()
    found = recorded(tmp_path)
    assert [name for name, _ in found.marks] == [REFUSED]
    assert found.stages.count("step") == 3


def test_profile_does_not_write_through_symbolic_links_at_its_file_names(rank: Path, tmp_path: Path) -> None:
    place_request(rank, request())
    victim = tmp_path / "victim"
    victim.write_text("untouched")
    for name in (TRACE, f"{TRACE}.tmp", OUTCOME):
        (rank / "profile" / name).symlink_to(victim)
    train(0, 4)
    assert victim.read_text() == "untouched"
    assert outcome_of(rank).phase == Phase.DONE
    assert not (rank / "profile" / TRACE).is_symlink()


def test_compressed_trace_parts_are_reproducible_and_join_to_one_file() -> None:
    head = b'{"deviceProperties": [], "baseTimeNanoseconds": 1000, "traceEvents": ['
    trace = head + b",".join(b'{"ts": %d}' % number for number in range(500_000)) + b"]}"
    parts = [list(compressed_parts(io.BytesIO(trace), offset_ns=-1, about={}, part_bytes=4096)) for _ in range(2)]
    assert parts[0] == parts[1]
    assert {len(part) for part in parts[0][:-1]} == {4096}
    found = json.loads(gzip.decompress(b"".join(parts[0])))
    assert (found["baseTimeNanoseconds"], len(found["traceEvents"])) == (999, 500_000)


def test_file_that_is_not_a_trace_is_rejected() -> None:
    with pytest.raises(ValueError, match="baseTimeNanoseconds"):
        list(compressed_parts(io.BytesIO(b'{"traceEvents": [], "baseTimeNanoseconds": 1}'), offset_ns=0, about={}))
