"""The columns that are sent from agent to store: one Arrow schema a table.

``telemetry/record/layout.py`` defines the binary layout of a record in a rank file, ``telemetry/stores/schema`` the
DDL. This file is the format between them.
"""

import numpy as np
import pyarrow as pa

SPANS = pa.schema(
    [
        ("rank", pa.uint32()),
        ("seq", pa.uint64()),  # number of the record in its rank file: (run, attempt, rank, seq) is unique
        ("stage", pa.uint8()),  # telemetry.stages.Stage
        ("stream", pa.uint8()),  # telemetry.stages.Stream
        ("step", pa.uint32()),
        ("microbatch", pa.int16()),  # -1: none
        ("chunk", pa.int16()),  # model chunk within the pipeline stage; -1: none
        ("peer", pa.int32()),  # rank of the other side of a send or receive, or a group: telemetry/group_names.py
        ("op_seq", pa.uint32()),  # number of this operation in its group or pair, from 1; 0: not a collective
        ("start_ns", pa.int64()),  # wall clock of the rank's host, not corrected
        ("duration_ns", pa.int64()),
        ("cpu_ns", pa.int64()),  # processor time of the recording thread inside the span; -1: not measured
        ("issue_ns", pa.int64()),  # wall clock at which the host issued a device span; 0: a host span
        ("size_bytes", pa.uint64()),
        ("clock", pa.uint8()),  # telemetry.stages.SpanClock
    ]
)

MARKS = pa.schema(
    [
        ("rank", pa.uint32()),
        ("seq", pa.uint64()),
        ("step", pa.uint32()),
        ("at_ns", pa.int64()),
        ("name", pa.string()),
        ("text", pa.string()),
    ]
)

SAMPLES = pa.schema(
    [
        ("rank", pa.uint32()),
        ("seq", pa.uint64()),
        ("step", pa.uint32()),
        ("at_ns", pa.int64()),
        ("metric", pa.string()),  # loss, tokens-per-second, mfu, gradient-norm, dropped-records ...
        ("value", pa.float64()),
    ]
)

RANKS = pa.schema(
    [
        ("rank", pa.uint32()),
        ("host", pa.string()),
        ("local_rank", pa.uint32()),
        ("pid", pa.uint32()),
        ("dp_size", pa.uint32()),
        ("pp_size", pa.uint32()),
        ("tp_size", pa.uint32()),
        ("mesh", pa.string()),  # str(Topology): pp=2,dp_shard=4,tp=8; empty: dp, pp, tp as above
        ("started_ns", pa.int64()),
        ("opened_ns", pa.int64()),  # when the rank's folder was first opened; 0: not known
        ("meta", pa.string()),  # JSON object of strings
    ]
)

ENDED_WELL, ENDED_FAILED = 1, 2
"""Values of ``ended`` in a heartbeat: the rank stopped recording normally, or with an error. 0: it has not stopped."""

HEARTBEATS = pa.schema(
    [
        ("rank", pa.uint32()),
        ("at_ns", pa.int64()),  # when the agent read the state page
        ("beat_ns", pa.int64()),  # when the rank last wrote its state page
        ("step", pa.uint32()),
        ("stage", pa.uint8()),  # innermost open stage; 0: none
        ("alive", pa.uint8()),  # 1 while the process exists
        ("ended", pa.uint8()),  # 1 after a normal stop, 2 after a stop with an error
        ("recorded", pa.uint64()),  # records written so far
        ("dropped", pa.uint64()),  # records lost: spool full or unwritable, spans that do not nest
    ]
)

EVIDENCE = pa.schema(
    [
        ("rank", pa.uint32()),
        ("at_ns", pa.int64()),  # wall clock, when it was collected
        ("kind", pa.string()),  # state, flight-recorder, stack, log: see telemetry/evidence/evidence.py
        ("body", pa.string()),  # empty: removes the evidence of an earlier stall
    ]
)

HOST_SAMPLES = pa.schema(
    [
        ("host", pa.string()),
        ("device", pa.string()),  # eth0, mlx5_0/1, gpu3, core17, rank5 ...; empty: the host itself
        ("metric", pa.string()),  # telemetry/host_metrics.py
        ("at_ns", pa.int64()),  # wall clock of the host, raw
        ("value", pa.float64()),
    ]
)

HOST_EVENTS = pa.schema(
    [
        ("host", pa.string()),
        ("device", pa.string()),
        ("at_ns", pa.int64()),
        ("name", pa.string()),  # telemetry/host_metrics.py
        ("text", pa.string()),
    ]
)

HOST_CLOCKS = pa.schema(
    [
        ("host", pa.string()),
        ("reference", pa.string()),  # host of the reference clock
        ("first_step", pa.uint32()),
        ("last_step", pa.uint32()),
        ("first_ns", pa.int64()),  # wall clock of the host, raw
        ("last_ns", pa.int64()),
        ("offset_ns", pa.int64()),  # its clock minus the reference's, in the middle of first_ns and last_ns
        ("drift_ppm", pa.float64()),
        ("bound_ns", pa.int64()),  # the true offset lies within it; -1: refused
        ("num_events", pa.uint32()),
        ("method", pa.string()),  # telemetry/clocks/align_evidence.py
        ("reason", pa.string()),
        ("estimated_ns", pa.int64()),  # wall clock of the collector
    ]
)
"""Written by the process that has the store open. The collector accepts no batch of these."""

LOOKED, DROPPED = "looked", "dropped"
"""Values of ``phase`` in alerts, besides those of an alert: the watcher checked the attempt; the alert is not valid any
more."""

ALERTS = pa.schema(
    [
        ("fingerprint", pa.string()),  # empty: a check of the attempt
        ("began_ns", pa.int64()),  # when the finding was first made; 0 for a check
        ("at_ns", pa.int64()),  # wall clock of the watcher
        ("phase", pa.string()),  # pending, firing, resolved, or one of the above
        ("body", pa.string()),  # diagnose/alerts/alert.py; empty for a check
    ]
)

FINDINGS = pa.schema(
    [
        ("fingerprint", pa.string()),
        ("raised_ns", pa.int64()),  # when the alert began to fire; with the fingerprint it identifies the finding
        ("at_ns", pa.int64()),  # wall clock of the watcher, at this change
        ("state", pa.string()),  # telemetry.finding_log.Change
        ("kind", pa.string()),
        ("severity", pa.string()),  # the worst so far
        ("onset_step", pa.int64()),  # -1: not known
        ("onset_ns", pa.int64()),  # wall clock of the job's hosts; 0: not known
        ("onset_exact", pa.uint8()),  # 0: it may have begun earlier
        ("hosts", pa.string()),  # separated by commas
        ("ranks", pa.string()),  # 5, or 0-3, 7
        ("device", pa.string()),
        ("stage", pa.string()),
        ("summary", pa.string()),
        ("next_step", pa.string()),
        ("seconds_lost", pa.float64()),
        ("basis", pa.string()),  # diagnose.findings.Basis
        ("cause", pa.string()),  # fingerprint of the alert that explains it; empty: none
    ]
)
"""A row for each change of a finding that the watcher raises. Rows are never changed."""

FINDING_ACTIONS = pa.schema(
    [
        ("fingerprint", pa.string()),
        ("raised_ns", pa.int64()),
        ("at_ns", pa.int64()),  # wall clock of the collector
        ("action_id", pa.string()),
        ("action", pa.string()),  # telemetry.finding_log.Action
        ("who", pa.string()),  # the name that the person gave
        ("text", pa.string()),
        ("until_ns", pa.int64()),  # end of a silence; 0 for other actions
    ]
)
"""Written by a collector, for a holder of a token that may write. No collector accepts a batch of these."""

ANNOTATIONS = pa.schema(
    [
        ("run_id", pa.string()),  # empty: a view of all runs
        ("kind", pa.string()),  # telemetry.annotations.Kind
        ("name", pa.string()),  # the tag, or the name of the view
        ("at_ns", pa.int64()),  # wall clock of the collector
        ("annotation_id", pa.string()),
        ("edit", pa.string()),  # telemetry.annotations.Edit
        ("who", pa.string()),  # the name that the person gave
        ("text", pa.string()),  # the note, or the address of the view
    ]
)
"""Written by a collector, for a holder of a token that may write. No collector accepts a batch of these."""

PROFILE_REQUESTS = pa.schema(
    [
        ("rank", pa.uint32()),
        ("profile_id", pa.string()),
        ("at_ns", pa.int64()),  # wall clock of the collector
        ("steps", pa.uint32()),
        ("seconds", pa.uint32()),
        ("finding", pa.string()),  # kind of the finding that it was requested for; empty: none
    ]
)
"""Written by a collector, for a holder of the full token. No collector accepts a batch of these."""

PROFILE_STATES = pa.schema(
    [
        ("rank", pa.uint32()),
        ("profile_id", pa.string()),
        ("at_ns", pa.int64()),  # wall clock of the agent
        ("phase", pa.string()),  # telemetry/profiles.py
        ("body", pa.string()),  # ProfileOutcome as JSON; empty before there is one
    ]
)

PROFILE_PARTS = pa.schema(
    [
        ("rank", pa.uint32()),
        ("profile_id", pa.string()),
        ("part", pa.uint32()),  # from 0
        ("content", pa.string()),  # base64 of a part of the compressed trace
    ]
)

NO_FOLDER, OLDER_FOLDER = 0, -1
"""Values of ``opened_ns`` in stored spans, marks and samples if no folder is known. 0: the sender named no folder. -1:
an older version stored the row, or it was stored without a collector."""

TABLES: dict[str, pa.Schema] = {
    "spans": SPANS,
    "marks": MARKS,
    "samples": SAMPLES,
    "ranks": RANKS,
    "heartbeats": HEARTBEATS,
    "evidence": EVIDENCE,
    "host_samples": HOST_SAMPLES,
    "host_events": HOST_EVENTS,
    "alerts": ALERTS,
    "findings": FINDINGS,
    "profile_states": PROFILE_STATES,
    "profile_parts": PROFILE_PARTS,
}
"""Name of a table -> columns of one batch. ``run_id`` and ``attempt`` are constant over a batch. They are keys of the
Arrow schema's metadata, with ``openings``: for each rank, when its folder was first opened. The store holds them as
columns. Rows of tables with a ``seq`` column are stored exactly once per (run_id, attempt, rank, opened_ns, seq). A row
of another table that is sent twice is the same row, and counts once."""


def owned(rows: pa.Table, run_id: str, attempt: int) -> pa.Table:
    """``rows`` of one attempt with columns for run and attempt, as a store needs them, instead of metadata.

    The run is a dictionary of one text, so that no row has a copy of it.
    """
    numbers = pa.array(np.zeros(rows.num_rows, np.int8))
    return (
        rows.replace_schema_metadata(None)
        .append_column("run_id", pa.DictionaryArray.from_arrays(numbers, [run_id]))
        .append_column("attempt", pa.repeat(pa.scalar(attempt, pa.uint32()), rows.num_rows))
    )
