"""The answers of a name server: every member gives them for its own group."""

from dledger_broker.door.calls.call import Call
from dledger_broker.leading.log_owner import LogOwner
from dledger_broker.registration import routes
from dledger_broker.registration.addresses import Addresses
from dledger_broker.settings import BrokerSettings
from dledger_formats.rocketmq.codes import ResponseCode
from dledger_formats.rocketmq.topics import TopicFields
from dledger_node.embedding import Member


class RouteRequests:
    """Answers the requests that clients have for a name server (105, 106 and 206)."""

    def __init__(
        self, settings: BrokerSettings, member: Member, owner: LogOwner, addresses: Addresses
    ) -> None:
        self._settings = settings
        self._member = member
        self._owner = owner
        self._addresses = addresses

    def route(self, call: Call) -> None:
        """Answer with the route of a topic. Raises FormatError."""
        name = call.fields(TopicFields).topic
        topic = self._owner.state.tables.topics.by_name.get(name)
        config = routes.config_of(self._settings, name, topic)
        if config is None:
            remark = f"the topic {name[:150]!r} does not exist"
            call.answer(ResponseCode.TOPIC_NOT_EXIST, remark=remark)
            return
        route = routes.route(self._settings, config, self._addresses.route(self._member.leader_id))
        call.answer(ResponseCode.SUCCESS, body=route.to_json())

    def cluster(self, call: Call) -> None:
        """Answer with the brokers of the cluster."""
        info = routes.cluster(self._settings, self._addresses.route(self._member.leader_id))
        call.answer(ResponseCode.SUCCESS, body=info.to_json())

    def topics(self, call: Call) -> None:
        """Answer with the names of all topics."""
        names = routes.topic_list(self._settings, self._owner.state.tables.topics.by_name)
        call.answer(ResponseCode.SUCCESS, body=names.to_json())
