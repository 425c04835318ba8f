"""The list of runs as plain values, for the command and for other tools."""

from typing import Any

from diagnose.model.run_state import states_of
from telemetry.stores.interface import Reader
from telemetry.stores.queries import Runs, StoredRuns, in_portions

SCHEMA = 1


def runs_object(reader: Reader, most: int | None = None) -> dict[str, Any]:
    """Every attempt of the newest ``most`` runs with its state, newest first. None: of all runs.

    ``num_runs``: number of stored runs. ``meta`` is a JSON object as text.
    """
    names = list(dict.fromkeys(reader.read(StoredRuns())["run_id"].to_pylist()))
    return {"schema": SCHEMA, "num_runs": len(names), "runs": _rows(reader, names[:most])}


def _rows(reader: Reader, names: list[str]) -> list[dict[str, Any]]:
    rows = [row for some in in_portions(names) for row in reader.read(Runs(run_ids=some)).to_pylist()]
    states = states_of(reader, rows)
    for row in rows:
        heard = states[row["run_id"], row["attempt"]]
        row |= {"state": str(heard.state), "heard_ns": heard.heard_ns}
    return sorted(rows, key=lambda row: (-row["started_ns"], row["run_id"], -row["attempt"]))
