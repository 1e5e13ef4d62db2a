"""What a consumer wants of a topic: a filter expression as a predicate on tags (client-protocol.md 5.8,
store-and-semantics.md 15.1). Core."""

from __future__ import annotations

from typing import NamedTuple

from razzo.protocol import limits
from razzo.protocol.codes import Code
from razzo.protocol.errors import RequestRefused

FILTER_TYPE_TAG = 1
FILTER_TYPE_SQL = 2
ALL = "*"
TAG_SEPARATOR = "||"
TAGS_MAX = 256


class TagFilter(NamedTuple):
    """`tags` None takes everything; else the messages whose tag is one of them, exactly."""

    tags: frozenset[str] | None

    def matches(self, tag: str | None) -> bool:
        return self.tags is None or (tag is not None and tag in self.tags)


EVERYTHING = TagFilter(None)


def parse(filter_type: int, expression: str) -> TagFilter:
    """The predicate of a FilterExpression (type by number). ILLEGAL_FILTER_EXPRESSION; NOT_IMPLEMENTED for SQL92."""
    if len(expression.encode(errors="replace")) > limits.FILTER_EXPRESSION_BYTES_MAX:
        raise RequestRefused(
            Code.ILLEGAL_FILTER_EXPRESSION,
            f"a filter expression has at most {limits.FILTER_EXPRESSION_BYTES_MAX} bytes",
        )
    if filter_type == FILTER_TYPE_SQL:
        raise RequestRefused(Code.NOT_IMPLEMENTED, "SQL92 filters are not served yet; filter by tag")
    text = expression.strip()
    if text in ("", ALL):
        return EVERYTHING
    tags = frozenset(tag for part in text.split(TAG_SEPARATOR) if (tag := part.strip()))
    if not tags:
        raise RequestRefused(Code.ILLEGAL_FILTER_EXPRESSION, f"the tag expression names no tag: {expression[:80]!r}")
    if len(tags) > TAGS_MAX:
        raise RequestRefused(Code.ILLEGAL_FILTER_EXPRESSION, f"a filter names at most {TAGS_MAX} tags, not {len(tags)}")
    return TagFilter(tags)
