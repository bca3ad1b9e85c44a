/* Faults in file operations, for tests: LD_PRELOAD this library.
 *
 * It counts the operations that change or persist files below some folders, in a process and the children that it
 * forks. At the operation of a given number it kills the process, or lets the operation fail. Python calls faults_arm
 * through ctypes. A program that is started is armed by the environment: LOSTFLOPS_FAULTS is "AT ACTION ERROR FOLDER",
 * and LOSTFLOPS_FAULTS_COUNTER is a file of the size of `struct counters` that all processes share.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

/* Without these, names such as open64 would be macros for the others. */
#undef open
#undef openat
#undef creat

enum { COUNT, KILL, TORN, GROUP, SHORT, FAIL, FULL };
#define MOST 65536

struct counters {
    atomic_long seen;
    atomic_long fired;
    char kinds[MOST]; /* of each operation, a letter */
    char path[512];   /* of the operation that was hit */
};

static struct counters *shared;
static char folder[2048];
static size_t folder_length;
static long armed_at = -1;
static int action, code;

static void *next(const char *name) {
    void *found = dlsym(RTLD_NEXT, name);
    if (!found) abort();
    return found;
}
#define NEXT(name) static typeof(&name) real; if (!real) real = (typeof(&name))next(#name)

void faults_arm(const char *below, long at, int what, int error) {
    snprintf(folder, sizeof folder, "%s", below);
    folder_length = strlen(folder);
    armed_at = at, action = what, code = error;
    memset(shared, 0, sizeof *shared);
}
void faults_disarm(void) { folder_length = 0; }
long faults_seen(void) { return shared->seen; }
long faults_fired(void) { return shared->fired; }
const char *faults_kinds(void) { return shared->kinds; }
const char *faults_path(void) { return shared->path; }

__attribute__((constructor)) static void begin(void) {
    int file = -1, flags = MAP_SHARED | MAP_ANONYMOUS;
    const char *counter = getenv("LOSTFLOPS_FAULTS_COUNTER"), *words = getenv("LOSTFLOPS_FAULTS");
    if (counter && (file = ((int (*)(const char *, int, ...))next("open"))(counter, O_RDWR)) >= 0) flags = MAP_SHARED;
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, flags, file, 0);
    if (shared == MAP_FAILED) abort();
    if (file >= 0) ((int (*)(int))next("close"))(file);
    int length = 0;
    if (words && sscanf(words, "%ld %d %d %n", &armed_at, &action, &code, &length) == 3 && length) {
        snprintf(folder, sizeof folder, "%s", words + length);
        folder_length = strlen(folder);
    }
}

static int is_below(const char *path) {
    return folder_length && !strncmp(path, folder, folder_length) &&
           (path[folder_length] == '/' || !path[folder_length]);
}
static const char *path_of(int fd, char *into, size_t size) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, into, size - 1);
    into[length < 0 ? 0 : length] = 0;
    return into;
}
static const char *resolve(int base, const char *path, char *into, size_t size) {
    char start[4096];
    if (path[0] == '/') return path;
    if (base == AT_FDCWD) {
        if (!getcwd(start, sizeof start)) return path;
    } else
        path_of(base, start, sizeof start);
    snprintf(into, size, "%s/%s", start, path);
    return into;
}

/* 0: go on. 1: errno is set. 2: write only a part. 3: write a part and then die. */
static int at_operation(char kind, const char *path) {
    if (!is_below(path)) return 0;
    long number = atomic_fetch_add(&shared->seen, 1);
    if (number < MOST) shared->kinds[number] = kind;
    int is_hit = action == FULL ? number >= armed_at && strchr("owmrlt", kind) : number == armed_at;
    if (action == COUNT || armed_at < 0 || !is_hit) return 0;
    if (!atomic_fetch_add(&shared->fired, 1)) snprintf(shared->path, sizeof shared->path, "%c %s", kind, path);
    if (action == TORN && kind == 'w') return 3;
    if (action == SHORT) return kind == 'w' ? 2 : 0;
    if (action == GROUP) kill(0, SIGKILL);
    if (action == KILL || action == TORN) kill(getpid(), SIGKILL);
    errno = action == FULL ? ENOSPC : code;
    return 1;
}
static int at_path(char kind, int base, const char *path) {
    char whole[8192];
    return folder_length ? at_operation(kind, resolve(base, path, whole, sizeof whole)) : 0;
}
static int at_file(char kind, int fd) {
    char path[4096];
    int before = errno, what = folder_length ? at_operation(kind, path_of(fd, path, sizeof path)) : 0;
    if (what != 1) errno = before;
    return what;
}

static int does_change(int flags) {
    return flags & (O_CREAT | O_TRUNC) || (flags & O_ACCMODE) != O_RDONLY;
}
#define MODE(flags) \
    mode_t mode = 0; \
    if ((flags) & (O_CREAT | O_TMPFILE)) { va_list more; va_start(more, flags); mode = va_arg(more, mode_t); va_end(more); }
#define OPEN(name) \
    int name(const char *path, int flags, ...) { \
        NEXT(name); MODE(flags); \
        return does_change(flags) && at_path('o', AT_FDCWD, path) == 1 ? -1 : real(path, flags, mode); }
#define OPENAT(name) \
    int name(int base, const char *path, int flags, ...) { \
        NEXT(name); MODE(flags); \
        return does_change(flags) && at_path('o', base, path) == 1 ? -1 : real(base, path, flags, mode); }
OPEN(open) OPEN(open64) OPENAT(openat) OPENAT(openat64)
#define OPEN_2(name) \
    int name(const char *, int); \
    int name(const char *path, int flags) { \
        NEXT(name); return does_change(flags) && at_path('o', AT_FDCWD, path) == 1 ? -1 : real(path, flags); }
OPEN_2(__open_2) OPEN_2(__open64_2)
#define CREAT(name) \
    int name(const char *path, mode_t mode) { \
        NEXT(name); return at_path('o', AT_FDCWD, path) == 1 ? -1 : real(path, mode); }
CREAT(creat) CREAT(creat64)
#define FOPEN(name) \
    FILE *name(const char *path, const char *how) { \
        NEXT(name); return strpbrk(how, "wa+") && at_path('o', AT_FDCWD, path) == 1 ? NULL : real(path, how); }
FOPEN(fopen) FOPEN(fopen64)

static size_t part_of(size_t count) { return count > 1 ? count / 2 : count; }
static void die_torn(int what) { if (what == 3) kill(getpid(), SIGKILL); }
ssize_t write(int fd, const void *data, size_t count) {
    NEXT(write);
    int what = at_file('w', fd);
    if (what == 1) return -1;
    ssize_t done = real(fd, data, what ? part_of(count) : count);
    die_torn(what);
    return done;
}
#define PWRITE(name, offset_type) \
    ssize_t name(int fd, const void *data, size_t count, offset_type at) { \
        NEXT(name); \
        int what = at_file('w', fd); \
        if (what == 1) return -1; \
        ssize_t done = real(fd, data, what ? part_of(count) : count, at); \
        die_torn(what); \
        return done; }
PWRITE(pwrite, off_t) PWRITE(pwrite64, off64_t)
static ssize_t write_first(int fd, const struct iovec *parts, off64_t at) {
    return at < 0 ? write(fd, parts->iov_base, part_of(parts->iov_len))
                  : pwrite64(fd, parts->iov_base, part_of(parts->iov_len), at);
}
ssize_t writev(int fd, const struct iovec *parts, int count) {
    NEXT(writev);
    int what = at_file('w', fd);
    if (what == 1) return -1;
    ssize_t done = what ? write_first(fd, parts, -1) : real(fd, parts, count);
    die_torn(what);
    return done;
}
#define PWRITEV(name, offset_type) \
    ssize_t name(int fd, const struct iovec *parts, int count, offset_type at) { \
        NEXT(name); \
        int what = at_file('w', fd); \
        if (what == 1) return -1; \
        ssize_t done = what ? write_first(fd, parts, at) : real(fd, parts, count, at); \
        die_torn(what); \
        return done; }
PWRITEV(pwritev, off_t) PWRITEV(pwritev64, off64_t)
ssize_t copy_file_range(int in, off64_t *in_at, int out, off64_t *out_at, size_t count, unsigned flags) {
    NEXT(copy_file_range);
    int what = at_file('w', out);
    if (what == 1) return -1;
    ssize_t done = real(in, in_at, out, out_at, what ? part_of(count) : count, flags);
    die_torn(what);
    return done;
}
#define SENDFILE(name, offset_type) \
    ssize_t name(int out, int in, offset_type *at, size_t count) { \
        NEXT(name); \
        int what = at_file('w', out); \
        if (what == 1) return -1; \
        ssize_t done = real(out, in, at, what ? part_of(count) : count); \
        die_torn(what); \
        return done; }
ssize_t sendfile(int, int, off_t *, size_t);
ssize_t sendfile64(int, int, off64_t *, size_t);
SENDFILE(sendfile, off_t) SENDFILE(sendfile64, off64_t)

#define OF_FILE(name, kind, types, names, given) \
    int name types { NEXT(name); return at_file(kind, names) == 1 ? -1 : real given; }
OF_FILE(fsync, 'f', (int fd), fd, (fd))
OF_FILE(fdatasync, 'f', (int fd), fd, (fd))
OF_FILE(ftruncate, 't', (int fd, off_t size), fd, (fd, size))
OF_FILE(ftruncate64, 't', (int fd, off64_t size), fd, (fd, size))
OF_FILE(fallocate, 'w', (int fd, int mode, off_t at, off_t size), fd, (fd, mode, at, size))
OF_FILE(fallocate64, 'w', (int fd, int mode, off64_t at, off64_t size), fd, (fd, mode, at, size))
int posix_fallocate(int fd, off_t at, off_t size) {
    NEXT(posix_fallocate);
    return at_file('w', fd) == 1 ? errno : real(fd, at, size);
}
int close(int fd) {
    NEXT(close);
    int flags = folder_length ? fcntl(fd, F_GETFL) : -1;
    int what = flags >= 0 && (flags & O_ACCMODE) != O_RDONLY ? at_file('c', fd) : 0, error = errno;
    int done = real(fd);
    if (what == 1) errno = error;
    return what == 1 ? -1 : done;
}

#define OF_PATH(name, kind, types, base, path, given) \
    int name types { NEXT(name); return at_path(kind, base, path) == 1 ? -1 : real given; }
OF_PATH(mkdir, 'm', (const char *path, mode_t mode), AT_FDCWD, path, (path, mode))
OF_PATH(mkdirat, 'm', (int base, const char *path, mode_t mode), base, path, (base, path, mode))
OF_PATH(rmdir, 'u', (const char *path), AT_FDCWD, path, (path))
OF_PATH(unlink, 'u', (const char *path), AT_FDCWD, path, (path))
OF_PATH(unlinkat, 'u', (int base, const char *path, int flags), base, path, (base, path, flags))
OF_PATH(remove, 'u', (const char *path), AT_FDCWD, path, (path))
OF_PATH(truncate, 't', (const char *path, off_t size), AT_FDCWD, path, (path, size))
OF_PATH(truncate64, 't', (const char *path, off64_t size), AT_FDCWD, path, (path, size))
OF_PATH(rename, 'r', (const char *from, const char *path), AT_FDCWD, path, (from, path))
OF_PATH(renameat, 'r', (int from_base, const char *from, int base, const char *path), base, path,
        (from_base, from, base, path))
OF_PATH(renameat2, 'r', (int from_base, const char *from, int base, const char *path, unsigned flags), base, path,
        (from_base, from, base, path, flags))
OF_PATH(link, 'l', (const char *from, const char *path), AT_FDCWD, path, (from, path))
OF_PATH(linkat, 'l', (int from_base, const char *from, int base, const char *path, int flags), base, path,
        (from_base, from, base, path, flags))
OF_PATH(symlink, 'l', (const char *from, const char *path), AT_FDCWD, path, (from, path))
OF_PATH(symlinkat, 'l', (const char *from, int base, const char *path), base, path, (from, base, path))
