"""A `DLedgerGroup`, read and defaulted once: nobody else looks into its spec."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from dledger_formats.http.status import FlushDiskType
from dledger_formats.settings import NodeSettings, SettingsError
from dledger_operator import names
from dledger_operator.spec.quantities import duration_ms, quantity_bytes
from dledger_operator.spec.shape import Shape
from dledger_operator.spec.spec_reader import InvalidSpecError, SpecReader

IMAGE_PULL_POLICIES: Final = ("IfNotPresent", "Always", "Never")
SERVICE_TYPES: Final = ("ClusterIP", "NodePort", "LoadBalancer")
RETENTIONS: Final = ("Retain", "Delete")
TOPOLOGY_SPREADS: Final = ("Soft", "Hard", "Off")
DEFAULT_RESOURCES: Final = {
    "requests": {"cpu": "250m", "memory": "256Mi"},
    "limits": {"memory": "512Mi"},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageDefaults:
    """What stands in for the parts of an image that a spec leaves empty."""

    reference: str
    """repository, then :tag or @digest"""
    pull_policy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """The volume of each member."""

    size: str
    """As the user wrote it: the volume claim gets the same words."""
    size_bytes: int
    storage_class_name: str
    """Empty for the cluster's default."""
    when_deleted: str
    when_scaled: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Roles:
    """The label by which the Services find their pods, and its two values."""

    label: str
    master: str
    slave: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientService:
    """What a user may choose of the master or the slave Service."""

    type: str
    annotations: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheduling:
    """Where pods may run."""

    node_selector: Mapping[str, str]
    tolerations: tuple[Mapping[str, Any], ...]
    topology_spread: str
    priority_class_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """One group, checked."""

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
    heartbeat_interval_ms: int
    election_timeout_ms: int
    roles: Roles
    master_service: ClientService
    slave_service: ClientService
    resources: Mapping[str, Any]
    scheduling: Scheduling
    pod_labels: Mapping[str, str]
    pod_annotations: Mapping[str, str]
    paused: bool

    @property
    def member_ids(self) -> tuple[str, ...]:
        """The members that there should be."""
        return tuple(names.member_id(ordinal) for ordinal in range(self.replicas))

    def node_settings(self, shape: Shape) -> NodeSettings:
        """The settings of member n0; the others differ in `self_id` alone."""
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
            store_base_dir=names.STORE_FOLDER,
            heartbeat_interval_ms=self.heartbeat_interval_ms,
            election_timeout_ms=self.election_timeout_ms,
            flush_disk_type=self.flush_disk_type,
            segment_size_bytes=self.segment_size_bytes,
            # DLedger's own proportion: 1 GiB of data, 160 MiB of index.
            index_segment_size_bytes=self.segment_size_bytes * 5 // 32,
            log_format="json",
        )

    @classmethod
    def from_body(cls, body: Mapping[str, Any], images: ImageDefaults) -> Self:
        """Read an object of the API; InvalidSpecError says which key is wrong."""
        metadata = body["metadata"]
        spec = SpecReader(body.get("spec") or {}, "spec")
        storage, log, election = (
            spec.section("storage"),
            spec.section("log"),
            spec.section("election"),
        )
        services = spec.section("services")
        group = cls(
            namespace=metadata["namespace"],
            name=metadata["name"],
            uid=metadata["uid"],
            generation=metadata.get("generation", 1),
            replicas=spec.number("replicas", 3),
            image=_image_reference(spec.section("image"), images.reference),
            image_pull_policy=spec.section("image").text("pullPolicy") or images.pull_policy,
            storage=_storage(storage),
            flush_disk_type=FlushDiskType(log.choice("flushDiskType", tuple(FlushDiskType))),
            segment_size_bytes=log.converted("segmentSize", quantity_bytes, "1Gi"),
            heartbeat_interval_ms=election.converted("heartbeatInterval", duration_ms, "250ms"),
            election_timeout_ms=election.converted("timeout", duration_ms, "1s"),
            roles=_roles(spec.section("roles")),
            master_service=_client_service(services.section("master")),
            slave_service=_client_service(services.section("slave")),
            resources=dict(spec.section("resources").values) or DEFAULT_RESOURCES,
            scheduling=_scheduling(spec.section("scheduling")),
            pod_labels=spec.texts("podLabels"),
            pod_annotations=spec.texts("podAnnotations"),
            paused=spec.flag("paused", default=False),
        )
        _check(group)
        return group

    @classmethod
    def to_follow(cls, body: Mapping[str, Any], images: ImageDefaults) -> Self:
        """Read only what following the leader needs.

        A mistake elsewhere in the spec must not leave the Services on a dead leader.
        """
        spec = body.get("spec") or {}
        needed = {key: spec[key] for key in ("replicas", "roles") if key in spec}
        storage = {"size": "1Gi"}  # not looked at, but required
        return cls.from_body({**body, "spec": {**needed, "storage": storage}}, images)


def _check(group: Group) -> None:
    if len(group.name) > names.GROUP_NAME_LENGTH_MAX:
        raise InvalidSpecError(
            f"metadata.name is longer than {names.GROUP_NAME_LENGTH_MAX} characters, which leaves "
            "no room for the names of its children; make a new group"
        )
    if group.replicas not in names.REPLICAS_ALLOWED:
        allowed = ", ".join(map(str, names.REPLICAS_ALLOWED))
        raise InvalidSpecError(f"spec.replicas is {group.replicas}; allowed are {allowed}")
    if len({group.roles.master, group.roles.slave, names.ROLE_NONE}) < 3:
        raise InvalidSpecError(
            f"spec.roles.master and spec.roles.slave must differ, and neither may be "
            f"{names.ROLE_NONE!r}"
        )
    try:
        group.node_settings(Shape.of_new(group.replicas))
    except SettingsError as error:
        raise InvalidSpecError(f"spec: {error}") from error


def _image_reference(image: SpecReader, default: str) -> str:
    """Fill what is empty from `default`; a digest wins over a tag."""
    default_repository, default_suffix = split_image(default)
    repository = image.text("repository") or default_repository
    if digest := image.text("digest"):
        return f"{repository}@{digest}"
    if tag := image.text("tag"):
        return f"{repository}:{tag}"
    return repository + default_suffix


def split_image(reference: str) -> tuple[str, str]:
    """Split into repository and what follows it, with its `:` or `@`.

    A colon before a slash is a registry's port.
    """
    name, at, digest = reference.partition("@")
    slash = name.rfind("/")
    colon = name.find(":", slash + 1)
    repository = name if colon < 0 else name[:colon]
    return repository, at + digest if at else name[len(repository) :]


def _storage(storage: SpecReader) -> Storage:
    size = storage.values.get("size")
    if size is None:
        raise InvalidSpecError(f"{storage.path}.size is missing")
    retain = storage.section("retain")
    return Storage(
        size=str(size),
        size_bytes=storage.converted("size", quantity_bytes, size),
        storage_class_name=storage.text("storageClassName"),
        when_deleted=retain.choice("whenDeleted", RETENTIONS),
        when_scaled=retain.choice("whenScaled", RETENTIONS),
    )


def _roles(roles: SpecReader) -> Roles:
    return Roles(
        label=roles.text("label") or names.ROLE_LABEL,
        master=roles.text("master") or names.ROLE_MASTER,
        slave=roles.text("slave") or names.ROLE_SLAVE,
    )


def _client_service(service: SpecReader) -> ClientService:
    return ClientService(
        type=service.choice("type", SERVICE_TYPES), annotations=service.texts("annotations")
    )


def _scheduling(scheduling: SpecReader) -> Scheduling:
    return Scheduling(
        node_selector=scheduling.texts("nodeSelector"),
        tolerations=scheduling.objects("tolerations"),
        topology_spread=scheduling.choice("topologySpread", TOPOLOGY_SPREADS),
        priority_class_name=scheduling.text("priorityClassName"),
    )
