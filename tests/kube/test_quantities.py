"""Parsing durations, the memory limit of a container, and the sizes of volumes."""

import contextlib
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from dledger_formats.quantities import BYTES_MAX, quantity
from dledger_kube.objects import group
from dledger_operator.spec.quantities import duration_ms, memory_limit_bytes, volume_bytes

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("text", "expected"),
    [("250ms", 250), ("1s", 1000), ("1.5s", 1500), ("24h", 86_400_000), ("1h30m", 5_400_000)],
)
def test_a_duration_is_parsed(text: str, expected: int) -> None:
    assert duration_ms(text) == expected


@pytest.mark.parametrize(
    "text", ["", "5", "ms", "-1s", "1 s", "1d", "0.1ms", "1s2", "9" * 40 + "s"]
)
def test_an_invalid_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"duration|millisecond"):
        duration_ms(text)


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        ("512Mi", 512 << 20),
        ("5e8", 500_000_000),
        ("5E8", 500_000_000),
        ("1.5e+9", 1_500_000_000),
        ("5000000000e-1", 500_000_000),
        ("536870912000m", 512 << 20),
        ("1500m", 1),
        ("1E", 10**18),
        (".5Gi", 1 << 29),
        ("+1G", 10**9),
        (536870912, 512 << 20),
        ("1e99", 1 << 62),
        ("9E", 1 << 62),
        ("much", 0),
        ("-1Gi", 0),
        ("", 0),
    ],
)
def test_a_memory_limit_may_have_every_form_that_kubernetes_accepts(
    limit: str | int, expected: int
) -> None:
    assert memory_limit_bytes({"limits": {"memory": limit}}) == expected


@pytest.mark.parametrize("resources", [{}, {"limits": None}, {"limits": {"cpu": "1"}}])
def test_resources_may_have_no_memory_limit(resources: dict[str, Any]) -> None:
    assert memory_limit_bytes(resources) == 0


@given(text=st.text(alphabet="0123456789.eE+-mkKMGTPin", max_size=12))
def test_any_memory_limit_is_read_without_an_error(text: str) -> None:
    assert memory_limit_bytes({"limits": {"memory": text}}) >= 0


@given(text=st.text(max_size=12))
def test_any_text_is_a_duration_or_refused(text: str) -> None:
    with contextlib.suppress(ValueError):
        assert duration_ms(text) >= 0


PATTERN = re.compile(r"string\(self\)\.matches\('(.+)'\)")


def pattern_of_sizes() -> str:
    """The form that the schema of `storage.size` admits."""
    (made,) = yaml.safe_load((ROOT / "crds" / "dledgergroups.yaml").read_text())["spec"]["versions"]
    spec = made["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    rules = spec["storage"]["properties"]["size"]["x-kubernetes-validations"]
    (pattern,) = [found[1] for rule in rules if (found := PATTERN.match(rule["rule"]))]
    return pattern


@given(st.from_regex(pattern_of_sizes(), fullmatch=True))
def test_a_volume_has_whole_bytes_whatever_size_the_schema_admits(size: str) -> None:
    found = volume_bytes(size)

    assert found == BYTES_MAX or quantity(size) <= found < quantity(size) + 1
    storage = group(storage={"size": size}).storage
    assert (storage.size_bytes, volume_bytes(storage.size)) == (found, found)
    assert storage.size in (size, str(found))


@pytest.mark.parametrize(
    ("size", "written"),
    [
        ("30Gi", "30Gi"),
        ("1.25Gi", "1.25Gi"),
        ("1.1Gi", "1181116007"),
        ("33.3Gi", "35755602740"),
        ("9999999999Ti", str(BYTES_MAX)),
    ],
)
def test_a_claim_is_written_as_the_spec_is_unless_that_is_a_fraction_of_a_byte(
    size: str, written: str
) -> None:
    assert group(storage={"size": size}).storage.size == written
