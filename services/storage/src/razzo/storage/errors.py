"""What can go wrong in the store, and whose fault it is.

StoreError
├── MessageTooLarge   the caller's: a message breaks a size limit; nothing was written
├── DiskFull          the machine's: no space could be reserved; nothing was written; append again once there is space
├── StoreLocked       the operator's: another process has the directory open
├── StoreClosed       the store was closed, or failed for good (a failed fsync is never retried); the text says which
└── CorruptStore      the files do not make sense and nothing was changed; the text names file and offset
"""


class StoreError(Exception):
    """Root of everything the store raises on purpose."""


class MessageTooLarge(StoreError):
    """A message breaks a size limit; nothing was written."""


class DiskFull(StoreError):
    """Space could not be reserved; nothing was written."""


class StoreLocked(StoreError):
    """Another process holds the store's lock."""


class StoreClosed(StoreError):
    """The store is closed or has failed for good."""


class CorruptStore(StoreError):
    """Files that cannot be read as a store; nothing was changed or deleted."""
