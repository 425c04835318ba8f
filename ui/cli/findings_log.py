"""The work of `rankscope alerts log`, `acknowledge`, `note` and `silence`."""

import time
from collections.abc import Iterable

from rich.text import Text

from diagnose.alerts.log_text import log_object, log_text
from diagnose.alerts.logged import LogState, log_page
from diagnose.alerts.moments import FORMS, NS_PER_S, duration_ns, moment_ns
from diagnose.findings import Kind, Severity
from telemetry.errors import UsageError
from telemetry.finding_log import MAX_SILENCE_S, Action, is_fingerprint
from telemetry.printable import printable
from telemetry.stores.queries.findings import FAR_NS, FindingFilter
from telemetry.wire.finding_action import FindingAction
from ui.cli.commands.alerts import AcknowledgeOptions, LogOptions, NoteOptions, SilenceOptions
from ui.cli.output import out
from ui.cli.readers import open_reader
from ui.cli.writing import name_of_person, open_collector


def list_findings(options: LogOptions) -> int:
    now_ns = time.time_ns()
    chosen = FindingFilter(
        run_id=options.run,
        find=options.find,
        kind=_one_of("kind", options.kind, Kind),
        severity=_one_of("severity", options.severity, Severity),
        host=options.host,
        since_ns=_moment("since", options.since, now_ns) if options.since else 0,
        until_ns=_moment("until", options.until, now_ns) if options.until else FAR_NS,
    )
    state = LogState(_one_of("state", options.state, LogState)) if options.state else None
    offset = (options.page - 1) * options.limit
    with open_reader(options.store) as reader:
        page = log_page(reader, chosen, state, now_ns, offset=offset, limit=options.limit)
    if options.json:
        out.print_json(data=log_object(page, now_ns), ensure_ascii=True)
    else:
        out.print(log_text(page, now_ns, first=offset + 1))
    return 0


def acknowledge(options: AcknowledgeOptions) -> int:
    action = Action.REOPEN if options.undo else Action.ACKNOWLEDGE
    return _act(options, action, options.text)


def note(options: NoteOptions) -> int:
    return _act(options, Action.NOTE, options.text)


def silence(options: SilenceOptions) -> int:
    given = [bool(options.duration), bool(options.until), options.end]
    if sum(given) != 1:
        raise UsageError("a silence needs one of --for, --until and --end", hint="use, for example, --for 2h")
    if options.end:
        return _act(options, Action.END_SILENCE, options.text)
    return _act(options, Action.SILENCE, options.text, until_ns=_end_ns(options))


def _end_ns(options: SilenceOptions) -> int:
    now_ns = time.time_ns()
    if options.until:
        end_ns = _moment("until", options.until, now_ns)
    else:
        try:
            end_ns = now_ns + duration_ns(options.duration)
        except ValueError:
            raise UsageError(
                f"--for {printable(options.duration)!r} is not a duration", hint="use 90m, 4h, 7d or 2w"
            ) from None
    if not now_ns < end_ns <= now_ns + MAX_SILENCE_S * NS_PER_S:
        raise UsageError(
            "the end of a silence must be in the future, at most a year from now",
            hint="use a duration, such as --for 4h, or a time, such as --until '2026-11-27 14:00'",
        )
    return end_ns


def _act(
    options: AcknowledgeOptions | NoteOptions | SilenceOptions, action: Action, text: str, *, until_ns: int = 0
) -> int:
    """Send an action to the collector, and print its id."""
    fingerprint = options.fingerprint.strip().lower()
    if not is_fingerprint(fingerprint):
        raise UsageError(
            f"{printable(fingerprint)!r} is not a fingerprint of a finding",
            hint="copy it from `rankscope alerts list` or `log`",
        )
    sent = FindingAction(
        fingerprint=fingerprint,
        action=action,
        who=name_of_person(options.by),
        text=text,
        until_ns=until_ns,
    )
    with open_collector(options.store, "actions on findings") as client:
        action_id = client.act(sent)
    if options.json:
        out.print_json(data={"schema": 1, "fingerprint": fingerprint, "action": str(action), "action_id": action_id})
    else:
        out.print(Text(f"{fingerprint}: {action} by {sent.who} is stored"))
    return 0


def _one_of(name: str, value: str, choices: Iterable[str]) -> str:
    known = [str(choice) for choice in choices]
    if value and value not in known:
        raise UsageError(f"--{name} {printable(value)!r} is unknown", hint=f"use one of {', '.join(known)}")
    return value


def _moment(name: str, text: str, now_ns: int) -> int:
    try:
        return moment_ns(text, now_ns)
    except ValueError:
        raise UsageError(f"--{name} {printable(text)!r} is not a time", hint=f"use {FORMS}") from None
