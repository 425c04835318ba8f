"""Kineto traces that join the trace of a run: stored profiles, and files that the user has.

    stored profiles --parts into a private folder--.
                                                   v
    files of torch.profiler ---------------> read_events --> RankProfile --> steps of the run, if none are given
                                                                  `--within--> its events in the exported steps

Times in both are on the clock of the host of the rank, as the times of its stored spans.
"""

import tempfile
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from diagnose.findings import StepWindow
from diagnose.profiles import StoredProfile, trace_parts
from telemetry.errors import UsageError
from telemetry.imports.kineto_events import KinetoEvents, read_events
from telemetry.imports.kineto_grid import find_files
from telemetry.printable import printable
from telemetry.profile_file import file_name
from telemetry.profiles import Phase
from telemetry.stages import Stage
from telemetry.stores.interface import Reader
from telemetry.stores.queries import LAST_STEP, Runs, Spans

STEPS_AT_ONCE = 64
LIST_HINT = "`rankscope profile RUN --list` lists the profiles of a run"


@dataclass(frozen=True, slots=True, kw_only=True)
class RankProfile:
    """The Kineto trace of one rank."""

    rank: int
    source: str
    """Name for people: a file, or a stored profile."""
    events: KinetoEvents
    steps: StepWindow | None
    """The steps that were profiled. None: only the times of the events are known."""
    clock_error_ns: int | None
    """How far its times can differ from those of the rank's spans. None: not measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfiledRun:
    """The attempt of a run that profiles are joined to."""

    reader: Reader
    run_id: str
    attempt: int
    world_size: int

    def from_files(self, paths: Sequence[Path], max_events: int) -> list[RankProfile]:
        """The traces in files, and in the files of folders.

        Raises:
            UsageError: a file is of another run or rank, or the files have more than ``max_events``.
            UnreadableError: a file is damaged, or no Kineto trace.
        """
        return _bounded((self._checked(read_events(path)) for path in find_files(paths)), max_events)

    def from_store(
        self, profiles: Sequence[StoredProfile], max_events: int, max_bytes: int | None = None
    ) -> list[RankProfile]:
        """The traces of stored profiles.

        Args:
            max_bytes: limit of the size of each trace, unpacked. None: the limit of imports.

        Raises:
            UsageError: the traces have more than ``max_events``.
            UnreadableError: the trace of a profile is damaged.
        """
        return _bounded((self._fetched(profile, max_bytes) for profile in profiles), max_events)

    def steps_of(self, profiles: Sequence[RankProfile]) -> StepWindow:
        """The steps of the run that were profiled. At least one profile is given.

        Raises:
            UsageError: a profile is of another time.
        """
        windows = [profile.steps or self._steps_during(profile) for profile in profiles]
        return StepWindow(
            first_step=min(window.first_step for window in windows),
            last_step=max(window.last_step for window in windows),
        )

    def _checked(self, events: KinetoEvents) -> RankProfile:
        path, origin = events.path, events.origin
        if origin is not None and (origin.run_id, origin.attempt) != (self.run_id, self.attempt):
            raise UsageError(
                f"{path} is of run {printable(origin.run_id)}/{origin.attempt}", hint="export the run of the file"
            )
        if origin is None and events.world_size not in (None, self.world_size):
            raise UsageError(
                f"{path} is of a job of {events.world_size} ranks, this run has {self.world_size}",
                hint="export the run of the file",
            )
        if events.rank is None and self.world_size > 1:
            raise UsageError(f"{path} does not contain its rank", hint="put the rank into the file name: rank3.json")
        rank = events.rank if events.rank is not None and self.world_size > 1 else 0
        if rank >= self.world_size:
            raise UsageError(f"{path} is of rank {rank}", hint=f"ranks of this run are 0 to {self.world_size - 1}")
        return RankProfile(
            rank=rank,
            source=printable(str(path)),
            events=events,
            steps=_window(origin.first_step, origin.last_step) if origin else None,
            clock_error_ns=origin.clock_error_ns if origin else None,
        )

    def _fetched(self, profile: StoredProfile, max_bytes: int | None) -> RankProfile:
        with tempfile.TemporaryDirectory(prefix="rankscope-profile-") as folder:
            path = Path(folder) / file_name(profile.rank)
            with path.open("xb") as file:
                for part in trace_parts(self.reader, self.run_id, self.attempt, profile):
                    file.write(part)
            events = read_events(path, max_bytes)
        assert profile.outcome is not None
        return RankProfile(
            rank=profile.rank,
            source=f"profile {profile.profile_id[:8]}",
            events=events,
            steps=_window(*profile.steps_profiled),
            clock_error_ns=profile.outcome.clock_error_ns,
        )

    def _steps_during(self, profile: RankProfile) -> StepWindow:
        """The steps of the profile's rank during its events, by bisection: a run can have millions of steps."""
        begin_ns, end_ns = int(profile.events.begin_ns.min()), int(profile.events.end_ns.max())
        stored = range(*self._stored_steps())
        first = bisect_left(stored, begin_ns, key=lambda step: self._step_from(profile.rank, step)[1])
        behind = bisect_right(stored, end_ns, key=lambda step: self._step_from(profile.rank, step)[0])
        if first >= behind:
            raise UsageError(
                f"rank {profile.rank} has no stored step during {profile.source}",
                hint=f"steps {stored[0]} to {stored[-1]} are stored; use the file of this run and of its host",
            )
        return StepWindow(first_step=stored[first], last_step=stored[behind - 1])

    def _stored_steps(self) -> tuple[int, int]:
        rows = self.reader.read(Runs(run_ids=(self.run_id,))).to_pylist()
        return next(
            (row["first_step"], row["last_step"] + 1)
            for row in rows
            if (row["run_id"], row["attempt"]) == (self.run_id, self.attempt)
        )

    def _step_from(self, rank: int, step: int) -> tuple[int, int]:
        """Begin and end of the first stored step of a rank, from ``step`` on."""
        num = STEPS_AT_ONCE
        while step <= LAST_STEP:
            query = Spans(
                run_id=self.run_id,
                attempt=self.attempt,
                first_step=step,
                last_step=min(step + num - 1, LAST_STEP),
                ranks=(rank,),
                stages=(Stage.STEP,),
                limit=1,
            )
            if rows := self.reader.read(query).to_pylist():
                return rows[0]["start_ns"], rows[0]["start_ns"] + rows[0]["duration_ns"]
            step, num = step + num, num * 16
        return 2**63, 2**63


def _bounded(profiles: Iterable[RankProfile], max_events: int) -> list[RankProfile]:
    found: list[RankProfile] = []
    num_events = 0
    for profile in profiles:
        found.append(profile)
        num_events += len(profile.events)
        check_room(num_events, 0, max_events)
    return found


def check_room(num_events: int, num_spans: int, most: int) -> None:
    """Check that a trace can hold these events of profiles and these spans.

    Raises:
        UsageError: they are too many.
    """
    if num_events + num_spans > most:
        spans = f" and {num_spans:,} spans" if num_spans else ""
        raise UsageError(
            f"{num_events:,} events of profiles{spans}; a trace takes {most:,} at most",
            hint="take fewer ranks: --ranks 0-3; or fewer steps: --first-step, --last-step; or fewer files",
        )


def chosen_profiles(
    profiles: Sequence[StoredProfile], ranks: Collection[int], window: StepWindow | None
) -> list[StoredProfile]:
    """The stored profiles of ``ranks`` that overlap ``window``. Without a window: those of the newest request.

    ``profiles``: all profiles of an attempt, the newest first.

    Raises:
        UsageError: there is none.
    """
    of_ranks = [profile for profile in profiles if profile.phase is Phase.STORED and profile.rank in ranks]
    if not of_ranks:
        raise UsageError("these ranks have no stored profile", hint=LIST_HINT)
    if window is None:
        return [profile for profile in of_ranks if profile.profile_id == of_ranks[0].profile_id]
    chosen = [profile for profile in of_ranks if overlaps(profile, window)]
    if not chosen:
        raise UsageError(f"these ranks have no stored profile of {window.in_words}", hint=LIST_HINT)
    return chosen


def overlaps(profile: StoredProfile, window: StepWindow) -> bool:
    """Whether steps of the profile are in the window."""
    own = _window(*profile.steps_profiled)
    return own.first_step <= window.last_step and own.last_step >= window.first_step


def _window(first_step: int, last_step: int) -> StepWindow:
    """The steps of a profile. The first one is profiled, perhaps not to its end."""
    return StepWindow(first_step=first_step, last_step=max(first_step, last_step))
