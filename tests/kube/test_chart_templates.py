"""Rendering the Helm chart, without an API server."""

import functools
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import yaml

from api_server.client import CommandError, Helm
from dledger_operator import config
from dledger_operator.config import OperatorSettings
from tools import crd_reference

pytest_plugins = ["api_server.fixtures"]

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "helm" / "dledger-operator"
OLDEST_KUBERNETES = "1.29.0"
CRD = "CustomResourceDefinition"
CRDS = [
    f"{CRD}/dledger{each}.dledger.io" for each in ("groups", "audits", "switchovers", "replaces")
]
DIGEST = "sha256:" + "0123456789abcdef" * 4

Object: TypeAlias = dict[str, Any]
Render: TypeAlias = Callable[..., list[Object]]

EVERYTHING = {
    "imageRegistry": "registry.example:5000",
    "imagePullSecrets": [{"name": "registry"}],
    "image": {"digest": DIGEST, "pullPolicy": "Always"},
    "watchNamespaces": ["team-a", "team-b"],
    "serviceAccount": {"name": "robot", "annotations": {"example.com/team": "a"}},
    "logLevel": "debug",
    "logFormat": "text",
    "monitoring": {
        "metricsService": {"enabled": True, "annotations": {"example.com/scrape": "yes"}},
        "podMonitor": {"enabled": True, "labels": {"prometheus": "main"}, "interval": "5s"},
    },
    "networkPolicies": {"monitoringNamespaces": ["monitoring"]},
    "podLabels": {"example.com/team": "a"},
    "podAnnotations": {"example.com/note": "b"},
    "nodeSelector": {"kubernetes.io/os": "linux"},
    "tolerations": [{"key": "infra", "operator": "Exists"}],
    "affinity": {"nodeAffinity": {}},
    "priorityClassName": "system-cluster-critical",
    "extraEnv": [{"name": "HTTPS_PROXY", "value": "http://proxy.example:3128"}],
}


@pytest.fixture(scope="module")
def render(helm: Helm, tmp_path_factory: pytest.TempPathFactory) -> Render:
    """Render a chart with a tree of values; equal requests are rendered once."""
    file = tmp_path_factory.mktemp("values") / "values.yaml"

    @functools.cache
    def rendered(values: str, chart: Path) -> list[Object]:
        file.write_text(values)
        version = f"--kube-version={OLDEST_KUBERNETES}"
        text = helm("template", "dl", str(chart), "--namespace=ops", version, f"--values={file}")
        return [manifest for manifest in yaml.safe_load_all(text) if manifest]

    return lambda values=None, chart=CHART: rendered(yaml.safe_dump(values or {}), chart)


def names(manifests: list[Object]) -> set[str]:
    return {f"{manifest['kind']}/{manifest['metadata']['name']}" for manifest in manifests}


def of_kind(manifests: list[Object], kind: str) -> list[Object]:
    return [manifest for manifest in manifests if manifest["kind"] == kind]


def deployment(manifests: list[Object]) -> Object:
    (found,) = of_kind(manifests, "Deployment")
    return found


def pod(manifests: list[Object]) -> Object:
    template: Object = deployment(manifests)["spec"]["template"]
    return template


def container(manifests: list[Object]) -> Object:
    (found,) = pod(manifests)["spec"]["containers"]
    assert isinstance(found, dict)
    return found


def environment(manifests: list[Object]) -> dict[str, str]:
    """The variables that are not taken from the pod."""
    variables = container(manifests)["env"]
    return {each["name"]: each["value"] for each in variables if "value" in each}


def operator_rules(manifests: list[Object]) -> Iterator[Object]:
    """Yield the RBAC rules that the operator's own bindings grant."""
    bindings = [item for item in manifests if item["kind"].endswith("RoleBinding")]
    bound = {item["roleRef"]["name"] for item in bindings}
    for manifest in manifests:
        if manifest["kind"] in ("Role", "ClusterRole") and manifest["metadata"]["name"] in bound:
            yield from manifest["rules"]


@pytest.mark.parametrize("values", [{}, EVERYTHING], ids=["defaults", "everything"])
def test_the_chart_passes_the_linter(helm: Helm, tmp_path: Path, values: Object) -> None:
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(values))

    assert "0 chart(s) failed" in helm("lint", "--strict", f"--values={file}", str(CHART))


def test_the_defaults_give_one_operator_for_all_namespaces(render: Render) -> None:
    assert names(render()) == {
        *CRDS,
        "ServiceAccount/dl-dledger-operator",
        "Role/ops:dl-dledger-operator:lease",
        "RoleBinding/ops:dl-dledger-operator:lease",
        "PodDisruptionBudget/dl-dledger-operator",
        "NetworkPolicy/dl-dledger-operator",
        "ClusterRole/ops:dl-dledger-operator",
        "ClusterRoleBinding/ops:dl-dledger-operator",
        "ClusterRole/ops:dl-dledger-operator:nodes",
        "ClusterRoleBinding/ops:dl-dledger-operator:nodes",
        "ClusterRole/ops:dl-dledger-operator:view",
        "ClusterRole/ops:dl-dledger-operator:edit",
        "Deployment/dl-dledger-operator",
    }


def test_all_objects_are_rendered_with_everything_enabled(render: Render) -> None:
    assert names(render(EVERYTHING)) == {
        *CRDS,
        "ServiceAccount/robot",
        "Role/ops:dl-dledger-operator:lease",
        "RoleBinding/ops:dl-dledger-operator:lease",
        "PodDisruptionBudget/dl-dledger-operator",
        "NetworkPolicy/dl-dledger-operator",
        "Role/ops:dl-dledger-operator",
        "RoleBinding/ops:dl-dledger-operator",
        "ClusterRole/ops:dl-dledger-operator:nodes",
        "ClusterRoleBinding/ops:dl-dledger-operator:nodes",
        "ClusterRole/ops:dl-dledger-operator:view",
        "ClusterRole/ops:dl-dledger-operator:edit",
        "Deployment/dl-dledger-operator",
        "Service/dl-dledger-operator-metrics",
        "PodMonitor/dl-dledger-operator",
    }


def test_only_the_deployment_is_rendered_with_everything_disabled(render: Render) -> None:
    off = {
        "replicas": 1,
        "crds": {"create": False},
        "rbac": {"create": False},
        "serviceAccount": {"create": False, "name": "robot"},
        "networkPolicies": {"enabled": False},
    }

    assert names(render(off)) == {"Deployment/dl-dledger-operator"}


@pytest.mark.parametrize(
    ("values", "who"),
    [
        ({}, {"podSelector": {}}),
        ({"monitoring": {"metricsService": {"enabled": True}}}, {"namespaceSelector": {}}),
        ({"monitoring": {"podMonitor": {"enabled": True}}}, {"namespaceSelector": {}}),
        (
            EVERYTHING,
            {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}},
        ),
    ],
)
def test_only_the_collector_of_metrics_connects_to_the_operator(
    render: Render, values: Object, who: Object
) -> None:
    (policy,) = of_kind(render(values), "NetworkPolicy")

    (rule,) = policy["spec"]["ingress"]
    assert (rule["ports"], rule["from"]) == ([{"protocol": "TCP", "port": 8080}], [who])
    (operator,) = of_kind(render(values), "Deployment")
    labels = operator["spec"]["template"]["metadata"]["labels"]
    assert policy["spec"]["podSelector"]["matchLabels"].items() <= labels.items()
    # Groups let the operator in by these labels.
    wanted = {"app.kubernetes.io/component": "operator", "app.kubernetes.io/part-of": "dledger"}
    assert wanted.items() <= labels.items()


def test_each_watched_namespace_gets_a_role_of_its_own(render: Render) -> None:
    manifests = render({"watchNamespaces": ["team-a", "team-b"]})
    bindings = of_kind(manifests, "RoleBinding")

    def namespaces(kind: str, *, of_lease: bool) -> set[str]:
        """The namespaces of the roles or bindings, of the release's Lease or of the groups."""
        return {
            each["metadata"]["namespace"]
            for each in of_kind(manifests, kind)
            if each["metadata"]["name"].endswith(":lease") is of_lease
        }

    for kind in ("Role", "RoleBinding"):
        assert namespaces(kind, of_lease=False) == {"team-a", "team-b"}
        assert namespaces(kind, of_lease=True) == {"ops"}
    assert {binding["subjects"][0]["namespace"] for binding in bindings} == {"ops"}
    assert environment(manifests)["DLEDGER_OPERATOR_WATCH_NAMESPACES"] == "team-a,team-b"


@pytest.mark.parametrize("values", [{}, EVERYTHING], ids=["every namespace", "two namespaces"])
def test_the_operator_has_only_the_permissions_it_needs(render: Render, values: Object) -> None:
    rules = list(operator_rules(render(values | {"watchNodes": False})))
    verbs = {verb for rule in rules for verb in rule["verbs"]}
    resources = {resource for rule in rules for resource in rule["resources"]}

    deletable = {each for rule in rules if "delete" in rule["verbs"] for each in rule["resources"]}

    assert verbs == {"get", "list", "watch", "create", "patch", "delete"}
    # A StatefulSet is only deleted without its pods, to give it larger claim templates.
    assert deletable == {
        "dledgeraudits", "dledgerswitchovers", "dledgerreplaces", "networkpolicies",
        "persistentvolumeclaims", "pods", "statefulsets",
    }  # fmt: skip
    assert not resources & {"*", "pods/exec", "nodes", "namespaces"}
    # Of Secrets, those of one name alone can be read or changed.
    for rule in rules:
        if "secrets" in rule["resources"] and rule["verbs"] != ["create"]:
            assert (rule["resourceNames"], rule["verbs"]) == (
                ["admin-tokens.dledger.io"],
                ["get", "patch"],
            )
    assert all("*" not in rule["apiGroups"] for rule in rules)


@pytest.mark.parametrize("values", [{}, EVERYTHING], ids=["every namespace", "two namespaces"])
def test_nodes_are_only_read_and_only_if_the_values_allow_it(
    render: Render, values: Object
) -> None:
    def of_nodes(manifests: list[Object]) -> list[Object]:
        return [each for each in operator_rules(manifests) if "nodes" in each["resources"]]

    with_nodes, without = render(values), render(values | {"watchNodes": False})
    assert [rule["verbs"] for rule in of_nodes(with_nodes)] == [["get", "list", "watch"]]
    assert of_nodes(without) == []
    told = [environment(each)["DLEDGER_OPERATOR_WATCH_NODES"] for each in (with_nodes, without)]
    assert told == ["true", "false"]


@pytest.mark.parametrize(
    ("values", "image"),
    [
        ({}, "dledger-operator:0.1.0"),
        ({"image": {"tag": "7"}}, "dledger-operator:7"),
        ({"image": {"tag": "7", "digest": DIGEST}}, f"dledger-operator@{DIGEST}"),
        ({"imageRegistry": "r.example/a/"}, "r.example/a/dledger-operator:0.1.0"),
        ({"image": {"repository": "b/c"}}, "b/c:0.1.0"),
    ],
)
def test_an_image_is_registry_repository_and_tag_or_digest(
    render: Render, values: Object, image: str
) -> None:
    assert container(render(values))["image"] == image


def test_the_operator_receives_the_images_of_members_and_audits(render: Render) -> None:
    received = environment(
        render(
            {"imageRegistry": "r.example", "auditImage": {"tag": "2"}, "nodeImage": {"tag": "3"}}
        )
    )

    assert received["DLEDGER_OPERATOR_NODE_IMAGE"] == "r.example/dledger-node:3"
    assert received["DLEDGER_OPERATOR_AUDIT_IMAGE"] == "r.example/dledger-audit:2"


def test_the_operator_is_evicted_from_a_lost_node_within_seconds(render: Render) -> None:
    tolerations = pod(render())["spec"]["tolerations"]

    assert {toleration["key"]: toleration["tolerationSeconds"] for toleration in tolerations} == {
        "node.kubernetes.io/not-ready": 5,
        "node.kubernetes.io/unreachable": 5,
    }


def test_the_replicas_share_a_lease_under_names_of_their_own(render: Render) -> None:
    variables = {each["name"]: each for each in container(render())["env"]}

    source = variables["DLEDGER_OPERATOR_IDENTITY"]["valueFrom"]
    assert source == {"fieldRef": {"fieldPath": "metadata.name"}}
    assert deployment(render())["spec"]["replicas"] == 2


def test_the_replicas_prefer_different_nodes_unless_told_otherwise(render: Render) -> None:
    (terms,) = pod(render())["spec"]["affinity"]["podAntiAffinity"].values()
    keys = {each["weight"]: each["podAffinityTerm"]["topologyKey"] for each in terms}

    assert keys == {100: "kubernetes.io/hostname", 50: "topology.kubernetes.io/zone"}
    for each in terms:
        labels = each["podAffinityTerm"]["labelSelector"]["matchLabels"]
        assert labels.items() <= pod(render())["metadata"]["labels"].items()
    chosen = {"nodeAffinity": {}}
    assert pod(render({"affinity": chosen}))["spec"]["affinity"] == chosen


def test_the_operator_accepts_the_settings_of_the_chart(render: Render) -> None:
    assert config.read([], environment(render(EVERYTHING))) == OperatorSettings(
        node_image="registry.example:5000/dledger-node:0.1.0",
        audit_image="registry.example:5000/dledger-audit:0.1.0",
        image_pull_policy="Always",
        watch_namespaces=("team-a", "team-b"),
        lease_namespace="ops",
        lease_name="dl-dledger-operator",
        network_policies="true",
        log_format="text",
        log_level="debug",
    )


def test_the_pod_names_the_ports_that_the_operator_listens_on(render: Render) -> None:
    manifests = render()
    settings = config.read([], environment(manifests))
    ports = {port["name"]: port["containerPort"] for port in container(manifests)["ports"]}

    assert ports == {"metrics": settings.metrics_port, "health": settings.health_port}


@pytest.mark.parametrize("values", [{}, EVERYTHING], ids=["defaults", "everything"])
def test_the_selectors_match_the_pod_and_contain_no_version(render: Render, values: Object) -> None:
    manifests = render(values)
    labels = pod(manifests)["metadata"]["labels"].items()
    selectors = [
        deployment(manifests)["spec"]["selector"]["matchLabels"],
        *(service["spec"]["selector"] for service in of_kind(manifests, "Service")),
        *(item["spec"]["selector"]["matchLabels"] for item in of_kind(manifests, "PodMonitor")),
    ]

    assert all(selector.items() <= labels for selector in selectors)
    assert not any("app.kubernetes.io/version" in selector for selector in selectors)


def test_a_user_label_does_not_override_a_selector_label(render: Render) -> None:
    labels = {"app.kubernetes.io/instance": "other", "team": "a"}
    manifests = render({"podLabels": labels})

    assert pod(manifests)["metadata"]["labels"]["app.kubernetes.io/instance"] == "dl"
    assert pod(manifests)["metadata"]["labels"]["team"] == "a"


def test_metrics_and_probes_use_ports_that_the_pod_names(render: Render) -> None:
    manifests = render(EVERYTHING)
    ports = {port["name"] for port in container(manifests)["ports"]}
    (service,) = of_kind(manifests, "Service")
    (monitor,) = of_kind(manifests, "PodMonitor")
    probes = [container(manifests)[f"{kind}Probe"] for kind in ("startup", "liveness", "readiness")]

    assert {
        service["spec"]["ports"][0]["targetPort"],
        monitor["spec"]["podMetricsEndpoints"][0]["port"],
        *(probe["httpGet"]["port"] for probe in probes),
    } == ports


def test_the_crds_match_the_repository_and_are_kept_on_uninstall(render: Render) -> None:
    rendered = {crd["metadata"]["name"]: crd for crd in of_kind(render(), CRD)}
    own = {crd["metadata"]["name"]: crd for crd in crd_reference.load(crd_reference.CRDS)}

    assert {name: crd["spec"] for name, crd in rendered.items()} == {
        name: crd["spec"] for name, crd in own.items()
    }
    assert all(
        crd["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
        for crd in rendered.values()
    )


def test_a_chart_without_its_crds_fails_with_a_reason(render: Render, tmp_path: Path) -> None:
    copy = tmp_path / "dledger-operator"
    shutil.copytree(CHART, copy, symlinks=True)
    (copy / "files" / "crds").unlink()

    with pytest.raises(CommandError, match="symbolic link"):
        render(chart=copy)


def test_the_crds_are_deleted_on_uninstall_if_configured(render: Render) -> None:
    crds = of_kind(render({"crds": {"keep": False}}), CRD)

    assert crds
    assert not any("annotations" in crd["metadata"] for crd in crds)


def test_a_packaged_chart_renders_like_its_folder(
    helm: Helm, render: Render, tmp_path: Path
) -> None:
    helm("package", str(CHART), f"--destination={tmp_path}")
    (package,) = tmp_path.glob("dledger-operator-*.tgz")

    assert render(EVERYTHING, chart=package) == render(EVERYTHING)
