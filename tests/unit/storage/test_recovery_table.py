"""Every cell of recovery.py's table, and where a scan starts."""

from itertools import product

import pytest

from razzo.storage.recovery import FirstRecord, Stop, Verdict, choose_start, judge_stop

TABLE = {  # reason kind -> (sound behind, none and below flushed, none and above)
    "blank": (None, None, None),
    "end": (None, None, None),
    "zero": (Verdict.DAMAGED, Verdict.DAMAGED, Verdict.END),
    "other": (Verdict.DAMAGED, Verdict.DAMAGED, Verdict.CUT),
}


@pytest.mark.parametrize(("stop", "sound", "below", "last"), list(product(Stop, *[[False, True]] * 3)))
def test_each_cell(stop: Stop, sound: bool, below: bool, last: bool) -> None:
    row = TABLE.get(stop.value, TABLE["other"])
    wanted = row[0 if sound else 1 if below else 2]
    if wanted is None:
        wanted = Verdict.END if last else Verdict.NEXT_FILE
    assert judge_stop(stop, sound, below, last) is wanted


@pytest.mark.parametrize(("stop", "sound", "last"), list(product(Stop, [False, True], [False, True])))
def test_nothing_known_to_be_on_disk_is_ever_cut(stop: Stop, sound: bool, last: bool) -> None:
    assert judge_stop(stop, sound, True, last) is not Verdict.CUT


def first(start: int, store_ms: int, physical_offset: int | None = None) -> FirstRecord:
    return FirstRecord(start, start if physical_offset is None else physical_offset, store_ms)


FILES = [first(0, 100), first(1000, 200), first(2000, 300)]
EVERYWHERE = 1 << 62


@pytest.mark.parametrize(
    ("queues_end", "index_from", "wanted"),
    [
        (2500, EVERYWHERE, 2),
        (2000, EVERYWHERE, 2),
        (1999, EVERYWHERE, 1),
        (-1, EVERYWHERE, 0),
        (2500, 1500, 1),
        (2500, 0, 0),
    ],
)
def test_a_clean_store_starts_where_queues_and_index_end(queues_end: int, index_from: int, wanted: int) -> None:
    assert choose_start(FILES, clean=True, queues_end=queues_end, index_from=index_from, replay_from_ms=0) == wanted


@pytest.mark.parametrize(
    ("replay_from_ms", "index_from", "wanted"),
    [
        (300, EVERYWHERE, 2),
        (299, EVERYWHERE, 1),
        (99, EVERYWHERE, 0),
        (300, 2000, 2),
        (300, 1999, 1),
        (0, EVERYWHERE, 0),
    ],
)
def test_a_crashed_store_starts_by_time(replay_from_ms: int, index_from: int, wanted: int) -> None:
    start = choose_start(FILES, clean=False, queues_end=2500, index_from=index_from, replay_from_ms=replay_from_ms)
    assert start == wanted


@pytest.mark.parametrize("odd", [FirstRecord(2000, None, None), first(2000, 0), first(2000, 300, physical_offset=7)])
def test_a_file_without_a_proper_first_record_is_no_start(odd: FirstRecord) -> None:
    files = [*FILES[:2], odd]
    assert choose_start(files, clean=True, queues_end=9999, index_from=EVERYWHERE, replay_from_ms=9999) == 1


def test_no_files() -> None:
    assert choose_start([], clean=True, queues_end=0, index_from=0, replay_from_ms=0) == 0
