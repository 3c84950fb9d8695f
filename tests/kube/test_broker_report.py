"""What the operator reports of a broker: the condition BrokerServing, the status, the metrics."""

from dataclasses import replace
from typing import Any

from prometheus_client import generate_latest

from dledger_formats.http.broker_status import BrokerStatus, NameServerStatus
from dledger_formats.http.status import NodeStatus
from dledger_kube.objects import NOW, group, member, observed_group
from dledger_operator.api_objects import Manifest
from dledger_operator.behaviors.leader.leader_history import LeaderHistory
from dledger_operator.behaviors.report.number_changes import differ_in_numbers_only
from dledger_operator.behaviors.report.status import build_status
from dledger_operator.conditions import of_group
from dledger_operator.metrics import OperatorMetrics
from dledger_operator.observed_state import ObservedGroup, ObservedMember

SERVER = "namesrv.example:9876"
REFUSAL = "it answers 1: no"


def taking(ordinal: int, *servers: NameServerStatus, **fields: Any) -> ObservedMember:
    """Return a member whose broker takes clients."""
    told = BrokerStatus(
        name="flights", cluster="DefaultCluster", address="10.96.0.7:10911", serving=True,
        reason="", name_servers=[*servers],
    )  # fmt: skip
    return with_broker(member(ordinal, **fields), told)


def with_broker(of: ObservedMember, broker: BrokerStatus | None) -> ObservedMember:
    assert of.status is not None
    return replace(of, status=replace(of.status, broker=broker))


def server(*, registered: bool, problem: str = "") -> NameServerStatus:
    return NameServerStatus(address=SERVER, registered=registered, problem=problem)


def broker_group(*members: ObservedMember, **fields: Any) -> ObservedGroup:
    """Return a group with `spec.broker` that is to register at one name server."""
    broker = group(broker={"nameServers": [SERVER]}).broker
    return observed_group(broker=broker, members=members, **fields)


def registered_everywhere() -> ObservedGroup:
    return broker_group(*(taking(k, server(registered=True)) for k in range(3)))


def condition(of: ObservedGroup) -> Manifest:
    built = of_group.build(of, previous=[], now=NOW, generation=4)
    return next(each for each in built if each["type"] == "BrokerServing")


def verdict(of: ObservedGroup) -> tuple[str, str]:
    found = condition(of)
    return found["status"], found["reason"]


def status(of: ObservedGroup) -> Manifest:
    built = build_status(of, LeaderHistory([]), generation=4, previous={}, now=NOW)
    shown: Manifest = built["broker"]
    return shown


def test_a_group_that_is_no_broker_has_no_word_about_one() -> None:
    plain = observed_group()
    built = build_status(plain, LeaderHistory([]), generation=4, previous={}, now=NOW)

    assert "broker" not in built
    assert "BrokerServing" not in {each["type"] for each in built["conditions"]}


def test_members_that_take_clients_serve() -> None:
    assert verdict(registered_everywhere()) == ("True", "Serving")
    assert condition(registered_everywhere())["message"] == (
        "3 of 3 members take clients at flights-broker.air.svc:9876"
    )


def test_a_member_that_takes_no_clients_is_named_with_its_reason() -> None:
    opening = with_broker(
        member(2, ready=False, reason="the broker is opening its consume queues"),
        BrokerStatus(
            name="flights", cluster="c", address="", serving=False,
            reason="the broker is opening its consume queues",
        ),
    )  # fmt: skip
    plain = with_broker(member(0), None)
    found = broker_group(plain, taking(1, server(registered=True)), opening)

    assert verdict(found) == ("True", "Serving")
    message = condition(found)["message"]
    assert "1 of 3 members take clients" in message
    assert "flights-0: its program is no broker" in message
    assert "flights-2: the broker is opening its consume queues" in message


def test_a_broker_without_a_member_that_takes_clients_does_not_serve() -> None:
    gone = [member(k, ready=False, reason="the pod does not exist", status=None) for k in range(3)]

    assert verdict(broker_group(*gone)) == ("False", "NoMemberServes")
    assert "flights-1: the pod does not exist" in condition(broker_group(*gone))["message"]


def test_without_a_leader_nothing_is_accepted() -> None:
    leaderless = replace(registered_everywhere(), leader=None)

    assert verdict(leaderless) == ("False", "NoLeader")


def test_a_group_that_hibernates_serves_nobody() -> None:
    asleep = broker_group(
        *(member(k, exists=False, ready=False, reason="no pod", status=None) for k in range(3)),
        hibernate=True,
    )

    assert verdict(asleep) == ("False", "Hibernated")


def test_a_name_server_that_refuses_is_named_and_serving_goes_on() -> None:
    found = broker_group(
        taking(0, server(registered=True)),
        taking(1, server(registered=False, problem=REFUSAL)),
        taking(2),
    )

    assert verdict(found) == ("True", "NotRegistered")
    assert f"n1, n2 at {SERVER} ({REFUSAL})" in condition(found)["message"]


def test_the_status_tells_where_clients_find_the_broker() -> None:
    assert status(registered_everywhere()) == {
        "name": "flights",
        "address": "flights-broker.air.svc:9876",
        "servingMembers": 3,
        "topics": 0,
        "consumerGroups": 0,
        "unbuiltEntries": 0,
        "advertised": ["10.96.0.7:10911"],
        "nameServers": [{"address": SERVER, "registered": ["n0", "n1", "n2"]}],
    }


def holding(ordinal: int, topics: int, consumer_groups: int, unbuilt: int = 0) -> ObservedMember:
    """Return a member that takes clients, and holds so much."""
    found = taking(ordinal)
    assert found.status is not None
    assert found.status.broker is not None
    return with_broker(
        found,
        replace(
            found.status.broker,
            topics=topics, consumer_groups=consumer_groups, unbuilt_entries=unbuilt,
        ),
    )  # fmt: skip


def test_the_status_tells_what_the_broker_holds_and_how_far_queues_are_behind() -> None:
    found = status(broker_group(holding(0, 12, 3), holding(1, 11, 3, 700), holding(2, 12, 2)))

    assert (found["topics"], found["consumerGroups"], found["unbuiltEntries"]) == (12, 3, 700)


def test_the_status_tells_nothing_of_topics_while_no_member_serves() -> None:
    assert "topics" not in status(broker_group(with_broker(member(0), None)))


def test_queues_that_are_built_a_little_further_are_no_news() -> None:
    idle, busy = (
        build_status(
            broker_group(holding(0, 12, 3, unbuilt)), LeaderHistory([]),
            generation=4, previous={}, now=NOW,
        )
        for unbuilt in (0, 40)
    )  # fmt: skip
    more_topics = busy | {"broker": busy["broker"] | {"topics": 13}}

    assert differ_in_numbers_only(idle, busy)
    assert not differ_in_numbers_only(idle, more_topics)


def test_the_status_tells_who_is_not_registered_and_why() -> None:
    refused = server(registered=False, problem=REFUSAL)
    found = broker_group(taking(0, refused), taking(1, server(registered=True)))

    assert status(found)["nameServers"] == [
        {"address": SERVER, "registered": ["n1"], "missing": ["n0"], "message": REFUSAL}
    ]


def test_the_metrics_count_members_that_serve_and_are_registered() -> None:
    metrics = OperatorMetrics(clock=lambda: 0.0)
    refused = server(registered=False, problem=REFUSAL)
    found = broker_group(taking(0, refused), taking(1, server(registered=True)), taking(2))
    metrics.update_group(found, of_group.build(found, previous=(), now=NOW, generation=1))
    metrics.update_group(replace(observed_group(), name="plain"), [])

    text = generate_latest(metrics.registry).decode()

    assert 'dledger_group_broker_members{group="flights",namespace="air"} 3.0' in text
    name_server = f'group="flights",name_server="{SERVER}",namespace="air"'
    assert f"dledger_group_broker_registered{{{name_server}}} 1.0" in text
    assert 'dledger_group_condition{condition="BrokerServing",group="flights"' in text
    assert 'dledger_group_broker_members{group="plain"' not in text


def test_the_metrics_show_whose_consume_queues_are_behind() -> None:
    metrics = OperatorMetrics(clock=lambda: 0.0)
    behind = taking(1)
    assert behind.status is not None
    assert behind.status.broker is not None
    behind = with_broker(behind, replace(behind.status.broker, unbuilt_entries=7))
    metrics.update_group(broker_group(taking(0), behind, with_broker(member(2), None)), [])

    text = generate_latest(metrics.registry).decode()

    name = "dledger_member_broker_unbuilt_entries"
    assert f'{name}{{group="flights",member="n0",namespace="air"}} 0.0' in text
    assert f'{name}{{group="flights",member="n1",namespace="air"}} 7.0' in text
    assert f'{name}{{group="flights",member="n2"' not in text


def test_a_status_of_a_member_keeps_its_broker_on_the_wire() -> None:
    told = taking(1, server(registered=False, problem=REFUSAL)).status

    assert told is not None
    assert NodeStatus.from_json(told.to_json()) == told
