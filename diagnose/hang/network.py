"""Link events of the hosts during a stall, and how long the job waits for a link."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from diagnose.model.fleet import HostEvent
from diagnose.model.load import parse_meta
from diagnose.model.outages import LINK_EVENTS, Outage, Patience, find_outages, may_carry, patience_of
from diagnose.settings import USUAL, DetectorSettings
from telemetry.errors import UnreadableError
from telemetry.evidence import journal
from telemetry.evidence.rank_state import is_alive
from telemetry.record.reader import RankReader, find_rank_dirs
from telemetry.stores.interface import Reader
from telemetry.stores.queries import Ranks
from telemetry.stores.queries.hosts import HostEvents
from telemetry.tables import ENDED_FAILED

NO_PATIENCE = Patience()


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """Links of the job's hosts. Nothing is known of them by default."""

    outages: tuple[Outage, ...] = ()
    patience: Patience = NO_PATIENCE
    settings: DetectorSettings = USUAL
    seen_ns: int = 0
    """Wall clock of the newest thing known of the job; 0: that of the evidence."""
    gave_up: bool = False
    """Whether ranks ended over an error, or died, since they stood still."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CutOff:
    """A host without its link, and what that means for the job."""

    outage: Outage
    ranks: tuple[int, ...]
    """Of the host."""
    down_s: float
    """So far, or until it came back."""
    is_flap: bool
    """The link may come back, or is back, before the job gives up."""


def stored_network(
    reader: Reader, run_id: str, attempt: int, beats: Iterable[Mapping[str, Any]], settings: DetectorSettings
) -> Network:
    """As the agents told. ``beats``: rows of ``heartbeats``."""
    events = reader.read(HostEvents(run_id=run_id, attempt=attempt, names=tuple(map(str, LINK_EVENTS)))).to_pylist()
    if not events:
        return Network(settings=settings)
    beats = list(beats)
    metas = reader.read(Ranks(run_id=run_id, attempt=attempt))["meta"].to_pylist()
    words = [parse_meta(meta) for meta in metas]
    return Network(
        outages=_of_the_job(find_outages(HostEvent(**row) for row in events), words),
        patience=patience_of(words),
        settings=settings,
        seen_ns=max((row["at_ns"] for row in beats), default=0),
        gave_up=any(row["ended"] == ENDED_FAILED or not (row["alive"] or row["ended"]) for row in beats),
    )


def spooled_network(spool: Path, run_id: str, attempt: int) -> Network:
    """As the agents wrote it down beside the rank files."""
    folders = find_rank_dirs(spool, run_id, attempt)
    events = [
        HostEvent(host=host, device=one.device, at_ns=one.at_ns, name=one.name, text=one.text)
        for folder in {folder.parent for folder in folders}
        for host, seen in journal.read(folder)
        for one in seen
    ]
    if not events:
        return Network()
    words, gave_up = [], False
    for folder in folders:
        with suppress(UnreadableError):  # what can be read counts
            reader = RankReader(folder)
            identity = reader.identity()
            alive, state = is_alive(identity), reader.live()  # in this order: it may end in good order meanwhile
            words.append(identity.meta)
            gave_up |= state.failed or not (state.ended or alive)
    return Network(
        outages=_of_the_job(find_outages(events), words),
        patience=patience_of(words),
        settings=DetectorSettings.from_environment(),
        gave_up=gave_up,
    )


def _of_the_job(outages: list[Outage], words: Sequence[Mapping[str, str]]) -> tuple[Outage, ...]:
    """Those of cards that may carry its collectives."""
    return tuple(outage for outage in outages if may_carry(words, outage.device))
