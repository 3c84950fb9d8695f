"""The tags that a pull asks for, as the codes of the consume queue."""

import pytest

from dledger_broker.messages import tag_filter
from dledger_formats.rocketmq.consume_queue import java_hash

MANY = " || ".join(f"tag-{number}" for number in range(1000))


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Return the tags that are hashed, in their order."""
    tags: list[bytes] = []

    def noted(tag: bytes) -> int:
        tags.append(tag)
        return java_hash(tag)

    monkeypatch.setattr(tag_filter, "java_hash", noted)
    tag_filter.codes_of_long.cache_clear()
    return tags


def test_a_text_is_divided_into_tags_and_blanks_do_not_count() -> None:
    codes = frozenset({java_hash(b"a"), java_hash(b"b c")})

    assert tag_filter.codes_of(" a||b c || ") == codes
    assert tag_filter.codes_of(" * ") is tag_filter.codes_of(None) is None


def test_the_codes_of_many_tags_are_made_once_and_not_with_every_pull(hashed: list[bytes]) -> None:
    """To make them takes 5 ms of the event loop."""
    first = tag_filter.codes_of(MANY)
    second = tag_filter.codes_of(f" {MANY}")

    assert first == second == frozenset(java_hash(b"tag-%d" % n) for n in range(1000))
    assert len(hashed) == 1000


def test_texts_of_few_tags_push_no_codes_of_many_tags_out(hashed: list[bytes]) -> None:
    tag_filter.codes_of(MANY)
    for number in range(1000):
        tag_filter.codes_of(f"few-{number} || one")
    hashed.clear()

    tag_filter.codes_of(MANY)
    assert not hashed


def test_a_text_that_no_pull_can_bring_is_not_kept(hashed: list[bytes]) -> None:
    text = "x" * 100_000

    assert tag_filter.codes_of(text) == tag_filter.codes_of(text) == {java_hash(text.encode())}
    assert len(hashed) == 2


@pytest.mark.parametrize("text", ["||", " || ".join(["tag"] * 1025)])
def test_no_tag_and_too_many_tags_are_refused_every_time(text: str) -> None:
    for _ in range(2):
        with pytest.raises(ValueError, match="1 to 1024 are allowed"):
            tag_filter.codes_of(text)
