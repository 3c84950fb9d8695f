"""The parts of a spec that are added to the members' pods: secrets, variables, sidecars.

They have Kubernetes' own types. The API server checks them when it accepts the StatefulSet. This
module refuses only what would collide with the member or harm its log.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from dledger_formats.settings import PREFIX
from dledger_operator import names
from dledger_operator.spec.spec_reader import InvalidSpecError, SpecReader

FIXED_USER: Final = "Fixed"
USERS: Final = (FIXED_USER, "Cluster")
POD_INDEX_VARIABLE: Final = "POD_INDEX"
BROKER_IP_VARIABLE: Final = "BROKER_POD_IP"
_PORT_NAMES: Final = ("remoting", "http")
_PORTS: Final = (names.REMOTING_PORT, names.HTTP_PORT)
_CONTAINERS: Final = (names.NODE_CONTAINER, names.SEED_CONTAINER)
_VOLUMES: Final = (
    names.DATA_VOLUME, names.SETTINGS_VOLUME, names.TOKENS_VOLUME, names.SEED_VOLUME,
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class PodParts:
    """What a spec adds to the pods of its members."""

    image_pull_secrets: tuple[str, ...]
    """Names of Secrets in the group's namespace."""
    env: tuple[Mapping[str, Any], ...]
    """Further variables of the member's container."""
    sidecars: tuple[Mapping[str, Any], ...]
    """Further containers."""
    volumes: tuple[Mapping[str, Any], ...]
    """Further volumes, for the sidecars."""
    fixed_user: bool
    """Whether the pods name the user that they run as; if not, the cluster chooses one."""


def read_pod_parts(spec: SpecReader) -> PodParts:
    """Parse the parts. Raises InvalidSpecError for what would collide with the member."""
    extra = spec.section("sidecars")
    parts = PodParts(
        image_pull_secrets=tuple(
            SpecReader(each, "spec.imagePullSecrets").required_text("name")
            for each in spec.objects("imagePullSecrets")
        ),
        env=spec.objects("env"),
        sidecars=extra.objects("containers"),
        volumes=extra.objects("volumes"),
        fixed_user=spec.section("podSecurity").choice("user", USERS) == FIXED_USER,
    )
    _check_names("spec.env", parts.env, _is_own_variable)
    _check_names("spec.sidecars.containers", parts.sidecars, lambda name: name in _CONTAINERS)
    _check_names("spec.sidecars.volumes", parts.volumes, lambda name: name in _VOLUMES)
    for each in parts.sidecars:
        _check_sidecar(SpecReader(each, f"spec.sidecars.containers[{each['name']}]"))
    return parts


def _is_own_variable(name: str) -> bool:
    return name.startswith(PREFIX) or name in (POD_INDEX_VARIABLE, BROKER_IP_VARIABLE)


def _check_names(
    path: str, given: Iterable[Mapping[str, Any]], is_taken: Callable[[str], bool]
) -> None:
    for each in given:
        name = SpecReader(each, path).required_text("name")
        if is_taken(name):
            raise InvalidSpecError(
                f"{path} contains {name}, which the operator uses itself; choose another name"
            )


def _check_sidecar(sidecar: SpecReader) -> None:
    for port in sidecar.objects("ports"):
        if port.get("name") in _PORT_NAMES or port.get("containerPort") in _PORTS:
            raise InvalidSpecError(
                f"{sidecar.path}.ports contains a port of the member: remoting "
                f"({names.REMOTING_PORT}) or http ({names.HTTP_PORT}); choose another name and "
                "number"
            )
    for mount in sidecar.objects("volumeMounts"):
        if mount.get("name") == names.DATA_VOLUME and mount.get("readOnly") is not True:
            raise InvalidSpecError(
                f"{sidecar.path}.volumeMounts: mount {names.DATA_VOLUME} with readOnly: true; only "
                "the member may write to its log"
            )
