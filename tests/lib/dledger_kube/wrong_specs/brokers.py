"""Wrong settings of a broker, and wrong changes of a group that is one."""

from typing import Final

from api_server.objects import Object

LONG: Final = "orders" * 22


def broker(**given: object) -> Object:
    return {"broker": given}


WRONG_BROKERS: Final[dict[str, Object]] = {
    "a broker with a space": broker(brokerName="my broker"),
    "a broker with a name too long": broker(brokerName=LONG),
    "a cluster with a dot": broker(clusterName="cluster.one"),
    "a cluster without a name": broker(clusterName=""),
    "a name server without a port": broker(nameServers=["namesrv.example"]),
    "a name server at no port": broker(nameServers=["namesrv.example:65536"]),
    "two name servers in one": broker(nameServers=["a:9876;b:9876"]),
    "a name server that is named twice": broker(nameServers=["a:9876", "a:9876"]),
    "more than 16 name servers": broker(nameServers=[f"n{n}:9876" for n in range(17)]),
    "clients led to a URL": broker(advertise="http://broker.example:10911"),
    "a word for topics": broker(autoCreateTopics="yes"),
    "a word for members": broker(registerMembers="no"),
    "a broker's Service of no type": broker(service={"type": "ExternalName"}),
    "a broker's load balancer without one": broker(service={"loadBalancerClass": "a.b/c"}),
    "a port of the broker's Service": broker(service={"nodePort": 30911}),
    "a state machine beside a broker's": broker() | {"stateMachine": {"type": "Register"}},
    "appends of followers to a broker": broker() | {"appendsToFollowers": "PassOn"},
    "a variable of the broker": broker() | {"env": [{"name": "BROKER_POD_IP", "value": "::1"}]},
}

WRONG_BROKER_CHANGES: Final[dict[str, Object]] = {
    "no broker any more": {"broker": None},
    "another name of the broker": broker(brokerName="invoices"),
    "no name of the broker": broker(brokerName=None),
}
