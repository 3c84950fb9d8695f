"""Ext fields: the arguments of a request or answer, a flat object of texts in its frame's header.

    {"queueId":"1","queueOffset":"0","k":"false"}

Java writes every number and boolean as text. A class here names the fields of one request; its
attributes are typed, and those that may be missing are None. A reader ignores unknown fields. It
refuses a text that Java would not read as the same value: a number with a blank, a sign "+", an
exponent or too many bits, and a boolean other than `true` and `false`.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any, ClassVar, Final, Self, TypeVar, get_args

import msgspec

from dledger_formats.json_objects import FormatError

T = TypeVar("T", bound="ExtFields")
_TRUTH: Final = ("true", "false")
_NUMBERS_FOR_TRUTH: Final = ("0", "1")
"""What RocketMQ's C++ client writes for a boolean. Java reads false from both."""


class ExtFields(
    msgspec.Struct, kw_only=True, frozen=True, rename="camel", omit_defaults=True, gc=False
):
    """The ext fields of one kind of frame. The default of every optional field is None."""

    FIELDS_MAX: ClassVar[int] = 64
    """More ext fields than any release has. They are refused before they are looked at."""

    @classmethod
    def from_ext(cls, ext: Mapping[str, str] | None) -> Self:
        """Read the fields. Raises FormatError, which names the field that is missing or wrong."""
        ext = ext or {}
        if len(ext) > cls.FIELDS_MAX:
            raise FormatError(f"{len(ext)} ext fields; at most {cls.FIELDS_MAX} are allowed")
        numbers, truths = _typed_keys(cls)
        for key in truths:
            text = ext.get(key)
            if text is None or text in _TRUTH:
                continue
            if text in _NUMBERS_FOR_TRUTH:
                ext = {**ext, key: "false"}
            elif text.lower() not in _TRUTH:
                raise FormatError(f"ext fields: {key} is {text[:30]!r}; true or false is expected")
        try:
            fields = msgspec.convert(ext, cls, strict=False)
        except msgspec.ValidationError as error:
            raise FormatError(f"ext fields: {error}") from error
        # What follows is narrower than msgspec, which also reads 1.0 and 1e3.
        for key in numbers:
            text = ext.get(key)
            if text is not None and not text.isdigit() and not text[1:].isdigit():
                raise FormatError(f"ext fields: {key} is {text[:30]!r}, which is not an integer")
        return fields

    def to_ext(self) -> dict[str, str]:
        """Return the fields as Java writes them, without those that are None."""
        return {
            key: value if type(value) is str else _text(value)
            for key, value in msgspec.to_builtins(self).items()
        }


class RequestFields(ExtFields, kw_only=True, frozen=True):
    """The ext fields of a request, with those that clients from 4.9.4 and 5.0 on add to many."""

    bname: str | None = None
    """The name of the broker that the client means. A broker ignores it."""
    request_type: str | None = msgspec.field(default=None, name="ReqT")
    """The request's kind, for an authorization that this project does not have; ignored."""


class NoFields(ExtFields, kw_only=True, frozen=True):
    """The ext fields of a frame that has none of its own."""


def _text(value: object) -> str:
    if value is True:
        return "true"
    return "false" if value is False else str(value)


@cache
def _typed_keys(cls: type[ExtFields]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the keys of a class's numbers, and those of its booleans."""
    numbers: list[str] = []
    truths: list[str] = []
    for item in msgspec.structs.fields(cls):
        kinds = _plain_kinds(item.type)
        if bool in kinds:
            truths.append(item.encode_name)
        elif int in kinds:
            numbers.append(item.encode_name)
        assert item.required or item.default is None, "an optional field is None by default"
    return tuple(numbers), tuple(truths)


def _plain_kinds(annotation: Any) -> set[Any]:
    """Return the types within an annotation such as `Annotated[int, …] | None`."""
    inner = get_args(annotation)
    if not inner:
        return {annotation}
    return set().union(*(_plain_kinds(each) for each in inner if each is not type(None)))
