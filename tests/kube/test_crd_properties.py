"""The limits in the schema of DLedgerGroup match those of the node and of Kubernetes."""

import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from api_server.client import ApiServer, RefusedError
from api_server.objects import Object, check, group
from dledger_formats.settings import NodeSettings, SettingsError

pytest_plugins = ["api_server.fixtures"]

MEBIBYTE = 1 << 20
UNITS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30}
LONGEST_NAME = "g" * 40
# A dry run takes a few milliseconds and stores nothing.
against_the_server = settings(
    max_examples=60,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


def accepts(server: ApiServer, sent: Object) -> bool:
    try:
        check(server, sent)
    except RefusedError:
        return False
    return True


@pytest.mark.parametrize("replicas", range(10))
def test_only_one_three_five_or_seven_members_are_accepted(
    api_server: ApiServer, replicas: int
) -> None:
    assert accepts(api_server, group(replicas=replicas)) == (replicas in (1, 3, 5, 7))


@against_the_server
@given(
    heartbeat_ms=st.sampled_from([19, 20, 250, 60_000, 60_001]) | st.integers(1, 70_000),
    timeout_ms=st.sampled_from([49, 50, 500, 600_000, 600_001]) | st.integers(1, 700_000),
)
def test_the_schema_accepts_the_times_that_the_node_accepts(
    api_server: ApiServer, heartbeat_ms: int, timeout_ms: int
) -> None:
    election = {"heartbeatInterval": f"{heartbeat_ms}ms", "timeout": f"{timeout_ms}ms"}

    assert accepts(api_server, group(election=election)) == node_takes(
        heartbeat_interval_ms=heartbeat_ms, election_timeout_ms=timeout_ms
    )


def node_takes(**values: int) -> bool:
    try:
        NodeSettings(
            group="g", self_id="n0", peers={"n0": "g:40911"}, store_base_dir="/data", **values  # type: ignore[arg-type]
        )  # fmt: skip
    except SettingsError:
        return False
    return True


@against_the_server
@given(
    number=st.integers(0, 3000) | st.integers(0, 3000).map(lambda count: count * MEBIBYTE),
    unit=st.sampled_from(sorted(UNITS)),
)
def test_a_segment_is_a_number_of_mebibytes_within_javas_int_range(
    api_server: ApiServer, number: int, unit: str
) -> None:
    segment_size_bytes = number * UNITS[unit]
    sent = group(storage={"size": "30Ti"}, log={"segmentSize": f"{number}{unit}"})
    fits = segment_size_bytes % MEBIBYTE == 0 and 0 < segment_size_bytes < 1 << 31

    assert accepts(api_server, sent) == fits
    assert not fits or node_takes(
        segment_size_bytes=segment_size_bytes, index_segment_size_bytes=segment_size_bytes * 5 // 32
    )


@against_the_server
@given(
    size=st.integers(1, 5000),
    unit=st.sampled_from(["M", "Mi", "G", "Gi"]),
    segment_mebibytes=st.sampled_from([1, 64, 512, 1024]),
)
def test_a_volume_holds_three_segments(
    api_server: ApiServer, size: int, unit: str, segment_mebibytes: int
) -> None:
    sent = group(
        storage={"size": f"{size}{unit}"}, log={"segmentSize": segment_mebibytes * MEBIBYTE}
    )

    assert accepts(api_server, sent) == (size * UNITS[unit] >= 3 * segment_mebibytes * MEBIBYTE)


@against_the_server
@given(name=st.text("ab19-.", min_size=1, max_size=42) | st.just(LONGEST_NAME))
def test_the_children_of_every_accepted_name_are_accepted(api_server: ApiServer, name: str) -> None:
    fits = len(name) <= 40 and re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", name) is not None

    assert accepts(api_server, group(name)) == fits
    assert not fits or accepts_service(api_server, f"{name}-master")


def accepts_service(server: ApiServer, name: str) -> bool:
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "labels": {"dledger.io/group": name}},
        "spec": {"ports": [{"port": 40911}]},
    }
    try:
        server.request("POST", "/api/v1/namespaces/default/services?dryRun=All", service)
    except RefusedError:
        return False
    return True
