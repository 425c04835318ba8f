"""`rankscope doctor`: is this machine fit; is this node sound; which node of several is not; what clocks say."""

from pathlib import Path
from typing import Annotated

import typer

from diagnose.nodecheck.expectations import Expectations, read_expectations
from diagnose.nodecheck.node import NodeChecks
from diagnose.nodecheck.pairs.paired_test import PairedTest
from diagnose.nodecheck.rendezvous import HINT, Rendezvous
from telemetry.errors import UsageError
from ui.cli.clocks import tell_clocks
from ui.cli.fitness import fitness, fitness_object, fitness_table
from ui.cli.node_checks import check_this_node
from ui.cli.options import DEFAULT_STORE, AttemptOption, JsonOption, StoreOption, finite, out
from ui.cli.paired_nodes import pair_this_node

NodeOption = Annotated[bool, typer.Option("--node", help="Check memory, products, copies, network, disk of this node.")]
PairsOption = Annotated[bool, typer.Option("--pairs", help="Take part, on each node, in the paired test of nodes.")]
SecondsOption = Annotated[
    float, typer.Option(help="Kill a check, or a round, that takes longer: it has failed.", callback=finite)
]
InterfaceOption = Annotated[
    str | None, typer.Option(help="Network interface; found when left out.", show_default=False)
]
ExpectOption = Annotated[
    Path | None, typer.Option(help="TOML file of lowest values, such as gemm_tflops = 600.", show_default=False)
]
FolderOption = Annotated[
    Path | None, typer.Option(help="Folder of the disk to try; the temporary one when left out.", show_default=False)
]
EndpointOption = Annotated[
    str | None, typer.Option("--rdzv-endpoint", metavar="HOST:PORT", help="Where nodes meet: an address of node 0.")
]
RankOption = Annotated[int | None, typer.Option("--node-rank", help="Which node this is, from 0.", show_default=False)]
ForceOption = Annotated[bool, typer.Option("--force", help="Check a node on which ranks train: it may cost them.")]
NodesOption = Annotated[int | None, typer.Option("--nnodes", help="How many nodes there are.", show_default=False)]
RunOption = Annotated[
    str | None, typer.Option("--run", help="How the clocks of this run's hosts lie apart.", show_default=False)
]


def doctor(
    node: NodeOption = False,
    pairs: PairsOption = False,
    seconds: SecondsOption = 15.0,
    interface: InterfaceOption = None,
    expect: ExpectOption = None,
    folder: FolderOption = None,
    rdzv_endpoint: EndpointOption = None,
    node_rank: RankOption = None,
    nnodes: NodesOption = None,
    force: ForceOption = False,
    run: RunOption = None,
    store: StoreOption = DEFAULT_STORE,
    attempt: AttemptOption = None,
    json: JsonOption = False,
) -> None:
    """Check this machine. Exit status 1 when something is amiss."""
    rendezvous = _rendezvous(rdzv_endpoint, node_rank, nnodes, interface)
    if node and pairs:
        raise UsageError("--node and --pairs are two tests", hint="one after the other")
    if run is not None and (node or pairs):
        raise UsageError("--run asks a store, --node and --pairs try this machine", hint="one after the other")
    if run is not None:
        amiss = tell_clocks(store, run, attempt, json=json)
    elif node:
        place = {} if folder is None else {"folder": folder}
        checks = NodeChecks(
            deadline_s=seconds, interface=interface, rendezvous=rendezvous, beside_others=force, **place
        )
        amiss = check_this_node(checks, read_expectations(expect) if expect else Expectations(), json=json)
    elif pairs:
        if rendezvous is None:
            raise UsageError("--pairs needs to know where nodes meet", hint=HINT)
        amiss = pair_this_node(PairedTest(rendezvous=rendezvous, deadline_s=seconds), json=json)
    else:
        amiss = _check_fitness(json=json)
    raise typer.Exit(int(amiss))


def _rendezvous(endpoint: str | None, index: int | None, nodes: int | None, interface: str | None) -> Rendezvous | None:
    """All three of its options, or none."""
    if endpoint is None and index is None and nodes is None:
        return None
    if endpoint is None or index is None or nodes is None:
        raise UsageError("--rdzv-endpoint, --node-rank and --nnodes belong together", hint=HINT)
    return Rendezvous(endpoint=endpoint, index=index, nodes=nodes, interface=interface)


def _check_fitness(*, json: bool) -> bool:
    checks = fitness()
    if json:
        out.print_json(data=fitness_object(checks))
    else:
        out.print(fitness_table(checks))
    return not all(check.fit for check in checks)
