"""Changes to sound inputs: random ones to bytes, and ones that know frames and JSON."""

import random
import re
from collections.abc import Iterator, Sequence
from typing import Final

CHANGES_MAX: Final = 4
NUMBERS: Final = tuple(
    (value & mask).to_bytes(width, "big")
    for width in (1, 2, 4, 8)
    for mask in [(1 << 8 * width) - 1]
    for value in (0, 1, -1, 1 << (8 * width - 1), (1 << (8 * width - 1)) - 1, 1 << 24, 4, 48)
)
TOKENS: Final = (
    b"null", b"true", b"0", b"-1", b"1e999", b"NaN", b"1.5", b"9" * 25, b"-9223372036854775809",
    b"9" * 5000, b'""', b'"\\ud800"', b'"\xff"', b'"\\u0000"', b'"====" ', b'"AAA"', b"[]", b"{}",
    b"[[]]", b"[" * 40, b'{"code":200}', b"[-129]", b"[256]", b"[1,2,3]", b",", b":", b'"',
    b'"code":1,', b'"body":"AAAA",', b'"term":1,"term":2,',
)  # fmt: skip
_TOKEN: Final = re.compile(rb'"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?|true|false|null|[\[\]{}:,]')


class Mutator:
    """An endless sequence of inputs, the same for the same seed."""

    def __init__(self, corpus: Sequence[bytes], seed: int) -> None:
        assert corpus
        self._corpus = list(corpus)
        self._tokens = [[match.span() for match in _TOKEN.finditer(raw)] for raw in corpus]
        self.random = random.Random(seed)

    def inputs(self, count: int) -> Iterator[bytes]:
        """Yield `count` inputs; one in sixteen is sound, so that the sound path runs too."""
        chance = self.random.random
        for _ in range(count):
            number = int(chance() * len(self._corpus))
            raw = self._corpus[number]
            if chance() < 1 / 16:
                yield raw
                continue
            if self._tokens[number] and chance() < 0.4:
                raw = self._change_token(raw, number)
            for _ in range(1 + int(chance() * CHANGES_MAX)):
                raw = self._change(raw)
            yield raw

    def _change_token(self, raw: bytes, number: int) -> bytes:
        begin, end = self.random.choice(self._tokens[number])
        return raw[:begin] + self.random.choice(TOKENS) + raw[end:]

    def _change(self, raw: bytes) -> bytes:
        chance = self.random.random
        kind = int(chance() * 8)
        begin = int(chance() * (len(raw) + 1))
        end = begin + int(chance() * chance() * (len(raw) + 1 - begin))
        if kind == 0:  # cut short
            return raw[:begin]
        if kind == 1:  # leave out
            return raw[:begin] + raw[end:]
        if kind == 2:  # repeat
            return raw[:end] + raw[begin:end] + raw[end:]
        if kind == 3:  # a number at a border of its width
            value = self.random.choice(NUMBERS)
            return raw[:begin] + value + raw[begin + len(value) :]
        if kind == 4:  # the same, in front, where lengths are
            value = self.random.choice(NUMBERS)
            at = begin % 12
            return raw[:at] + value + raw[at + len(value) :]
        if kind == 5:  # noise
            return raw[:begin] + self.random.randbytes(1 + int(chance() * 8)) + raw[begin:]
        if kind == 6:  # the head of one and the tail of another
            other = self.random.choice(self._corpus)
            return raw[:begin] + other[int(chance() * len(other)) :]
        flipped = bytes((raw[begin - 1] ^ 1 << int(chance() * 8),)) if raw and begin else b""
        return raw[: max(0, begin - 1)] + flipped + raw[begin:]
