/* What the parts of the sandbox share; nobody else includes it. */
#ifndef HB_COMMON_SANDBOX_INTERNAL_H
#define HB_COMMON_SANDBOX_INTERNAL_H

#include "common/sandbox.h"

struct hb_syscall_group {
	unsigned bit;
	const char *const *names; /* NULL-terminated */
};

extern const struct hb_syscall_group hb_syscall_groups[];
extern const size_t hb_syscall_group_count;
extern const char *const hb_syscalls_denied[];
extern const char *const hb_syscalls_denied_mount[];

/* 0: the kernel has none. */
int hb_landlock_abi(void);
int hb_landlock_apply(const struct hb_sandbox *box, int abi, struct hb_error *err);
int hb_seccomp_apply(const struct hb_sandbox *box, struct hb_error *err);

#endif
