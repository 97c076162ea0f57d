/* Makes one chosen system call of this process fail, or end the process, while it changes files below one folder.

   A seccomp filter turns each call that may change a file into a signal; the handler looks whether it concerns the
   folder, counts it, and either does it or does what was asked for. So every call is seen, whichever library makes it:
   safetensors renames its files without libc, where LD_PRELOAD would miss it. Used by injection.py; Linux, x86-64 and
   aarch64. */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <ucontext.h>
#include <unistd.h>

#if defined(__x86_64__)
#define ARCHITECTURE AUDIT_ARCH_X86_64
#define REGISTER(context, number) ((context)->uc_mcontext.gregs[number])
static const int ARGUMENTS[] = {REG_RDI, REG_RSI, REG_RDX, REG_R10, REG_R8};
#define RESULT REG_RAX
#elif defined(__aarch64__)
#define ARCHITECTURE AUDIT_ARCH_AARCH64
#define REGISTER(context, number) ((context)->uc_mcontext.regs[number])
static const int ARGUMENTS[] = {0, 1, 2, 3, 4};
#define RESULT 0
#else
#error "for x86-64 and aarch64 only"
#endif

#define OURS 0x5245474152ul /* as a sixth argument, which none of these calls has: the filter lets it pass */
#define MAY_FILL (WRITE | OPEN | MKDIR | SYMLINK)

/* The kinds of calls, as bits; injection.py has the same names. */
enum { WRITE = 1, FLUSH = 2, RENAME = 4, MKDIR = 8, OPEN = 16, REMOVE = 32, SYMLINK = 64 };
/* What happens to the chosen call. */
enum {
    NOTHING = 0,
    FAIL = 1,      /* it fails, this once */
    FULL = 2,      /* half of it is written, and from now on nothing more can be */
    SHORT = 3,     /* half of it is written, this once, and the program is told so */
    KILL = 4,      /* the process ends before it */
    KILL_HALF = 5, /* the process ends when half of it is written */
};

static char folder[PATH_MAX], part[256];
static int trace = -1, chosen_kinds, action, error_number;
static long chosen, seen;
static int is_full;

static long call(long number, long a, long b, long c, long d, long e) {
    long result;
#if defined(__x86_64__)
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = OURS;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
#else
    register long x8 __asm__("x8") = number;
    register long x0 __asm__("x0") = a;
    register long x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c;
    register long x3 __asm__("x3") = d;
    register long x4 __asm__("x4") = e;
    register long x5 __asm__("x5") = OURS;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
    result = x0;
#endif
    return result; /* negative: an error number */
}

/* The path of an open file, or of a name that is relative to an open folder. */
static const char *path_of(int descriptor, const char *name, char *path) {
    if (name && name[0] == '/') return name;
    char link[64];
    if (descriptor == AT_FDCWD)
        strcpy(link, "/proc/self/cwd");
    else
        snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    long length = readlink(link, path, PATH_MAX - 1); /* not one of the calls that the filter stops */
    if (length < 0) return "";
    path[length] = 0;
    if (name) snprintf(path + length, PATH_MAX - length, "/%s", name);
    return path;
}

/* What kind of call it is and which path it concerns; 0 if it changes nothing. */
static int look(long number, const long *a, char *space, const char **path) {
    switch (number) {
    case SYS_write:
    case SYS_writev:
    case SYS_pwrite64:
    case SYS_ftruncate:
    case SYS_sendfile:
        *path = path_of(a[0], NULL, space);
        return WRITE;
    case SYS_fsync:
    case SYS_fdatasync:
        *path = path_of(a[0], NULL, space);
        return FLUSH;
    case SYS_openat:
        if ((a[2] & O_ACCMODE) == O_RDONLY && !(a[2] & O_CREAT)) return 0;
        *path = path_of(a[0], (const char *)a[1], space);
        return OPEN;
#ifdef SYS_renameat
    case SYS_renameat:
#endif
    case SYS_renameat2:
        *path = path_of(a[2], (const char *)a[3], space);
        return RENAME;
    case SYS_mkdirat:
        *path = path_of(a[0], (const char *)a[1], space);
        return MKDIR;
    case SYS_unlinkat:
        *path = path_of(a[0], (const char *)a[1], space);
        return REMOVE;
    case SYS_symlinkat:
        *path = path_of(a[1], (const char *)a[2], space);
        return SYMLINK;
    case SYS_linkat:
        *path = path_of(a[2], (const char *)a[3], space);
        return SYMLINK;
#ifdef SYS_open /* older architectures have these as calls of their own */
    case SYS_open:
        if ((a[1] & O_ACCMODE) == O_RDONLY && !(a[1] & O_CREAT)) return 0;
        *path = path_of(AT_FDCWD, (const char *)a[0], space);
        return OPEN;
    case SYS_creat:
        *path = path_of(AT_FDCWD, (const char *)a[0], space);
        return OPEN;
    case SYS_rename:
        *path = path_of(AT_FDCWD, (const char *)a[1], space);
        return RENAME;
    case SYS_mkdir:
        *path = path_of(AT_FDCWD, (const char *)a[0], space);
        return MKDIR;
    case SYS_unlink:
    case SYS_rmdir:
        *path = path_of(AT_FDCWD, (const char *)a[0], space);
        return REMOVE;
    case SYS_symlink:
    case SYS_link:
        *path = path_of(AT_FDCWD, (const char *)a[1], space);
        return SYMLINK;
#endif
    }
    return 0;
}

/* A call that cannot be done by half fails instead. */
static long half(long number, const long *a) {
    if ((number == SYS_write || number == SYS_pwrite64) && a[2] > 1)
        return call(number, a[0], a[1], a[2] / 2, a[3], a[4]);
    return -ENOSPC;
}

static long act(long number, const long *a) {
    switch (action) {
    case FAIL:
        return -error_number;
    case FULL:
        is_full = 1;
        return half(number, a);
    case SHORT:
        return half(number, a);
    case KILL_HALF:
        half(number, a);
        /* fallthrough */
    case KILL:
        kill(getpid(), SIGKILL);
        for (;;) pause();
    }
    return call(number, a[0], a[1], a[2], a[3], a[4]);
}

static long handle(long number, const long *a) {
    char space[PATH_MAX];
    const char *path = "";
    int kind = look(number, a, space, &path);
    size_t length = strlen(folder);
    int below = kind && !strncmp(path, folder, length) && (!path[length] || path[length] == '/');
    if (!below) return call(number, a[0], a[1], a[2], a[3], a[4]);
    int hit = (kind & chosen_kinds) && strstr(path, part) && ++seen == chosen;
    char line[PATH_MAX + 64];
    if (hit && trace >= 0) { /* before it: a killed process writes no more */
        int size = snprintf(line, sizeof line, "hit %d 0 %s\n", kind, path);
        call(SYS_write, trace, (long)line, size, 0, 0);
    }
    long result = hit                          ? act(number, a)
                  : is_full && kind & MAY_FILL ? -ENOSPC
                                               : call(number, a[0], a[1], a[2], a[3], a[4]);
    if (trace >= 0) {
        int size = snprintf(line, sizeof line, "call %d %ld %s\n", kind, result, path);
        call(SYS_write, trace, (long)line, size, 0, 0);
    }
    return result;
}

static void on_call(int signal_number, siginfo_t *info, void *given) {
    ucontext_t *context = given;
    long arguments[5];
    for (int at = 0; at < 5; at++) arguments[at] = REGISTER(context, ARGUMENTS[at]);
    int kept = errno; /* the interrupted code does not expect it to change */
    REGISTER(context, RESULT) = handle(info->si_syscall, arguments);
    errno = kept;
    (void)signal_number;
}

/* From now on, in this process: do `what` to call number `which`, counted from 1, of those of these kinds that concern a
   path below the folder with this part. Every call below the folder is written to the open file `trace_to`. Returns 0,
   or the error number for which it is not possible here. */
int arm(const char *below, const char *with, int trace_to, int kinds, long which, int what, int error) {
    static const int calls[] = {
        SYS_write,   SYS_writev,  SYS_pwrite64,  SYS_ftruncate, SYS_sendfile, SYS_fsync,     SYS_fdatasync,
        SYS_openat,  SYS_mkdirat, SYS_renameat2, SYS_unlinkat,  SYS_linkat,   SYS_symlinkat,
#ifdef SYS_renameat
        SYS_renameat,
#endif
#ifdef SYS_open
        SYS_open,    SYS_creat,   SYS_rename,    SYS_mkdir,     SYS_unlink,   SYS_rmdir,     SYS_symlink, SYS_link,
#endif
    };
    enum { COUNT = sizeof calls / sizeof *calls };
    struct sock_filter filter[COUNT + 10], *next = filter;
#define DATA(field) offsetof(struct seccomp_data, field)
    *next++ = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, DATA(arch));
    *next++ = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCHITECTURE, 1, 0);
    *next++ = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    *next++ = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, DATA(args[5]));
    *next++ = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)OURS, 0, 1);
    *next++ = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    *next++ = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, DATA(nr));
    for (int at = 0; at < COUNT; at++) /* each jumps over those after it, and over the ALLOW at their end */
        *next++ = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, calls[at], COUNT - at, 0);
    *next++ = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    *next++ = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP);
    struct sock_fprog program = {.len = next - filter, .filter = filter};
    struct sigaction reaction = {.sa_sigaction = on_call, .sa_flags = SA_SIGINFO | SA_NODEFER | SA_RESTART};
    snprintf(folder, sizeof folder, "%s", below);
    snprintf(part, sizeof part, "%s", with);
    trace = trace_to, chosen_kinds = kinds, chosen = which, action = what, error_number = error, seen = 0, is_full = 0;
    if (sigaction(SIGSYS, &reaction, NULL) || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
        return errno;
    return 0;
}
