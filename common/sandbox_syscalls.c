/*
 * The system calls of each group, for the eye to check, and those that are never for a payload.
 *
 * Names that an architecture does not have (open and stat on arm64) are skipped by libseccomp, so
 * one table serves all. Calls that are allowed only with certain arguments (socket, clone, mmap,
 * mprotect, prctl, ioctl, prlimit64, tgkill) are not here: their rules are in sandbox_seccomp.c.
 */
#include "common/sandbox_internal.h"

/* memory, time, signals to itself, reading and writing descriptors, threads */
static const char *const base[] = {
	"read", "write", "readv", "writev", "pread64", "pwrite64", "preadv", "pwritev", "preadv2",
	"pwritev2", "lseek", "_llseek", "close", "close_range", "dup", "dup2", "dup3", "fcntl",
	"fcntl64", "pipe", "pipe2", "fstat", "fstat64", "newfstatat", "fstatat64", "statx",
	"recvfrom", "recvmsg", "sendto", "sendmsg", "shutdown", "getsockname", "getpeername",
	"getsockopt", "setsockopt", "poll", "ppoll", "ppoll_time64", "select", "_newselect",
	"pselect6", "pselect6_time64", "brk", "munmap", "mremap", "madvise", "mlock", "mlock2",
	"munlock", "membarrier", "futex", "futex_time64", "set_robust_list", "get_robust_list",
	"set_tid_address", "rseq", "sched_yield", "sched_getaffinity", "restart_syscall",
	"clock_gettime", "clock_gettime64", "clock_getres", "clock_getres_time64",
	"clock_nanosleep", "clock_nanosleep_time64", "nanosleep", "gettimeofday", "time", "times",
	"rt_sigaction", "rt_sigprocmask", "rt_sigreturn", "rt_sigpending", "rt_sigsuspend",
	"rt_sigtimedwait", "rt_sigtimedwait_time64", "sigreturn", "sigaltstack", "pause", "alarm",
	"setitimer", "getitimer", "getrandom", "getpid", "gettid", "getppid", "getuid", "geteuid",
	"getgid", "getegid", "getresuid", "getresgid", "getgroups", "getpgrp", "getpgid",
	"getsid", "getpriority", "getrlimit", "ugetrlimit", "getrusage", "getcpu", "uname",
	"sysinfo", "exit", "exit_group", NULL,
};

/* DAC and Landlock decide which files; changing an owner needs a capability besides. */
static const char *const files[] = {
	"open", "openat", "openat2", "creat", "stat", "stat64", "lstat", "lstat64", "access",
	"faccessat", "faccessat2", "readlink", "readlinkat", "getdents", "getdents64", "getcwd",
	"chdir", "fchdir", "statfs", "statfs64", "fstatfs", "fstatfs64", "rename", "renameat",
	"renameat2", "unlink", "unlinkat", "rmdir", "mkdir", "mkdirat", "link", "linkat",
	"symlink", "symlinkat", "truncate", "truncate64", "ftruncate", "ftruncate64", "fallocate",
	"fadvise64", "fadvise64_64", "readahead", "fsync", "fdatasync", "sync_file_range",
	"syncfs", "flock", "umask", "copy_file_range", "sendfile", "sendfile64", "fchmod",
	"chmod", "fchmodat", "fchown", "fchown32", NULL,
};

static const char *const owners[] = {
	"chown", "chown32", "lchown", "lchown32", "fchown", "fchown32", "fchownat", "chmod",
	"fchmod", "fchmodat", "fchmodat2", "utime", "utimes", "futimesat", "utimensat",
	"utimensat_time64", "setxattr", "lsetxattr", "fsetxattr", "getxattr", "lgetxattr",
	"fgetxattr", "listxattr", "llistxattr", "flistxattr", "removexattr", "lremovexattr",
	"fremovexattr", "mknod", "mknodat", NULL,
};

static const char *const sockets[] = {
	"bind", "listen", "accept", "accept4", "connect", NULL,
};

static const char *const inet[] = {
	"bind", "listen", "accept", "accept4", "connect", "sendmmsg", "recvmmsg",
	"recvmmsg_time64", NULL,
};

static const char *const forks[] = {
	"fork", "vfork", "wait4", "waitid", "waitpid", "kill", "tgkill", "tkill", "pidfd_open",
	"pidfd_send_signal", "setpgid", "setsid", NULL,
};

/* Also what the loader of the started program and the usual programs need. */
static const char *const execs[] = {
	"execve", "execveat", "mmap", "mmap2", "mprotect", "arch_prctl", "personality",
	"prlimit64", "setrlimit", "access", "faccessat", "faccessat2", "ioctl", NULL,
};

static const char *const identity[] = {
	"setuid", "setuid32", "setgid", "setgid32", "setgroups", "setgroups32", "setreuid",
	"setreuid32", "setregid", "setregid32", "setresuid", "setresuid32", "setresgid",
	"setresgid32", "setfsuid", "setfsgid", "capget", "capset", "prctl", "seccomp",
	"landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self", "prlimit64",
	"setrlimit", "setpriority", "umask", NULL,
};

static const char *const mounts[] = {
	"mount", "umount", "umount2", "pivot_root", "chroot", "unshare", "setns", "open_tree",
	"move_mount", "fsopen", "fsconfig", "fsmount", "fspick", "mount_setattr", "mknod",
	"mknodat", "sethostname", "clone", NULL,
};

static const char *const events[] = {
	"epoll_create", "epoll_create1", "epoll_ctl", "epoll_wait", "epoll_pwait", "epoll_pwait2",
	"eventfd", "eventfd2", "timerfd_create", "timerfd_settime", "timerfd_settime64",
	"timerfd_gettime", "timerfd_gettime64", "signalfd", "signalfd4", "inotify_init",
	"inotify_init1", "inotify_add_watch", "inotify_rm_watch", NULL,
};

const struct hb_syscall_group hb_syscall_groups[] = {
	{HB_SYS_BASE, base},
	{HB_SYS_FILES, files},
	{HB_SYS_OWNERS, owners},
	{HB_SYS_UNIX, sockets},
	{HB_SYS_INET, inet},
	{HB_SYS_FORK, forks},
	{HB_SYS_EXEC, execs},
	{HB_SYS_IDENTITY, identity},
	{HB_SYS_MOUNT, mounts},
	{HB_SYS_EVENTS, events},
};
const size_t hb_syscall_group_count = sizeof(hb_syscall_groups) / sizeof(hb_syscall_groups[0]);

/* The deny-list of the runner, which the payload inherits: nothing a service needs is here. */
const char *const hb_syscalls_denied[] = {
	/* other processes and the kernel's inside */
	"ptrace", "process_vm_readv", "process_vm_writev", "process_madvise", "pidfd_getfd",
	"kcmp", "perf_event_open", "bpf", "userfaultfd", "lookup_dcookie", "syslog", "_sysctl",
	"vm86", "vm86old", "modify_ldt",
	/* keys, modules, booting */
	"add_key", "request_key", "keyctl", "init_module", "finit_module", "delete_module",
	"create_module", "get_kernel_syms", "query_module", "kexec_load", "kexec_file_load",
	"reboot", "swapon", "swapoff", "acct", "quotactl", "quotactl_fd", "nfsservctl", "uselib",
	"iopl", "ioperm", "vhangup",
	/* the clock */
	"settimeofday", "stime", "clock_settime", "clock_settime64", "clock_adjtime",
	"clock_adjtime64", "adjtimex",
	/* around path checks, and around this filter */
	"open_by_handle_at", "name_to_handle_at", "io_uring_setup", "io_uring_enter",
	"io_uring_register", NULL,
};

/* Further ones unless the group HB_SYS_MOUNT is declared. */
const char *const hb_syscalls_denied_mount[] = {
	"mount", "umount", "umount2", "pivot_root", "chroot", "unshare", "setns", "open_tree",
	"move_mount", "fsopen", "fsconfig", "fsmount", "fspick", "mount_setattr", "sethostname",
	"setdomainname", NULL,
};
