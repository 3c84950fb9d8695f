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
    """Return the role of audits with executors, as the chart tells the operator."""
    return f"Role/{namespace}:{lease_name(release)}:audit-driver"


def operator_kubeconfig(
    server: ApiServer, namespace: Namespace, folder: Path, *, release: str = RELEASE
) -> Path:
    """Write a kubeconfig of a ServiceAccount with the chart's role for one namespace."""
    account = f"the-{release}"
    namespace.make_service_account(account)
    role = server.helm(
        "template", release, str(CHART), "--namespace", namespace.name,
        "--kube-version", KUBERNETES,
        "--set", f"watchNamespaces={{{namespace.name}}}",
        "--set", f"serviceAccount.create=false,serviceAccount.name={account}",
        "--set", "auditExecutors.enabled=true",
        "--show-only", "templates/rbac.yaml",
    )  # fmt: skip
    server.kubectl("apply", "--filename=-", input_text=role)
    return namespace.kubeconfig_of(account, folder)
