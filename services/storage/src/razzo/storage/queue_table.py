"""All consume queues of a store by topic and queue id, and the memory of deleted topics.

Deleting a topic removes its queues but not its records, and recovery rebuilds queues from records. So a deletion is
first noted, with the log's end at that moment, in config/razzo/deletedTopics.json: records below that offset never
enter a queue of that topic again. The note goes when the log starts above it.
"""

from pathlib import Path
from typing import Any

from razzo.storage._kernel import LogWriter
from razzo.storage.batch_queue import BatchQueue
from razzo.storage.configs import Configs
from razzo.storage.consume_queue import ConsumeQueue, OldFiles
from razzo.storage.errors import StoreError
from razzo.storage.files import FileLayer
from razzo.storage.settings import StoreSettings

DELETED = "deletedTopics"


class QueueTable:
    """The writing thread changes it; readers in other threads only look up."""

    def __init__(self, root: Path, settings: StoreSettings, files: FileLayer, writer: LogWriter) -> None:
        self._folders = {ConsumeQueue: root / "consumequeue", BatchQueue: root / "batchconsumequeue"}
        self._settings = settings
        self._files = files
        self._writer = writer
        self._configs = Configs(root / "config" / "razzo", files)
        self._topic_settings = Configs(root / "config", files)
        self._old_files = OldFiles(settings.old_queue_files_mapped_max)
        self._by_topic: dict[str, dict[int, ConsumeQueue]] = {}
        self._deleted: dict[str, int] = {}
        self._batch_topics: set[str] = set()  # declared so in topics.json; others become so with their first batch
        self.count = 0
        self.incomplete = False  # files had to be dropped at load: the log has to be gone through from its beginning

    def load(self) -> None:
        """Every queue folder; a deletion that was cut short is finished."""
        self._load_batch_topics()
        noted: dict[str, Any] = self._configs.load(DELETED) or {}
        for topic, below in noted.items():
            self._deleted[topic] = int(below)
            self._writer.topics.set_deleted(topic, int(below))
        for kind, folder in self._folders.items():
            for topic in self._files.list_folders(folder):
                for name in self._files.list_folders(folder / topic):
                    if name.isdigit():
                        self._load_one(kind, topic, int(name))

    def _load_batch_topics(self) -> None:
        """Topics with the attribute queue.type=BatchCQ, so that queues rebuilt from the log are of the right kind."""
        table = (self._topic_settings.load("topics") or {}).get("topicConfigTable")
        for name, topic in table.items() if isinstance(table, dict) else ():
            attributes = topic.get("attributes") if isinstance(topic, dict) else None
            if isinstance(attributes, dict) and attributes.get("queue.type") == "BatchCQ":
                self._batch_topics.add(name)
                self._writer.topics.set_batched(name)

    def _load_one(self, kind: type[ConsumeQueue], topic: str, queue_id: int) -> None:
        queue = self._build(kind, topic, queue_id)
        if not queue.load():
            self.incomplete = True
        if queue_id in self._by_topic.get(topic, {}):
            # The same queue as an ordinary one and as one of batches: the log decides which it is.
            self.incomplete = True
            queue.remove_files()
            other = self._by_topic[topic].pop(queue_id)
            other.remove_files()
            self._writer.topics.remove_queue(other.units)
            self.count -= 1
            return
        below = self._deleted.get(topic, 0)
        if below and queue.units.next_offset > 0 and queue.units.end_physical <= below:
            queue.remove_files()
            return
        self._enter(queue)

    def create(self, topic: str, queue_id: int, batched: bool) -> ConsumeQueue:
        """A queue that does not exist yet; its files come with its first unit. The kernel has checked the name.
        `batched`: the record it is created for is an inner batch."""
        if self.count >= self._settings.queues_max:
            raise StoreError(f"the store has {self.count} queues, the limit queues_max")
        queue = self._build(BatchQueue if batched or topic in self._batch_topics else ConsumeQueue, topic, queue_id)
        self._enter(queue)
        return queue

    def _build(self, kind: type[ConsumeQueue], topic: str, queue_id: int) -> ConsumeQueue:
        folder = self._folders[kind] / topic / str(queue_id)
        return kind(folder, topic, queue_id, self._settings, self._files, self._old_files)

    def _enter(self, queue: ConsumeQueue) -> None:
        self._by_topic.setdefault(queue.topic, {})[queue.queue_id] = queue
        self._writer.topics.add_queue(queue.units)
        self.count += 1

    def get(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """A queue that holds or held messages."""
        by_id = self._by_topic.get(topic)
        queue = None if by_id is None else by_id.get(queue_id)
        return queue if queue is not None and queue.units.next_offset > 0 else None

    def all(self) -> list[ConsumeQueue]:
        return [queue for by_id in list(self._by_topic.values()) for queue in list(by_id.values())]

    def topics(self) -> list[str]:
        return sorted({queue.topic for queue in self.all() if queue.units.next_offset > 0})

    def ids(self, topic: str) -> list[int]:
        return sorted(
            queue_id for queue_id, queue in list(self._by_topic.get(topic, {}).items()) if queue.units.next_offset > 0
        )

    def deleted_below(self, topic: str) -> int:
        """Physical offset below which a topic's records belong to a deleted topic of the same name; 0 mostly."""
        return self._deleted.get(topic, 0)

    def delete(self, topic: str, end: int) -> list[ConsumeQueue]:
        """Note the deletion durably, then remove the files; `end` is where the log ends. Returns the queues removed."""
        if topic not in self._by_topic:
            return []
        self._deleted[topic] = end
        self._configs.save(DELETED, self._deleted)
        self._writer.topics.set_deleted(topic, end)
        queues = list(self._by_topic.pop(topic).values())
        self._writer.remove_topic(topic)
        self.count -= len(queues)
        for queue in queues:
            queue.remove_files()
        for folder in {queue.folder.parent for queue in queues}:
            if self._files.exists(folder) and not self._files.list_folders(folder):
                self._files.rmdir(folder)
        return queues

    def forget_deletions(self, log_start: int) -> None:
        """Notes about records that are gone themselves."""
        kept = {topic: below for topic, below in self._deleted.items() if below > log_start}
        if kept != self._deleted:
            for topic in self._deleted.keys() - kept.keys():
                self._writer.topics.set_deleted(topic, 0)
            self._deleted = kept
            self._configs.save(DELETED, kept)

    def cut(self, end: int) -> list[ConsumeQueue]:
        """Drop units of records at or above `end`; returns the queues that lost some. Deletions above it move down to
        it: what is appended there from now on belongs to a living topic."""
        lowered = {topic: min(below, end) for topic, below in self._deleted.items()}
        if lowered != self._deleted:
            self._deleted = lowered
            self._configs.save(DELETED, lowered)
            for topic, below in lowered.items():
                self._writer.topics.set_deleted(topic, below)
        return [queue for queue in self.all() if queue.cut(end)]
