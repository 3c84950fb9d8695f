"""Typed access to a `spec`: every value has a type and a default, every error names the key.

The API server validates against the CRD's schema first. An object can still violate the schema,
because it was stored before the schema changed or because an administrator edited the schema. Such
an object must cause neither a crash nor a guess.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from dledger_operator import names

T = TypeVar("T")

_MISSING: Final[dict[str, Any]] = {}


class InvalidSpecError(ValueError):
    """A spec is invalid; the message names the key and the mistake."""


@dataclass(frozen=True, slots=True)
class SpecReader:
    """One JSON object of a spec, with its path for error messages."""

    values: Mapping[str, Any]
    path: str

    def section(self, key: str) -> "SpecReader":
        """Return a nested object, or an empty one if it is missing."""
        return SpecReader(self._typed(key, dict, "an object", _MISSING), self._at(key))

    def text(self, key: str, default: str = "") -> str:
        """Read a string."""
        return self._typed(key, str, "a string", default)

    def required_text(self, key: str) -> str:
        """Read a string that must be present and not empty."""
        value = self.text(key)
        if not value:
            raise InvalidSpecError(f"{self._at(key)} is missing")
        return value

    def required_member(self, key: str) -> str:
        """Read the id of a member that a group may have."""
        member = self.required_text(key)
        if not 0 <= names.ordinal(member) < names.REPLICAS_MAX:
            raise InvalidSpecError(f"{self._at(key)} is {member!r}; it must be a member, n0 to n6")
        return member

    def flag(self, key: str, default: bool) -> bool:
        """Read a boolean."""
        return self._typed(key, bool, "true or false", default)

    def number(self, key: str, default: int) -> int:
        """Read a whole number."""
        value = self._typed(key, int, "a whole number", default)
        if isinstance(value, bool):
            raise InvalidSpecError(f"{self._at(key)} is {value!r}; it must be a whole number")
        return value

    def choice(self, key: str, allowed: Sequence[str]) -> str:
        """Read one of the allowed strings; the first one is the default."""
        value = self.text(key, allowed[0])
        if value not in allowed:
            raise InvalidSpecError(
                f"{self._at(key)} is {value!r}; it must be {' or '.join(allowed)}"
            )
        return value

    def texts(self, key: str) -> dict[str, str]:
        """Read a map of strings."""
        values = self._typed(key, dict, "an object", _MISSING)
        for name, value in values.items():
            if not isinstance(value, str):
                raise InvalidSpecError(f"{self._at(key)}.{name} is {value!r}; it must be a string")
        return dict(values)

    def objects(self, key: str) -> tuple[dict[str, Any], ...]:
        """Read a list of objects."""
        values = self._typed(key, list, "a list", [])
        for value in values:
            if not isinstance(value, dict):
                raise InvalidSpecError(f"{self._at(key)} contains {value!r}; it must hold objects")
        return tuple(dict(value) for value in values)

    def strings(self, key: str) -> tuple[str, ...]:
        """Read a list of strings."""
        values = self._typed(key, list, "a list", [])
        for value in values:
            if not isinstance(value, str):
                raise InvalidSpecError(f"{self._at(key)} contains {value!r}; it must hold strings")
        return tuple(values)

    def converted(self, key: str, convert: Callable[[Any], T], default: str | int) -> T:
        """Read a value with `convert`, which raises TypeError or ValueError if it is invalid."""
        value = self.values.get(key)
        try:
            return convert(default if value is None else value)
        except (TypeError, ValueError) as error:
            raise InvalidSpecError(f"{self._at(key)}: {error}") from error

    def _at(self, key: str) -> str:
        return f"{self.path}.{key}"

    def _typed(self, key: str, kind: type[T], expected: str, default: T) -> T:
        value = self.values.get(key)
        if value is None:
            return default
        if not isinstance(value, kind):
            raise InvalidSpecError(f"{self._at(key)} is {value!r}; it must be {expected}")
        return value
