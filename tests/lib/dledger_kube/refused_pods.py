"""Parts of pods and Services that the schema refuses, with the server's answer."""

from typing import Any

from api_server.objects import Object


def sidecar(**parts: Any) -> Object:
    """A spec with one sidecar, called proxy by default."""
    return {"sidecars": {"containers": [{"name": "proxy", "image": "proxy:1", **parts}]}}


def master(**parts: Any) -> Object:
    """A spec with these parts of the master Service."""
    return {"services": {"master": parts}}


REFUSED_PODS: dict[str, tuple[Object, str]] = {
    "a variable of a setting": (
        {"env": [{"name": "DLEDGER_PEERS", "value": "n0-a:1"}]},
        "DLEDGER_PEERS is a variable of the operator: the keys log, limits and others",
    ),
    "the ordinal of a pod": (
        {"env": [{"name": "POD_INDEX", "value": "1"}]},
        "POD_INDEX is a variable of the operator: the keys log",
    ),
    "a variable that is given twice": (
        {"env": [{"name": "TZ", "value": "a"}, {"name": "TZ", "value": "b"}]},
        "Duplicate value",
    ),
    "a sidecar with the member's name": (
        sidecar(name="node"),
        "the container node is the member: choose another name for the sidecar",
    ),
    "a sidecar with a port of the member": (
        sidecar(ports=[{"containerPort": 40911}]),
        "the ports remoting (40911) and http (40912) are the member's: choose other names",
    ),
    "a sidecar with the name of a port of the member": (
        sidecar(ports=[{"name": "http", "containerPort": 8080}]),
        "the ports remoting (40911) and http (40912) are the member's: choose other names",
    ),
    "a sidecar that writes to the log": (
        sidecar(volumeMounts=[{"name": "data", "mountPath": "/data"}]),
        "mount the volume data with readOnly: true; only the member may write to its log",
    ),
    "another volume of the log": (
        {"sidecars": {"volumes": [{"name": "data", "emptyDir": {}}]}},
        "the volumes data, settings and admin-token are the member's: choose another name",
    ),
    "a port on the nodes of a ClusterIP Service": (
        master(nodePort=30911),
        "nodePort needs the type NodePort or LoadBalancer: a ClusterIP Service has no port",
    ),
    "a load balancer of a NodePort Service": (
        master(type="NodePort", loadBalancerSourceRanges=["10.0.0.0/8"]),
        "loadBalancerClass and loadBalancerSourceRanges need the type LoadBalancer",
    ),
    "a range without a length": (
        master(type="LoadBalancer", loadBalancerSourceRanges=["10.0.0.0"]),
        "spec.services.master.loadBalancerSourceRanges[0] in body should match",
    ),
    "one port for two Services": (
        {
            "services": {
                "master": {"type": "NodePort", "nodePort": 30911},
                "slave": {"type": "NodePort", "nodePort": 30911},
            }
        },
        "master and slave have the same nodePort: each Service needs its own",
    ),
    "root as the user": ({"podSecurity": {"user": "Root"}}, 'supported values: "Fixed", "Cluster"'),
}
