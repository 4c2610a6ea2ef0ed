/*
 * What a sandboxed command may not call, beyond what the runner's own filter denies already:
 * anything that makes or enters namespaces, or mounts. The runner's filter can't forbid these,
 * since bubblewrap needs them to build the sandbox.
 */
#include <errno.h>
#include <sched.h>
#include <seccomp.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "broker/docker/bubble.h"
#include "common/fs.h"

#define NAMESPACES \
	(CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | \
	 CLONE_NEWPID | CLONE_NEWNET)

static int rules(scmp_filter_ctx filter)
{
	static const char *const denied[] = {"unshare",      "setns",    "mount",     "umount2",
					     "pivot_root",   "chroot",   "open_tree", "move_mount",
					     "fsopen",       "fsconfig", "fsmount",   "fspick",
					     "mount_setattr"};
	int rc = 0, nr;

	for (size_t i = 0; rc == 0 && i < sizeof denied / sizeof *denied; i++) {
		nr = seccomp_syscall_resolve_name(denied[i]);
		if (nr != __NR_SCMP_ERROR)
			rc = seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), nr, 0);
	}
	/* Its flags lie in memory, where a filter can't look; the C library uses clone instead. */
	nr = seccomp_syscall_resolve_name("clone3");
	if (rc == 0 && nr != __NR_SCMP_ERROR)
		rc = seccomp_rule_add(filter, SCMP_ACT_ERRNO(ENOSYS), nr, 0);
	for (int bit = 0; rc == 0 && bit < 32; bit++) {
		const unsigned flag = 1u << bit;

		if (flag & (unsigned)NAMESPACES)
			rc = seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(clone), 1,
					      SCMP_A0_64(SCMP_CMP_MASKED_EQ, flag, flag));
	}
	return rc;
}

int hb_bubble_filter(struct hb_error *err)
{
	scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
	int fd = (int)syscall(SYS_memfd_create, "bwrap-filter", 0);
	int rc = filter && fd >= 0 ? rules(filter) : -1;

	if (rc == 0)
		rc = seccomp_export_bpf(filter, fd);
	if (rc == 0 && lseek(fd, 0, SEEK_SET) < 0)
		rc = -1;
	seccomp_release(filter);
	if (rc == 0)
		return fd;
	hb_close(&fd);
	return hb_fail(err, "no_worker", "the filter of the sandbox can't be made");
}
