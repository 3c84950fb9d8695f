"""Parsing durations and Kubernetes quantities."""

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger_operator.spec.quantities import duration_ms, memory_limit_bytes, quantity_bytes


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
    ("value", "expected"),
    [
        ("10Gi", 10 << 30),
        ("1.5Gi", 3 << 29),
        ("64Mi", 64 << 20),
        ("1k", 1000),
        ("2G", 2_000_000_000),
        (4096, 4096),
        ("4096", 4096),
    ],
)
def test_a_quantity_is_parsed(value: str | int, expected: int) -> None:
    assert quantity_bytes(value) == expected


@pytest.mark.parametrize("value", ["", "Gi", "-1", "1KB", "1gi", "100m", "0.1", True, "9" * 30])
def test_an_invalid_quantity_is_refused(value: str | int) -> None:
    with pytest.raises(ValueError, match=r"quantity|bytes"):
        quantity_bytes(value)


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


@given(number=st.integers(0, 10**9), suffix=st.sampled_from(["", "k", "Ki", "M", "Mi", "G", "Gi"]))
def test_a_larger_suffix_never_means_less(number: int, suffix: str) -> None:
    assert quantity_bytes(f"{number}{suffix}") >= number


@given(text=st.text(max_size=12))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    for read in (duration_ms, quantity_bytes):
        with contextlib.suppress(ValueError):
            assert read(text) >= 0
