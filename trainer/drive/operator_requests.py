"""Carries out the requests of operators: drain, replace, pause, resume, end."""

from telemetry.errors import UsageError
from telemetry.host_metrics import BY_OPERATOR
from trainer.drive.job import Node, NodeState, Phase
from trainer.drive.records import Action, Request
from trainer.drive.transitions import Transitions


class Requests:
    """Carries out the requests of operators."""

    def __init__(self, transitions: Transitions) -> None:
        self._transitions = transitions
        self._job = transitions.job

    def carry_out(self, request: Request) -> None:
        """Raises:
        UsageError: there is no such node, or the action does not fit the state.
        """
        if request.node:
            self._ask_node(request.action, self._named(request.node))
        else:
            self._ask_job(request.action)

    def _ask_job(self, action: Action) -> None:
        job = self._job
        if job.phase.is_over:
            raise UsageError(
                f"the job is over: {job.reason}", hint="to continue it later, repeat the command that started it"
            )
        if action is Action.RESUME:
            if job.phase is not Phase.PAUSED and job.after_stop is not Phase.PAUSED:
                raise UsageError(
                    "the job is not paused", hint="to admit a node again, run: rankscope drive resume NODE"
                )
            job.after_stop = Phase.GATHER
            if job.phase is Phase.PAUSED:
                self._transitions.turn(Phase.GATHER, f"{BY_OPERATOR} resumed the job")
            self._transitions.decide("resume", f"{BY_OPERATOR} resumed the job")
            return
        if action not in (Action.PAUSE, Action.END):
            raise UsageError(f"{action} needs a node", hint=f"run: rankscope drive {action} NODE")
        if action is Action.PAUSE and job.phase in (Phase.SAVE, Phase.STOP) and job.after_stop is Phase.ENDED:
            raise UsageError("the job is ending", hint="to continue it later, repeat the command that started it")
        target = Phase.PAUSED if action is Action.PAUSE else Phase.ENDED
        reason = f"{BY_OPERATOR} paused the job" if action is Action.PAUSE else "the job was asked to end"
        self._transitions.decide(action, reason)
        if job.phase in (Phase.SAVE, Phase.STOP):
            job.after_stop = target
        elif job.phase is Phase.TRAIN:
            self._transitions.save_and(target, reason)
        else:
            self._transitions.turn(target, reason)

    def _ask_node(self, action: Action, node: Node) -> None:
        if action is Action.RESUME:
            if node.state not in (NodeState.BLOCKED, NodeState.DRAINED):
                raise UsageError(
                    f"node {node.name} is {node.state}", hint="only a blocked or drained node can be resumed"
                )
            node.num_slow = node.num_faults = 0
            self._transitions.set(node, NodeState.NEW, f"{BY_OPERATOR} admitted it again")
            self._transitions.decide("resume", node.reason, node)
            return
        if action not in (Action.DRAIN, Action.REPLACE):
            raise UsageError(f"{action} is for the whole job", hint=f"run: rankscope drive {action}")
        reason = f"{BY_OPERATOR} asked to {action} it"
        self._transitions.decide(action, reason, node)
        was_active = self._job.trains(node)
        node.num_faults += action is Action.REPLACE
        self._transitions.set(node, NodeState.DRAINED if action is Action.DRAIN else NodeState.SUSPECT, reason)
        if was_active:
            self._transitions.save_and(Phase.GATHER, f"{BY_OPERATOR} asked to {action} node {node.name}")

    def _named(self, name: str) -> Node:
        try:
            return self._job.nodes[name]
        except KeyError:
            known = ", ".join(sorted(self._job.nodes)) or "none"
            raise UsageError(f"no node {name!r}", hint=f"nodes of this job: {known}") from None
