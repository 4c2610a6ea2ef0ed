/*
 * Landlock: which files a process reaches, whether it opens TCP connections, and that it neither
 * signals nor reaches abstract sockets of processes outside its domain (kernel documentation,
 * userspace-api/landlock).
 *
 * The constants are spelled out because the distribution's headers know ABI 2 while kernels offer
 * more; what the running kernel does not know is masked away.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/fs.h"
#include "common/sandbox_internal.h"

#define CREATE_RULESET_VERSION 1u
#define RULE_PATH_BENEATH 1
#define RULE_NET_PORT 2

#define FS_EXECUTE (1ULL << 0)
#define FS_WRITE_FILE (1ULL << 1)
#define FS_READ_FILE (1ULL << 2)
#define FS_READ_DIR (1ULL << 3)
#define FS_REMOVE_DIR (1ULL << 4)
#define FS_REMOVE_FILE (1ULL << 5)
#define FS_MAKE_CHAR (1ULL << 6)
#define FS_MAKE_DIR (1ULL << 7)
#define FS_MAKE_REG (1ULL << 8)
#define FS_MAKE_SOCK (1ULL << 9)
#define FS_MAKE_FIFO (1ULL << 10)
#define FS_MAKE_BLOCK (1ULL << 11)
#define FS_MAKE_SYM (1ULL << 12)
#define FS_REFER (1ULL << 13)     /* ABI 2 */
#define FS_TRUNCATE (1ULL << 14)  /* ABI 3 */
#define FS_IOCTL_DEV (1ULL << 15) /* ABI 5 */

#define NET_BIND_TCP (1ULL << 0) /* ABI 4 */
#define NET_CONNECT_TCP (1ULL << 1)

#define SCOPE_ABSTRACT_UNIX (1ULL << 0) /* ABI 6 */
#define SCOPE_SIGNAL (1ULL << 1)

#define FS_ANY_FILE (FS_EXECUTE | FS_WRITE_FILE | FS_READ_FILE | FS_TRUNCATE | FS_IOCTL_DEV)

struct ruleset_attr {
	uint64_t handled_access_fs;
	uint64_t handled_access_net;
	uint64_t scoped;
};

struct path_beneath_attr {
	uint64_t allowed_access;
	int32_t parent_fd;
} __attribute__((packed));

struct net_port_attr {
	uint64_t allowed_access;
	uint64_t port;
};

int
hb_landlock_abi(void)
{
	long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, CREATE_RULESET_VERSION);

	return abi > 0 ? (int)abi : 0;
}

static uint64_t
handled_fs(int abi)
{
	uint64_t all = FS_MAKE_SYM | (FS_MAKE_SYM - 1);

	if (abi >= 2)
		all |= FS_REFER;
	if (abi >= 3)
		all |= FS_TRUNCATE;
	if (abi >= 5)
		all |= FS_IOCTL_DEV;
	return all;
}

static uint64_t
wanted_fs(unsigned access)
{
	uint64_t rights = 0;

	if (access & HB_FS_READ)
		rights |= FS_READ_FILE | FS_READ_DIR;
	if (access & HB_FS_WRITE)
		rights |= FS_WRITE_FILE | FS_REMOVE_DIR | FS_REMOVE_FILE | FS_MAKE_DIR |
			  FS_MAKE_REG | FS_MAKE_SOCK | FS_MAKE_FIFO | FS_MAKE_SYM | FS_REFER |
			  FS_TRUNCATE;
	if (access & HB_FS_EXEC)
		rights |= FS_EXECUTE | FS_READ_FILE | FS_READ_DIR;
	return rights; /* never devices, never ioctl on them */
}

static int
path_add(int ruleset, const struct hb_sandbox_path *p, uint64_t handled, struct hb_error *err)
{
	struct path_beneath_attr attr = {.allowed_access = wanted_fs(p->access) & handled,
					 .parent_fd = -1};
	struct stat st;
	int fd = open(p->path, O_PATH | O_CLOEXEC), rc = 0;

	if (fd < 0) {
		if ((p->access & HB_FS_OPTIONAL) &&
		    (errno == ENOENT || errno == ENOTDIR || errno == EACCES))
			return 0;
		return hb_fail_errno(err, "sandbox_failed", "cannot open %s for the sandbox",
				     p->path);
	}
	if (fstat(fd, &st) == 0 && !S_ISDIR(st.st_mode))
		attr.allowed_access &= FS_ANY_FILE;
	attr.parent_fd = fd;
	if (attr.allowed_access != 0 &&
	    syscall(SYS_landlock_add_rule, ruleset, RULE_PATH_BENEATH, &attr, 0) != 0)
		rc = hb_fail_errno(err, "sandbox_failed", "cannot add %s to the sandbox", p->path);
	close(fd);
	return rc;
}

static int
ports_add(int ruleset, const uint16_t *ports, struct hb_error *err)
{
	for (; ports != NULL && *ports != 0; ports++) {
		struct net_port_attr attr = {.allowed_access = NET_CONNECT_TCP, .port = *ports};

		if (syscall(SYS_landlock_add_rule, ruleset, RULE_NET_PORT, &attr, 0) != 0)
			return hb_fail_errno(err, "sandbox_failed",
					     "cannot add port %u to the sandbox", *ports);
	}
	return 0;
}

int
hb_landlock_apply(const struct hb_sandbox *box, int abi, struct hb_error *err)
{
	struct ruleset_attr attr = {.handled_access_fs = handled_fs(abi)};
	size_t size = abi >= 6 ? sizeof(attr) : abi >= 4 ? 16 : 8;
	int ruleset, rc = -1;

	if (abi >= 4) {
		attr.handled_access_net = NET_BIND_TCP;
		if (!box->tcp_connect_any)
			attr.handled_access_net |= NET_CONNECT_TCP;
	}
	if (abi >= 6) {
		attr.scoped = SCOPE_ABSTRACT_UNIX;
		/* Who keeps CAP_KILL ends processes that it started before it was confined. */
		if (!(box->keep_caps & (1ULL << CAP_KILL)))
			attr.scoped |= SCOPE_SIGNAL;
	}
	ruleset = (int)syscall(SYS_landlock_create_ruleset, &attr, size, 0);
	if (ruleset < 0)
		return hb_fail_errno(err, "sandbox_failed",
				     "cannot create a Landlock ruleset (ABI %d)", abi);
	for (size_t i = 0; i < box->path_count; i++)
		if (path_add(ruleset, &box->paths[i], attr.handled_access_fs, err) != 0)
			goto out;
	if (abi >= 4 && !box->tcp_connect_any && ports_add(ruleset, box->tcp_connect, err) != 0)
		goto out;
	if (syscall(SYS_landlock_restrict_self, ruleset, 0) != 0) {
		hb_fail_errno(err, "sandbox_failed", "cannot enter the Landlock domain");
		goto out;
	}
	rc = 0;
out:
	hb_close(&ruleset);
	return rc;
}
