"""The operator's permissions, as granted by the chart."""

from pathlib import Path
from typing import Final

from api_server.client import ApiServer
from dledger_kube.cluster import Namespace

CHART: Final = Path(__file__).resolve().parents[3] / "helm" / "dledger-operator"
KUBERNETES: Final = "1.34.0"  # the default is the version of helm's own library
RELEASE: Final = "operator"


def lease_name(release: str = RELEASE) -> str:
    """Return the name of the Lease that the replicas of a release share."""
    return f"{release}-dledger-operator"


def audit_driver_role(namespace: str, release: str = RELEASE) -> str:
    """Return the role of audits with executors, as the chart passes it to the operator."""
    return f"Role/{namespace}:{lease_name(release)}:audit-driver"


def operator_kubeconfig(
    server: ApiServer, namespace: Namespace, folder: Path, *, release: str = RELEASE
) -> Path:
    """Write a kubeconfig of a ServiceAccount with the chart's role for one namespace."""
    namespace.make_service_account(_account(release))
    grant_role(server, namespace, release=release)
    return namespace.kubeconfig_of(_account(release), folder)


def grant_role(
    server: ApiServer, namespace: Namespace, *beside: Namespace, release: str = RELEASE
) -> None:
    """Apply the chart's role for the namespace of a release, and for those `beside` it."""
    watched = ",".join(each.name for each in (namespace, *beside))
    role = server.helm(
        "template", release, str(CHART), "--namespace", namespace.name,
        "--kube-version", KUBERNETES,
        "--set", f"watchNamespaces={{{watched}}}",
        "--set", f"serviceAccount.create=false,serviceAccount.name={_account(release)}",
        "--set", "auditExecutors.enabled=true",
        "--show-only", "templates/rbac.yaml",
    )  # fmt: skip
    server.kubectl("apply", "--filename=-", input_text=role)


def _account(release: str) -> str:
    return f"the-{release}"
