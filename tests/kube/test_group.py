"""Parsing a DLedgerGroup."""

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger_formats.http.status import FlushDiskType
from dledger_kube.objects import IMAGES, group, group_body
from dledger_operator.spec.accepted import read_group
from dledger_operator.spec.group import Group, split_image
from dledger_operator.spec.images import ImageDefaults
from dledger_operator.spec.shape import Shape
from dledger_operator.spec.spec_reader import InvalidSpecError

NEW = Shape.of_new(3)


def test_missing_keys_of_a_spec_have_defaults() -> None:
    read = group()

    assert (read.replicas, read.member_ids, read.paused) == (3, ("n0", "n1", "n2"), False)
    assert (read.heartbeat_interval_ms, read.election_timeout_ms) == (250, 1000)
    assert (read.flush_disk_type, read.segment_size_bytes) == (FlushDiskType.SYNC_FLUSH, 1 << 30)
    assert (read.image, read.image_pull_policy) == (IMAGES.reference, "Always")
    assert (read.roles.label, read.roles.master, read.roles.slave) == (
        "dledger.io/role", "master", "slave",
    )  # fmt: skip


def test_the_settings_name_every_possible_peer_by_its_dns_name() -> None:
    settings = group().node_settings(NEW)

    assert settings.known_peers == {
        f"n{ordinal}": f"flights-{ordinal}.flights-nodes.air.svc:40911" for ordinal in range(7)
    }
    assert list(settings.peers) == ["n0", "n1", "n2"]


def test_the_first_voters_do_not_depend_on_the_replicas() -> None:
    settings = group(replicas=5).node_settings(NEW)

    assert list(settings.peers) == ["n0", "n1", "n2"]
    assert list(settings.addable_peers) == ["n3", "n4", "n5", "n6"]


def test_the_index_segment_keeps_dledgers_ratio() -> None:
    read = group(log={"segmentSize": "1Gi"}).node_settings(NEW)

    assert read.index_segment_size_bytes == 5 * 1024 * 1024 * 32


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        ({}, "registry.example:5000/dledger-node:1.2"),
        ({"repository": "", "tag": "", "digest": ""}, "registry.example:5000/dledger-node:1.2"),
        ({"tag": "2.0"}, "registry.example:5000/dledger-node:2.0"),
        ({"repository": "mine/node"}, "mine/node:1.2"),
        ({"repository": "mine/node", "tag": "x"}, "mine/node:x"),
        ({"tag": "x", "digest": "sha256:ab"}, "registry.example:5000/dledger-node@sha256:ab"),
    ],
)
def test_missing_parts_of_an_image_come_from_the_operators_default(
    image: dict[str, str], expected: str
) -> None:
    assert group(image=image).image == expected


@given(
    repository=st.from_regex(r"([a-z0-9.]{1,8}(:[0-9]{2,4})?/)?[a-z0-9]{1,8}", fullmatch=True),
    suffix=st.sampled_from(["", ":1.2", "@sha256:ab", ":1.2@sha256:ab"]),
)
def test_an_image_is_split_so_that_a_new_tag_replaces_the_old_one(
    repository: str, suffix: str
) -> None:
    read_repository, _ = split_image(repository + suffix)
    images = ImageDefaults(reference=repository + suffix, pull_policy="Always")

    assert read_repository == repository
    assert (
        Group.from_body(group_body({"image": {"tag": "new"}}), images).image == f"{repository}:new"
    )


@pytest.mark.parametrize(
    ("spec", "complaint"),
    [
        ({"replicas": 2}, "spec.replicas is 2; it must be one of 1, 3, 5, 7"),
        ({"replicas": "3"}, "spec.replicas is '3'; it must be a whole number"),
        ({"replicas": True}, "spec.replicas is True; it must be a whole number"),
        ({"storage": {}}, "spec.storage.size is missing"),
        ({"storage": {"size": "big"}}, "spec.storage.size: 'big' is not a quantity"),
        (
            {"storage": {"size": "1Gi", "retain": {"whenDeleted": "No"}}},
            "spec.storage.retain.whenD",
        ),
        ({"storage": "1Gi"}, "spec.storage is '1Gi'; it must be an object"),
        ({"log": {"flushDiskType": "Never"}}, "it must be SyncFlush or AsyncFlush"),
        ({"log": {"segmentSize": 100}}, "DLEDGER_SEGMENT_SIZE_BYTES is 100"),
        ({"election": {"timeout": "soon"}}, "spec.election.timeout: 'soon' is not a duration"),
        ({"election": {"timeout": "300ms"}}, "DLEDGER_ELECTION_TIMEOUT_MS must be at least twice"),
        ({"election": {"heartbeatInterval": 250}}, "spec.election.heartbeatInterval"),
        ({"roles": {"master": "same", "slave": "same"}}, "must differ"),
        ({"roles": {"master": "none"}}, "must differ from each other and from 'none'"),
        ({"services": {"master": {"type": "ExternalName"}}}, "spec.services.master.type"),
        ({"services": {"slave": {"annotations": {"a": 1}}}}, "spec.services.slave.annotations.a"),
        ({"scheduling": {"topologySpread": False}}, "spec.scheduling.topologySpread is False"),
        ({"scheduling": {"tolerations": ["all"]}}, "spec.scheduling.tolerations contains 'all'"),
        ({"podLabels": []}, "spec.podLabels is []; it must be an object"),
        ({"paused": "yes"}, "spec.paused is 'yes'; it must be true or false"),
    ],
)
def test_an_invalid_key_is_named(spec: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InvalidSpecError) as refused:
        group(**spec)

    assert complaint in str(refused.value)


def test_a_name_too_long_for_its_children_is_refused() -> None:
    with pytest.raises(InvalidSpecError, match="longer than 40"):
        Group.from_body(group_body(name="f" * 41), IMAGES)


def test_the_keys_for_following_are_parsed_despite_other_invalid_keys() -> None:
    body = group_body({"replicas": 5, "roles": {"master": "rw"}, "log": "nonsense"})

    read = read_group(body, IMAGES, None)

    assert read is not None
    assert (read.replicas, read.roles.master) == (5, "rw")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2)
    ),
    max_leaves=4,
)
KEYS = [
    "replicas", "image", "storage", "log", "election", "roles", "services", "resources",
    "scheduling", "podLabels", "podAnnotations", "paused",
]  # fmt: skip


@given(spec=st.dictionaries(st.sampled_from(KEYS), JSON))
def test_any_spec_is_parsed_or_refused(spec: dict[str, Any]) -> None:
    with contextlib.suppress(InvalidSpecError):
        assert group(**spec).replicas in {1, 3, 5, 7}
