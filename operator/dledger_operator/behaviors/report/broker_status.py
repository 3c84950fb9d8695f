"""The part of a group's status that describes its broker."""

from collections.abc import Sequence
from typing import Final

from dledger_formats.http.broker_status import BrokerStatus
from dledger_operator import names
from dledger_operator.api_objects import Manifest
from dledger_operator.observed_broker import ObservedNameServer, name_servers, serving
from dledger_operator.observed_state import ObservedGroup
from dledger_operator.spec.broker import BrokerSpec

BROKER_KEY: Final = "broker"
UNBUILT_KEY: Final = "unbuiltEntries"


def broker_to_json(broker: BrokerSpec, observed: ObservedGroup) -> Manifest:
    """Return where clients find the broker, and at which name servers it is registered."""
    members = serving(observed)
    advertised = sorted({answer.address for _, answer in members})
    servers = [_name_server_to_json(each) for each in name_servers(observed)]
    return {
        "name": broker.name,
        "address": names.broker_address(observed.namespace, observed.name, names.NAMES_PORT),
        "servingMembers": len(members),
        **_contents_to_json([answer for _, answer in members]),
        **({"advertised": advertised} if advertised else {}),
        **({"nameServers": servers} if servers else {}),
    }


def _contents_to_json(answers: Sequence[BrokerStatus]) -> Manifest:
    """Return what the broker holds; nothing if no member serves.

    A member that has not applied the newest entries yet may report less than the others.
    """
    if not answers:
        return {}
    return {
        "topics": max(answer.topics for answer in answers),
        "consumerGroups": max(answer.consumer_groups for answer in answers),
        UNBUILT_KEY: max(answer.unbuilt_entries for answer in answers),
    }


def _name_server_to_json(found: ObservedNameServer) -> Manifest:
    return {
        "address": found.address,
        "registered": [*found.registered],
        **({"missing": [*found.missing]} if found.missing else {}),
        **({"message": found.problem} if found.problem else {}),
    }
