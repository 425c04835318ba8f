"""The work of `rankscope doctor`: check this machine, this node, nodes in pairs, or the clocks of a run."""

from diagnose.nodecheck.expectations import Expectations, read_expectations
from diagnose.nodecheck.node import NodeChecks
from diagnose.nodecheck.pairs.paired_test import PairedTest
from diagnose.nodecheck.rendezvous import HINT, Rendezvous
from telemetry.errors import UsageError
from ui.cli.clocks import tell_clocks
from ui.cli.commands.doctor import DoctorOptions
from ui.cli.fitness import fitness, fitness_object, fitness_table
from ui.cli.node_checks import check_this_node
from ui.cli.output import out
from ui.cli.paired_nodes import pair_this_node


def doctor(options: DoctorOptions) -> int:
    rendezvous = _rendezvous(options)
    if options.node and options.pairs:
        raise UsageError("--node and --pairs are two tests", hint="one after the other")
    if options.run is not None and (options.node or options.pairs):
        raise UsageError("--run asks a store, --node and --pairs try this machine", hint="one after the other")
    if options.run is not None:
        return int(tell_clocks(options.store, options.run, options.attempt, json=options.json))
    if options.node:
        return int(_check_node(options, rendezvous))
    if options.pairs:
        return int(_test_pairs(options, rendezvous))
    return int(_check_fitness(json=options.json))


def _check_node(options: DoctorOptions, rendezvous: Rendezvous | None) -> bool:
    place = {} if options.folder is None else {"folder": options.folder}
    checks = NodeChecks(
        deadline_s=options.seconds,
        interface=options.interface,
        rendezvous=rendezvous,
        beside_others=options.force,
        **place,
    )
    expectations = read_expectations(options.expect) if options.expect else Expectations()
    return check_this_node(checks, expectations, json=options.json)


def _test_pairs(options: DoctorOptions, rendezvous: Rendezvous | None) -> bool:
    if rendezvous is None:
        raise UsageError("--pairs needs to know where nodes meet", hint=HINT)
    return pair_this_node(PairedTest(rendezvous=rendezvous, deadline_s=options.seconds), json=options.json)


def _rendezvous(options: DoctorOptions) -> Rendezvous | None:
    """Where the nodes meet: all three of its options, or none."""
    endpoint, index, nodes = options.rdzv_endpoint, options.node_rank, options.nnodes
    if endpoint is None and index is None and nodes is None:
        return None
    if endpoint is None or index is None or nodes is None:
        raise UsageError("--rdzv-endpoint, --node-rank and --nnodes belong together", hint=HINT)
    return Rendezvous(endpoint=endpoint, index=index, nodes=nodes, interface=options.interface)


def _check_fitness(*, json: bool) -> bool:
    checks = fitness()
    if json:
        out.print_json(data=fitness_object(checks))
    else:
        out.print(fitness_table(checks))
    return not all(check.fit for check in checks)
