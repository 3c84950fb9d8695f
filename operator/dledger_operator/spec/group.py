"""A `DLedgerGroup`, parsed and defaulted. No other module reads its spec."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from dledger_formats.http.status import FlushDiskType
from dledger_formats.live_settings import LIVE
from dledger_formats.quantities import quantity_bytes
from dledger_formats.rocketmq import broker_variables
from dledger_formats.settings import (
    ARCHIVE,
    EMPTY_LOG,
    NodeSettings,
    SettingsError,
)
from dledger_operator import names
from dledger_operator.spec.admin_token import AdminTokenSpec, read_admin_token
from dledger_operator.spec.audit_policy import AuditPolicy, read_audit_policy
from dledger_operator.spec.broker import BrokerSpec, read_broker
from dledger_operator.spec.canary import CanarySpec, read_canary
from dledger_operator.spec.client_service import ClientService, read_client_service
from dledger_operator.spec.images import ImageDefaults
from dledger_operator.spec.member_settings import SettingValues, read_settings
from dledger_operator.spec.network_policy import NetworkPolicySpec, read_network_policy
from dledger_operator.spec.pod_parts import PodParts, read_pod_parts
from dledger_operator.spec.preferred_leader import PreferredLeader, read_preferred_leader
from dledger_operator.spec.quantities import duration_ms, memory_limit_bytes
from dledger_operator.spec.seed import SeedSpec, read_seed
from dledger_operator.spec.shape import Shape
from dledger_operator.spec.spec_reader import InvalidSpecError, SpecReader
from dledger_operator.spec.storage import Storage, read_storage
from dledger_operator.spec.update_window import UpdateWindow, read_window

AUTOMATIC: Final = "Automatic"
ON_APPROVAL: Final = "OnApproval"
WINDOW: Final = "Window"
UPDATE_POLICIES: Final = (AUTOMATIC, ON_APPROVAL, WINDOW)
TOPOLOGY_SPREADS: Final = ("Soft", "Hard", "Off")
DEFAULT_RESOURCES: Final = {
    "requests": {"cpu": "250m", "memory": "256Mi"},
    "limits": {"memory": "512Mi"},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Roles:
    """The role label that the client Services select by, and its two values."""

    label: str
    master: str
    slave: str
    former: tuple[str, ...] = ()
    """Labels of earlier roles, which pods may still carry."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheduling:
    """Constraints on the nodes that pods run on."""

    node_selector: Mapping[str, str]
    tolerations: tuple[Mapping[str, Any], ...]
    topology_spread: str
    zone_spread: str
    priority_class_name: str
    affinity: Mapping[str, Any]
    """The affinity of the spec, as in a pod."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The validated spec of one `DLedgerGroup`."""

    namespace: str
    name: str
    uid: str
    generation: int
    replicas: int
    image: str
    image_pull_policy: str
    storage: Storage
    flush_disk_type: FlushDiskType
    segment_size_bytes: int
    settings: SettingValues
    """The other settings of members that the spec sets, by the fields of `NodeSettings`."""
    heartbeat_interval_ms: int
    election_timeout_ms: int
    roles: Roles
    master_service: ClientService
    slave_service: ClientService
    broker: BrokerSpec | None
    """How the members are a RocketMQ broker; None if they are plain nodes."""
    resources: Mapping[str, Any]
    scheduling: Scheduling
    pod_parts: PodParts
    pod_labels: Mapping[str, str]
    pod_annotations: Mapping[str, str]
    update_policy: str
    update_window: UpdateWindow | None
    """When pods may be replaced, if `update_policy` is Window; else None."""
    restarted_at: str
    """A new value replaces every pod, one at a time; empty for none."""
    admin_token: AdminTokenSpec
    network: NetworkPolicySpec
    operator_namespace: str
    """Namespace of the operator's pods; empty if the group is to have no NetworkPolicies."""
    paused: bool
    hibernate: bool
    """Whether the group is to have no pods, and to keep its volumes."""
    preferred_leader: PreferredLeader | None
    """Which member should lead; None if any may."""
    canary: CanarySpec | None = None
    """How the operator tests the group with canaries; None if it does not."""
    seed: SeedSpec | None = None
    """The archive that the group begins with; None if it begins empty."""
    audit: AuditPolicy | None = None
    """When the operator audits the group by itself; None for never."""
    is_partial: bool = False
    """Whether the spec is invalid, so that most of this is defaults: see `accepted.read_group`."""

    @property
    def member_ids(self) -> tuple[str, ...]:
        """Ids of the members that `spec.replicas` asks for."""
        return tuple(names.member_id(ordinal) for ordinal in range(self.replicas))

    @property
    def live_settings(self) -> SettingValues:
        """The settings that running members take and that the spec or their program sets."""
        chosen = {field: value for field, value in self.settings.items() if field in LIVE}
        return {**self._defaults_of_program, **chosen}

    def node_settings(self, shape: Shape) -> NodeSettings:
        """Return the settings of member n0; the other members differ only in `self_id`."""
        addresses = {
            names.member_id(ordinal): names.remoting_address(self.namespace, self.name, ordinal)
            for ordinal in range(names.REPLICAS_MAX)
        }
        known = list(addresses.items())
        return NodeSettings(
            group=self.name,
            self_id=names.member_id(0),
            peers=dict(known[: shape.first_voters]),
            addable_peers=dict(known[shape.first_voters :]),
            initial_group_state=shape.state,
            first_log=ARCHIVE if self.seed else EMPTY_LOG,
            store_base_dir=names.STORE_FOLDER,
            heartbeat_interval_ms=self.heartbeat_interval_ms,
            election_timeout_ms=self.election_timeout_ms,
            flush_disk_type=self.flush_disk_type,
            segment_size_bytes=self.segment_size_bytes,
            # DLedger's ratio: 1 GiB of data to 160 MiB of index.
            index_segment_size_bytes=self.segment_size_bytes * 5 // 32,
            log_format="json",
            live_settings_file=names.LIVE_SETTINGS_FILE,
            admin_token_file=names.TOKENS_FILE if self.admin_token.required else "",
            memory_limit_bytes=memory_limit_bytes(self.resources),
            **{**self._defaults_of_program, **self.settings},  # type: ignore[arg-type]
        )

    @property
    def _defaults_of_program(self) -> SettingValues:
        """The live settings whose default differs in the program that the members run.

        The operator sets them explicitly, so that members of an earlier image use them, too.
        """
        if self.broker is None:
            return {}
        return dict(broker_variables.LIVE_DEFAULTS)

    @classmethod
    def from_body(cls, body: Mapping[str, Any], images: ImageDefaults) -> Self:
        """Parse an API object. Raises InvalidSpecError, which names the invalid key."""
        metadata = body["metadata"]
        spec = SpecReader(body.get("spec") or {}, "spec")
        storage, log, election = (
            spec.section("storage"),
            spec.section("log"),
            spec.section("election"),
        )
        services = spec.section("services")
        update_policy = spec.choice("updatePolicy", UPDATE_POLICIES)
        window = spec.section("updateWindow")
        group = cls(
            namespace=metadata["namespace"],
            name=metadata["name"],
            uid=metadata["uid"],
            generation=metadata.get("generation", 1),
            replicas=spec.number("replicas", 3),
            image=_image_reference(spec.section("image"), images.reference),
            image_pull_policy=spec.section("image").text("pullPolicy") or images.pull_policy,
            storage=read_storage(storage),
            flush_disk_type=FlushDiskType(log.choice("flushDiskType", tuple(FlushDiskType))),
            segment_size_bytes=log.converted("segmentSize", quantity_bytes, "1Gi"),
            settings=read_settings(spec),
            heartbeat_interval_ms=election.converted("heartbeatInterval", duration_ms, "250ms"),
            election_timeout_ms=election.converted("timeout", duration_ms, "1s"),
            roles=_roles(spec.section("roles")),
            master_service=read_client_service(services.section("master")),
            slave_service=read_client_service(services.section("slave")),
            broker=read_broker(spec, metadata["name"]),
            resources=dict(spec.section("resources").values) or DEFAULT_RESOURCES,
            scheduling=_scheduling(spec.section("scheduling")),
            pod_parts=read_pod_parts(spec),
            pod_labels=spec.texts("podLabels"),
            pod_annotations=spec.texts("podAnnotations"),
            update_policy=update_policy,
            update_window=read_window(window) if update_policy == WINDOW else None,
            restarted_at=spec.text("restartedAt"),
            admin_token=read_admin_token(spec),
            network=read_network_policy(spec),
            operator_namespace=images.operator_namespace,
            paused=spec.flag("paused", default=False),
            hibernate=spec.flag("hibernate", default=False),
            preferred_leader=read_preferred_leader(
                spec.section("preferredLeader"), spec.number("replicas", 3)
            ),
            canary=read_canary(spec),
            seed=read_seed(spec),
            audit=read_audit_policy(spec.section("audit")),
        )
        _check(group)
        return group


def _check(group: Group) -> None:
    if len(group.name) > names.GROUP_NAME_LENGTH_MAX:
        raise InvalidSpecError(
            f"metadata.name is longer than {names.GROUP_NAME_LENGTH_MAX} characters, so the names "
            "of its children would be too long; create a group with a shorter name"
        )
    if group.replicas not in names.REPLICAS_ALLOWED:
        allowed = ", ".join(map(str, names.REPLICAS_ALLOWED))
        raise InvalidSpecError(f"spec.replicas is {group.replicas}; it must be one of {allowed}")
    if len({group.roles.master, group.roles.slave, names.ROLE_NONE}) < 3:
        raise InvalidSpecError(
            f"spec.roles.master and spec.roles.slave must differ from each other and from "
            f"{names.ROLE_NONE!r}"
        )
    try:
        group.node_settings(Shape.of_new(group.replicas))
    except SettingsError as error:
        raise InvalidSpecError(f"spec: {error}") from error


def _image_reference(image: SpecReader, default: str) -> str:
    """Fill empty parts from `default`; a digest takes precedence over a tag."""
    default_repository, default_suffix = split_image(default)
    repository = image.text("repository") or default_repository
    if digest := image.text("digest"):
        return f"{repository}@{digest}"
    if tag := image.text("tag"):
        return f"{repository}:{tag}"
    return repository + default_suffix


def split_image(reference: str) -> tuple[str, str]:
    """Split an image reference into the repository and its suffix, which starts with `:` or `@`.

    A colon before a slash separates a registry's host and port.
    """
    name, at, digest = reference.partition("@")
    slash = name.rfind("/")
    colon = name.find(":", slash + 1)
    repository = name if colon < 0 else name[:colon]
    return repository, at + digest if at else name[len(repository) :]


def _roles(roles: SpecReader) -> Roles:
    return Roles(
        label=roles.text("label") or names.ROLE_LABEL,
        master=roles.text("master") or names.ROLE_MASTER,
        slave=roles.text("slave") or names.ROLE_SLAVE,
    )


def _scheduling(scheduling: SpecReader) -> Scheduling:
    return Scheduling(
        node_selector=scheduling.texts("nodeSelector"),
        tolerations=scheduling.objects("tolerations"),
        topology_spread=scheduling.choice("topologySpread", TOPOLOGY_SPREADS),
        zone_spread=scheduling.choice("zoneSpread", TOPOLOGY_SPREADS),
        priority_class_name=scheduling.text("priorityClassName"),
        affinity=dict(scheduling.section("affinity").values),
    )
