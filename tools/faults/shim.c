/* Makes calls of the C library fail, for tests of what a program does then. Preloaded by the other files of this directory.
 *
 * FAULT_PREFIX   only calls on files below this directory count
 * FAULT_OPS      kinds of calls that count: write,fsync,rename,open,mkdir,truncate,unlink; `open` means creating or truncating
 * FAULT_AT       number of the call that fails, from 1; 0 for none
 * FAULT_STICKY   if set, all counted calls after it fail too, as on a full disk
 * FAULT_DO       what happens: an errno as a number, `kill` for SIGKILL before the call, or `short` for half of a write
 * FAULT_LOG      file that a line is appended to for each counted call: kind, path, second path
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
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum { PATH_SIZE = 4200 };
static atomic_long calls;
static atomic_int log_fd = -2;

static int is_below(const char *path) {
    const char *prefix = getenv("FAULT_PREFIX");
    return prefix && strncmp(path, prefix, strlen(prefix)) == 0;
}

static void absolute(int dir, const char *path, char *out) {
    char folder[PATH_SIZE] = "";
    if (path[0] == '/') {
        snprintf(out, PATH_SIZE, "%s", path);
        return;
    }
    if (dir == AT_FDCWD) {
        if (!getcwd(folder, sizeof folder)) folder[0] = 0;
    } else {
        char link[64];
        snprintf(link, sizeof link, "/proc/self/fd/%d", dir);
        ssize_t n = readlink(link, folder, sizeof folder - 1);
        folder[n > 0 ? n : 0] = 0;
    }
    snprintf(out, PATH_SIZE, "%.2000s/%.2000s", folder, path);
}

static int of_fd(int fd, char *out) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, out, PATH_SIZE - 1);
    out[n > 0 ? n : 0] = 0;
    return n > 0 && is_below(out);
}

static void note(const char *kind, const char *path, const char *second) {
    const char *name = getenv("FAULT_LOG");
    if (!name) return;
    int fd = atomic_load(&log_fd);
    if (fd == -2) {
        fd = (int)syscall(SYS_openat, AT_FDCWD, name, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
        atomic_store(&log_fd, fd);
    }
    char line[2 * PATH_SIZE + 32];
    int n = snprintf(line, sizeof line, "%s\t%s\t%s\n", kind, path, second);
    if (fd >= 0 && n > 0) (void)!syscall(SYS_write, fd, line, (size_t)n);
}

/* The errno of a call that is to fail, -1 for half of a write, or 0. */
static int fault(const char *kind, const char *path, const char *second) {
    const char *kinds = getenv("FAULT_OPS"), *at = getenv("FAULT_AT"), *what = getenv("FAULT_DO");
    note(kind, path, second);
    if (!kinds || !at || !what || !strstr(kinds, kind)) return 0;
    long wanted = atol(at), number = atomic_fetch_add(&calls, 1) + 1;
    if (wanted <= 0 || number < wanted || (number > wanted && !getenv("FAULT_STICKY"))) return 0;
    note("fault", path, kind);
    if (strcmp(what, "kill") == 0) {
        kill(getpid(), SIGKILL);
        for (;;) pause();
    }
    if (strcmp(what, "short") == 0) return -1;
    return atoi(what);
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

#define FD_CALL(kind, fd, normal)                              \
    do {                                                       \
        char path[PATH_SIZE];                                  \
        if (of_fd(fd, path)) {                                 \
            int why = fault(kind, path, "");                   \
            if (why > 0) { errno = why; return -1; }           \
            if (why < 0 && count > 1) count /= 2;              \
        }                                                      \
        return normal;                                         \
    } while (0)

ssize_t write(int fd, const void *data, size_t count) { FD_CALL("write", fd, REAL(write)(fd, data, count)); }
ssize_t pwrite(int fd, const void *data, size_t count, off_t at) { FD_CALL("write", fd, REAL(pwrite)(fd, data, count, at)); }
ssize_t pwrite64(int fd, const void *data, size_t count, off64_t at) {
    FD_CALL("write", fd, REAL(pwrite64)(fd, data, count, at));
}
ssize_t writev(int fd, const struct iovec *parts, int count) { FD_CALL("write", fd, REAL(writev)(fd, parts, count)); }
int fsync(int fd) { int count = 0; FD_CALL("fsync", fd, REAL(fsync)(fd)); }
int fdatasync(int fd) { int count = 0; FD_CALL("fsync", fd, REAL(fdatasync)(fd)); }
int ftruncate(int fd, off_t size) { int count = 0; FD_CALL("truncate", fd, REAL(ftruncate)(fd, size)); }
int ftruncate64(int fd, off64_t size) { int count = 0; FD_CALL("truncate", fd, REAL(ftruncate64)(fd, size)); }

#define PATH_CALL(kind, dir, name, normal)                                \
    do {                                                                  \
        char path[PATH_SIZE];                                             \
        absolute(dir, name, path);                                        \
        if (is_below(path)) {                                             \
            int why = fault(kind, path, "");                              \
            if (why > 0) { errno = why; return -1; }                      \
        }                                                                 \
        return normal;                                                    \
    } while (0)

/* Programs make directories that exist already, which changes nothing. */
int mkdir(const char *name, mode_t mode) {
    if (access(name, F_OK) == 0) return REAL(mkdir)(name, mode);
    PATH_CALL("mkdir", AT_FDCWD, name, REAL(mkdir)(name, mode));
}
int unlink(const char *name) { PATH_CALL("unlink", AT_FDCWD, name, REAL(unlink)(name)); }
int unlinkat(int dir, const char *name, int flags) { PATH_CALL("unlink", dir, name, REAL(unlinkat)(dir, name, flags)); }

#define OPEN_CALL(dir, name, normal)                                      \
    do {                                                                  \
        mode_t mode = 0;                                                  \
        if (flags & (O_CREAT | O_TMPFILE)) {                              \
            va_list more;                                                 \
            va_start(more, flags);                                        \
            mode = va_arg(more, mode_t);                                  \
            va_end(more);                                                 \
        }                                                                 \
        if (flags & (O_CREAT | O_TRUNC)) PATH_CALL("open", dir, name, normal); \
        return normal;                                                    \
    } while (0)

int open(const char *name, int flags, ...) { OPEN_CALL(AT_FDCWD, name, REAL(open)(name, flags, mode)); }
int open64(const char *name, int flags, ...) { OPEN_CALL(AT_FDCWD, name, REAL(open64)(name, flags, mode)); }
int openat(int dir, const char *name, int flags, ...) { OPEN_CALL(dir, name, REAL(openat)(dir, name, flags, mode)); }
int openat64(int dir, const char *name, int flags, ...) { OPEN_CALL(dir, name, REAL(openat64)(dir, name, flags, mode)); }

#define RENAME_CALL(from_dir, from, to_dir, to, normal)                   \
    do {                                                                  \
        char source[PATH_SIZE], target[PATH_SIZE];                        \
        absolute(from_dir, from, source);                                 \
        absolute(to_dir, to, target);                                     \
        if (is_below(target)) {                                           \
            int why = fault("rename", source, target);                    \
            if (why > 0) { errno = why; return -1; }                      \
        }                                                                 \
        return normal;                                                    \
    } while (0)

int rename(const char *from, const char *to) { RENAME_CALL(AT_FDCWD, from, AT_FDCWD, to, REAL(rename)(from, to)); }
int renameat(int a, const char *from, int b, const char *to) { RENAME_CALL(a, from, b, to, REAL(renameat)(a, from, b, to)); }
int renameat2(int a, const char *from, int b, const char *to, unsigned flags) {
    RENAME_CALL(a, from, b, to, REAL(renameat2)(a, from, b, to, flags));
}
