/*
 * The seccomp filter: an allow-list out of the declared groups (anything else kills the process),
 * or for the runner a deny-list.  Rules that look at arguments are all in this file.
 *
 * Three refusals are errors instead of death, because innocent code tries them and copes: clone3
 * (its flags lie in memory, where a filter can't look; ENOSYS makes the C library use clone),
 * memory that is executable (a library loaded late; the loader reports it), and a Unix socket in a
 * process that has only the internet (a name service cache).
 */
#include <errno.h>
#include <linux/netlink.h>
#include <sched.h>
#include <seccomp.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/sandbox_internal.h"

#define CLONE_NEW_ANY                                                                              \
	(CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER |             \
	 CLONE_NEWPID | CLONE_NEWNET)
#define SOCKET_TYPE 0xfu /* the rest of the argument are SOCK_CLOEXEC and SOCK_NONBLOCK */
#define IOCTLS 4

struct filter {
	scmp_filter_ctx ctx;
	int rc; /* first failure, negative errno */
};

static void
rule(struct filter *f, uint32_t action, const char *name, unsigned count,
     const struct scmp_arg_cmp *args)
{
	int nr = seccomp_syscall_resolve_name(name), rc;

	if (nr == __NR_SCMP_ERROR ||
	    f->rc != 0) /* not known on this architecture or to this libseccomp */
		return;
	rc = seccomp_rule_add_array(f->ctx, action, nr, count, args);
	/* EDOM: a pseudo number of another architecture. EEXIST: two groups name the same. */
	if (rc != 0 && rc != -EDOM && rc != -EEXIST)
		f->rc = rc;
}

static void
allow_names(struct filter *f, const char *const *names)
{
	for (; names != NULL && *names != NULL; names++)
		rule(f, SCMP_ACT_ALLOW, *names, 0, NULL);
}

static void
deny_names(struct filter *f, const char *const *names)
{
	for (; *names != NULL; names++)
		rule(f, SCMP_ACT_ERRNO(EPERM), *names, 0, NULL);
}

static void
memory_rules(struct filter *f)
{
	static const char *const names[] = {"mmap", "mmap2", "mprotect"};
	struct scmp_arg_cmp plain = SCMP_A2_64(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0);
	struct scmp_arg_cmp executable = SCMP_A2_64(SCMP_CMP_MASKED_EQ, PROT_EXEC, PROT_EXEC);

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		rule(f, SCMP_ACT_ALLOW, names[i], 1, &plain);
		rule(f, SCMP_ACT_ERRNO(EPERM), names[i], 1, &executable);
	}
}

static void
clone_rules(struct filter *f, unsigned groups)
{
	struct scmp_arg_cmp thread =
		SCMP_A0_64(SCMP_CMP_MASKED_EQ, CLONE_THREAD | CLONE_NEW_ANY, CLONE_THREAD);
	struct scmp_arg_cmp process = SCMP_A0_64(SCMP_CMP_MASKED_EQ, CLONE_NEW_ANY, 0);

	rule(f, SCMP_ACT_ERRNO(ENOSYS), "clone3", 0, NULL);
	if (groups & HB_SYS_MOUNT) /* namespaces are its work: allowed whole by its group */
		return;
	rule(f, SCMP_ACT_ALLOW, "clone", 1, groups & HB_SYS_FORK ? &process : &thread);
}

static void
socket_rules(struct filter *f, unsigned groups)
{
	static const int inet_domains[] = {AF_INET, AF_INET6};
	static const int inet_types[] = {SOCK_STREAM, SOCK_DGRAM};
	struct scmp_arg_cmp local = SCMP_A0_64(SCMP_CMP_EQ, AF_UNIX);
	struct scmp_arg_cmp args[2], routes[] = {SCMP_A0_64(SCMP_CMP_EQ, AF_NETLINK),
						 SCMP_A2_64(SCMP_CMP_EQ, NETLINK_ROUTE)};

	if (groups & HB_SYS_UNIX) {
		rule(f, SCMP_ACT_ALLOW, "socket", 1, &local);
		rule(f, SCMP_ACT_ALLOW, "socketpair", 1, &local);
	} else if (groups & HB_SYS_INET) {
		rule(f, SCMP_ACT_ERRNO(EACCES), "socket", 1, &local);
	}
	if (!(groups & HB_SYS_INET))
		return;
	for (size_t i = 0; i < 2; i++) {
		for (size_t j = 0; j < 2; j++) {
			args[0] = SCMP_A0_64(SCMP_CMP_EQ, (scmp_datum_t)inet_domains[i]);
			args[1] = SCMP_A1_64(SCMP_CMP_MASKED_EQ, SOCKET_TYPE,
					     (scmp_datum_t)inet_types[j]);
			rule(f, SCMP_ACT_ALLOW, "socket", 2, args);
		}
	}
	rule(f, SCMP_ACT_ALLOW, "socket", 2,
	     routes); /* getaddrinfo asks which addresses the host has */
}

/* Calls that do many things, each allowed for the things that are needed. */
static void
narrow_rules(struct filter *f, unsigned groups)
{
	static const unsigned long ioctls[IOCTLS] = {FIONREAD, FIONBIO, FIOCLEX, TCGETS};
	struct scmp_arg_cmp args[2];

	if (!(groups & HB_SYS_EXEC)) {
		for (size_t i = 0; i < IOCTLS; i++) {
			args[0] = SCMP_A1_64(SCMP_CMP_MASKED_EQ, 0xffffffffu, ioctls[i]);
			rule(f, SCMP_ACT_ALLOW, "ioctl", 1, args);
		}
	}
	if (!(groups & HB_SYS_IDENTITY)) {
		args[0] = SCMP_A0_64(SCMP_CMP_EQ, PR_SET_NAME);
		rule(f, SCMP_ACT_ALLOW, "prctl", 1, args);
		args[0] = SCMP_A0_64(SCMP_CMP_EQ, PR_SET_PDEATHSIG);
		if (groups & HB_SYS_FORK)
			rule(f, SCMP_ACT_ALLOW, "prctl", 1, args);
	}
	if (!(groups & (HB_SYS_IDENTITY | HB_SYS_EXEC))) { /* own limits, read only */
		args[0] = SCMP_A0_64(SCMP_CMP_EQ, 0);
		args[1] = SCMP_A2_64(SCMP_CMP_EQ, 0);
		rule(f, SCMP_ACT_ALLOW, "prlimit64", 2, args);
	}
	if (!(groups & HB_SYS_FORK)) { /* raise() and abort() */
		args[0] = SCMP_A0_64(SCMP_CMP_EQ, (scmp_datum_t)getpid());
		rule(f, SCMP_ACT_ALLOW, "tgkill", 1, args);
	}
}

static void
allow_list(struct filter *f, const struct hb_sandbox *box)
{
	unsigned groups = box->syscalls | HB_SYS_BASE;

	for (size_t i = 0; i < hb_syscall_group_count; i++)
		if (groups & hb_syscall_groups[i].bit)
			allow_names(f, hb_syscall_groups[i].names);
	allow_names(f, box->extra);
	if (!(groups & HB_SYS_EXEC))
		memory_rules(f);
	clone_rules(f, groups);
	socket_rules(f, groups);
	narrow_rules(f, groups);
}

static void
deny_list(struct filter *f, const struct hb_sandbox *box)
{
	deny_names(f, hb_syscalls_denied);
	if (box->syscalls & HB_SYS_MOUNT)
		return;
	deny_names(f, hb_syscalls_denied_mount);
	rule(f, SCMP_ACT_ERRNO(ENOSYS), "clone3", 0, NULL);
	for (int bit = 0; bit < 32; bit++) {
		uint32_t flag = 1u << bit;
		struct scmp_arg_cmp has = SCMP_A0_64(SCMP_CMP_MASKED_EQ, flag, flag);

		if (flag & (uint32_t)CLONE_NEW_ANY)
			rule(f, SCMP_ACT_ERRNO(EPERM), "clone", 1, &has);
	}
}

int
hb_seccomp_apply(const struct hb_sandbox *box, struct hb_error *err)
{
	struct filter f = {
		.ctx = seccomp_init(box->deny_list ? SCMP_ACT_ALLOW : SCMP_ACT_KILL_PROCESS)};

	if (f.ctx == NULL)
		return hb_fail(err, "sandbox_failed", "cannot begin a seccomp filter");
	/* Two of the same rule with a different action would be a mistake in the tables: libseccomp
	 * reports it. */
	f.rc = seccomp_attr_set(f.ctx, SCMP_FLTATR_CTL_OPTIMIZE, 2);
	if (box->deny_list)
		deny_list(&f, box);
	else
		allow_list(&f, box);
	if (f.rc == 0)
		f.rc = seccomp_load(f.ctx);
	seccomp_release(f.ctx);
	if (f.rc != 0) {
		errno = -f.rc;
		return hb_fail_errno(err, "sandbox_failed", "cannot load the seccomp filter of %s",
				     box->name);
	}
	return 0;
}
