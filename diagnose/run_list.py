"""The list of runs as plain values, for the command and for other tools."""

from collections.abc import Iterable
from typing import Any

from diagnose.model.run_state import states_of
from telemetry.annotations import Kind
from telemetry.stores.interface import Reader
from telemetry.stores.queries import Annotations, Runs, StoredRuns, in_portions

SCHEMA = 1


def runs_object(reader: Reader, most: int | None = None, tag: str = "") -> dict[str, Any]:
    """Every attempt of the newest ``most`` runs (of all runs if None) with its state and tags, newest first.

    ``tag``: only runs that have this tag. In the result, ``num_runs`` is the number of stored runs, or of those with
    the tag, and ``meta`` is a JSON object as text.
    """
    tags = tags_of_runs(reader.read(Annotations(kinds=(Kind.TAG,))).to_pylist())
    if most is None and not tag:
        rows = _all_rows(reader)
        names = list(dict.fromkeys(row["run_id"] for row in rows))
    else:
        stored = dict.fromkeys(reader.read(StoredRuns())["run_id"].to_pylist())
        names = [name for name in stored if not tag or tag in tags.get(name, ())]
        chosen = in_portions(names[:most])
        rows = [row for some in chosen for row in reader.read(Runs(run_ids=some)).to_pylist()]
    states = states_of(reader, rows)
    for row in rows:
        heard = states[row["run_id"], row["attempt"]]
        row |= {"state": str(heard.state), "heard_ns": heard.heard_ns, "tags": list(tags.get(row["run_id"], ()))}
    rows.sort(key=lambda row: (-row["started_ns"], row["run_id"], -row["attempt"]))
    return {"schema": SCHEMA, "num_runs": len(names), "runs": rows}


def _all_rows(reader: Reader) -> list[dict[str, Any]]:
    """The rows of all runs with an announced rank. One query without names takes half the time of queries that name all
    runs."""
    rows: list[dict[str, Any]] = reader.read(Runs()).to_pylist()
    announced = {row["run_id"] for row in rows if row["num_ranks"]}
    return [row for row in rows if row["run_id"] in announced]


def tags_of_runs(rows: Iterable[dict[str, Any]]) -> dict[str, tuple[str, ...]]:
    """The tags of each run in alphabetical order, from rows of ``Annotations``."""
    tags: dict[str, tuple[str, ...]] = {}
    for row in sorted(rows, key=lambda row: str(row["name"])):
        tags[row["run_id"]] = (*tags.get(row["run_id"], ()), row["name"])
    return tags
