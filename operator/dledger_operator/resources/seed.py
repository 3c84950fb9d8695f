"""What pods need to begin a new group with an archive: an init container, and the archive's volume.

Only the pods of a group that has not begun have them. A pod that is created later must not wait
for the archive, which may be gone, or begin with it: its member gets the log from its peers.
"""

import posixpath
from collections.abc import Sequence
from typing import Final

from dledger_formats.settings import GroupState
from dledger_operator import names
from dledger_operator.api_objects import Manifest
from dledger_operator.resources import security
from dledger_operator.spec.group import Group
from dledger_operator.spec.seed import SeedSpec
from dledger_operator.spec.shape import Shape

FOLDER: Final = "/seed"


def volumes(group: Group, shape: Shape) -> list[Manifest]:
    """Return the volume with the archive; none once the group has begun."""
    seed = _seed(group, shape)
    if seed is None:
        return []
    claim = {"claimName": seed.claim_name, "readOnly": True}
    return [{"name": names.SEED_VOLUME, "persistentVolumeClaim": claim}]


def init_containers(group: Group, shape: Shape, variables: Sequence[Manifest]) -> Manifest:
    """Return the part of a pod's spec with the init container; empty once the group has begun.

    `variables` are those of the member, whose settings the container needs.
    """
    seed = _seed(group, shape)
    if seed is None:
        return {}
    options = ["--group", seed.group or group.name]
    options += ["--copy-sha256", seed.copy_sha256] if seed.copy_sha256 else []
    container = {
        "name": names.SEED_CONTAINER,
        "image": group.image,
        "imagePullPolicy": group.image_pull_policy,
        "command": ["dledger-node", "seed", posixpath.join(FOLDER, seed.path), *options],
        "env": list(variables),
        "resources": dict(group.resources),
        "securityContext": security.container_security_context(),
        # Its last log lines say why the group does not begin; the operator shows them.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [
            {"name": names.DATA_VOLUME, "mountPath": names.DATA_FOLDER},
            {"name": names.SEED_VOLUME, "mountPath": FOLDER, "readOnly": True},
        ],
    }
    return {"initContainers": [container]}


def without_archive(template: Manifest) -> Manifest:
    """Return an existing pod template without the init container and the archive's volume."""
    spec = dict(template.get("spec") or {})
    for key, name in (
        ("initContainers", names.SEED_CONTAINER), ("volumes", names.SEED_VOLUME),
    ):  # fmt: skip
        left = [each for each in spec.pop(key, None) or [] if each.get("name") != name]
        spec |= {key: left} if left else {}
    return {**template, "spec": spec}


def _seed(group: Group, shape: Shape) -> SeedSpec | None:
    return group.seed if shape.state is GroupState.NEW else None
