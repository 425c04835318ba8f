"""Selects the steps and ranks of a run for a trace, up to the limit of viewers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from diagnose.findings import StepWindow
from diagnose.model.load import hosts_of
from diagnose.ranges import list_some, unfold_ranks
from telemetry.errors import UnknownRunError, UsageError
from telemetry.records import topology_of
from telemetry.stores.interface import Reader
from telemetry.stores.queries import LAST_STEP, Lanes, Ranks, Runs
from telemetry.topology import Topology

DEFAULT_STEPS = 10
"""Number of newest steps, if no window is given."""
MAX_SPANS = 2_000_000
"""Limit of the spans. They give some hundred megabytes of JSON before compression: about the limit of a viewer in a
browser."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A window of one attempt."""

    run_id: str
    attempt: int
    topology: Topology
    hosts: tuple[str, ...]
    """Host of each rank of the job. Empty if the rank never reported."""
    first_step: int
    last_step: int
    """``LAST_STEP``: up to the newest span."""
    newest_step: int
    """The newest completed step in the window. Without one, the first step of the window."""
    spans_of_rank: Mapping[int, int]
    """Chosen rank -> number of its spans in the window, by rank. Ranks without spans are not included."""

    @property
    def num_spans(self) -> int:
        return sum(self.spans_of_rank.values())

    @property
    def ranks(self) -> tuple[int, ...]:
        return tuple(self.spans_of_rank)


def choose(
    reader: Reader,
    run_id: str,
    attempt: int,
    *,
    window: StepWindow | None = None,
    ranks: str = "",
    hosts: Sequence[str] = (),
    max_spans: int = MAX_SPANS,
) -> Choice:
    """Select the stored spans of the given steps and ranks.

    Args:
        window: None: the newest ten completed steps (fewer for a very large run), and the uncompleted step.
        ranks: such as ``0-7,12``. Empty: all.
        hosts: only ranks of these hosts. Empty: all.

    Raises:
        UnknownRunError: no rank of this attempt has reported.
        UsageError: a rank or host does not exist, no span is stored, or there are more than ``max_spans``.
    """
    table = _ranks(reader, run_id, attempt)
    first, last = _stored_steps(reader, run_id, attempt)
    topology = topology_of(table)
    all_hosts = hosts_of(table, topology)
    whole = Choice(
        run_id=run_id,
        attempt=attempt,
        topology=topology,
        hosts=all_hosts,
        first_step=first,
        last_step=LAST_STEP,
        newest_step=last,
        spans_of_rank=dict.fromkeys(_chosen_ranks(all_hosts, ranks, hosts), 0),
    )
    choice = _newest(reader, whole, max_spans) if window is None else _between(reader, whole, window)
    if not choice.num_spans:
        raise UsageError(
            f"these ranks have no span in {_words(choice)}", hint=f"steps {first} to {last} of {run_id} are stored"
        )
    if choice.num_spans > max_spans:
        raise UsageError(
            f"these ranks have {choice.num_spans:,} spans in {_words(choice)}; a trace takes {max_spans:,} at most",
            hint=_less(choice, max_spans),
        )
    return choice


def ranks_among(
    reader: Reader, run_id: str, attempt: int, *, ranks: str = "", hosts: Sequence[str] = ()
) -> tuple[tuple[int, ...], int]:
    """The ranks that :func:`choose` selects, with or without spans, and the number of ranks of the job.

    Raises:
        UnknownRunError, UsageError: as :func:`choose`.
    """
    table = _ranks(reader, run_id, attempt)
    all_hosts = hosts_of(table, topology_of(table))
    return _chosen_ranks(all_hosts, ranks, hosts), len(all_hosts)


def _ranks(reader: Reader, run_id: str, attempt: int) -> pa.Table:
    table = reader.read(Ranks(run_id=run_id, attempt=attempt))
    if not table.num_rows:
        raise UnknownRunError(
            f"no rank of {run_id!r} attempt {attempt} has sent records", hint="`rankscope runs` lists what is stored"
        )
    return table


def _newest(reader: Reader, whole: Choice, max_spans: int) -> Choice:
    """The newest steps of ``whole``: as many as the limit allows, and at least one."""
    last = whole.newest_step
    first = max(whole.first_step, last - DEFAULT_STEPS + 1)
    while True:
        choice = _between(reader, whole, StepWindow(first_step=first, last_step=LAST_STEP))
        if choice.num_spans <= max_spans or first >= last:
            return choice
        fit = max(1, max_spans * (last - first + 1) // choice.num_spans)
        first = max(first + 1, last - fit + 1)


def _between(reader: Reader, whole: Choice, window: StepWindow) -> Choice:
    """The steps of ``window``, with the number of spans of each rank of ``whole``."""
    first, last = window.first_step, window.last_step
    asked = whole.ranks if len(whole.ranks) < whole.topology.world_size else ()
    rows = reader.read(Lanes(run_id=whole.run_id, attempt=whole.attempt, first_step=first, last_step=last, ranks=asked))
    counts = dict.fromkeys(whole.ranks, 0)
    for rank, spans in zip(rows["rank"].to_pylist(), rows["spans"].to_pylist(), strict=True):
        if rank in counts:  # a run that is recorded again with a smaller grid has spans of ranks that do not exist
            counts[rank] += spans
    return replace(
        whole,
        first_step=first,
        last_step=last,
        newest_step=max(first, min(last, whole.newest_step)),
        spans_of_rank={rank: spans for rank, spans in counts.items() if spans},
    )


def _chosen_ranks(hosts: tuple[str, ...], ranks: str, wanted: Sequence[str]) -> tuple[int, ...]:
    chosen = unfold_ranks(ranks, len(hosts)) if ranks else tuple(range(len(hosts)))
    for host in wanted:
        if host not in hosts:
            known = list_some(sorted(set(hosts) - {""}), 5)
            raise UsageError(f"no host {host!r} in this run", hint=f"its hosts: {known}")
    kept = tuple(rank for rank in chosen if not wanted or hosts[rank] in wanted)
    if not kept:
        raise UsageError(f"none of ranks {ranks} is on {', '.join(wanted)}", hint="remove --ranks or --host")
    return kept


def _stored_steps(reader: Reader, run_id: str, attempt: int) -> tuple[int, int]:
    """The first and the last step that some rank has finished."""
    for row in reader.read(Runs(run_ids=(run_id,))).to_pylist():
        if (row["run_id"], row["attempt"]) == (run_id, attempt):
            return row["first_step"], row["last_step"]
    raise AssertionError(run_id)


def _words(choice: Choice) -> str:
    if choice.last_step == LAST_STEP:
        return f"the steps from {choice.first_step} on"
    return f"steps {choice.first_step} to {choice.last_step}"


def _less(choice: Choice, max_spans: int) -> str:
    num_steps = choice.newest_step - choice.first_step + 1
    fit = max_spans * num_steps // choice.num_spans
    if fit:
        last_step = choice.first_step + fit - 1
        return f"about {fit} of these steps fit: --last-step {last_step}; or export fewer ranks: --ranks 0-7"
    return f"about {max_spans * len(choice.ranks) * num_steps // choice.num_spans} ranks of one step fit: --ranks 0-7"
