"""The members' settings in a DLedgerGroup, and which of them a real API server refuses."""

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from api_server.client import ApiServer, RefusedError
from api_server.objects import Object, check, check_change, group, stored
from dledger_formats.settings import NodeSettings, SettingsError
from dledger_kube.wrong_specs.settings import retention
from dledger_operator.spec.group import Group
from dledger_operator.spec.images import ImageDefaults
from dledger_operator.spec.shape import Shape
from dledger_operator.spec.spec_reader import InvalidSpecError

pytest_plugins = ["api_server.fixtures"]

IMAGES = ImageDefaults(reference="dledger-node:1", pull_policy="IfNotPresent")
against_the_server = settings(
    max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


EVERY_SETTING: Object = {
    "log": {
        "scrubInterval": "336h",
        "onDamage": "StayOut",
        "retention": {
            "maxAge": "72h",
            "maxBytes": "20Gi",
            "deleteHours": [4, 16],
            "disk": {"checkExpiredPercent": 60, "forceCleanPercent": 85, "fullPercent": 90},
        },
    },
    "limits": {
        "connections": 2000,
        "connectionsPerAddress": 500,
        "frameBytes": "1Mi",
        "pendingAppends": 500,
        "pendingAppendsPerAddress": 50,
        "requestsPerSecondPerAddress": 1000,
        "bytesPerSecondPerAddress": "10Mi",
    },
    "stateMachine": {"type": "Register", "snapshotThreshold": 10, "snapshotsReserved": 2},
    "appendsToFollowers": "Refuse",
    "logLevel": "Debug",
}


def test_every_setting_of_the_spec_reaches_the_members(api_server: ApiServer) -> None:
    checked = check(api_server, group(**EVERY_SETTING))

    parsed = Group.from_body(checked | {"metadata": checked["metadata"] | {"uid": "u"}}, IMAGES)

    found = parsed.node_settings(Shape.of_new(3))
    plain = Group.from_body(check(api_server, group()), IMAGES).node_settings(Shape.of_new(3))
    assert {
        name for name in parsed.settings if getattr(found, name) == getattr(plain, name)
    } == set()
    assert (found.file_reserved_hours, found.delete_when) == (72, "04;16")
    assert (found.retention_bytes, found.scrub_interval_s) == (20 << 30, 336 * 3600)
    assert (found.state_machine, found.on_damage, found.log_level) == (
        "register", "stay-out", "debug",
    )  # fmt: skip


def test_the_state_machine_of_a_group_cannot_change(api_server: ApiServer) -> None:
    with stored(api_server, group(stateMachine={"type": "Register"})) as made:
        for change in ({"type": "None"}, None):
            with pytest.raises(RefusedError, match="type cannot change from Register to None"):
                check_change(api_server, made, {"spec": {"stateMachine": change}})


@against_the_server
@given(
    percents=st.tuples(
        st.none() | st.integers(0, 101), st.none() | st.integers(49, 101),
        st.none() | st.integers(49, 101),
    ),
)  # fmt: skip
@example(percents=(70, 100, 90))
@example(percents=(90, 90, 90))
def test_the_schema_accepts_the_percentages_that_the_operator_and_the_node_accept(
    api_server: ApiServer, percents: tuple[int | None, int | None, int | None]
) -> None:
    keys = ("checkExpiredPercent", "forceCleanPercent", "fullPercent")
    disk = {key: each for key, each in zip(keys, percents, strict=True) if each is not None}
    sent = group("g", **retention(maxAge="1h", disk=disk))

    try:
        check(api_server, sent)
        accepted = True
    except RefusedError:
        accepted = False

    body = sent | {"metadata": {**sent["metadata"], "uid": "u"}}
    try:
        Group.from_body(body, IMAGES)
        read = True
    except InvalidSpecError:
        read = False
    assert accepted == read
    if accepted:
        assert node_takes({f"disk_{name}": value for name, value in zip(
            ("check_expired_percent", "force_clean_percent", "full_percent"), percents, strict=True
        ) if value is not None})  # fmt: skip


def node_takes(values: dict[str, int]) -> bool:
    try:
        NodeSettings(
            group="g", self_id="n0", peers={"n0": "g:40911"}, store_base_dir="/data", **values  # type: ignore[arg-type]
        )  # fmt: skip
    except SettingsError:
        return False
    return True
