"""A group with `spec.broker`: its pods, its Service, and what is refused."""

from dataclasses import replace
from typing import Any

import pytest

from dledger_broker.settings import BrokerSettings
from dledger_kube.objects import IMAGES, group, group_body
from dledger_operator import names
from dledger_operator.api_objects import Manifest
from dledger_operator.behaviors.rolls.permission import applied_spec
from dledger_operator.resources import children
from dledger_operator.spec.group import Group
from dledger_operator.spec.revision import why_behind
from dledger_operator.spec.shape import Shape
from dledger_operator.spec.spec_reader import InvalidSpecError

NEW = Shape.of_new(3)
GUARDED = replace(IMAGES, operator_namespace="dledger-system")


def built(of: Group, kind: str, name: str) -> Manifest:
    return next(
        each
        for each in children.build(of, NEW)
        if (each["kind"], each["metadata"]["name"]) == (kind, name)
    )


def template(of: Group) -> Manifest:
    found: Manifest = built(of, "StatefulSet", "flights")["spec"]["template"]
    return found


def container(of: Group) -> Manifest:
    (found,) = template(of)["spec"]["containers"]
    return dict(found)


def environment(of: Group, *, index: int = 1, ip: str = "10.244.1.7") -> dict[str, str]:
    """Return the variables as the kubelet of a pod expands them."""
    known = {"POD_INDEX": str(index), "BROKER_POD_IP": ip}
    expanded: dict[str, str] = {}
    for each in container(of)["env"]:
        text = each.get("value", known.get(each["name"], ""))
        for name, value in expanded.items():
            text = text.replace(f"$({name})", value)
        expanded[each["name"]] = text
    return expanded | {"DLEDGER_INITIAL_GROUP_STATE": "new"}


def settings(of: Group, **pod: Any) -> BrokerSettings:
    """Return the settings that a member of the group reads, as its program checks them."""
    return BrokerSettings.from_environment(
        {k: v for k, v in environment(of, **pod).items() if k.startswith("DLEDGER_")}
    )


def test_a_group_without_a_broker_runs_plain_nodes_and_has_no_broker_service() -> None:
    plain = group()

    assert container(plain)["command"] == ["dledger-node"]
    assert [each["name"] for each in container(plain)["ports"]] == ["remoting", "http"]
    assert not [each for each in environment(plain) if "BROKER" in each]
    assert ("Service", "flights-broker") not in children.identities(plain)


def test_an_empty_broker_is_enough() -> None:
    told = settings(group(broker={}))

    assert container(group(broker={}))["command"] == ["dledger-broker"]
    assert (told.name, told.cluster, told.auto_create_topics) == ("flights", "DefaultCluster", True)
    assert told.name_servers == ()
    assert told.register_members
    assert told.group_address == "flights-broker.air.svc:10911"
    assert told.node.state_machine == "none"


def test_the_members_get_what_the_spec_says() -> None:
    spec = {
        "brokerName": "orders",
        "clusterName": "shop",
        "autoCreateTopics": False,
        "nameServers": ["10.0.0.8:9876", "namesrv.example:9876"],
        "registerMembers": False,
        "advertise": "203.0.113.7:10911",
    }
    told = settings(group(broker=spec))

    assert (told.name, told.cluster, told.auto_create_topics) == ("orders", "shop", False)
    assert told.name_servers == ("10.0.0.8:9876", "namesrv.example:9876")
    assert told.group_address == "203.0.113.7:10911"
    assert not told.register_members


@pytest.mark.parametrize(
    ("ip", "address"), [("10.244.1.7", "10.244.1.7:10911"), ("fd00::7", "[fd00::7]:10911")]
)
def test_a_member_listens_at_its_pods_ip_of_either_kind(ip: str, address: str) -> None:
    assert settings(group(broker={}), index=2, ip=ip).addresses == {"n2": address}


def test_the_service_leads_from_three_ports_to_the_brokers_port_of_every_member() -> None:
    of = group(broker={})
    service = built(of, "Service", "flights-broker")["spec"]

    assert service["type"] == "ClusterIP"
    assert service["selector"] == {names.GROUP_LABEL: "flights"}
    assert {each["port"]: each["targetPort"] for each in service["ports"]} == {
        9876: "broker",
        10911: "broker",
        10909: "broker",
    }
    assert {"name": "broker", "containerPort": 10911} in container(of)["ports"]
    assert ("Service", "flights-broker") in children.identities(of)


def test_the_service_is_of_the_type_that_the_spec_says() -> None:
    chosen = {
        "type": "LoadBalancer",
        "annotations": {"example.com/internal": "true"},
        "loadBalancerClass": "example.com/nlb",
        "loadBalancerSourceRanges": ["10.0.0.0/8"],
    }
    service = built(group(broker={"service": chosen}), "Service", "flights-broker")

    assert service["metadata"]["annotations"] == {"example.com/internal": "true"}
    assert service["spec"]["type"] == "LoadBalancer"
    assert service["spec"]["loadBalancerClass"] == "example.com/nlb"
    assert service["spec"]["loadBalancerSourceRanges"] == ["10.0.0.0/8"]


@pytest.mark.parametrize(
    ("broker", "closed"),
    [({}, True), ({"service": {"type": "NodePort"}}, False)],
    ids=["inside the cluster", "outside"],
)
def test_the_policy_lets_clients_of_the_log_reach_the_broker(
    broker: dict[str, Any], closed: bool
) -> None:
    of = Group.from_body(group_body({"broker": broker}), GUARDED)
    clients, pages = built(of, "NetworkPolicy", "flights-members")["spec"]["ingress"]

    assert [each["port"] for each in clients["ports"]] == [40911, 10911]
    assert ("from" in clients) is closed
    assert [each["port"] for each in pages["ports"]] == [names.HTTP_PORT]


def test_a_change_of_the_service_alone_replaces_no_pod() -> None:
    before, after = {"broker": {}}, {"broker": {"service": {"type": "NodePort"}}}
    revisions = [children.revision(group(**spec), NEW) for spec in (before, after)]

    assert revisions[0] == revisions[1]
    assert applied_spec(group_body(before)).digest == applied_spec(group_body(after)).digest


def test_another_setting_of_the_broker_replaces_the_pods() -> None:
    before, after = {"broker": {}}, {"broker": {"autoCreateTopics": False}}
    revisions = [children.revision(group(**spec), NEW) for spec in (before, after)]

    assert why_behind(*revisions) == "settings"
    assert applied_spec(group_body(before)).digest != applied_spec(group_body(after)).digest


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"broker": {"brokerName": "a b"}}, "spec.broker.brokerName is 'a b'"),
        ({"broker": {"clusterName": "a" * 128}}, "spec.broker.clusterName is"),
        ({"broker": {"nameServers": ["a"]}}, "spec.broker.nameServers has 'a'"),
        ({"broker": {"nameServers": ["a:70000"]}}, "spec.broker.nameServers has 'a:70000'"),
        ({"broker": {"nameServers": [f"n{n}:1" for n in range(17)]}}, "17 name servers; 16 are"),
        ({"broker": {"advertise": "everywhere"}}, "spec.broker.advertise has 'everywhere'"),
        ({"broker": True}, "spec.broker is True; it must be an object"),
        ({"broker": {}, "stateMachine": {"type": "Register"}}, "spec.stateMachine.type must be"),
        (
            {
                "broker": {},
                "sidecars": {"containers": [{"name": "x", "ports": [{"containerPort": 10911}]}]},
            },
            "the port 10911 and the name broker",
        ),
        ({"env": [{"name": "BROKER_POD_IP", "value": "::1"}]}, "BROKER_POD_IP"),
    ],
)
def test_what_a_broker_cannot_have_is_refused_in_words(spec: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidSpecError) as error:
        group(**spec)

    assert words in str(error.value)
