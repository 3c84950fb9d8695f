"""Reading a DLedgerGroup."""

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger_formats.http.status import FlushDiskType
from dledger_kube.objects import IMAGES, group, group_body
from dledger_operator.spec.group import Group, ImageDefaults, split_image
from dledger_operator.spec.shape import Shape
from dledger_operator.spec.spec_reader import InvalidSpecError

NEW = Shape.of_new(3)


def test_what_a_spec_leaves_out_has_defaults() -> None:
    read = group()

    assert (read.replicas, read.member_ids, read.paused) == (3, ("n0", "n1", "n2"), False)
    assert (read.heartbeat_interval_ms, read.election_timeout_ms) == (250, 1000)
    assert (read.flush_disk_type, read.segment_size_bytes) == (FlushDiskType.SYNC_FLUSH, 1 << 30)
    assert (read.image, read.image_pull_policy) == (IMAGES.reference, "Always")
    assert (read.roles.label, read.roles.master, read.roles.slave) == (
        "dledger.io/role", "master", "slave",
    )  # fmt: skip


def test_every_member_knows_every_peer_by_its_stable_name() -> None:
    settings = group().node_settings(NEW)

    assert settings.known_peers == {
        f"n{ordinal}": f"flights-{ordinal}.flights-nodes.air.svc:40911" for ordinal in range(7)
    }
    assert list(settings.peers) == ["n0", "n1", "n2"]


def test_who_founded_a_group_does_not_follow_its_replicas() -> None:
    settings = group(replicas=5).node_settings(NEW)

    assert list(settings.peers) == ["n0", "n1", "n2"]
    assert list(settings.addable_peers) == ["n3", "n4", "n5", "n6"]


def test_the_index_segment_keeps_dledger_s_proportion() -> None:
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
def test_what_an_image_leaves_empty_is_the_operator_s_own(
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
        ({"replicas": 2}, "spec.replicas is 2; allowed are 1, 3, 5, 7"),
        ({"replicas": "3"}, "spec.replicas is '3'; a whole number is expected"),
        ({"replicas": True}, "spec.replicas is True; a whole number"),
        ({"storage": {}}, "spec.storage.size is missing"),
        ({"storage": {"size": "big"}}, "spec.storage.size: 'big' is not a quantity"),
        (
            {"storage": {"size": "1Gi", "retain": {"whenDeleted": "No"}}},
            "spec.storage.retain.whenD",
        ),
        ({"storage": "1Gi"}, "spec.storage is '1Gi'; an object is expected"),
        ({"log": {"flushDiskType": "Never"}}, "it must be SyncFlush or AsyncFlush"),
        ({"log": {"segmentSize": 100}}, "DLEDGER_SEGMENT_SIZE_BYTES is 100"),
        ({"election": {"timeout": "soon"}}, "spec.election.timeout: 'soon' is not a duration"),
        ({"election": {"timeout": "300ms"}}, "DLEDGER_ELECTION_TIMEOUT_MS must be at least twice"),
        ({"election": {"heartbeatInterval": 250}}, "spec.election.heartbeatInterval"),
        ({"roles": {"master": "same", "slave": "same"}}, "must differ"),
        ({"roles": {"master": "none"}}, "neither may be 'none'"),
        ({"services": {"master": {"type": "ExternalName"}}}, "spec.services.master.type"),
        ({"services": {"slave": {"annotations": {"a": 1}}}}, "spec.services.slave.annotations.a"),
        ({"scheduling": {"topologySpread": False}}, "spec.scheduling.topologySpread is False"),
        ({"scheduling": {"tolerations": ["all"]}}, "spec.scheduling.tolerations holds 'all'"),
        ({"podLabels": []}, "spec.podLabels is []; an object is expected"),
        ({"paused": "yes"}, "spec.paused is 'yes'; true or false is expected"),
    ],
)
def test_a_mistake_is_named_with_its_key(spec: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InvalidSpecError) as refused:
        group(**spec)

    assert complaint in str(refused.value)


def test_a_name_that_leaves_no_room_for_children_is_refused() -> None:
    with pytest.raises(InvalidSpecError, match="longer than 40"):
        Group.from_body(group_body(name="f" * 41), IMAGES)


def test_a_mistake_elsewhere_does_not_keep_the_leader_from_being_followed() -> None:
    body = group_body({"replicas": 5, "roles": {"master": "rw"}, "log": "nonsense"})

    read = Group.to_follow(body, IMAGES)

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
def test_any_spec_is_read_or_refused_and_never_a_crash(spec: dict[str, Any]) -> None:
    with contextlib.suppress(InvalidSpecError):
        assert group(**spec).replicas in {1, 3, 5, 7}
