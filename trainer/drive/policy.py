"""What the driver decides: a state machine without processes, files, network or clock.

    gather --enough nodes passed--> train --all ranks ended with 0--> done
      |  ^                            |
      |  |                            |--fault: rank, node, stall, finding------------> stop
      |  |                            '--drain, replace, pause, end--> save --saved---> stop
      |  '------------------------------------------------------------------------------ |
      '--not enough nodes for long--> gave-up <--too many faults in a row--------------- |
                                      paused, ended <------------------------------------'

    new, suspect --check--> ready --start--> active --fault--> suspect (or ready, if it is not suspected)
         |                    '--drain--> drained
         '--check fails--> blocked       no report: lost, then new

A fault stops all ranks. The nodes that may be the cause are checked while nothing trains, together with at least one
other node for comparison. A node that fails is blocked, a node that passes can be used again, after the nodes with
fewer faults. This order is that of MegaScale (arXiv 2402.15627, section 4.1).
"""

from collections.abc import Sequence

from trainer.drive.failed_ranks import Cause, cause_of, cause_of_errors, cause_of_stop, failed_ranks, is_not_finite
from trainer.drive.findings import Findings
from trainer.drive.job import Job, Node, NodeState, Phase
from trainer.drive.operator_requests import Requests
from trainer.drive.records import Decision, Ended, Finding, Order, Report, Request, Work
from trainer.drive.rounds import GATHER_S, Rounds
from trainer.drive.settings import DriveConfig
from trainer.drive.transitions import Transitions
from trainer.rank_status import ENDED_EARLY, FAILED

LINGER_S = 1.0
"""After the first failed rank the driver waits this long: a later report may hold the rank that failed first. Nodes
report twice a second."""
SAVE_S = 75.0
"""Ranks that have not written their checkpoint after this time are killed."""
STOP_S = 30.0
"""A node that cannot end its ranks within this time is lost."""
_WORK = {Phase.TRAIN: Work.TRAIN, Phase.SAVE: Work.SAVE, Phase.STOP: Work.STOP}


class Policy:
    """Changes ``job`` on events. Each method for an event returns the decisions that it made. Not thread-safe."""

    def __init__(self, config: DriveConfig, job: Job) -> None:
        self.config = config
        self.job = job
        self._transitions = Transitions(config, job)
        self._rounds = Rounds(self._transitions)
        self._findings = Findings(self._transitions)
        self._requests = Requests(self._transitions)

    def take_over(self, now_s: float, num_steps: int, *, started_ns: int) -> list[Decision]:
        """Continue with the state of an earlier driver. Nodes get time to report again. A job that is over begins
        again if another command was started, unless all of its ``num_steps`` steps are done."""
        job = self.job
        self._transitions.now_s = now_s
        job.begin_waits(now_s)
        is_done = job.phase is Phase.DONE and num_steps <= job.num_steps
        if job.phase.is_over and not is_done and started_ns != job.started_ns:
            self._transitions.turn(Phase.GATHER, "the job was started again")
            job.num_failures = job.num_rollbacks = 0
            for node in job.in_state(NodeState.NEW, NodeState.SUSPECT, NodeState.READY, NodeState.ACTIVE):
                self._transitions.set(node, NodeState.LOST, "it has not reported since the job was started again")
        job.num_steps, job.started_ns = num_steps, started_ns
        self._transitions.decide("take-over", f"another driver continues in phase {job.phase}")
        return self._transitions.taken()

    def report(self, report: Report, now_s: float) -> list[Decision]:
        """Handle the report of a node."""
        self._transitions.now_s = now_s
        node = self.job.nodes.get(report.node)
        if node is None:
            node = self.job.nodes[report.node] = Node(name=report.node)
            self._transitions.decide("join", "the node reports for the first time", node)
        previous, node.report, node.heard_s = node.report, report, now_s
        if node.state is NodeState.LOST:
            self._rounds.leave(node)
            self._transitions.set(node, NodeState.NEW, "it reports again")
            self._transitions.decide("return", node.reason, node)
        elif previous is not None and previous.life != report.life:
            self._restarted(node)
        self._advance()
        return self._transitions.taken()

    def find(self, finding: Finding, now_s: float) -> list[Decision]:
        """Handle a finding."""
        self._transitions.now_s = now_s
        job = self.job
        if finding.run_id == job.run_id and finding.active and not job.phase.is_over:
            self._findings.judge(finding)
        return self._transitions.taken()

    def ask(self, request: Request, now_s: float) -> list[Decision]:
        """Carry out the request of an operator.

        Raises:
            UsageError: there is no such node, or the action does not fit the state.
        """
        self._transitions.now_s = now_s
        self._requests.carry_out(request)
        self._advance()
        return self._transitions.taken()

    def tick(self, now_s: float) -> list[Decision]:
        """Make the transitions that are due at ``now_s``."""
        self._transitions.now_s = now_s
        self._advance()
        return self._transitions.taken()

    def order(self, name: str) -> Order:
        """What a node is to do now."""
        job, node = self.job, self.job.nodes[name]
        if job.phase.is_over:
            return Order(work=Work.LEAVE)
        if (check := self._rounds.order(node)) is not None:
            return check
        work = _WORK.get(job.phase)
        if work is None or name not in job.members or node.state in (NodeState.NEW, NodeState.READY):
            return Order(work=Work.IDLE)
        return Order(
            work=work,
            attempt=job.attempt,
            position=job.members.index(name),
            rendezvous=job.rendezvous,
            rollback=job.rollback,
        )

    def _advance(self) -> None:
        """Make every transition that is due."""
        self._find_lost()
        self._rounds.end()
        steps = {
            Phase.GATHER: self._gather,
            Phase.TRAIN: self._watch,
            Phase.SAVE: self._wait_for_checkpoint,
            Phase.STOP: self._wait_for_stop,
        }
        while (step := steps.get(self.job.phase)) is not None:
            before = self.job.phase
            step()
            if self.job.phase is before:
                return

    def _find_lost(self) -> None:
        if self.job.phase.is_over:  # executors wait for their agents
            return
        for node in self.job.nodes.values():
            silent = self._transitions.now_s - node.heard_s > self.config.silence_s
            if not silent or node.state in (NodeState.LOST, NodeState.BLOCKED, NodeState.DRAINED):
                continue
            was_active = self.job.trains(node)
            self._transitions.set(node, NodeState.LOST, f"no report for {self.config.silence_s:g} s")
            self._transitions.decide("lost", node.reason, node)
            if was_active:
                self._transitions.fault("node-lost", f"node {node.name} does not report", [node])

    def _restarted(self, node: Node) -> None:
        """Handle a node whose executor is another process than before. So the ranks of the node have ended."""
        was_active = self.job.trains(node)
        self._rounds.leave(node)
        if node.state not in (NodeState.BLOCKED, NodeState.DRAINED):
            self._transitions.set(node, NodeState.NEW, "its executor was restarted")
        if was_active:
            self._transitions.fault("executor-lost", f"the executor of node {node.name} ended", [node])

    def _gather(self) -> None:
        """Check nodes, then start an attempt."""
        self._rounds.begin()
        job = self.job
        ready = self.job.in_state(NodeState.READY)
        if job.round is not None or self._rounds.waiting:
            return
        if len(ready) >= self.config.num_nodes:
            self._start(ready)
        elif self._transitions.now_s - job.since_s > self.config.wait_nodes_s:
            self._transitions.turn(Phase.GAVE_UP, f"{len(ready)} of {self.config.num_nodes} nodes are ready")
            self._transitions.decide("give-up", job.reason)
        elif not job.has_waited and self._transitions.now_s - job.since_s > GATHER_S:
            job.has_waited = True
            self._transitions.decide("wait", f"{len(ready)} of {self.config.num_nodes} nodes are ready")

    def _start(self, ready: Sequence[Node]) -> None:
        """The nodes with the fewest faults train. Nodes that have trained before keep their positions."""
        job = self.job
        chosen = sorted(ready, key=lambda node: (node.num_faults, node.name not in job.members, node.name))
        names = [node.name for node in chosen[: self.config.num_nodes]]
        others = [name for name in names if name not in job.members]
        kept = [name if name in names else "" for name in job.members] or [""] * self.config.num_nodes
        job.members = tuple(name or others.pop(0) for name in kept)
        for name in job.members:
            self._transitions.set(job.nodes[name], NodeState.ACTIVE)
        job.attempt += 1
        job.failed_s = None
        job.has_waited = False
        job.rendezvous = self._rendezvous()
        after = f" after: {job.reason}" if job.attempt else ""
        self._transitions.turn(Phase.TRAIN, f"attempt {job.attempt} on {', '.join(job.members)}{after}")
        self._transitions.decide("start", job.reason)

    def _rendezvous(self) -> str:
        reports = [self.job.nodes[name].report for name in self.job.members]
        addresses = [report.address for report in reports if report]
        if len(set(addresses)) < 2 or reports[0] is None:
            return ""
        return f"tcp://{reports[0].address}:{reports[0].port}"

    def _watch(self) -> None:
        """Check whether the attempt makes progress, has failed, or is done."""
        self._rounds.begin()  # check nodes that came back or are new
        job, reports = self.job, self._reports()
        self._note_progress(reports)
        failed = failed_ranks(reports)
        broken = [report for report in reports if report.error]
        if broken:
            cause = cause_of_errors(broken)
            self._fault(cause, check=bool(cause.nodes))
        elif failed:
            job.failed_s = job.failed_s or self._transitions.now_s
            if self._know_the_cause(reports, failed, self._transitions.now_s - job.failed_s):
                self._fault(cause_of(reports))
        elif len(reports) == len(job.members) and not any(report.living for report in reports):
            self._all_ended([rank for report in reports for rank in report.ended])
        elif (stop := cause_of_stop(reports)) is not None:
            self._fault(stop)
        elif reports and min(report.stalled_s for report in reports) > self.config.stall_s:
            reason = f"no progress for {self.config.stall_s:g} s, and no finding explains it"
            self._transitions.fault("stall", reason, self._findings.with_link_losses())

    def _know_the_cause(self, reports: Sequence[Report], failed: Sequence[Ended], waited_s: float) -> bool:
        """Whether no later report is expected to hold the rank that failed first. Ranks that lost a peer end with
        status 1. If all failed ranks did, a node that has not reported since may be the cause, and the wait is
        longer."""
        job = self.job
        if len(reports) == len(job.members) and not any(report.living for report in reports):
            return True
        assert job.failed_s is not None
        silent = any(node.heard_s <= job.failed_s for node in job.member_nodes())
        if silent and all(rank.status == FAILED for rank in failed):
            return waited_s > self.config.silence_s
        return waited_s >= LINGER_S

    def _note_progress(self, reports: Sequence[Report]) -> None:
        self._transitions.note_checkpoints(reports)
        step = max((report.step for report in reports), default=-1)
        if step > self.job.best_step:
            self.job.best_step, self.job.num_failures = step, 0

    def _fault(self, cause: Cause, *, check: bool = True) -> None:
        self._transitions.fault(cause.fault, cause.reason, [self.job.nodes[name] for name in cause.nodes], check=check)

    def _all_ended(self, ended: Sequence[Ended]) -> None:
        if any(rank.status == ENDED_EARLY for rank in ended):
            self._transitions.fault("preempted", "ranks got SIGTERM, saved a checkpoint and ended", [], check=False)
            return
        for node in self.job.member_nodes():
            self._transitions.set(node, NodeState.READY)
        unsaved = self._transitions.note_checkpoints(self._reports())
        but = f", but the last one is not saved: {unsaved}" if unsaved else ""
        self._transitions.turn(Phase.DONE, f"all steps are done after attempt {self.job.attempt}{but}")
        self._transitions.decide("done", self.job.reason)

    def _wait_for_checkpoint(self) -> None:
        reports = self._reports()
        self._transitions.note_checkpoints(reports)
        failed = failed_ranks(reports)
        if is_not_finite(failed):
            self._fault(cause_of(reports))
            return
        over = not any(report.living for report in reports) or self._transitions.now_s - self.job.since_s > SAVE_S
        if failed or over:
            finished = reports and all(rank.status == 0 for report in reports for rank in report.ended)
            if finished and not failed and not any(report.living for report in reports):
                self._all_ended([])
            else:
                self._transitions.turn(Phase.STOP, self.job.reason)

    def _wait_for_stop(self) -> None:
        """Enter the next phase when no rank of the attempt lives."""
        job = self.job
        for node in self.job.member_nodes():
            late = self._transitions.now_s - job.since_s > STOP_S
            if node.state is NodeState.LOST or node.report is None or node.report.attempt != job.attempt:
                continue
            if node.report.living and not late:
                return
            if node.report.living:
                self._transitions.set(node, NodeState.LOST, f"its ranks did not end within {STOP_S:g} s")
                self._transitions.decide("lost", node.reason, node)
        for node in self.job.member_nodes():
            if node.state is NodeState.ACTIVE:
                self._transitions.set(node, NodeState.READY)
        self._transitions.turn(job.after_stop, job.reason)
        if job.after_stop is Phase.GAVE_UP:
            self._transitions.decide("give-up", job.reason)

    def _reports(self) -> list[Report]:
        """Reports of the members that have started this attempt, or could not start it."""
        found = [node.report for node in self.job.member_nodes()]
        return [report for report in found if report is not None and report.attempt == self.job.attempt]
