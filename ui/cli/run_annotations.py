"""The work of `rankscope runs tag` and `rankscope runs note`."""

from rich.text import Text

from telemetry.annotations import Edit, Kind, checked_tag
from telemetry.errors import UsageError
from telemetry.printable import printable
from telemetry.wire.annotation import Annotation
from ui.cli.commands.runs import NoteOptions, TagOptions
from ui.cli.output import out
from ui.cli.writing import name_of_person, open_collector


def tag(options: TagOptions) -> int:
    edits = [
        *((Edit.SET, name) for name in options.tags or ()),
        *((Edit.REMOVE, name) for name in options.remove or ()),
    ]
    if not edits:
        raise UsageError("no tag is given", hint="add one: `rankscope runs tag RUN baseline`, or use --remove TAG")
    who = name_of_person(options.by)
    rows = [
        Annotation(kind=Kind.TAG, edit=edit, run_id=options.run, name=checked_tag(name), who=who)
        for edit, name in edits
    ]
    with open_collector(options.store, "tags") as client:
        for row in rows:
            client.annotate(row)
    words = {Edit.SET: "added", Edit.REMOVE: "removed"}
    if options.json:
        done = {word: [row.name for row in rows if row.edit is edit] for edit, word in words.items()}
        out.print_json(data={"schema": 1, "run": options.run, **done}, ensure_ascii=True)
    else:
        for row in rows:
            out.print(Text(f"{printable(options.run)}: tag {row.name} {words[row.edit]}"))
    return 0


def note(options: NoteOptions) -> int:
    who = name_of_person(options.by)
    with open_collector(options.store, "notes") as client:
        note_id = client.annotate(Annotation(kind=Kind.NOTE, run_id=options.run, text=options.text, who=who))
    if options.json:
        out.print_json(data={"schema": 1, "run": options.run, "annotation_id": note_id}, ensure_ascii=True)
    else:
        out.print(Text(f"{printable(options.run)}: note by {who} is stored"))
    return 0
