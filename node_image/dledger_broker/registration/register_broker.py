"""What a member registers about itself at a name server. Pure functions."""

from typing import NamedTuple

import msgspec

from dledger_broker.registration import routes
from dledger_broker.settings import BrokerSettings
from dledger_broker.state import tables_shown
from dledger_broker.state.tables import Tables, TableVersion
from dledger_broker.state.topics import Topic
from dledger_formats.protocol import frames
from dledger_formats.protocol.frames import RemotingCommand
from dledger_formats.rocketmq import topic_names
from dledger_formats.rocketmq.codes import VERSION_5_3_3, RequestCode
from dledger_formats.rocketmq.names import (
    MASTER_ID,
    RegisterBroker,
    RegisterBrokerFields,
    body_checksum,
)
from dledger_formats.rocketmq.topics import TopicConfig, TopicTable

_ALWAYS = (topic_names.STATE_TOPIC, topic_names.SCHEDULE_TOPIC)
"""A name server refuses a first registration with exactly one topic (RouteInfoManager); these exist
in every group, so there are always two.
"""


class Standing(NamedTuple):
    """A record that a name server should have now; a change is registered soon."""

    broker_id: int
    """0 for the address of the group, or else a leader that has proved itself; the ordinal + 1 for
    any other member.
    """
    address: str
    """IP and port of the broker with this id."""
    term: int
    """The member's term. A name server of 5.x ignores a broker with id 0 of an earlier term than
    the one it knows.
    """
    topics: TableVersion
    """The version of the topics."""


class Standings(NamedTuple):
    """What this member keeps registered."""

    own: Standing
    """The member's own address."""
    group: Standing | None = None
    """The address of all members; None if another member keeps it, or there is none."""


def body(settings: BrokerSettings, standing: Standing, tables: Tables) -> bytes:
    """Return the body of REGISTER_BROKER: all topics. Any thread may call this."""
    shown = tables_shown.topics(tables)
    configs: dict[str, TopicConfig] = {
        name: tables_shown.topic_config(name, Topic(None, 0, [])) for name in _ALWAYS
    }
    template = routes.config_of(settings, topic_names.DEFAULT_TOPIC, None)
    if template is not None:
        configs[template.topic_name] = template
    table = TopicTable(
        data_version=msgspec.structs.replace(shown.data_version, state_version=standing.term),
        topic_config_table=configs | shown.topic_config_table,
    )
    return RegisterBroker(topic_config_serialize_wrapper=table).to_json()


def frame(settings: BrokerSettings, standing: Standing, topics: bytes, opaque: int) -> bytes:
    """Return the request REGISTER_BROKER. Raises ValueError if it would be too long.

    A name server of 5.x takes the topics of the broker with the smallest id, while there is none
    with id 0, if the presence of `enableActingMaster` shows that it is of 5.x (RouteInfoManager). A
    name server that has lost all records would then return routes without a master to clients that
    know one, until the leader comes back, too. So only a broker with id 0 sends the field. Without
    topics there is no route, and clients keep the one that they have.
    """
    fields = RegisterBrokerFields(
        broker_name=settings.name,
        broker_addr=standing.address,
        cluster_name=settings.cluster,
        ha_server_addr=settings.addresses[settings.node.self_id],
        broker_id=standing.broker_id,
        body_crc32=body_checksum(topics),
        compressed=False,
        enable_acting_master=False if standing.broker_id == MASTER_ID else None,
    )
    return frames.encode(
        RemotingCommand(
            code=int(RequestCode.REGISTER_BROKER),
            opaque=opaque,
            ext_fields=fields.to_ext(),
            body=topics,
            version=VERSION_5_3_3,
        )
    )
