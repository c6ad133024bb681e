/* Records what a process writes below one folder, for tests/faults/powercut.py.
 *
 * Loaded with LD_PRELOAD. WRITELOG_ROOT is the folder (absolute, no links in it), WRITELOG_OUT
 * another one: it gets one file per process, and has the file `clock`, 8 bytes, mapped by all:
 * the number of the next record. A number is drawn after the call is done, before it returns.
 * So what a call has caused has a greater number, and whoever reads the clock after an answer
 * knows which records came before it. A sync also tells the clock's value when it began: it
 * promises what was recorded before that.
 *
 * Writes through a mapping are not seen: LMDB's lock file and SQLite's -shm, which count for
 * nothing after a power cut. An msync of anything is recorded, so that it is noticed.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum kind { CREATE = 1, WRITE, TRUNCATE, SYNC, RENAME, UNLINK, LINK, MKDIR, RMDIR, UNSEEN };

struct record { /* little-endian, followed by path, second path and data */
    uint64_t number, inode, offset, began, data_size;
    uint32_t kind, flags; /* flags: 1, a write that was synced by itself */
    uint32_t path_size, second_size;
};

struct entry { ino_t inode; dev_t device; int flags; char tracked; };

#define DESCRIPTORS 65536
static struct entry table[DESCRIPTORS];
static char root[PATH_MAX], out[PATH_MAX];
static size_t root_size;
static _Atomic uint64_t *the_clock;

__attribute__((constructor)) static void start(void) {
    const char *where = getenv("WRITELOG_ROOT"), *to = getenv("WRITELOG_OUT");
    if (!where || !to) return;
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/clock", to);
    int descriptor = syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC);
    if (descriptor < 0) return;
    void *mapped = mmap(NULL, 8, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    syscall(SYS_close, descriptor);
    if (mapped == MAP_FAILED) return;
    snprintf(root, sizeof root, "%s", where);
    snprintf(out, sizeof out, "%s", to);
    root_size = strlen(root);
    the_clock = mapped;
}

#define REAL(name) \
    static __typeof__(name) *real; \
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, #name)

/* ------------------------------------------------------------ records */

static uint64_t now(void) { return atomic_load(the_clock); }

static void record(enum kind kind, uint64_t inode, const char *path, const char *second,
                   uint64_t offset, uint64_t began, int flags, const struct iovec *data,
                   int pieces, uint64_t size) {
    int saved = errno;
    struct record head = {
        .inode = inode, .offset = offset, .began = began, .data_size = size, .kind = kind,
        .flags = flags, .path_size = path ? strlen(path) : 0,
        .second_size = second ? strlen(second) : 0,
    };
    struct iovec parts[1030] = {
        {&head, sizeof head}, {(void *)path, head.path_size}, {(void *)second, head.second_size},
    };
    int count = 3;
    for (uint64_t left = size; left && pieces; data++, pieces--) {
        uint64_t length = data->iov_len < left ? data->iov_len : left;
        parts[count++] = (struct iovec){data->iov_base, length};
        left -= length;
        if (count == 1024) break;
    }
    char name[PATH_MAX];
    snprintf(name, sizeof name, "%s/%d", out, (int)syscall(SYS_getpid));
    /* Opened each time: descriptors are closed behind our back, and processes fork. */
    int to = syscall(SYS_openat, AT_FDCWD, name, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    head.number = atomic_fetch_add(the_clock, 1);
    if (to < 0 || syscall(SYS_writev, to, parts, count) < 0) abort();
    syscall(SYS_close, to);
    errno = saved;
}

static void simple(enum kind kind, uint64_t inode, const char *path, const char *second) {
    record(kind, inode, path, second, 0, 0, 0, NULL, 0, 0);
}

static int below(const char *path) {
    return the_clock && !strncmp(path, root, root_size)
        && (path[root_size] == '/' || !path[root_size]);
}

/* The absolute path, without "." and ".."; whether it is one of ours. */
static int resolve(int folder, const char *path, char *to) {
    if (!the_clock || !path) return 0;
    char whole[2 * PATH_MAX], base[PATH_MAX] = "";
    if (path[0] != '/') {
        char link[64];
        snprintf(link, sizeof link, folder == AT_FDCWD ? "/proc/self/cwd" : "/proc/self/fd/%d",
                 folder);
        ssize_t size = syscall(SYS_readlinkat, AT_FDCWD, link, base, sizeof base - 1);
        if (size < 0) return 0;
        base[size] = 0;
    }
    snprintf(whole, sizeof whole, "%s/%s", base, path);
    size_t size = 0;
    for (char *state, *part = strtok_r(whole, "/", &state); part; part = strtok_r(NULL, "/", &state)) {
        if (!strcmp(part, ".")) continue;
        if (!strcmp(part, "..")) {
            while (size && to[--size] != '/') {}
            continue;
        }
        size_t length = strlen(part);
        if (size + length + 2 > PATH_MAX) return 0;
        to[size++] = '/';
        memcpy(to + size, part, length);
        size += length;
    }
    to[size] = 0;
    return below(to);
}

/* ------------------------------------------------------------ descriptors */

static void forget(int fd) { if (fd >= 0 && fd < DESCRIPTORS) table[fd].tracked = 0; }

static void copy(int from, int to) {
    if (from < 0 || to < 0 || from >= DESCRIPTORS || to >= DESCRIPTORS) return;
    table[to] = table[from];
}

/* Some descriptors are closed and used again where this is not told: then the file differs. */
static struct entry *tracked(int fd) {
    if (!the_clock || fd < 0 || fd >= DESCRIPTORS || !table[fd].tracked) return NULL;
    struct stat found;
    int saved = errno;
    int failed = fstat(fd, &found);
    errno = saved;
    if (failed || found.st_ino != table[fd].inode || found.st_dev != table[fd].device) {
        table[fd].tracked = 0;
        return NULL;
    }
    return &table[fd];
}

static int opened(int fd, const char *path, int flags, int existed) {
    struct stat found;
    int saved = errno;
    if (fd < DESCRIPTORS && !fstat(fd, &found)) {
        table[fd] = (struct entry){found.st_ino, found.st_dev, flags, 1};
        if (!existed) simple(CREATE, found.st_ino, path, NULL);
        else if (flags & O_TRUNC && (flags & O_ACCMODE) != O_RDONLY)
            simple(TRUNCATE, found.st_ino, NULL, NULL);
    }
    errno = saved;
    return fd;
}

static int do_open(int folder, const char *path, int flags, mode_t mode) {
    char whole[PATH_MAX];
    struct stat found;
    int ours = resolve(folder, path, whole);
    int existed = !ours || !(flags & O_CREAT) || !fstatat(AT_FDCWD, whole, &found, 0);
    int fd = syscall(SYS_openat, folder, path, flags, mode);
    if (fd < 0) return fd;
    if (ours) return opened(fd, whole, flags, existed);
    forget(fd);
    return fd;
}

static mode_t mode_of(int flags, va_list more) {
    return flags & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0;
}

#define OPEN(name) \
    int name(const char *path, int flags, ...) { \
        va_list more; va_start(more, flags); \
        mode_t mode = mode_of(flags, more); va_end(more); \
        return do_open(AT_FDCWD, path, flags | O_LARGEFILE, mode); \
    }
#define OPENAT(name) \
    int name(int folder, const char *path, int flags, ...) { \
        va_list more; va_start(more, flags); \
        mode_t mode = mode_of(flags, more); va_end(more); \
        return do_open(folder, path, flags | O_LARGEFILE, mode); \
    }
OPEN(open)
OPEN(open64)
OPENAT(openat)
OPENAT(openat64)
int __open_2(const char *path, int flags) { return do_open(AT_FDCWD, path, flags, 0); }
int __open64_2(const char *path, int flags) { return do_open(AT_FDCWD, path, flags, 0); }
int creat(const char *path, mode_t mode) {
    return do_open(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode);
}
int creat64(const char *path, mode_t mode) { return creat(path, mode); }

#define FOPEN(name) \
    FILE *name(const char *path, const char *how) { \
        REAL(name); \
        char whole[PATH_MAX]; \
        if (how[0] != 'r' && resolve(AT_FDCWD, path, whole)) simple(UNSEEN, 0, whole, NULL); \
        return real(path, how); \
    }
FOPEN(fopen)
FOPEN(fopen64)

int close(int fd) { forget(fd); return syscall(SYS_close, fd); }
int dup(int fd) { int made = syscall(SYS_dup, fd); if (made >= 0) copy(fd, made); return made; }
int dup2(int fd, int to) { REAL(dup2); int made = real(fd, to); if (made >= 0) copy(fd, made); return made; }
int dup3(int fd, int to, int flags) {
    int made = syscall(SYS_dup3, fd, to, flags);
    if (made >= 0) copy(fd, made);
    return made;
}
#define FCNTL(name) \
    int name(int fd, int command, ...) { \
        REAL(name); \
        va_list more; va_start(more, command); \
        void *given = va_arg(more, void *); va_end(more); \
        int result = real(fd, command, given); \
        if (result >= 0 && (command == F_DUPFD || command == F_DUPFD_CLOEXEC)) copy(fd, result); \
        return result; \
    }
FCNTL(fcntl)
FCNTL(fcntl64)

/* ------------------------------------------------------------ contents */

static ssize_t wrote(int fd, ssize_t size, int64_t offset, const struct iovec *data, int pieces) {
    struct entry *entry = size > 0 ? tracked(fd) : NULL;
    if (!entry) return size;
    if (offset < 0) offset = lseek(fd, 0, SEEK_CUR) - size;
    int synced = (entry->flags & (O_DSYNC | O_SYNC)) != 0;
    record(WRITE, entry->inode, NULL, NULL, offset, 0, synced, data, pieces, size);
    return size;
}

ssize_t write(int fd, const void *data, size_t size) {
    struct iovec piece = {(void *)data, size};
    return wrote(fd, syscall(SYS_write, fd, data, size), -1, &piece, 1);
}
ssize_t writev(int fd, const struct iovec *data, int pieces) {
    return wrote(fd, syscall(SYS_writev, fd, data, pieces), -1, data, pieces);
}
ssize_t pwrite64(int fd, const void *data, size_t size, off64_t offset) {
    struct iovec piece = {(void *)data, size};
    return wrote(fd, syscall(SYS_pwrite64, fd, data, size, offset), offset, &piece, 1);
}
ssize_t pwrite(int fd, const void *data, size_t size, off_t offset) {
    return pwrite64(fd, data, size, offset);
}
ssize_t pwritev64(int fd, const struct iovec *data, int pieces, off64_t offset) {
    REAL(pwritev64);
    return wrote(fd, real(fd, data, pieces, offset), offset, data, pieces);
}
ssize_t pwritev(int fd, const struct iovec *data, int pieces, off_t offset) {
    return pwritev64(fd, data, pieces, offset);
}

static int truncated(int fd, int result, uint64_t size) {
    struct entry *entry = result ? NULL : tracked(fd);
    if (entry) record(TRUNCATE, entry->inode, NULL, NULL, size, 0, 0, NULL, 0, 0);
    return result;
}
int ftruncate64(int fd, off64_t size) { return truncated(fd, syscall(SYS_ftruncate, fd, size), size); }
int ftruncate(int fd, off_t size) { return ftruncate64(fd, size); }

static int synced(int fd, long call) {
    uint64_t began = the_clock ? now() : 0;
    int result = syscall(call, fd);
    struct entry *entry = result ? NULL : tracked(fd);
    if (entry) record(SYNC, entry->inode, NULL, NULL, 0, began, 0, NULL, 0, 0);
    return result;
}
int fsync(int fd) { return synced(fd, SYS_fsync); }
int fdatasync(int fd) { return synced(fd, SYS_fdatasync); }

/* What is written in ways that are not followed is told, and the replay refuses to go on. */
static void unseen(int fd) {
    struct entry *entry = tracked(fd);
    if (entry) simple(UNSEEN, entry->inode, NULL, NULL);
}
int msync(void *at, size_t size, int flags) {
    if (the_clock) simple(UNSEEN, 0, "msync", NULL);
    return syscall(SYS_msync, at, size, flags);
}
int posix_fallocate(int fd, off_t offset, off_t size) {
    REAL(posix_fallocate);
    unseen(fd);
    return real(fd, offset, size);
}
int fallocate(int fd, int mode, off_t offset, off_t size) {
    unseen(fd);
    return syscall(SYS_fallocate, fd, mode, offset, size);
}
ssize_t sendfile64(int to, int from, off64_t *offset, size_t size) {
    unseen(to);
    return syscall(SYS_sendfile, to, from, offset, size);
}
ssize_t sendfile(int to, int from, off_t *offset, size_t size) {
    return sendfile64(to, from, offset, size);
}
ssize_t copy_file_range(int from, off64_t *at, int to, off64_t *offset, size_t size, unsigned flags) {
    unseen(to);
    return syscall(SYS_copy_file_range, from, at, to, offset, size, flags);
}
int truncate(const char *path, off_t size) {
    char whole[PATH_MAX];
    if (resolve(AT_FDCWD, path, whole)) simple(UNSEEN, 0, whole, NULL);
    return syscall(SYS_truncate, path, size);
}

/* ------------------------------------------------------------ names */

static uint64_t inode_of(const char *path) {
    struct stat found;
    int saved = errno;
    uint64_t inode = fstatat(AT_FDCWD, path, &found, AT_SYMLINK_NOFOLLOW) ? 0 : found.st_ino;
    errno = saved;
    return inode;
}

static int moved(enum kind kind, int result, int folder, const char *from, int other,
                 const char *to) {
    char first[PATH_MAX], second[PATH_MAX];
    if (result) return result;
    int ours = resolve(folder, from, first);
    if (resolve(other, to, second) || ours) simple(kind, inode_of(second), first, second);
    return result;
}
int rename(const char *from, const char *to) {
    int result = syscall(SYS_rename, from, to);
    return moved(RENAME, result, AT_FDCWD, from, AT_FDCWD, to);
}
int renameat(int folder, const char *from, int other, const char *to) {
    int result = syscall(SYS_renameat, folder, from, other, to);
    return moved(RENAME, result, folder, from, other, to);
}
int renameat2(int folder, const char *from, int other, const char *to, unsigned flags) {
    int result = syscall(SYS_renameat2, folder, from, other, to, flags);
    return moved(RENAME, result, folder, from, other, to);
}
int link(const char *from, const char *to) {
    return moved(LINK, syscall(SYS_link, from, to), AT_FDCWD, from, AT_FDCWD, to);
}
int linkat(int folder, const char *from, int other, const char *to, int flags) {
    int result = syscall(SYS_linkat, folder, from, other, to, flags);
    return moved(LINK, result, folder, from, other, to);
}

static int named(enum kind kind, int result, int folder, const char *path) {
    char whole[PATH_MAX];
    if (!result && resolve(folder, path, whole)) simple(kind, inode_of(whole), whole, NULL);
    return result;
}
int unlink(const char *path) { return named(UNLINK, syscall(SYS_unlink, path), AT_FDCWD, path); }
int unlinkat(int folder, const char *path, int flags) {
    int result = syscall(SYS_unlinkat, folder, path, flags);
    return named(flags & AT_REMOVEDIR ? RMDIR : UNLINK, result, folder, path);
}
int rmdir(const char *path) { return named(RMDIR, syscall(SYS_rmdir, path), AT_FDCWD, path); }
int mkdir(const char *path, mode_t mode) {
    return named(MKDIR, syscall(SYS_mkdir, path, mode), AT_FDCWD, path);
}
int mkdirat(int folder, const char *path, mode_t mode) {
    return named(MKDIR, syscall(SYS_mkdirat, folder, path, mode), folder, path);
}
