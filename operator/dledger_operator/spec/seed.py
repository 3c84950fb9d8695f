"""The archive that a new group begins with: `spec.seed`."""

import re
from dataclasses import dataclass
from typing import Final

from dledger_operator.spec.spec_reader import InvalidSpecError, SpecReader
from dledger_operator.spec.volume_paths import read_path

_SHA256: Final = re.compile("[a-f0-9]{64}|")


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedSpec:
    """The part `seed` of a spec."""

    claim_name: str
    """The volume claim, in the group's namespace, that holds the archive."""
    path: str
    """The archive's folder in the volume, without a leading slash; empty for its root."""
    group: str
    """Name of the group that the archive was made of; empty for a group of the same name."""
    copy_sha256: str
    """Digest of the only archive to take, from its `archive.json`; empty for any."""


def read_seed(spec: SpecReader) -> SeedSpec | None:
    """Parse `seed`; None if the spec has none. Raises InvalidSpecError."""
    if spec.values.get("seed") is None:
        return None
    section = spec.section("seed")
    claim = section.section("persistentVolumeClaim")
    if spec.values.get("broker") is not None:
        raise InvalidSpecError(
            f"{section.path} has no effect on the queues of a broker; leave out seed or broker"
        )
    digest = section.text("copySha256")
    if not _SHA256.fullmatch(digest):
        raise InvalidSpecError(
            f"{section.path}.copySha256 is {digest[:80]!r}; it must be 64 hexadecimal digits in "
            "lower case, as in archive.json"
        )
    return SeedSpec(
        claim_name=claim.required_text("claimName"),
        path=read_path(claim, "archives/orders"),
        group=section.text("group"),
        copy_sha256=digest,
    )
