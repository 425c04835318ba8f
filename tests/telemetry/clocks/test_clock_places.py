"""Choice of the ranks and spans from which clocks are estimated, on meshes in any axis order."""

import pytest

from telemetry.clocks.stored_evidence import Window, choose_places, read_evidence
from telemetry.group_names import NO_PEER, peer_of_axes, peer_of_mask
from telemetry.stages import Stage
from telemetry.stores.embedded import EmbeddedStore
from telemetry.stores.interface import StoreReader
from telemetry.topology import Topology
from tests.telemetry.made_rows import insert, made

MESH = Topology.parse("pp=2,dp_shard=2,cp=2,tp=2")
HOSTS = tuple(f"host-{rank // 2}" for rank in range(16))
WINDOW = Window(run_id="run", attempt=0, first_step=0, last_step=3, first_ns=0, last_ns=10**9)


def test_chosen_places_contain_groups_of_all_axes_and_pipeline_neighbours() -> None:
    places = choose_places(MESH, HOSTS)
    both, shard, cp = MESH.mask("dp_shard", "cp"), MESH.mask("dp_shard"), MESH.mask("cp")
    assert next(iter(places.groups["dp"])) == both
    assert {*places.groups["dp"]} == {both, shard, cp}
    assert places.groups["dp"][both] == ((0, 2, 4, 6), (8, 10, 12, 14))
    assert (0, 4) in places.groups["dp"][shard]
    assert places.groups["cp"] == {cp: ((0, 2), (4, 6), (8, 10), (12, 14))}
    assert places.groups["tp"] == {MESH.mask("tp"): ()}  # each on one host
    assert {abs(a - b) for a, b in places.pairs} == {8}


@pytest.mark.parametrize(
    ("peer", "axes"),
    [
        (NO_PEER, ("dp_shard", "cp")),
        (peer_of_mask(MESH.mask("dp_shard", "cp")), ("dp_shard", "cp")),
        (peer_of_mask(MESH.mask("dp_shard")), ("dp_shard",)),
        (peer_of_axes(("dp_shard",), 2), ("dp_shard",)),
    ],
)
def test_span_is_evidence_for_the_group_that_it_names(
    embedded: EmbeddedStore, peer: int, axes: tuple[str, ...]
) -> None:
    groups = MESH.members(MESH.mask(*axes)).tolist()
    common = {"stage": int(Stage.GRADS_ALL_REDUCE), "step": 1, "op_seq": 1, "start_ns": 100, "duration_ns": 50}
    rows = [{"rank": rank, "seq": 1, "peer": peer, **common} for group in groups for rank in group]
    insert(embedded, "spans", made("spans", rows))
    evidence = read_evidence(StoreReader(embedded), WINDOW, choose_places(MESH, HOSTS), HOSTS)
    found = [gathering.hosts for gathering in evidence.gatherings]
    assert sorted(found) == sorted({tuple(HOSTS[rank] for rank in group) for group in groups})
