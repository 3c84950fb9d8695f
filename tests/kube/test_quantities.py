"""Parsing durations, and the memory limit of a container."""

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger_operator.spec.quantities import duration_ms, memory_limit_bytes


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
