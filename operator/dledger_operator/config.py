"""The operator's own settings. Flags override `DLEDGER_OPERATOR_*` environment variables, and an
unknown flag or variable is an error.
"""

import dataclasses
import difflib
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, Final

from dledger_formats.command_lines import Parser
from dledger_operator.spec.images import IMAGE_PULL_POLICIES, ImageDefaults

PREFIX: Final = "DLEDGER_OPERATOR_"
LOG_FORMATS: Final = ("text", "json")
LOG_LEVELS: Final = ("debug", "info", "warning", "error")


class SettingsError(ValueError):
    """A setting is missing, unknown or invalid; the message names it and the allowed values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseNames:
    """The names under which this process holds Leases."""

    namespace: str
    """The namespace of the release's Lease."""
    name: str
    """The name of the release's Lease."""
    replica: str
    """The identity of this process; no other process has the same."""

    @property
    def release(self) -> str:
        """The identity of the release in the Leases of namespaces."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorSettings:
    """The settings of one installation; `_HELP` describes each field."""

    node_image: str
    audit_image: str
    image_pull_policy: str = IMAGE_PULL_POLICIES[0]
    watch_namespaces: tuple[str, ...] = ()
    metrics_port: int = 8080
    health_port: int = 8081
    watch_nodes: bool = True
    lease_namespace: str = ""
    lease_name: str = "dledger-operator"
    identity: str = ""
    network_policies: str = "false"
    audit_driver_role: str = ""
    audit_api_ports: tuple[int, ...] = (443, 6443)
    log_format: str = LOG_FORMATS[0]
    log_level: str = "info"

    @property
    def leases(self) -> LeaseNames | None:
        """The names under which this process holds Leases; None if it holds none."""
        if not self.lease_namespace:
            return None
        replica = self.identity or socket.gethostname()
        return LeaseNames(namespace=self.lease_namespace, name=self.lease_name, replica=replica)

    def image_defaults(self, reference: str) -> ImageDefaults:
        """Combine one of the two images with the pull policy."""
        guarded = self.network_policies == "true"
        return ImageDefaults(
            reference=reference,
            pull_policy=self.image_pull_policy,
            operator_namespace=self.lease_namespace if guarded else "",
        )


_HELP: Final = {
    "node_image": "image for members whose spec names no image (required)",
    "audit_image": "image for audit Jobs (required)",
    "image_pull_policy": "pull policy of both images: IfNotPresent (default), Always, Never",
    "watch_namespaces": "comma-separated namespaces to watch (default: empty, for all namespaces)",
    "metrics_port": "port that serves /metrics (default: 8080)",
    "health_port": "port that serves /healthz and /readyz (default: 8081)",
    "watch_nodes": "whether to read Nodes, for preferred leaders by zone or label, and to move "
    "leaders off nodes that are being drained: true (default), false",
    "lease_namespace": "namespace of the Lease that the replicas of this release share (default: "
    "empty; no Lease, this process does everything)",
    "lease_name": "name of that Lease (default: dledger-operator)",
    "identity": "name of this process in the Lease, unlike that of any other (default: host name)",
    "network_policies": "true: groups get NetworkPolicies, which let the pods of this release in; "
    "needs lease_namespace, the namespace of these pods (default: false)",
    "audit_driver_role": "KIND/NAME of the Role or ClusterRole by which an audit makes its "
    "executors' pods (default: empty; audits have no executors)",
    "audit_api_ports": "comma-separated ports on which API servers listen, behind the Service "
    "kubernetes; policies let the drivers of audits with executors reach them (default: 443,6443)",
    "log_format": "log format: text (default; human-readable) or json (for log collectors)",
    "log_level": "minimum level to log: debug, info (default), warning, error",
}
_CHOICES: Final = {
    "image_pull_policy": IMAGE_PULL_POLICIES,
    "network_policies": ("true", "false"),
    "log_format": LOG_FORMATS,
    "log_level": LOG_LEVELS,
}


def read(arguments: Sequence[str], environment: Mapping[str, str]) -> OperatorSettings:
    """Read flags and environment variables. Raises SettingsError for the first invalid one."""
    _refuse_unknown(environment)
    parser = Parser(
        prog="dledger-operator",
        description="Run DLedger groups on Kubernetes.",
        epilog=f"Each flag has an environment variable, such as {PREFIX}NODE_IMAGE for "
        "--node-image. A flag overrides its variable.",
    )
    for item in dataclasses.fields(OperatorSettings):
        parser.add_argument(
            "--" + item.name.replace("_", "-"),
            default=environment.get(variable(item.name)),
            help=_HELP[item.name],
        )
    parser.add_argument(
        "--version", action="version", version=f"%(prog)s {version('dledger-operator')}"
    )
    given = {name: text for name, text in vars(parser.parse_args(arguments)).items() if text}
    values: dict[str, Any] = {name: _parse(name, text) for name, text in given.items()}
    for item in dataclasses.fields(OperatorSettings):
        if item.default is dataclasses.MISSING and item.name not in values:
            raise SettingsError(f"{variable(item.name)} is not set: {_HELP[item.name]}")
    settings = OperatorSettings(**values)
    if settings.metrics_port == settings.health_port:
        raise SettingsError(
            f"{variable('metrics_port')} and {variable('health_port')} are both "
            f"{settings.metrics_port}; use two ports"
        )
    return settings


def variable(field_name: str) -> str:
    """Return the environment variable of a setting."""
    return PREFIX + field_name.upper()


def _refuse_unknown(environment: Mapping[str, str]) -> None:
    known = [item.name.upper() for item in dataclasses.fields(OperatorSettings)]
    for name in sorted(environment):
        rest = name.removeprefix(PREFIX)
        if rest != name and rest not in known:
            near = difflib.get_close_matches(rest, known, n=1)
            listed = ", ".join(PREFIX + each for each in near or known)
            hint = f"did you mean {listed}?" if near else f"known settings: {listed}"
            raise SettingsError(f"unknown setting {name}; {hint}")


def _is_port(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 6 and 0 < int(text) < 65536


def _parse(name: str, text: str) -> object:
    if name == "watch_namespaces":
        return tuple(part.strip() for part in text.split(",") if part.strip())
    if name.endswith("_port"):
        if not _is_port(text):
            raise SettingsError(f"{variable(name)} is {text!r}; it must be a port (1 to 65535)")
        return int(text)
    if name == "audit_api_ports":
        ports = [part.strip() for part in text.split(",")]
        if not all(_is_port(port) for port in ports):
            raise SettingsError(f"{variable(name)} is {text!r}; it must be ports, such as 443,6443")
        return tuple(int(port) for port in ports)
    if name == "watch_nodes":
        if text not in ("true", "false"):
            raise SettingsError(f"{variable(name)} is {text!r}; it must be true or false")
        return text == "true"
    if name in _CHOICES and text not in _CHOICES[name]:
        raise SettingsError(
            f"{variable(name)} is {text!r}; it must be {' or '.join(_CHOICES[name])}"
        )
    return text
