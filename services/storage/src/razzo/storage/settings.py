"""Every number of the store, with units; sizes are settings so that tests roll on the third message."""

from dataclasses import dataclass
from enum import Enum

UNIT_BYTES = 20
BATCH_UNIT_BYTES = 46
INDEX_HEADER_BYTES = 40
SLOT_BYTES = 4
BLANK_BYTES = 8

# Delay levels 1..18 of SCHEDULE_TOPIC_XXXX in ms: 1s 5s 10s 30s 1m..10m 20m 30m 1h 2h (section 9.1).
DELAY_LEVELS_MS = (
    1_000, 5_000, 10_000, 30_000, 60_000, 120_000, 180_000, 240_000, 300_000, 360_000, 420_000, 480_000, 540_000,
    600_000, 1_200_000, 1_800_000, 3_600_000, 7_200_000,
)  # fmt: skip


class FlushMode(Enum):
    """SYNC: readers and waiting senders see a record once it is on disk. ASYNC: once it is written to memory."""

    SYNC = "sync"
    ASYNC = "async"


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """Defaults are RocketMQ's where it has the setting. Relations are checked at construction (ValueError)."""

    commit_log_file_bytes: int = 1 << 30
    consume_queue_file_units: int = 300_000
    index_slots: int = 5_000_000
    index_units: int = 20_000_000
    flush_mode: FlushMode = FlushMode.SYNC
    flush_interval_ms: int = 500  # longest time what nobody waits for stays off the disk
    flush_linger_us: int = 0  # SYNC: wait this long for company before a flush
    sync_flush_timeout_ms: int = 5_000  # wait_flushed without a timeout of its own
    queue_flush_interval_ms: int = 10_000  # queues and index
    checkpoint_interval_ms: int = 1_000
    body_bytes_max: int = 4 << 20
    properties_bytes_max: int = 32_767
    populate_ahead_bytes: int = 64 << 20  # log bytes made ready ahead of the writer
    populate_step_bytes: int = 1 << 20  # zeroed and mapped in one go; bounds the time the writer may wait for it
    queue_reserve_units: int = 3_276  # queue blocks reserved at a time: 64 KiB
    index_reserve_units: int = 52_428  # index blocks reserved at a time: 1 MiB
    append_crc_property: bool = False
    check_crc_on_recover: bool = True
    index_enabled: bool = True
    retention_hours: int = 72
    delete_hour: int = 4
    disk_max_used_percent: int = 75
    disk_clean_forcibly_percent: int = 85
    disk_full_percent: int = 90
    delete_batch_files_max: int = 10
    queues_max: int = 50_000  # one mapping each; Linux allows 65,530 mappings a process by default
    old_queue_files_mapped_max: int = 1_024  # queue files below the newest, mapped for readers
    scan_units_max: int = 16_000  # units a filtered read inspects
    read_messages_max: int = 4_096
    read_bytes_max: int = 128 << 20
    query_max: int = 64  # messages a key query returns
    waiters_max: int = 200_000  # coroutines in wait_flushed
    store_host: tuple[str, int] = ("127.0.0.1", 10911)

    def __post_init__(self) -> None:
        for name in ("commit_log_file_bytes", "consume_queue_file_units", "index_slots", "flush_interval_ms",
                     "queue_flush_interval_ms", "checkpoint_interval_ms", "populate_step_bytes", "queue_reserve_units",
                     "index_reserve_units", "delete_batch_files_max", "queues_max"):  # fmt: skip
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be positive")
        if not 256 <= self.commit_log_file_bytes <= 0x7FFFFFFF:
            raise ValueError(
                "commit_log_file_bytes must be between 256 and 2^31 - 1: the end-of-file marker holds it as int"
            )
        if self.index_units < 2:
            raise ValueError("index_units must be at least 2: unit 0 is never used")
        if not 0 < self.properties_bytes_max <= 32_767:
            raise ValueError("properties_bytes_max must be between 1 and 32767: the length is a signed short")
        if not 0 <= self.delete_hour <= 23:
            raise ValueError("delete_hour must be between 0 and 23")
        if not 0 < self.disk_max_used_percent <= self.disk_clean_forcibly_percent <= self.disk_full_percent <= 100:
            raise ValueError("disk percentages must rise: max_used <= clean_forcibly <= full <= 100")

    @property
    def queue_file_bytes(self) -> int:
        return self.consume_queue_file_units * UNIT_BYTES

    @property
    def index_file_bytes(self) -> int:
        return INDEX_HEADER_BYTES + SLOT_BYTES * self.index_slots + UNIT_BYTES * self.index_units
