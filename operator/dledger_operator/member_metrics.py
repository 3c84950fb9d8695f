"""The metrics of the members of groups."""

from collections.abc import Iterable, Sequence
from typing import Final

from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily

from dledger_formats.http.status import StorageState
from dledger_operator import names
from dledger_operator.observed_state import ObservedGroup, ObservedMember

_MEMBER: Final = ("namespace", "group", "member")


def families(groups: Sequence[ObservedGroup]) -> Iterable[Metric]:
    """Yield the metrics of members as last observed; a silent member has fewer series."""
    yield from _logs(groups)
    yield from _volumes(groups)


def _logs(groups: Sequence[ObservedGroup]) -> Iterable[Metric]:
    role = GaugeMetricFamily(
        "dledger_member_role",
        "1 for the role in the member's role label, 0 for the other roles.",
        labels=[*_MEMBER, "role"],
    )
    committed = GaugeMetricFamily(
        "dledger_member_committed_index", "Committed index known to the member.", labels=_MEMBER
    )
    lag = GaugeMetricFamily(
        "dledger_member_lag_entries",
        "Entries of the leader's log that the member has not stored yet.",
        labels=_MEMBER,
    )
    unbuilt = GaugeMetricFamily(
        "dledger_member_broker_unbuilt_entries",
        "Entries whose messages are in no consume queue of the member's broker yet.",
        labels=_MEMBER,
    )
    for observed in groups:
        for member in observed.members:
            key = _key(observed, member)
            for value in (names.ROLE_MASTER, names.ROLE_SLAVE, names.ROLE_NONE):
                role.add_metric([*key, value], float(value == member.role))
            if member.status:
                committed.add_metric(key, member.status.committed_index)
                if (broker := member.status.broker) is not None:
                    unbuilt.add_metric(key, broker.unbuilt_entries)
            entries = observed.unstored_entries(member)
            if entries is not None:
                lag.add_metric(key, entries)
    return role, committed, lag, unbuilt


def _volumes(groups: Sequence[ObservedGroup]) -> Iterable[Metric]:
    storage = GaugeMetricFamily(
        "dledger_member_storage",
        "1 for the state of the member's volume, as it says itself, 0 for the other states.",
        labels=[*_MEMBER, "state"],
    )
    used = GaugeMetricFamily(
        "dledger_member_volume_used_ratio",
        "Part of the member's volume that is not available, from 0 to 1.",
        labels=_MEMBER,
    )
    for observed in groups:
        for member in observed.members:
            status = member.status
            if status is None:
                continue
            key = _key(observed, member)
            for state in StorageState:
                storage.add_metric([*key, state.value], float(state is status.storage))
            if (size := status.volume_size_bytes) > 0:
                used.add_metric(key, (size - status.volume_available_bytes) / size)
    return storage, used


def _key(observed: ObservedGroup, member: ObservedMember) -> list[str]:
    return [observed.namespace, observed.name, member.member_id]
