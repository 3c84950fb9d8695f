"""Settings of the spec: those that running members take, and those for which pods are replaced."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger_formats import live_settings
from dledger_formats.http.status import NodeStatus
from dledger_formats.rocketmq.broker_variables import LIVE_DEFAULTS
from dledger_formats.settings import NodeSettings, variable_name
from dledger_kube.objects import NOW, group, group_body, node_status
from dledger_operator import names
from dledger_operator.api_objects import StatefulSetView
from dledger_operator.behaviors.members.settings_in_force import WantedSettings
from dledger_operator.behaviors.rolls.permission import Cause, applied_spec, find_held
from dledger_operator.resources import children, config_map, stateful_set
from dledger_operator.spec.group import Group
from dledger_operator.spec.member_settings import LIVE_PATHS, without_live
from dledger_operator.spec.shape import Shape
from dledger_operator.spec.spec_reader import InvalidSpecError

NEW = Shape.of_new(3)

LIVE_SPECS = st.fixed_dictionaries(
    {},
    optional={
        "log": st.fixed_dictionaries(
            {},
            optional={
                "retention": st.fixed_dictionaries({"maxAge": st.sampled_from(["1h", "72h"])}),
                "scrubInterval": st.sampled_from(["1h", "72h"]),
            },
        ),
        "limits": st.fixed_dictionaries(
            {},
            optional={
                "connections": st.integers(1, 9),
                "frameBytes": st.just("1Mi"),
                "pendingAppends": st.integers(1, 9),
                "pendingAppendsPerAddress": st.integers(0, 9),
                "requestsPerSecondPerAddress": st.integers(0, 9),
                "bytesPerSecondPerAddress": st.sampled_from(["0", "10Mi"]),
            },
        ),
        "logLevel": st.sampled_from(["Debug", "Error"]),
    },
)
STILL_SPECS = st.sampled_from(
    [
        {"log": {"onDamage": "StayOut"}},
        {"appendsToFollowers": "Refuse"},
        {"stateMachine": {"snapshotThreshold": 5}},
    ]
)


def live_file(of: Group) -> str:
    text: str = config_map.build(of, NEW)["data"][names.LIVE_SETTINGS_KEY]
    return text


def environment(of: Group) -> dict[str, str]:
    template = stateful_set.build(of, NEW)["spec"]["template"]
    (container,) = template["spec"]["containers"]
    return {each["name"]: each.get("value", "") for each in container["env"]}


def applied(spec: dict[str, Any], of: Group) -> StatefulSetView:
    return StatefulSetView(
        namespace="air", name="flights", uid="u", resource_version="1", replicas=3,
        first_voters=3, identity="", volume_claim_templates=[],
        template=stateful_set.build(of, NEW)["spec"]["template"],
        revision=children.revision(of, NEW), applied_spec=applied_spec(group_body(spec)),
    )  # fmt: skip


def member(of: Group, **known: str) -> NodeStatus:
    """A member with these settings beside the defaults."""
    defaults = NodeSettings(group="flights", self_id="n0", peers={"n0": "a:1"}, store_base_dir="/d")
    return replace(node_status("n0"), settings=live_settings.in_force(defaults) | known)


@given(LIVE_SPECS)
def test_a_setting_that_running_members_take_replaces_no_pod(spec: dict[str, Any]) -> None:
    plain, changed = group(), group(**spec)

    assert children.revision(changed, NEW) == children.revision(plain, NEW)
    assert environment(changed) == environment(plain)
    assert applied_spec(group_body(spec)).digest == applied_spec(group_body()).digest


@given(LIVE_SPECS)
def test_a_node_reads_from_the_file_what_the_spec_asks_for(spec: dict[str, Any]) -> None:
    of = group(**spec)
    alone = NodeSettings(group="flights", self_id="n0", peers={"n0": "a:1"}, store_base_dir="/d")

    told = live_settings.overlay(alone, live_file(of))

    wanted = of.node_settings(NEW)
    assert live_settings.in_force(told) == live_settings.in_force(wanted)


@given(STILL_SPECS)
def test_a_setting_that_needs_a_restart_makes_another_revision(spec: dict[str, Any]) -> None:
    plain, changed = group(), group(**spec)

    assert children.revision(changed, NEW) != children.revision(plain, NEW)
    assert live_file(changed) == live_file(plain) == ""
    assert len(environment(changed)) == len(environment(plain)) + 1
    assert applied_spec(group_body(spec)).digest != applied_spec(group_body()).digest


def test_pods_are_told_no_setting_that_the_spec_leaves_out() -> None:
    """An image of an earlier release refuses variables that it does not know."""
    assert "DLEDGER_APPENDS_TO_FOLLOWERS" not in environment(group())
    assert "DLEDGER_STATE_MACHINE" not in environment(group(stateMachine={"type": "None"}))


def test_members_that_lack_a_setting_are_told_with_what_they_have_instead() -> None:
    of = group(log={"retention": {"maxAge": "72h"}})

    lacks = WantedSettings(of).lacking(member(of))

    assert lacks == "DLEDGER_FILE_RESERVED_HOURS is 0 instead of 72"
    assert WantedSettings(of).lacking(member(of, DLEDGER_FILE_RESERVED_HOURS="72")) == ""


def test_brokers_lack_nothing_with_the_defaults_of_their_program() -> None:
    of = group(broker={})
    own = {variable_name(name): str(value) for name, value in LIVE_DEFAULTS.items()}
    told = {**member(of).settings, **own}
    broker, node = replace(member(of), settings=told), member(group())

    assert WantedSettings(of).lacking(broker) == ""
    assert "DLEDGER_CONNECTIONS_PER_ADDRESS_MAX is 64 instead" in WantedSettings(of).lacking(node)
    assert all(f"{name}={value}" in live_file(of) for name, value in own.items())


def test_a_setting_that_was_removed_from_the_spec_must_not_stay_in_force() -> None:
    of = group()

    assert "DLEDGER_RETENTION_BYTES is 9 instead of 0" in WantedSettings(of).lacking(
        member(of, DLEDGER_RETENTION_BYTES="9")
    )


def test_a_member_that_refuses_the_file_says_why() -> None:
    of = group(limits={"connections": 5})
    refusing = replace(member(of), settings_problem="/etc/dledger/live.env: no such file")

    assert WantedSettings(of).lacking(refusing).endswith("; /etc/dledger/live.env: no such file")


def test_a_member_of_an_earlier_release_is_only_asked_for_what_the_spec_sets() -> None:
    silent = replace(node_status("n0"), settings={})

    assert WantedSettings(group()).lacking(silent) == ""
    assert "is not known instead of 5" in WantedSettings(group(limits={"connections": 5})).lacking(
        silent
    )


def test_pods_that_cannot_take_a_setting_are_replaced_for_it_as_the_update_policy_says() -> None:
    """Pods of an earlier release of the operator do not mount the file."""
    spec: dict[str, Any] = {"log": {"retention": {"maxAge": "72h"}}}
    before = applied({}, group())
    template = before.template
    (container,) = template["spec"]["containers"]
    container["env"] = [
        each for each in container["env"] if each["name"] != "DLEDGER_LIVE_SETTINGS_FILE"
    ]
    older = replace(before, revision=None, template=template)
    now: dict[str, Any] = {"founding": False, "approved": "", "now": NOW}

    def held(given: dict[str, Any]) -> Cause | None:
        of = group(**given)
        wanted, recorded = children.revision(of, NEW), applied_spec(group_body(given))
        found = find_held(of, wanted, recorded, older, **now)
        return found.cause if found else None

    assert held({}) is Cause.OPERATOR
    assert held(spec) is None
    assert held({**spec, "updatePolicy": "OnApproval"}) is Cause.SPEC


@pytest.mark.parametrize("path", LIVE_PATHS)
def test_a_spec_without_its_live_settings_keeps_everything_else(path: str) -> None:
    def nested(keys: list[str], value: Any) -> dict[str, Any]:
        return {keys[0]: nested(keys[1:], value) if keys[1:] else value}

    alone = nested(path.split("."), 1)
    beside = {**alone, "replicas": 3}
    kept = {"log": {"flushDiskType": "SyncFlush", "retention": {"maxAge": "1h"}}}

    assert without_live(alone) == {}
    assert without_live(beside) == {"replicas": 3}
    assert without_live(kept) == {"log": {"flushDiskType": "SyncFlush"}}
    assert kept["log"]["retention"], "the spec itself was changed"


@pytest.mark.parametrize(
    ("spec", "complaint"),
    [
        ({"limits": {"connections": True}}, "spec.limits.connections: True is not a whole number"),
        ({"limits": {"connections": 0}}, "DLEDGER_CONNECTIONS_MAX is 0; it must be 1 to"),
        ({"log": {"retention": {"maxAge": "90m"}}}, "spec.log.retention.maxAge: '90m' is not a"),
        ({"log": {"retention": {"deleteHours": 4}}}, "deleteHours: 4 is not a list of hours"),
        ({"log": {"retention": {"deleteHours": [4]}}}, "removes nothing without maxAge or max"),
        ({"logLevel": "loud"}, "spec.logLevel: 'loud' must be Debug or Info or Warning or Error"),
    ],
)
def test_a_wrong_setting_of_a_stored_group_is_named(spec: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InvalidSpecError) as raised:
        group(**spec)

    assert complaint in str(raised.value)


@pytest.mark.parametrize(
    ("limits", "bytes_max"),
    [
        ({"memory": "512Mi"}, "536870912"),
        ({"memory": 1_000_000_000}, "1000000000"),
        ({"memory": "5e8"}, "500000000"),
        ({"cpu": "1"}, None),
        ({}, None),
    ],
)
def test_members_know_the_memory_limit_of_their_container(
    limits: dict[str, object], bytes_max: str | None
) -> None:
    found = environment(group(resources={"limits": limits, "requests": {"memory": "96Mi"}}))

    assert found.get("DLEDGER_MEMORY_LIMIT_BYTES") == bytes_max


def test_the_default_memory_limit_is_known_too() -> None:
    assert environment(group())["DLEDGER_MEMORY_LIMIT_BYTES"] == str(512 << 20)
