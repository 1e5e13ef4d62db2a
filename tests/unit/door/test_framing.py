from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from razzo.door.framing import PREFIX_BYTES, frame, split_frames


def test_frame_is_a_flag_a_length_and_the_message() -> None:
    assert frame(b"abc") == b"\x00\x00\x00\x00\x03abc"
    assert frame(b"") == b"\x00" * PREFIX_BYTES
    assert frame(bytes(70_000))[:5] == b"\x00\x00\x01\x11\x70"


@given(st.lists(st.binary(max_size=300)))
def test_split_is_the_opposite_of_frame(messages: list[bytes]) -> None:
    assert list(split_frames(b"".join(frame(message) for message in messages))) == messages


@pytest.mark.parametrize("cut", [1, 4, 5, 6, 7])
def test_frames_cut_short_are_an_error(cut: int) -> None:
    with pytest.raises(ValueError, match=r"prefix|cut short"):
        list(split_frames(frame(b"whole") + frame(b"abc")[:cut]))


def test_compressed_frame_is_an_error() -> None:
    with pytest.raises(ValueError, match="frame at byte 8 has flag 1"):
        list(split_frames(frame(b"abc") + b"\x01\x00\x00\x00\x00"))
