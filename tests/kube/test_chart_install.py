"""The Helm chart on a real API server: install, upgrade, uninstall, operator permissions."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from api_server.client import ApiServer, CommandError, RefusedError, wait_until
from api_server.objects import DRY_RUN, PLURALS, check, group, path, stored, wait_until_served
from api_server.release import CHART, Release, installed

pytest_plugins = ["api_server.fixtures"]


@pytest.fixture(scope="module")
def everywhere(api_server: ApiServer) -> Iterator[Release]:
    """A release whose operator watches all namespaces."""
    with installed(api_server, "--set=crds.create=false") as release:
        yield release


@pytest.fixture(scope="module")
def in_one_namespace(api_server: ApiServer) -> Iterator[Release]:
    """A release whose operator watches only the namespace default, with all optional objects."""
    values = [
        "crds.create=false",
        "watchNamespaces={default}",
        "monitoring.metricsService.enabled=true",
        "podLabels.team=a",
        "priorityClassName=system-cluster-critical",
    ]
    with installed(api_server, *(f"--set={value}" for value in values)) as release:
        yield release


@pytest.fixture
def server_without_crds(empty_api_server: ApiServer) -> Iterator[ApiServer]:
    """A server without the CRDs; CRDs that a release installs are deleted after the test."""
    yield empty_api_server
    crds = [f"{plural}.dledger.io" for plural in PLURALS.values()]
    empty_api_server.kubectl("delete", "crd", "--ignore-not-found", "--wait", *crds)


def may(release: Release, verb: str, resource: str, *, where: str = "default") -> bool:
    """Ask the server whether the operator has this permission."""
    group_and_resource, _, subresource = resource.partition("/")
    kind, _, api_group = group_and_resource.partition(".")
    attributes = {
        "namespace": where,
        "verb": verb,
        "group": api_group,
        "resource": kind,
        "subresource": subresource,
    }
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": release.user, "resourceAttributes": attributes},
    }
    answer = release.server.request(
        "POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", review
    )
    allowed: bool = answer["status"]["allowed"]
    return allowed


def test_a_namespace_of_restricted_pods_admits_the_operator(everywhere: Release) -> None:
    pods = f"/api/v1/namespaces/{everywhere.namespace}/pods?{DRY_RUN}"

    assert everywhere.server.request("POST", pods, everywhere.pod)["kind"] == "Pod"


def test_a_namespace_of_restricted_pods_rejects_a_pod_that_may_run_as_root(
    everywhere: Release,
) -> None:
    pods = f"/api/v1/namespaces/{everywhere.namespace}/pods?{DRY_RUN}"
    pod = everywhere.pod
    pod["spec"]["securityContext"]["runAsNonRoot"] = False

    with pytest.raises(RefusedError, match="violates PodSecurity"):
        everywhere.server.request("POST", pods, pod)


@pytest.mark.parametrize(
    ("verb", "resource"),
    [
        ("watch", "dledgergroups.dledger.io"),
        ("patch", "dledgergroups.dledger.io/status"),
        ("patch", "dledgeraudits.dledger.io/status"),
        ("create", "dledgeraudits.dledger.io"),
        ("delete", "dledgeraudits.dledger.io"),
        ("patch", "dledgerswitchovers.dledger.io/status"),
        ("delete", "dledgerswitchovers.dledger.io"),
        ("patch", "dledgerreplaces.dledger.io/status"),
        ("delete", "dledgerreplaces.dledger.io"),
        ("watch", "nodes"),
        ("patch", "pods"),
        ("delete", "pods"),
        ("create", "pods/eviction"),
        ("create", "statefulsets.apps"),
        ("delete", "statefulsets.apps"),
        ("create", "jobs.batch"),
        ("list", "endpointslices.discovery.k8s.io"),
        ("create", "events"),
    ],
)
def test_the_operator_has_its_permissions_in_all_namespaces(
    everywhere: Release, verb: str, resource: str
) -> None:
    assert may(everywhere, verb, resource)


@pytest.mark.parametrize(
    ("verb", "resource"),
    [
        ("get", "secrets"),
        ("list", "secrets"),
        ("deletecollection", "pods"),
        ("deletecollection", "statefulsets.apps"),
        ("delete", "configmaps"),
        ("create", "pods/exec"),
        ("patch", "dledgergroups.dledger.io"),
        ("patch", "nodes"),
        ("list", "namespaces"),
        ("create", "clusterroles.rbac.authorization.k8s.io"),
    ],
)
def test_the_operator_has_no_other_permissions(
    everywhere: Release, verb: str, resource: str
) -> None:
    assert not may(everywhere, verb, resource)


def test_an_operator_of_one_namespace_has_no_permissions_in_another(
    in_one_namespace: Release,
) -> None:
    assert may(in_one_namespace, "patch", "pods", where="default")
    assert not may(in_one_namespace, "patch", "pods", where="kube-system")
    assert not may(in_one_namespace, "list", "pods", where="")


def test_every_resource_and_verb_of_the_roles_is_served(everywhere: Release) -> None:
    """Kubernetes accepts a role with a misspelled resource, which then grants nothing."""
    server = everywhere.server
    roles = server.request(
        "GET",
        "/apis/rbac.authorization.k8s.io/v1/clusterroles"
        f"?labelSelector=app.kubernetes.io/instance={everywhere.name}",
    )
    rules = [rule for role in roles["items"] for rule in role["rules"]]
    unknown = [
        (resource, verb)
        for rule in rules
        for resource in rule["resources"]
        for verb in rule["verbs"]
        if verb not in served_verbs(server, rule["apiGroups"][0]).get(resource, ())
    ]

    assert rules
    assert not unknown


def served_verbs(server: ApiServer, api_group: str) -> dict[str, list[str]]:
    version = "v1alpha1" if api_group == "dledger.io" else "v1"
    base = f"/apis/{api_group}/{version}" if api_group else f"/api/{version}"
    return {item["name"]: item["verbs"] for item in server.request("GET", base)["resources"]}


def test_the_group_in_the_notes_is_accepted(everywhere: Release) -> None:
    notes = everywhere.helm("get notes").split("<<END")[1].split("END")[0]
    sent = yaml.safe_load(notes)
    sent["metadata"]["namespace"] = "default"

    assert check(everywhere.server, sent)["metadata"]["name"] == "flights"


def test_the_examples_for_artifact_hub_are_accepted(api_server: ApiServer) -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    examples = yaml.safe_load(chart["annotations"]["artifacthub.io/crdsExamples"])
    for sent in examples:
        sent["metadata"]["namespace"] = "default"

    assert [check(api_server, sent)["kind"] for sent in examples] == [
        "DLedgerGroup",
        "DLedgerAudit",
        "DLedgerSwitchover",
        "DLedgerReplace",
    ]


def test_an_installed_chart_serves_its_kinds(server_without_crds: ApiServer) -> None:
    with installed(server_without_crds):
        wait_until_served(server_without_crds)

        assert check(server_without_crds, group())["spec"]["replicas"] == 3


def test_an_upgrade_adds_new_fields_and_keeps_the_groups(
    server_without_crds: ApiServer, tmp_path: Path
) -> None:
    server = server_without_crds
    old = tmp_path / "dledger-operator"
    # copytree follows the symbolic link, so the copy has CRDs of its own.
    shutil.copytree(CHART, old)
    crd_file = old / "files" / "crds" / "dledgergroups.yaml"
    crd = yaml.safe_load(crd_file.read_text())
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    del schema["properties"]["spec"]["properties"]["paused"]
    crd_file.write_text(yaml.safe_dump(crd))

    with installed(server, chart=old) as release:
        wait_until_served(server)
        with stored(server, group()) as made:
            release.helm("upgrade", str(CHART))

            wait_until(
                "the group has the new field",
                lambda: "paused" in server.request("GET", path(made))["spec"],
            )
            assert "paused" not in made["spec"]


def test_groups_survive_an_uninstall_and_are_adopted_by_the_next_release(
    server_without_crds: ApiServer,
) -> None:
    server = server_without_crds
    with installed(server) as release:
        wait_until_served(server)
        with stored(server, group()) as made:
            release.helm("uninstall")
            release.helm("install", str(CHART))

            assert server.request("GET", path(made))["metadata"]["uid"] == made["metadata"]["uid"]


def test_crds_that_the_release_does_not_own_are_not_overwritten(api_server: ApiServer) -> None:
    with (
        pytest.raises(CommandError, match="cannot be imported into the current release"),
        installed(api_server),
    ):
        pass
