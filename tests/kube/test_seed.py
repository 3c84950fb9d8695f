"""`spec.seed`: which pods begin with the archive, what the API server takes, and what is told."""

from dataclasses import replace
from typing import Any

import pytest

from api_server.client import ApiServer, RefusedError
from api_server.objects import Object, check, check_change, stored
from api_server.objects import group as sent
from dledger_formats.settings import ARCHIVE, GroupState, NodeSettings
from dledger_kube.objects import IMAGES, group, node_status
from dledger_operator import names
from dledger_operator.api_objects import StatefulSetView
from dledger_operator.behaviors.rolls.permission import Cause, Held, keep_pod_template
from dledger_operator.behaviors.rolls.pods_to_roll import is_blank
from dledger_operator.problem import Problem
from dledger_operator.resources import seed, stateful_set
from dledger_operator.spec.group import Group
from dledger_operator.spec.revision import Revision
from dledger_operator.spec.shape import Shape
from dledger_operator.spec.spec_reader import InvalidSpecError

pytest_plugins = ["api_server.fixtures"]

DIGEST = "0123456789abcdef" * 4
SEED: Object = {
    "persistentVolumeClaim": {"claimName": "archives", "path": "orders/may"},
    "group": "orders",
    "copySha256": DIGEST,
}
NEW = replace(Shape.of_new(3), identity="group-uid")
FOUNDED = replace(NEW, state=GroupState.EXISTING)


def pod_spec(of: Group, shape: Shape) -> Any:
    return stateful_set.build(of, shape)["spec"]["template"]["spec"]


def test_a_pod_of_a_new_group_copies_the_archive_before_its_member_starts() -> None:
    spec = pod_spec(group(seed=SEED), NEW)

    [container] = spec["initContainers"]
    assert container["command"] == [
        "dledger-node", "seed", "/seed/orders/may", "--group", "orders", "--copy-sha256", DIGEST,
    ]  # fmt: skip
    assert container["image"] == spec["containers"][0]["image"]
    assert container["env"] == spec["containers"][0]["env"]
    assert container["securityContext"] == spec["containers"][0]["securityContext"]
    mounts = {each["name"]: each for each in container["volumeMounts"]}
    assert mounts[names.SEED_VOLUME] == {
        "name": names.SEED_VOLUME, "mountPath": seed.FOLDER, "readOnly": True,
    }  # fmt: skip
    assert mounts[names.DATA_VOLUME]["mountPath"] == names.DATA_FOLDER
    [volume] = [each for each in spec["volumes"] if each["name"] == names.SEED_VOLUME]
    assert volume["persistentVolumeClaim"] == {"claimName": "archives", "readOnly": True}


def test_the_state_of_the_group_is_read_when_the_container_starts() -> None:
    [container] = pod_spec(group(seed=SEED), NEW)["initContainers"]
    states = [each for each in container["env"] if each["name"] == "DLEDGER_INITIAL_GROUP_STATE"]

    assert [each["valueFrom"]["configMapKeyRef"]["name"] for each in states] == ["flights-settings"]


def test_the_container_gets_settings_that_the_member_takes() -> None:
    [container] = pod_spec(group(seed=SEED), NEW)["initContainers"]
    values = {each["name"]: each["value"] for each in container["env"] if "value" in each}
    values = {name: value for name, value in values.items() if name.startswith("DLEDGER_")}

    settings = NodeSettings.from_environment(values | {"DLEDGER_SELF_ID": "n0"})
    assert (settings.group, settings.group_identity) == ("flights", "group-uid")
    assert settings.first_log == ARCHIVE


@pytest.mark.parametrize("shape", [NEW, FOUNDED, replace(FOUNDED, first_voters=7, pods=7)])
def test_no_member_of_a_group_with_a_seed_may_begin_it_empty(shape: Shape) -> None:
    """With seven replicas there is no addable member, whose silence would prevent it."""
    variable = {"name": "DLEDGER_FIRST_LOG", "value": ARCHIVE}

    assert variable in pod_spec(group(seed=SEED), shape)["containers"][0]["env"]
    plain = pod_spec(group(), shape)["containers"][0]["env"]
    assert variable["name"] not in {each["name"] for each in plain}


@pytest.mark.parametrize(
    ("spec", "shape"),
    [({"seed": SEED}, FOUNDED), ({}, NEW)],
    ids=["a group that has begun", "none"],
)
def test_no_other_pod_has_the_archive(spec: Object, shape: Shape) -> None:
    found = pod_spec(group(**spec), shape)

    assert "initContainers" not in found
    assert names.SEED_VOLUME not in {each["name"] for each in found["volumes"]}


@pytest.mark.parametrize(
    ("spec", "blank"),
    [
        ({"seed": SEED}, True),
        ({"seed": {"persistentVolumeClaim": {"claimName": "archives"}}}, True),
        ({"seed": {**SEED, "copySha256": "5a" * 32}}, False),
        ({}, False),
    ],
    ids=["the wanted archive", "any archive is wanted", "another is wanted", "none is wanted"],
)
def test_a_volume_with_an_archive_is_as_good_as_blank_only_if_the_spec_wants_it(
    spec: Object, *, blank: bool
) -> None:
    answer = node_status(
        "n0", joining=True, leader_id=None, term=3, ledger_end_index=7, committed_index=7,
        seed_sha256=DIGEST,
    )  # fmt: skip
    assert is_blank(answer, group(**spec).seed) is blank


def test_no_pod_is_replaced_when_the_group_has_begun() -> None:
    seeded = group(seed=SEED)
    revisions = {stateful_set.pod_revision(seeded, shape).to_text() for shape in (NEW, FOUNDED)}

    assert len(revisions) == 1


def test_the_archive_is_by_default_of_a_group_of_the_same_name() -> None:
    plain = {"persistentVolumeClaim": {"claimName": "archives"}}
    [container] = pod_spec(group(seed=plain), NEW)["initContainers"]

    assert container["command"] == ["dledger-node", "seed", "/seed/", "--group", "flights"]


@pytest.mark.parametrize("shape", [NEW, FOUNDED], ids=["before", "after"])
def test_a_template_that_is_held_loses_the_archive_once_the_group_has_begun(shape: Shape) -> None:
    """Pods that are made later would wait for a claim that may be gone."""
    seeded = group(seed=SEED, sidecars={"volumes": [{"name": "own", "emptyDir": {}}]})
    built = stateful_set.build(seeded, NEW)
    existing = StatefulSetView(
        namespace="air", name="flights", uid="u", resource_version="1", replicas=3, first_voters=3,
        identity="group-uid", volume_claim_templates=(), template=built["spec"]["template"],
    )  # fmt: skip
    manifest = stateful_set.build(group(seed=SEED, image={"tag": "later"}), shape)
    held = Held(
        revision=Revision(parts={}), cause=Cause.OPERATOR, problem=Problem(reason="R", message="m")
    )

    keep_pod_template(manifest, existing, shape, held)

    kept = manifest["spec"]["template"]["spec"]
    assert kept["containers"] == built["spec"]["template"]["spec"]["containers"]
    has_seed = shape is NEW
    assert ("initContainers" in kept) is has_seed
    volumes = {each["name"] for each in kept["volumes"]}
    assert (names.SEED_VOLUME in volumes) is has_seed
    assert "own" in volumes


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "spec.seed.persistentVolumeClaim.claimName is missing"),
        ({"persistentVolumeClaim": {"claimName": "a", "path": "../b"}}, "must be a folder of the"),
        ({**SEED, "copySha256": "12"}, "copySha256 is '12'; it must be 64 hexadecimal digits"),
    ],
)
def test_a_seed_that_got_past_the_schema_is_refused(given: Object, words: str) -> None:
    with pytest.raises(InvalidSpecError, match=words):
        group(seed=given)


def test_a_broker_begins_with_no_archive(api_server: ApiServer) -> None:
    with pytest.raises(InvalidSpecError, match="leave out seed or broker"):
        group(seed=SEED, broker={})
    with pytest.raises(RefusedError, match="leave out seed or broker"):
        check(api_server, sent(seed=SEED, broker={}))


@pytest.mark.parametrize(
    "path",
    [
        "",
        "orders",
        "/orders/may",
        "a b/c.d",
        "..",
        "a/../b",
        "a//b",
        "./a",
        "a/.",
        "$(HOME)",
        "a\nb",
        "a\x7f",
    ],
)
def test_the_api_server_takes_the_paths_that_the_operator_takes(
    api_server: ApiServer, path: str
) -> None:
    wanted = sent(seed={"persistentVolumeClaim": {"claimName": "archives", "path": path}})
    if path in ("", "orders", "/orders/may", "a b/c.d"):
        checked = check(api_server, wanted)
        parsed = Group.from_body(checked | {"metadata": checked["metadata"] | {"uid": "u"}}, IMAGES)
        assert parsed.seed is not None
        assert parsed.seed.path == path.strip("/")
        return
    with pytest.raises(RefusedError, match="path must be a folder of the volume"):
        check(api_server, wanted)
    with pytest.raises(InvalidSpecError, match="must be a folder of the volume"):
        group(seed=wanted["spec"]["seed"])


def test_a_seed_is_given_with_the_group_or_never(api_server: ApiServer) -> None:
    words = "seed can be neither added, changed nor removed"
    with stored(api_server, sent(seed=SEED)) as made:
        for change in (None, {"group": "other"}, {"persistentVolumeClaim": {"path": "x"}}):
            with pytest.raises(RefusedError, match=words):
                check_change(api_server, made, {"spec": {"seed": change}})
        check_change(api_server, made, {"spec": {"replicas": 5}})
    with stored(api_server, sent()) as made, pytest.raises(RefusedError, match=words):
        check_change(api_server, made, {"spec": {"seed": SEED}})
