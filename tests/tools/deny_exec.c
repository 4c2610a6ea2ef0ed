/* deny_exec CALL... -- PROGRAM ARG...: runs a program for which these system calls fail with EPERM, like a guest
 * whose container runtime forbids them. */
#include <errno.h>
#include <seccomp.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_ALLOW);
	int i = 1;

	seccomp_attr_set(ctx, SCMP_FLTATR_CTL_NNP, 0);
	for (; i < argc && strcmp(argv[i], "--"); i++)
		if (seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EPERM), seccomp_syscall_resolve_name(argv[i]), 0) < 0)
			return 64;
	if (i + 1 >= argc || seccomp_load(ctx) < 0)
		return 64;
	execv(argv[i + 1], argv + i + 1);
	perror(argv[i + 1]);
	return 127;
}
