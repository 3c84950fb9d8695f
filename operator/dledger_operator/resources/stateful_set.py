"""The StatefulSet of a group's members."""

import copy
import posixpath
from collections.abc import Mapping
from typing import Final

from dledger_formats.settings import variable_name
from dledger_operator import names
from dledger_operator.api_objects import Manifest
from dledger_operator.resources import broker, config_map, security, seed
from dledger_operator.resources.metadata import (
    annotated,
    child,
    group_selector,
    pull_secrets,
    stable_labels,
)
from dledger_operator.resources.template_in_force import member_containers
from dledger_operator.spec import revision
from dledger_operator.spec.group import Group
from dledger_operator.spec.pod_parts import POD_INDEX_VARIABLE
from dledger_operator.spec.revision import Revision
from dledger_operator.spec.shape import Shape

# Long enough for a leader to transfer its leadership, drain and flush.
TERMINATION_GRACE_PERIOD_S: Final = 30
# A member reads a large store before it answers; the kubelet restarts it after this time.
STARTUP_S_MAX: Final = 600
NODE_KEY: Final = "kubernetes.io/hostname"
ZONE_KEY: Final = "topology.kubernetes.io/zone"
PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"


def with_identity(template: Manifest, shape: Shape) -> Manifest:
    """Return an existing pod template with the group's current identity.

    The template may have none, or the one from before `dledger-node store adopt`, with which its
    pods would be strangers to the group.
    """
    changed = copy.deepcopy(template)
    for container in member_containers(changed):
        by_name = {each["name"]: each for each in container.get("env", [])}
        by_name |= {each["name"]: each for each in _identity_variable(shape)}
        container["env"] = list(by_name.values())
    return changed


def build(group: Group, shape: Shape) -> Manifest:
    """Build the StatefulSet.

    It uses `Parallel`, because a member becomes ready only with a majority of its peers, and
    `OnDelete`, because the safe order of restarts depends on the leader, which a StatefulSet does
    not know.
    """
    name = names.stateful_set(group.name)
    manifest = annotated(child(group, "StatefulSet", "apps/v1", name), _founding(shape))
    return manifest | {
        "spec": {
            "replicas": shape.pods,
            "serviceName": names.nodes_service(group.name),
            "podManagementPolicy": "Parallel",
            "updateStrategy": {"type": "OnDelete"},
            "selector": {"matchLabels": group_selector(group.name)},
            # A StatefulSet that is deleted or scaled by hand must not take the log with it; what
            # `storage.retain` asks for is done by `behaviors.volumes.claim_owners` and scaling.
            "persistentVolumeClaimRetentionPolicy": {
                "whenDeleted": "Retain",
                "whenScaled": "Retain",
            },
            "template": _pod_template(group, shape),
            "volumeClaimTemplates": [_volume_claim_template(group, shape)],
        }
    }


def pod_revision(group: Group, shape: Shape) -> Revision:
    """Return the revision of the pods that are made from the template.

    The identity is left out: members learn it when they restart, and need not restart for it. So
    are the initial group state, which a member ignores once the group is founded, and the archive
    that it begins with, which only its founding needs.
    """
    settings = config_map.environment(group, shape)
    flush = settings.pop(config_map.FLUSH_KEY)
    del settings[config_map.STATE_KEY]
    metadata, spec = _pod_metadata(group), _pod_spec(group)
    rest = {key: value for key, value in _container(group).items() if key != "resources"}
    return Revision(
        parts={
            revision.IMAGE: group.image,
            revision.FLUSH: flush,
            revision.SETTINGS: revision.digest(settings),
            revision.RESOURCES: revision.digest(dict(group.resources)),
            revision.RESTART: group.restarted_at,
            revision.TEMPLATE: revision.digest([metadata, spec, rest, *_extra(group)]),
        }
    )


def _pod_template(group: Group, shape: Shape) -> Manifest:
    metadata = _pod_metadata(group)
    recorded = {
        names.REVISION_ANNOTATION: pod_revision(group, shape).to_text(),
        names.FOUNDING_ANNOTATION: shape.state.value,
    }
    settings = config_map.environment(group, shape)
    variables = [
        *_own_variables(group),
        *broker.own_variables(group),
        *_variables(settings),
        *_identity_variable(shape),
        *map(dict, group.pod_parts.env),
    ]
    container = _container(group) | {"image": group.image, "env": variables}
    spec = _pod_spec(group)
    return {
        "metadata": metadata | {"annotations": metadata["annotations"] | recorded},
        "spec": spec
        | {
            **seed.init_containers(group, shape, variables),
            "containers": [container, *map(dict, group.pod_parts.sidecars)],
            "volumes": [*spec["volumes"], *seed.volumes(group, shape)],
        },
    }


def _extra(group: Group) -> list[Manifest]:
    """Return what the spec adds to containers; empty if nothing."""
    return [dict(each) for each in (*group.pod_parts.env, *group.pod_parts.sidecars)]


def _pod_metadata(group: Group) -> Manifest:
    """Build the pods' metadata. It has no role label, so no client Service selects a new pod."""
    return {
        # The operator's labels override the user's: Services and budgets select by them.
        "labels": {**group.pod_labels, **stable_labels(group)},
        "annotations": dict(group.pod_annotations),
    }


def _pod_spec(group: Group) -> Manifest:
    """Build the pods' spec without the container."""
    return {
        "serviceAccountName": names.service_account(group.name),
        "automountServiceAccountToken": False,
        # Service links would add DLEDGER_* variables, which the node rejects as unknown.
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": TERMINATION_GRACE_PERIOD_S,
        "securityContext": security.pod_security_context(fixed_user=group.pod_parts.fixed_user),
        "volumes": [
            _settings_volume(group),
            *_token_volume(group),
            *map(dict, group.pod_parts.volumes),
        ],
        **pull_secrets(group),
        **_placement(group),
    }


def _settings_volume(group: Group) -> Manifest:
    """Build the volume of the file with live settings. A pod also starts without the file: its
    member then keeps its defaults, which remove nothing, and reports what it lacks.
    """
    key = names.LIVE_SETTINGS_KEY
    source = {
        "name": names.settings_config_map(group.name),
        "items": [{"key": key, "path": key}],
        "optional": True,
    }
    return {"name": names.SETTINGS_VOLUME, "configMap": source}


def _token_volume(group: Group) -> list[Manifest]:
    """Build the volume of the administration tokens, if the group demands one. A pod also starts
    without them: its member accepts no administration request until it has read a token.
    """
    if not group.admin_token.required:
        return []
    source = {
        "secretName": names.TOKENS_NAME,
        "items": [{"key": group.name, "path": posixpath.basename(names.TOKENS_FILE)}],
        "optional": True,
    }
    return [{"name": names.TOKENS_VOLUME, "secret": source}]


def _token_mount(group: Group) -> list[Manifest]:
    if not group.admin_token.required:
        return []
    return [{"name": names.TOKENS_VOLUME, "mountPath": names.TOKENS_FOLDER, "readOnly": True}]


def _container(group: Group) -> Manifest:
    """Build the container without its image and variables."""
    return {
        "name": names.NODE_CONTAINER,
        "imagePullPolicy": group.image_pull_policy,
        "command": ["dledger-broker" if group.broker else "dledger-node"],
        "ports": [
            {"name": "remoting", "containerPort": names.REMOTING_PORT},
            {"name": "http", "containerPort": names.HTTP_PORT},
            *broker.ports(group),
        ],
        # Readiness means that the member serves its role, so it is checked every second. Liveness
        # only means that it answers: a restart does not cure a slow disk.
        "startupProbe": _probe("/healthz", period_s=1, failures=STARTUP_S_MAX, timeout_s=1),
        "readinessProbe": _probe("/readyz", period_s=1, failures=3, timeout_s=1),
        "livenessProbe": _probe("/healthz", period_s=10, failures=6, timeout_s=5),
        "resources": dict(group.resources),
        "securityContext": security.container_security_context(),
        "volumeMounts": [
            {"name": names.DATA_VOLUME, "mountPath": names.DATA_FOLDER},
            {
                "name": names.SETTINGS_VOLUME,
                "mountPath": names.SETTINGS_FOLDER,
                "readOnly": True,
            },
            *_token_mount(group),
        ],
    }


def _own_variables(group: Group) -> list[Manifest]:
    """Return the variables that differ between pods or while a pod exists."""
    founding = {"name": names.settings_config_map(group.name), "key": config_map.STATE_KEY}
    return [
        {
            "name": POD_INDEX_VARIABLE,
            "valueFrom": {"fieldRef": {"fieldPath": f"metadata.labels['{names.POD_INDEX_LABEL}']"}},
        },
        {"name": variable_name("self_id"), "value": "n$(POD_INDEX)"},
        {"name": config_map.STATE_KEY, "valueFrom": {"configMapKeyRef": founding}},
    ]


def _variables(settings: Mapping[str, str]) -> list[Manifest]:
    return [
        {"name": name, "value": value}
        for name, value in settings.items()
        if name != config_map.STATE_KEY
    ]


def _probe(path: str, *, period_s: int, failures: int, timeout_s: int) -> Manifest:
    return {
        "httpGet": {"path": path, "port": "http"},
        "periodSeconds": period_s,
        "failureThreshold": failures,
        "timeoutSeconds": timeout_s,
    }


def _placement(group: Group) -> Manifest:
    scheduling = group.scheduling
    placement: Manifest = {}
    if scheduling.node_selector:
        placement["nodeSelector"] = dict(scheduling.node_selector)
    if scheduling.tolerations:
        placement["tolerations"] = [dict(toleration) for toleration in scheduling.tolerations]
    if scheduling.priority_class_name:
        placement["priorityClassName"] = scheduling.priority_class_name
    spread = [
        _spread(group, key, hard=wanted == "Hard")
        for key, wanted in (
            (NODE_KEY, scheduling.topology_spread),
            (ZONE_KEY, scheduling.zone_spread),
        )
        if wanted == "Hard" or (wanted == "Soft" and key == NODE_KEY)
    ]
    if spread:
        placement["topologySpreadConstraints"] = spread
    if affinity := _affinity(group):
        placement["affinity"] = affinity
    return placement


def _spread(group: Group, key: str, *, hard: bool) -> Manifest:
    return {
        "maxSkew": 1,
        "topologyKey": key,
        "whenUnsatisfiable": "DoNotSchedule" if hard else "ScheduleAnyway",
        "labelSelector": {"matchLabels": group_selector(group.name)},
    }


def _affinity(group: Group) -> Manifest:
    """Return the spec's affinity, with a preference for zones without members if wanted."""
    scheduling = group.scheduling
    affinity: Manifest = dict(scheduling.affinity)
    if scheduling.topology_spread == "Off" or scheduling.zone_spread != "Soft":
        return affinity
    anti: Manifest = dict(affinity.get("podAntiAffinity") or {})
    given = anti.get(PREFERRED) or []
    return affinity | {"podAntiAffinity": anti | {PREFERRED: [*given, _prefer_other_zones(group)]}}


def _prefer_other_zones(group: Group) -> Manifest:
    """Prefer a zone without members.

    A pod with spread constraints of its own loses the scheduler's default spread over zones. A
    second soft constraint would switch off the one over nodes wherever nodes have no zone: the
    scheduler scores only nodes that have the labels of all constraints.
    """
    term = {
        "topologyKey": ZONE_KEY,
        "labelSelector": {"matchLabels": group_selector(group.name)},
    }
    return {"weight": 100, "podAffinityTerm": term}


def _founding(shape: Shape) -> dict[str, str]:
    recorded = {names.FIRST_VOTERS_ANNOTATION: str(shape.first_voters)}
    return recorded | ({names.IDENTITY_ANNOTATION: shape.identity} if shape.identity else {})


def _identity_variable(shape: Shape) -> list[Manifest]:
    """Return the variable of the identity; none while a group of an earlier release has none."""
    if not shape.identity:
        return []
    return [{"name": variable_name("group_identity"), "value": shape.identity}]


def _volume_claim_template(group: Group, shape: Shape) -> Manifest:
    storage = group.storage
    spec: Manifest = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": storage.size}},
    }
    if storage.storage_class_name:
        spec["storageClassName"] = storage.storage_class_name
    return {
        "metadata": {
            "name": names.DATA_VOLUME,
            "labels": stable_labels(group),
            # Volume claims can outlive all other objects of the group.
            "annotations": _founding(shape),
        },
        "spec": spec,
    }
