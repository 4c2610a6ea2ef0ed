/*
 * What a process may still do once it has started: declared as data by each program, like a pledge.
 *
 * hb_sandbox_apply, in order: rlimits (no core), umask 077, not dumpable, bounding set and capabilities reduced,
 * no_new_privs, Landlock (files, then TCP where the ABI has it, abstract sockets and signals where it has that),
 * seccomp allow-list (default: kill the process). Each step is verified afterwards from the kernel's own view.
 * Without Landlock: fails with sandbox_unavailable unless `degraded_ok`.
 */
#ifndef HB_COMMON_SANDBOX_H
#define HB_COMMON_SANDBOX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"

/* Groups of system calls; the lists are in sandbox_syscalls.c for the eye to check. */
#define HB_SYS_BASE (1u << 0)     /* memory, time, signals to itself, reading and writing descriptors, threads */
#define HB_SYS_FILES (1u << 1)    /* open, stat, rename, unlink, fsync, mkdir, locks ... */
#define HB_SYS_OWNERS (1u << 2)   /* chown, chmod, utimes, xattr */
#define HB_SYS_UNIX (1u << 3)     /* socket(AF_UNIX) only, bind, listen, accept, connect */
#define HB_SYS_INET (1u << 4)     /* socket(AF_INET/AF_INET6, stream and datagram), netlink for resolvers */
#define HB_SYS_FORK (1u << 5)     /* fork, wait, kill, pidfd */
#define HB_SYS_EXEC (1u << 6)     /* execve, execveat */
#define HB_SYS_IDENTITY (1u << 7) /* setuid family, prctl, capset, landlock, seccomp: for those whose children drop more */
#define HB_SYS_MOUNT (1u << 8)    /* mount, unshare, pivot_root, chroot */
#define HB_SYS_EVENTS (1u << 9)   /* epoll, eventfd, timerfd, signalfd, inotify */

/* Landlock access to one path and everything below it. */
#define HB_FS_READ 1u    /* read files, list directories */
#define HB_FS_WRITE 2u   /* write, create, remove, rename, truncate files, dirs, sockets and symlinks */
#define HB_FS_EXEC 4u    /* execute (and read) */
#define HB_FS_OPTIONAL 8u /* skip silently when the path does not exist */

struct hb_sandbox_path {
	const char *path; /* relative to the working directory, or absolute */
	unsigned access;
};

struct hb_sandbox {
	const char *name;
	unsigned syscalls;          /* HB_SYS_* */
	const char *const *extra;   /* further names, NULL-terminated; or NULL */
	const struct hb_sandbox_path *paths;
	size_t path_count;
	/* Binding a TCP port is denied to all: who listens did so before it was confined. */
	bool tcp_connect_any;        /* may open TCP connections anywhere (fetcher, ssh) */
	const uint16_t *tcp_connect; /* else only to these ports, 0-terminated; NULL: none */
	uint64_t keep_caps;         /* mask of (1ULL << CAP_*) left permitted and effective; 0 for all but the installer */
	/* The runner: everything but ptrace, bpf, keyctl, modules ... is allowed, and without HB_SYS_MOUNT mount and
	 * namespaces neither. Without paths no Landlock domain is entered, since one forbids mounting. */
	bool deny_list;
	size_t max_files;           /* RLIMIT_NOFILE; 0: 1024 */
	size_t max_memory;          /* RLIMIT_AS in bytes; 0: none */
};

struct hb_sandbox_report {
	int landlock_abi; /* 0: none */
	bool seccomp, no_new_privs, degraded;
	uint64_t caps_permitted, caps_bounding;
};

/* What name resolution and TLS read, for those that declare HB_SYS_INET and reach other hosts. */
extern const struct hb_sandbox_path hb_sandbox_inet_paths[];
extern const size_t hb_sandbox_inet_path_count;

/* Must be called before the process has a second thread. */
int hb_sandbox_apply(const struct hb_sandbox *box, bool degraded_ok, struct hb_sandbox_report *report,
		     struct hb_error *err);

#endif
