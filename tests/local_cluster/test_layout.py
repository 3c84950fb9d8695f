"""The address plan: concurrent clusters share nothing."""

import ipaddress
import itertools
from pathlib import Path

import pytest

from tools.groups.ports import FIRST_PORT, LAST_PORT
from tools.local_cluster.layout import NODES_MAX, SLOTS, TEST_RANGE, Layout, cache_folder

ALLOWED = ipaddress.IPv4Network(TEST_RANGE)


def layout(name: str = "a", *, slot: int = 0, nodes: int = 3, folder: str = "/var/lib/c") -> Layout:
    return Layout(name=name, slot=slot, node_count=nodes, folder=Path(folder) / name)


def ranges(of: Layout) -> list[ipaddress.IPv4Network]:
    return [ipaddress.IPv4Network(text) for text in (of.pods_and_nodes_range, of.service_range)]


@pytest.mark.parametrize("slot", range(SLOTS))
def test_every_address_of_a_slot_is_in_the_test_range(slot: int) -> None:
    of = layout(slot=slot, nodes=NODES_MAX)
    assert all(each.subnet_of(ALLOWED) for each in ranges(of))
    machines_and_pods = ranges(of)[0]
    for node in of.nodes:
        assert ipaddress.ip_address(node.address) in machines_and_pods
        assert ipaddress.IPv4Network(node.pod_range).subnet_of(machines_and_pods)
    assert ipaddress.ip_address(of.api_service_address) in ranges(of)[1]


def test_slots_share_no_address_port_or_link() -> None:
    layouts = [layout(slot=slot, nodes=NODES_MAX) for slot in range(SLOTS)]
    for first, second in itertools.combinations(layouts, 2):
        pairs = itertools.product(ranges(first), ranges(second))
        assert not any(one.overlaps(other) for one, other in pairs)
    for values in (
        [each.bridge for each in layouts],
        [each.unreachable_metric for each in layouts],
        [node.link for each in layouts for node in each.nodes],
        [port for each in layouts for port in ports(each)],
    ):
        assert len(values) == len(set(values))


def ports(of: Layout) -> list[int]:
    return [of.etcd_port, of.etcd_peer_port, of.controller_manager_port, of.scheduler_port]


def test_no_port_of_a_cluster_is_one_that_tests_give_to_their_programs() -> None:
    used = [port for slot in range(SLOTS) for port in ports(layout(slot=slot))]
    assert not [port for port in used if FIRST_PORT <= port < LAST_PORT]
    assert not [port for port in used if port < 1024]


def test_nodes_of_a_cluster_share_no_address() -> None:
    of = layout(nodes=NODES_MAX)
    pods = [ipaddress.IPv4Network(node.pod_range) for node in of.nodes]
    assert not any(one.overlaps(other) for one, other in itertools.combinations(pods, 2))
    addresses = {ipaddress.ip_address(node.address) for node in of.nodes}
    addresses.add(ipaddress.ip_address(of.host_address))
    assert len(addresses) == NODES_MAX + 1
    assert not any(address in each for address in addresses for each in pods)


def test_link_names_fit_the_kernels_limit() -> None:
    longest = layout(slot=SLOTS - 1, nodes=NODES_MAX)
    assert all(len(name) <= 15 for name in [longest.bridge, *(n.link for n in longest.nodes)])


def test_clusters_with_different_names_share_no_folder_or_cgroup() -> None:
    first, second = layout("a"), layout("b", slot=1)
    assert first.cgroup != second.cgroup
    for name in ("folder", "pki", "logs", "records", "volumes", "kubeconfig"):
        assert getattr(first, name) != getattr(second, name)


@pytest.mark.parametrize("name", ["", "A", "1a", "a-", "a/b", "..", "a" * 21])
def test_a_name_that_is_not_a_valid_folder_name_is_rejected(name: str) -> None:
    with pytest.raises(ValueError, match="cluster name"):
        layout(name)


def test_a_folder_too_deep_for_sockets_is_rejected() -> None:
    with pytest.raises(ValueError, match="too long"):
        layout(folder="/" + "deep/" * 12)


@pytest.mark.parametrize(("slot", "nodes"), [(-1, 3), (SLOTS, 3), (0, 0), (0, NODES_MAX + 1)])
def test_a_slot_or_node_count_out_of_range_is_rejected(slot: int, nodes: int) -> None:
    with pytest.raises(ValueError, match="must be"):
        layout(slot=slot, nodes=nodes)


def test_the_environment_sets_the_cache_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DLEDGER_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert cache_folder() == Path("/somewhere/dledger-operator")
    monkeypatch.setenv("DLEDGER_CACHE", "/elsewhere")
    assert cache_folder() == Path("/elsewhere")
