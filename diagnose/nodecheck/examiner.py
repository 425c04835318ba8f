"""The process that runs the checks of a node: ``python -m``, by :func:`diagnose.nodecheck.node.check_node` alone.

It imports torch once and forks for each check, so it never touches a device itself.
"""

from collections.abc import Sequence
from dataclasses import replace

from diagnose.nodecheck.answers import Tell, serve
from diagnose.nodecheck.bounded import Outcome, run_bounded
from diagnose.nodecheck.network import interface_named
from diagnose.nodecheck.node import Begun, NodeChecks
from diagnose.nodecheck.occupied import in_words, recording_ranks, spools
from diagnose.nodecheck.result import CheckResult, Task, failed
from diagnose.nodecheck.suite import rounds_of
from telemetry.errors import UsageError
from telemetry.records import RankIdentity


def examine(checks: NodeChecks, tell: Tell) -> None:
    """Tell what is checked and how each check came out.

    Raises:
        UsageError: no such folder or interface, or ranks are recording on this host.
    """
    _find_folder(checks)
    if not checks.beside_others:
        _find_nobody(checks)
    if checks.interface:
        interface_named(checks.interface)
    for tasks in rounds_of(checks, tell):
        tell(Begun(check=tasks[0].check))
        outcomes = run_bounded([task.call for task in tasks], max(task.deadline_s for task in tasks))
        for result in _results(tasks, outcomes):
            tell(result)


def _find_folder(checks: NodeChecks) -> None:
    """Looked for from a process of its own: a dead mount holds whoever asks. The check of the disk then says so."""
    (found,) = run_bounded([checks.folder.is_dir], checks.deadline_s)
    if found.value is False:
        raise UsageError(f"no folder {checks.folder}", hint="--folder takes a folder of the disk to be tried")


def _find_nobody(checks: NodeChecks) -> None:
    """Likewise from a process of its own: a spool may lie on a dead mount."""
    (found,) = run_bounded([_recording_here], checks.deadline_s)
    if found.value:
        raise UsageError(
            in_words(found.value),
            hint="checks would take memory and cores from them: drain this host first, then check it",
        )


def _recording_here() -> list[RankIdentity]:
    return recording_ranks(spools())


def _results(tasks: Sequence[Task], outcomes: Sequence[Outcome]) -> list[CheckResult]:
    return [
        replace(
            failed(task.check, task.subject, outcome.error) if outcome.error else outcome.value,
            seconds=outcome.seconds,
        )
        for task, outcome in zip(tasks, outcomes, strict=True)
    ]


if __name__ == "__main__":
    serve(examine)
