# MappedFile: one shared mapping. It is unmapped when the last reference (object, reader's local, memoryview) is gone, never
# earlier, so deleting a segment is: unlink the name, drop it from the list, let readers finish.

cdef extern from "sys/mman.h" nogil:
    void *mmap(void *addr, size_t length, int prot, int flags, int fd, int64_t offset)
    int munmap(void *addr, size_t length)
    int madvise(void *addr, size_t length, int advice)
    int PROT_READ, PROT_WRITE, MAP_SHARED
    void *MAP_FAILED

cdef extern from *:
    """
    #ifndef MADV_POPULATE_WRITE
    #define MADV_POPULATE_WRITE 23
    #endif
    """
    int MADV_POPULATE_WRITE

cdef enum:
    PAGE_BYTES = 4096


cdef class MappedFile:
    """`MappedFile(fd, size, writable)` maps the first `size` bytes of an open file; the fd may be closed afterwards.

    Supports the buffer protocol (a memoryview keeps the mapping alive). OSError when the kernel refuses the mapping.
    """

    cdef char *base
    cdef readonly Py_ssize_t size
    cdef readonly bint writable

    def __cinit__(self, int fd, Py_ssize_t size, bint writable):
        cdef void *at
        self.base = NULL
        if size <= 0:
            raise ValueError(f"a mapping needs at least one byte, not {size}")
        at = mmap(NULL, size, PROT_READ | PROT_WRITE if writable else PROT_READ, MAP_SHARED, fd, 0)
        if at == MAP_FAILED:
            raise OSError(errno, f"mmap of {size} bytes failed")
        self.base = <char *> at
        self.size = size
        self.writable = writable

    def __dealloc__(self):
        if self.base != NULL:
            munmap(self.base, self.size)
            self.base = NULL

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, self.base, self.size, not self.writable, flags)

    def __len__(self):
        return self.size

    def populate(self, Py_ssize_t offset, Py_ssize_t length):
        """Bring the pages of [offset, offset + length) into this process's page table, writable. Best effort: a kernel
        without MADV_POPULATE_WRITE (before 5.14) leaves it to page faults."""
        cdef Py_ssize_t first = offset - offset % PAGE_BYTES
        cdef Py_ssize_t last = offset + length
        if last > self.size:
            last = self.size
        if last <= first:
            return
        with nogil:
            madvise(self.base + first, last - first, MADV_POPULATE_WRITE)


cdef extern from *:
    """
    #ifndef _GNU_SOURCE
    #define _GNU_SOURCE
    #endif
    #include <fcntl.h>
    #include <errno.h>
    #ifdef __linux__
    #include <linux/falloc.h>
    extern int syncfs(int fd);
    static int rz_sync_filesystem(int fd) { return syncfs(fd); }
    extern int fallocate(int fd, int mode, off_t offset, off_t length);
    extern int sync_file_range(int fd, off_t offset, off_t length, unsigned int flags);
    static int rz_zero_range(int fd, long long offset, long long length) {
        return fallocate(fd, FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE, offset, length);
    }
    static int rz_start_writeback(int fd, long long offset, long long length) {
        return sync_file_range(fd, offset, length, 2 /* SYNC_FILE_RANGE_WRITE */);
    }
    #else
    static int rz_sync_filesystem(int fd) { sync(); return 0; }
    static int rz_zero_range(int fd, long long offset, long long length) { errno = EOPNOTSUPP; return -1; }
    static int rz_start_writeback(int fd, long long offset, long long length) { return 0; }
    #endif
    """
    int rz_zero_range(int fd, long long offset, long long length) nogil
    int rz_start_writeback(int fd, long long offset, long long length) nogil
    int rz_sync_filesystem(int fd) nogil


def sync_filesystem(int fd):
    """Everything of the file system `fd` lies on goes to disk, names included. OSError when writing failed."""
    cdef int result
    with nogil:
        result = rz_sync_filesystem(fd)
    if result != 0:
        raise OSError(errno, "syncfs failed")


def zero_range(int fd, int64_t offset, int64_t length):
    """Make [offset, offset + length) of a file read as zeros, blocks kept; False when the file system cannot."""
    cdef int result
    with nogil:
        result = rz_zero_range(fd, offset, length)
    return result == 0


def start_writeback(int fd, int64_t offset, int64_t length):
    """Ask for the dirty pages of a range to be written soon; advice only, errors show at the next fdatasync."""
    with nogil:
        rz_start_writeback(fd, offset, length)
