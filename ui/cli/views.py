"""The work of `rankscope views`, `views save` and `views remove`."""

from datetime import datetime
from typing import Any

from rich.text import Text

from telemetry.annotations import Edit, Kind, checked_address
from telemetry.printable import printable
from telemetry.stores.queries import Annotations
from telemetry.wire.annotation import Annotation
from ui.cli.commands.views import RemoveOptions, SaveOptions, ViewsOptions
from ui.cli.output import out
from ui.cli.readers import open_reader
from ui.cli.writing import name_of_person, open_collector


def views(options: ViewsOptions) -> int:
    run_ids = (options.run, "") if options.run else ()
    with open_reader(options.store) as reader:
        rows = reader.read(Annotations(kinds=(Kind.VIEW,), run_ids=run_ids)).to_pylist()
    found = sorted(map(_view, rows), key=lambda view: (view["run"], view["name"].casefold()))
    if options.json:
        out.print_json(data={"schema": 1, "views": found}, ensure_ascii=True)
    elif not found:
        out.print("no view is saved; save one: *Views* in the dashboard, or `rankscope views save NAME ADDRESS`")
    else:
        out.print(Text("\n").join(map(_lines, found)))
    return 0


def save(options: SaveOptions) -> int:
    address = checked_address(options.address[max(0, options.address.find("?")) :])
    return _send(options, Edit.SET, address)


def remove(options: RemoveOptions) -> int:
    return _send(options, Edit.REMOVE, "")


def _send(options: SaveOptions | RemoveOptions, edit: Edit, address: str) -> int:
    sent = Annotation(
        kind=Kind.VIEW,
        edit=edit,
        run_id=options.run,
        name=options.name,
        text=address,
        who=name_of_person(options.by),
    )
    with open_collector(options.store, "saved views") as client:
        client.annotate(sent)
    done = {Edit.SET: "saved", Edit.REMOVE: "removed"}[edit]
    if options.json:
        out.print_json(data={"schema": 1, "run": options.run, done: options.name}, ensure_ascii=True)
    else:
        out.print(Text(f"{_of(options.run)}: view {printable(options.name)} {done}"))
    return 0


def _view(row: dict[str, Any]) -> dict[str, Any]:
    """A view as in the JSON. ``run`` is empty for a view of all runs."""
    names = {"run": "run_id", "name": "name", "address": "text", "by": "who", "at_ns": "at_ns"}
    return {name: row[column] for name, column in names.items()}


def _lines(view: dict[str, Any]) -> Text:
    at = datetime.fromtimestamp(view["at_ns"] / 1e9).strftime("%Y-%m-%d %H:%M:%S")
    head = f"{_of(view['run'])}: {printable(view['name'])}, saved by {printable(view['by'])} at {at}"
    return Text(f"{head}\n  {printable(view['address'])}")


def _of(run: str) -> str:
    return printable(run) or "all runs"
