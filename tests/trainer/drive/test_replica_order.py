"""Where nodes send replicas, and where the next attempt finds them."""

from dataclasses import replace

from tests.trainer.drive.cluster import Cluster
from trainer.drive.records import ReplicaOrder
from trainer.drive.replica_order import replica_order


def made_cluster(num_nodes: int = 3, num_spares: int = 1) -> Cluster:
    cluster = Cluster(num_nodes=num_nodes, num_spares=num_spares, checks=False)
    for node in cluster.nodes.values():
        node.report = replace(node.report, keeper=keeper(node.name))
    return cluster


def keeper(node: str) -> str:
    return f"http://{node}:1"


def order(cluster: Cluster, node: str) -> ReplicaOrder:
    return replica_order(cluster.job, node)


def test_each_node_sends_replicas_to_the_next_node_by_position() -> None:
    cluster = made_cluster()
    cluster.train(0)
    first, second, third = cluster.job.members
    assert [order(cluster, name).neighbour for name in cluster.job.members] == list(map(keeper, (second, third, first)))


def test_single_node_has_no_replica_neighbour() -> None:
    cluster = made_cluster(num_nodes=1)
    cluster.train(0)
    assert order(cluster, cluster.job.members[0]).neighbour == ""


def test_spare_has_no_neighbour_and_its_order_lists_the_keepers_of_all_nodes() -> None:
    cluster = made_cluster()
    cluster.train(0)
    cluster.turn()
    (spare,) = set(cluster.nodes) - set(cluster.job.members)
    assert order(cluster, spare).neighbour == ""
    assert set(order(cluster, spare).keepers) == set(map(keeper, cluster.nodes))


def test_spare_takes_the_neighbours_of_a_replaced_node_whose_keeper_stays_listed() -> None:
    cluster = made_cluster()
    cluster.train(0)
    first, second, third = cluster.job.members
    cluster.end_ranks(second, -9)
    cluster.train(1)
    (spare,) = set(cluster.job.members) - {first, second, third}
    assert cluster.job.members == (first, spare, third)
    assert order(cluster, first).neighbour == keeper(spare)
    assert order(cluster, spare).neighbour == keeper(third)
    assert keeper(second) in order(cluster, first).keepers, "it was replaced, and still holds parts"


def test_keeper_of_a_lost_node_is_not_listed() -> None:
    cluster = made_cluster()
    cluster.train(0)
    lost = cluster.job.members[1]
    cluster.nodes[lost].silent = True
    cluster.train(1)
    assert keeper(lost) not in order(cluster, cluster.job.members[0]).keepers


def test_replaced_node_frees_its_memory_only_after_all_nodes_train_again() -> None:
    cluster = made_cluster()
    cluster.train(0)
    replaced = cluster.job.members[1]
    cluster.end_ranks(replaced, -9)
    cluster.train(1)
    for name in cluster.job.members:
        cluster.nodes[name].report = replace(cluster.nodes[name].report, step=-1)
    cluster.turn()
    assert not order(cluster, replaced).forget, "ranks may still read its parts"
    cluster.step(3)
    cluster.turn()
    assert order(cluster, replaced).forget
    assert not any(order(cluster, name).forget for name in cluster.job.members)
