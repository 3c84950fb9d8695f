"""The volumes of members: `spec.storage`."""

from dataclasses import dataclass
from typing import Final

from dledger_formats.quantities import quantity
from dledger_operator.spec.quantities import duration_ms, volume_bytes
from dledger_operator.spec.spec_reader import InvalidSpecError, SpecReader

RETENTIONS: Final = ("Retain", "Delete")


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoGrow:
    """How volumes grow when they fill up."""

    at_percent: int
    """How full a volume must be, in percent."""
    step_bytes: int
    max_bytes: int
    cool_down_s: float
    """Minimum time between two growths of one volume."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """The volume claim of each member."""

    size: str
    """The size as written in the spec, or in bytes if `volume_bytes` rounds or caps it; copied into
    the volume claim.
    """
    size_bytes: int
    storage_class_name: str
    """The name of the storage class; empty for the cluster's default."""
    when_deleted: str
    when_scaled: str
    auto_grow: AutoGrow | None = None
    """When volumes grow by themselves; None for never."""


def read_storage(storage: SpecReader) -> Storage:
    """Read the section. Raises InvalidSpecError, which names the invalid key."""
    size = storage.values.get("size")
    if size is None:
        raise InvalidSpecError(f"{storage.path}.size is missing")
    size_bytes = storage.converted("size", volume_bytes, size)
    retain = storage.section("retain")
    return Storage(
        size=str(size) if quantity(size) == size_bytes else str(size_bytes),
        size_bytes=size_bytes,
        storage_class_name=storage.text("storageClassName"),
        when_deleted=retain.choice("whenDeleted", RETENTIONS),
        when_scaled=retain.choice("whenScaled", RETENTIONS),
        auto_grow=_auto_grow(storage.section("autoGrow")) if "autoGrow" in storage.values else None,
    )


def _auto_grow(grow: SpecReader) -> AutoGrow:
    found = AutoGrow(
        at_percent=grow.number("usedPercent", 80),
        step_bytes=grow.converted("step", volume_bytes, ""),
        max_bytes=grow.converted("maxSize", volume_bytes, ""),
        cool_down_s=grow.converted("coolDown", duration_ms, "6h") / 1000,
    )
    if not 1 <= found.at_percent <= 100 or found.step_bytes < 1:
        raise InvalidSpecError(
            f"{grow.path}.usedPercent must be 1 to 100, and step at least one byte"
        )
    return found
