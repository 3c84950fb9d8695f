"""Failovers that tests cause, and how long the clients and the master Service waited in each."""

import contextlib
from collections import defaultdict
from collections.abc import Iterator

from dledger_e2e.group import Group
from dledger_e2e.load import Load, assert_pauses_are_short, summary
from dledger_e2e.waiting import wait_for
from tools.deployment import OPERATOR_NAMESPACE

APPENDS_AROUND = 500
"""Number of appends that each client gets acknowledged before and after a failover."""


class Gaps:
    """The longest pause of each client between two acknowledgments, for each failover."""

    def __init__(self) -> None:
        self._gaps_s: defaultdict[str, list[float]] = defaultdict(list)
        self._loads: dict[str, Load] = {}

    @contextlib.contextmanager
    def of(self, **loads: Load) -> Iterator[None]:
        """Measure the failover that the block causes, for each client by its name."""
        self._loads |= loads
        for load in loads.values():
            load.wait_for_more(APPENDS_AROUND)
        since = {name: len(load.acknowledged) - 1 for name, load in loads.items()}
        yield
        for name, load in loads.items():
            load.wait_for_more(APPENDS_AROUND)
            self._gaps_s[name].append(load.longest_pause_s(since[name]))

    def assert_short(self, longest_s_max: float) -> None:
        """Check the pauses of each client."""
        for gaps_s in self._gaps_s.values():
            assert_pauses_are_short(gaps_s, longest_s_max)

    def __str__(self) -> str:
        if not self._gaps_s:
            return "not seen"
        return "; ".join(
            f"{name}: {len(gaps_s)} times, {summary(gaps_s)}, "
            f"{len(self._loads[name].acknowledged)} acknowledged, "
            f"{self._loads[name].unknown} unknown"
            for name, gaps_s in self._gaps_s.items()
        )


def kill_leader(group: Group, load: Load) -> str:
    """Delete the leader's pod; return the next leader once it is the Service's only endpoint."""
    old = group.leader_pod()
    old_uid = group.uids()[old]
    group.delete_pod(old)

    def moved() -> str | None:
        new = group.leader_pod()
        return new if group.uids()[new] != old_uid else None

    new = wait_for(moved, "the master Service has a new leader as its only endpoint")
    load.wait_for_more(APPENDS_AROUND)
    return new


def seconds_until_routed(group: Group) -> tuple[float, float]:
    """Return how long the newest leader's label took, and then its Service's endpoints."""

    def told() -> tuple[float, float] | None:
        newest = group.status()["leaderChanges"][0]
        if not {"relabelSeconds", "endpointsSeconds"} <= newest.keys():
            return None
        return newest["relabelSeconds"], newest["endpointsSeconds"]

    return wait_for(told, "the status tells when the Service had followed")


def acting_operator(group: Group) -> str:
    """Wait until one of the operator's pods holds the Lease, and return its name."""
    deployment = group.deployment

    def acts() -> str | None:
        holder = deployment.operator_pod()
        return holder if holder in deployment.operator_pods() else None

    return wait_for(acts, "one of the operator's pods acts")


def delete_operators(group: Group, *pods: str) -> None:
    """Delete pods of the operator without a grace period."""
    group.deployment.kubernetes.kubectl(
        "delete", "pod", *pods, f"--namespace={OPERATOR_NAMESPACE}",
        "--grace-period=0", "--force", "--wait=false",
    )  # fmt: skip


def operator_node_number(group: Group) -> int:
    """Return the number of the local cluster's node on which the acting operator runs."""
    pod = group.deployment.kubernetes.get(
        "pod", acting_operator(group), f"--namespace={OPERATOR_NAMESPACE}"
    )
    return int(str(pod["spec"]["nodeName"]).removeprefix("node"))


def wait_until_caught_up(group: Group, pod: str, index: int) -> None:
    """Wait until a member has committed the entry with this index."""

    def caught_up() -> bool:
        status = group.node_status(pod)
        return status is not None and status.committed_index >= index

    wait_for(caught_up, f"{pod} has caught up", timeout_s=120)


def wait_until_routed_elsewhere(group: Group, old_uid: str) -> None:
    """Wait until another pod than the old leader's is an endpoint of the master Service.

    A pod that was recreated under the old name counts as another one: its member may win again.
    """
    wait_for(
        lambda: any(uid != old_uid for uid in group.master_endpoint_uids()),
        f"another pod than the one with uid {old_uid} is an endpoint of the master Service",
    )
