"""Wrong parts of pods and Services."""

from typing import Any, Final

from api_server.objects import Object


def sidecar(**parts: Any) -> Object:
    """Return a spec with one sidecar, called proxy by default."""
    return {"sidecars": {"containers": [{"name": "proxy", "image": "proxy:1", **parts}]}}


def master(**parts: Any) -> Object:
    """Return a spec with these parts of the master Service."""
    return {"services": {"master": parts}}


WRONG_PODS: Final[dict[str, Object]] = {
    "a variable of a setting": {"env": [{"name": "DLEDGER_PEERS", "value": "n0-a:1"}]},
    "the ordinal of a pod": {"env": [{"name": "POD_INDEX", "value": "1"}]},
    "a variable that is given twice": {
        "env": [{"name": "TZ", "value": "a"}, {"name": "TZ", "value": "b"}]
    },
    "a sidecar with the member's name": sidecar(name="node"),
    "a sidecar with a port of the member": sidecar(ports=[{"containerPort": 40911}]),
    "a sidecar with the name of a port of the member": sidecar(
        ports=[{"name": "http", "containerPort": 8080}]
    ),
    "a sidecar that writes to the log": sidecar(
        volumeMounts=[{"name": "data", "mountPath": "/data"}]
    ),
    "another volume of the log": {"sidecars": {"volumes": [{"name": "data", "emptyDir": {}}]}},
    "a port on the nodes of a ClusterIP Service": master(nodePort=30911),
    "a load balancer of a NodePort Service": master(
        type="NodePort", loadBalancerSourceRanges=["10.0.0.0/8"]
    ),
    "a range without a length": master(type="LoadBalancer", loadBalancerSourceRanges=["10.0.0.0"]),
    "one port for two Services": {
        "services": {
            "master": {"type": "NodePort", "nodePort": 30911},
            "slave": {"type": "NodePort", "nodePort": 30911},
        }
    },
    "root as the user": {"podSecurity": {"user": "Root"}},
    "an image with its tag in the repository": {"image": {"repository": "dledger-node:1.0"}},
    "an image with its digest in the repository": {
        "image": {"repository": f"dledger-node@sha256:{'0' * 64}"}
    },
    "a tag with a space": {"image": {"tag": "1 0"}},
    "half a digest": {"image": {"digest": "sha256:abc"}},
    "an unknown pull policy": {"image": {"pullPolicy": "Sometimes"}},
    "a pull secret with a slash": {"imagePullSecrets": [{"name": "team/registry"}]},
    "a variable with its value in the name": {"env": [{"name": "TZ=UTC"}]},
    "a container with a dot in its name": sidecar(name="proxy.v1"),
    "a volume with a slash in its name": {"sidecars": {"volumes": [{"name": "a/b"}]}},
    "an amount in words": {"resources": {"requests": {"cpu": "half"}}},
    "a limit with a unit of time": {"resources": {"limits": {"memory": "1Gi/s"}}},
    "a node label with a space": {"scheduling": {"nodeSelector": {"my disk": "ssd"}}},
    "a node label's value with a slash": {"scheduling": {"nodeSelector": {"disk": "a/b"}}},
    "a priority class with a space": {"scheduling": {"priorityClassName": "very high"}},
    "an eviction that no taint asks for": {
        "scheduling": {
            "tolerations": [{"key": "a", "effect": "NoSchedule", "tolerationSeconds": 60}]
        }
    },
    "a toleration of no key": {"scheduling": {"tolerations": [{"value": "a"}]}},
    "a value that is not compared": {
        "scheduling": {"tolerations": [{"key": "a", "operator": "Exists", "value": "b"}]}
    },
    "an unknown effect of a taint": {"scheduling": {"tolerations": [{"effect": "Evict"}]}},
    "an unknown spread": {"scheduling": {"topologySpread": "Maybe"}},
    "an annotation of a Service with a space": master(annotations={"my note": "a"}),
    "an annotation of the other Service with a space": {
        "services": {"slave": {"annotations": {"my note": "a"}}}
    },
    "a load balancer class with a space": master(type="LoadBalancer", loadBalancerClass="a b"),
    "an unknown type of Service": master(type="ExternalName"),
    "a port beyond all ports": master(type="NodePort", nodePort=65536),
    "the other Service's load balancer class with a space": {
        "services": {"slave": {"type": "LoadBalancer", "loadBalancerClass": "a b"}}
    },
    "a range of the other Service without a length": {
        "services": {"slave": {"type": "LoadBalancer", "loadBalancerSourceRanges": ["10.0.0.0"]}}
    },
}
