"""Consume queues of inner batches (sections 2.7, 3.7): 46-byte units in batchconsumequeue/, one for a record that holds
several messages. Files are named by byte offset and say nothing about queue offsets, so these are searched for."""

from razzo.storage._kernel import inner_range
from razzo.storage.consume_queue import ConsumeQueue
from razzo.storage.settings import BATCH_UNIT_BYTES


class BatchQueue(ConsumeQueue):
    """A unit stands for the queue offsets of its messages, in rising order; offsets between two units belong to no
    message."""

    unit_bytes = BATCH_UNIT_BYTES
    batched = True

    def start_at(self, queue_offset: int) -> None:
        """No unit stands for the queue offsets that are missing."""
        units = self.units
        units.place(units.first, units.next, units.end_physical, queue_offset)

    def offset_of(self, unit: int) -> int:
        while unit < self.units.next:
            try:
                return self._range(unit)[0]
            except FileNotFoundError:
                # Expired meanwhile: the first that is left.
                unit = max(unit + 1, self.units.first)
        return self.units.next_offset

    def unit_holding(self, queue_offset: int) -> int:
        low, high = self.first_file, self.units.next
        while low < high:
            middle = (low + high) // 2
            try:
                below = sum(self._range(middle)) <= queue_offset
            except FileNotFoundError:
                below = True
            if below:
                low = middle + 1
            else:
                high = middle
        return low

    def _next_offset(self, end: int) -> int:
        return sum(self._range(end - 1)) if end > self.first_file else 0

    def _range(self, unit: int) -> tuple[int, int]:
        mapped, start = self.file_at(unit)
        return inner_range(mapped, unit - start)
