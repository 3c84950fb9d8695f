"""The operator's permissions, as granted by the chart."""

from pathlib import Path
from typing import Final

from api_server.client import ApiServer
from dledger_kube.cluster import Namespace

CHART: Final = Path(__file__).resolve().parents[3] / "helm" / "dledger-operator"
KUBERNETES: Final = "1.34.0"  # the default is the version of helm's own library
ACCOUNT: Final = "the-operator"


def operator_kubeconfig(server: ApiServer, namespace: Namespace, folder: Path) -> Path:
    """Write a kubeconfig of a ServiceAccount with the chart's role for one namespace."""
    namespace.make_service_account(ACCOUNT)
    role = server.helm(
        "template", "operator", str(CHART), "--namespace", namespace.name,
        "--kube-version", KUBERNETES,
        "--set", f"watchNamespaces={{{namespace.name}}}",
        "--set", f"serviceAccount.create=false,serviceAccount.name={ACCOUNT}",
        "--show-only", "templates/rbac.yaml",
    )  # fmt: skip
    server.kubectl("apply", "--filename=-", input_text=role)
    return namespace.kubeconfig_of(ACCOUNT, folder)
