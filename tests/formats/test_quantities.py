"""Quantities of Kubernetes: every form means one exact number, and nothing else is taken."""

import contextlib
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger_formats.quantities import BYTES_MAX, quantity, quantity_bytes

NANO_OF_SUFFIX = {
    "n": 1, "u": 10**3, "m": 10**6, "": 10**9, "k": 10**12, "M": 10**15, "G": 10**18,
    "T": 10**21, "P": 10**24, "E": 10**27, "Ki": 10**9 << 10, "Mi": 10**9 << 20,
    "Gi": 10**9 << 30, "Ti": 10**9 << 40, "Pi": 10**9 << 50, "Ei": 10**9 << 60,
}  # fmt: skip
"""The suffixes of Kubernetes, in billionths."""


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("10Gi", 10 << 30),
        ("1.5Gi", 3 << 29),
        ("64Mi", 64 << 20),
        ("1k", 1000),
        ("2G", 2_000_000_000),
        ("5e8", 500_000_000),
        ("1.5E+9", 1_500_000_000),
        ("536870912000m", 512 << 20),
        (".5Gi", 1 << 29),
        ("1.", 1),
        ("+1E", 10**18),
        (4096, 4096),
        ("4096", 4096),
    ],
)
def test_a_quantity_of_bytes_is_parsed(value: str | int, expected: int) -> None:
    assert quantity_bytes(value) == expected


@pytest.mark.parametrize(
    "value",
    ["", "Gi", "-1", "1KB", "1gi", "1K", "1mi", "100m", "0.1", True, "9" * 30, "1e99", "8Ei", "٣",
     "1 Gi", "1Gi\n", "1e", "1e+", "1e3Gi", "e3", ".", "0x10", "1_000", "1/2", "9" * 65, "nan"],
)  # fmt: skip
def test_anything_else_is_refused(value: str | int) -> None:
    with pytest.raises(ValueError, match=r"quantity|bytes"):
        quantity_bytes(value)


@given(
    units=st.integers(0, 10**30),
    fraction=st.integers(0, 10**12),
    suffix=st.sampled_from(sorted(NANO_OF_SUFFIX)),
    plus=st.sampled_from(["", "+"]),
)
def test_the_number_is_exact_with_every_suffix(
    units: int, fraction: int, suffix: str, plus: str
) -> None:
    found = quantity(f"{plus}{units}.{fraction:013}{suffix}")

    assert found * 10**22 == (units * 10**13 + fraction) * NANO_OF_SUFFIX[suffix]


@given(
    number=st.decimals(0, 10**20, places=6), exponent=st.integers(-99, 99), e=st.sampled_from("eE")
)
def test_an_exponent_moves_the_point(number: Decimal, exponent: int, e: str) -> None:
    assert quantity(f"{number}{e}{exponent}") == Fraction(number.scaleb(exponent))


@given(number=st.integers(0, BYTES_MAX))
def test_whole_bytes_are_read_as_they_were_written(number: int) -> None:
    forms = [str(number), f"{number * 1000}m", f"{number}e0"]
    for suffix in ("Ki", "Mi", "Gi", "k", "M", "G"):
        factor = NANO_OF_SUFFIX[suffix] // 10**9
        if number % factor == 0:
            forms.append(f"{number // factor}{suffix}")

    assert {quantity_bytes(form) for form in forms} == {number}


@given(text=st.text(alphabet="0123456789.eE+-mukKMGTPin _/", max_size=70) | st.text(max_size=12))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    with contextlib.suppress(ValueError):
        assert quantity(text) >= 0
    with contextlib.suppress(ValueError):
        assert 0 <= quantity_bytes(text) <= BYTES_MAX
