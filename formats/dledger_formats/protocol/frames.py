"""Remoting frames: bytes in, commands out, and back. No socket, no clock (RocketMQ remoting 5.1.0).

    offset size field
         0    4 length         of all that follows: 4 + header_length + the body's length
         4    1 header type    0 JSON, 1 ROCKETMQ binary
         5    3 header_length
         8    … header         code, opaque, flag, …
         … …    body           often a JSON object of its own; `requests` knows those

We write JSON headers, as every DLedger does by default, and read both: a Java process that is set
to the binary form still accepts JSON. The binary header has 16 bits for the code. Java reads them
as signed, which breaks DLedger's codes above 32767; we read them as unsigned.

A length is checked before its bytes are buffered. Bytes that cannot be a frame raise FrameError;
the start of the next frame is then unknown, so the connection must be closed, as in Java.
"""

import struct
from collections.abc import Iterable
from typing import Final, TypeAlias

import msgspec

from dledger_formats.protocol.decoding import Int32
from dledger_formats.protocol.headers import read_binary, with_texts

Buffer: TypeAlias = bytes | bytearray | memoryview

FRAME_BYTES_MAX: Final = 16 * 1024 * 1024  # Java's frameMaxLength; includes the length word
HEADER_BYTES_MAX: Final = 64 * 1024
LENGTH_WORD_BYTES: Final = 4
PREFIX_BYTES: Final = 8
BINARY_HEADER: Final = 1

RESPONSE_FLAG: Final = 1
ONEWAY_FLAG: Final = 2
OPAQUE_MAX: Final = (1 << 31) - 1
LANGUAGE: Final = "PYTHON"
_PREFIX: Final = struct.Struct(">II")
_HEADER_LENGTH_MASK: Final = 0xFFFFFF
_PLAIN_HEADER: Final = (
    b'{"code":%d,"flag":%d,"language":"'
    + LANGUAGE.encode()
    + b'","opaque":%d,"serializeTypeCurrentRPC":"JSON","version":0}'
)

assert _PREFIX.size == PREFIX_BYTES
assert FRAME_BYTES_MAX - 1 <= _HEADER_LENGTH_MASK


class FrameError(ValueError):
    """The stream has bytes that are not a frame; close the connection.

    `reason` is one word for counters: length, header_type, header_length or header. `before` holds
    the whole commands that preceded the bad bytes in the same `feed`.
    """

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.before: list[RemotingCommand] = []


class RemotingCommand(msgspec.Struct, frozen=True, kw_only=True, gc=False, rename="camel"):
    """One request or response. Java's class has the same name and fields.

    Unknown keys of a JSON header are ignored, and fields that Java may leave out have a default. A
    frame without an opaque could never be answered, so it is refused.
    """

    code: Int32
    """The code of the request (`codes.RequestCode`), or the remoting layer's own result."""
    opaque: Int32
    """Pairs a response with its request. Java counts up and may wrap to below 0."""
    flag: Int32 = 0
    remark: str | None = None
    """The text of a system error."""
    ext_fields: dict[str, str] | None = None
    body: bytes = msgspec.field(default=b"", name="")
    """The body, which is not part of the header. Its header key here is empty, and a value that a
    header has under that key is overwritten.
    """
    language: str = LANGUAGE
    version: Int32 = 0

    @property
    def is_response(self) -> bool:
        """Whether this is the response to the request with the same opaque."""
        return self.flag & RESPONSE_FLAG != 0

    @property
    def is_oneway(self) -> bool:
        """Whether the sender expects no answer. (Java's servers answer nevertheless.)"""
        return self.flag & ONEWAY_FLAG != 0


def encode(command: RemotingCommand) -> bytes:
    """Encode one frame with the keys in Java's order. Raises ValueError if it would be too long."""
    header: dict[str, object] = {"code": command.code}
    if command.ext_fields is not None:
        header["extFields"] = command.ext_fields
    header |= {"flag": command.flag, "language": command.language, "opaque": command.opaque}
    if command.remark is not None:
        header["remark"] = command.remark
    header |= {"serializeTypeCurrentRPC": "JSON", "version": command.version}
    encoded = msgspec.json.encode(header)
    size = PREFIX_BYTES + len(encoded) + len(command.body)
    if len(encoded) > HEADER_BYTES_MAX or size > FRAME_BYTES_MAX:
        raise ValueError(
            f"a frame of {size} bytes with a header of {len(encoded)} exceeds the limits of "
            f"{FRAME_BYTES_MAX} and {HEADER_BYTES_MAX}"
        )
    prefix = _PREFIX.pack(size - LENGTH_WORD_BYTES, len(encoded))
    return b"".join((prefix, encoded, command.body))


def encode_requests(code: int, requests: Iterable[tuple[int, bytes]], flag: int = 0) -> bytes:
    """Encode many requests with one code, given as (opaque, body), for one write.

    This takes a third of the time of `encode`. The caller limits the length of the bodies.
    """
    return _encode_plain(code, flag, requests)


def encode_responses(responses: Iterable[tuple[int, bytes]], code: int = 200) -> bytes:
    """Encode many responses, given as (opaque, body), for one write, as `encode_requests` does."""
    return _encode_plain(code, RESPONSE_FLAG, responses)


def encode_response_head(opaque: int, head: bytes, rest_bytes: int) -> bytes:
    """Encode a response up to `head`, the first part of its body; `rest_bytes` must follow.

    So a long body need not be copied into the frame.
    """
    header = _PLAIN_HEADER % (200, RESPONSE_FLAG, opaque)
    length = LENGTH_WORD_BYTES + len(header) + len(head) + rest_bytes
    return b"".join((_PREFIX.pack(length, len(header)), header, head))


def _encode_plain(code: int, flag: int, frames: Iterable[tuple[int, bytes]]) -> bytes:
    parts: list[bytes] = []
    for opaque, body in frames:
        header = _PLAIN_HEADER % (code, flag, opaque)
        header_length = len(header)
        parts += (
            _PREFIX.pack(LENGTH_WORD_BYTES + header_length + len(body), header_length),
            header,
            body,
        )
    return b"".join(parts)


class FrameDecoder:
    """Divides a stream, given in slices of any length, into commands.

    The decoder keeps at most one unfinished frame: `frame_bytes_max` bytes with the length word.
    """

    __slots__ = ("_broken", "_needed_bytes", "_pending", "frame_bytes_max", "header_bytes_max")

    def __init__(
        self, frame_bytes_max: int = FRAME_BYTES_MAX, header_bytes_max: int = HEADER_BYTES_MAX
    ) -> None:
        self.frame_bytes_max = frame_bytes_max
        self.header_bytes_max = header_bytes_max
        self._pending = bytearray()
        # Invariant: nothing can be decoded while fewer bytes than this are pending.
        self._needed_bytes = 1
        self._broken: str | None = None

    @property
    def pending_bytes(self) -> int:
        """The number of bytes that are kept of an unfinished frame."""
        return len(self._pending)

    def feed(self, data: Buffer) -> list[RemotingCommand]:
        """Take the next slice of the stream. Returns the commands that it completes, in order.

        Raises FrameError if this slice is invalid, or an earlier one was.
        """
        if self._broken is not None:
            raise FrameError(self._broken, "an earlier part of the stream was invalid")
        if not isinstance(data, bytes):
            data = bytes(data)
        commands: list[RemotingCommand] = []
        try:
            at = self._finish_pending(data, commands) if self._pending else 0
            if self._pending:
                return commands
            rest = self._decode_all(data, at, commands)
        except FrameError as error:
            error.before = commands
            self._broken = error.reason
            raise
        if rest < len(data):
            self._pending += memoryview(data)[rest:]
        return commands

    def _finish_pending(self, data: bytes, commands: list[RemotingCommand]) -> int:
        """Complete the unfinished frame. Returns how many bytes of `data` belong to it.

        Only this frame is copied, and not the rest of `data`.
        """
        at = 0
        while self._pending and at < len(data):
            part = memoryview(data)[at : at + self._needed_bytes - len(self._pending)]
            self._pending += part
            at += len(part)
            # This is a whole frame, or only its length, which shows how much is missing.
            if len(self._pending) >= self._needed_bytes:
                with memoryview(self._pending) as whole:
                    decoded_bytes = self._decode_all(whole, 0, commands)
                if decoded_bytes:
                    self._pending.clear()
        return at

    def _decode_all(
        self, data: bytes | memoryview, at: int, commands: list[RemotingCommand]
    ) -> int:
        """Decode every whole frame from byte `at` on. Returns where the unfinished one begins."""
        end = len(data)
        length_max = self.frame_bytes_max - LENGTH_WORD_BYTES
        header_bytes_max = self.header_bytes_max
        unpack_prefix, decode_json_header = _PREFIX.unpack_from, _HEADER_DECODER.decode
        set_field = msgspec.structs.force_setattr
        while end - at >= PREFIX_BYTES:
            length, header_word = unpack_prefix(data, at)
            header_length = header_word & _HEADER_LENGTH_MASK
            # One cheap test for each frame; `_error_in_prefix` finds the reason.
            if (
                length > length_max
                or not 0 < header_length <= header_bytes_max
                or header_length + LENGTH_WORD_BYTES > length
                or header_word >> 24 > BINARY_HEADER
            ):
                raise self._error_in_prefix(length, header_word)
            frame_end = at + LENGTH_WORD_BYTES + length
            if frame_end > end:
                self._needed_bytes = frame_end - at
                return at
            header_at = at + PREFIX_BYTES
            body_at = header_at + header_length
            try:
                if header_word == header_length:
                    try:
                        command = decode_json_header(data[header_at:body_at])
                    except msgspec.ValidationError:  # not of a client in Java
                        command = decode_json_header(with_texts(bytes(data[header_at:body_at])))
                else:
                    command = RemotingCommand(**read_binary(bytes(data[header_at:body_at])))
            except (ValueError, RecursionError, struct.error) as error:
                raise FrameError(
                    "header", f"the header of a frame cannot be read: {error}"
                ) from error
            # The struct is frozen, but a copy with a body would cost as much as its decoding.
            set_field(command, "body", bytes(data[body_at:frame_end]))
            commands.append(command)
            at = frame_end
        return self._judge_unfinished_prefix(data, at)

    def _judge_unfinished_prefix(self, data: bytes | memoryview, at: int) -> int:
        """Refuse a bad length as soon as it is known; the rest of the prefix may never arrive."""
        self._needed_bytes = LENGTH_WORD_BYTES
        if len(data) - at >= LENGTH_WORD_BYTES:
            self._needed_bytes = PREFIX_BYTES
            length = int.from_bytes(data[at : at + LENGTH_WORD_BYTES], "big")
            if not LENGTH_WORD_BYTES <= length <= self.frame_bytes_max - LENGTH_WORD_BYTES:
                raise self._error_in_prefix(length, 0)
        return at

    def _error_in_prefix(self, length: int, header_word: int) -> FrameError:
        length_max = self.frame_bytes_max - LENGTH_WORD_BYTES
        header_length, header_type = header_word & _HEADER_LENGTH_MASK, header_word >> 24
        if not LENGTH_WORD_BYTES <= length <= length_max:
            hint = _foreign_protocol(length.to_bytes(LENGTH_WORD_BYTES, "big"))
            return FrameError(
                "length",
                f"a frame announces {length} bytes; {LENGTH_WORD_BYTES} to {length_max} are "
                f"allowed{hint}",
            )
        if header_type > BINARY_HEADER:
            return FrameError("header_type", f"header type {header_type}; 0 or 1 is expected")
        return FrameError(
            "header_length",
            f"a header of {header_length} bytes in a frame of length {length}; 1 to "
            f"{self.header_bytes_max} bytes within the frame are allowed",
        )


def _foreign_protocol(first_bytes: bytes) -> str:
    """Return a hint for the error: which protocol the bytes belong to. A frame begins with a 0."""
    if first_bytes[0] == 0x16:
        return " (this looks like a TLS handshake)"
    if first_bytes.isascii() and first_bytes.decode().isprintable():
        return f" (this looks like text: {first_bytes.decode()!r})"
    return ""


_HEADER_DECODER: Final = msgspec.json.Decoder(RemotingCommand)
