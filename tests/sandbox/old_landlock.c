/*
 * A kernel with an older Landlock, as a preloaded program sees it: HERMES_LANDLOCK_ABI says which ABI is told (0: none).
 *
 * What that ABI doesn't know is refused as the old kernel would: unknown rights EINVAL, a longer structure E2BIG, an
 * unknown type of rule EINVAL. So a program that asks for more than it was told of fails here, not just there.
 */
#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define VERSION 1u
#define RULE_NET_PORT 2

static int told = -1; /* -1: the kernel's own */

static void __attribute__((constructor))
read_abi(void)
{
	const char *text = getenv("HERMES_LANDLOCK_ABI");

	if (text != NULL)
		told = atoi(text);
}

static int
refuse(const uint64_t *attr, size_t size)
{
	static const uint64_t files[] = {0, 0x1fff, 0x3fff, 0x7fff, 0x7fff, 0xffff, 0xffff};
	size_t known = told >= 6 ? 24 : told >= 4 ? 16 : 8;

	if (size > known)
		for (size_t i = known / 8; i < size / 8; i++)
			if (attr[i] != 0)
				return E2BIG;
	if ((attr[0] & ~files[told > 6 ? 6 : told]) != 0)
		return EINVAL;
	return 0;
}

long
syscall(long number, ...)
{
	static long (*real)(long, ...);
	long a[6];
	va_list ap;
	int why;

	if (real == NULL)
		*(void **)&real = dlsym(RTLD_NEXT, "syscall");
	va_start(ap, number);
	for (int i = 0; i < 6; i++)
		a[i] = va_arg(ap, long);
	va_end(ap);
	if (told < 0 || number < SYS_landlock_create_ruleset ||
	    number > SYS_landlock_restrict_self)
		return real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
	if (told == 0) {
		errno = ENOSYS;
		return -1;
	}
	if (number == SYS_landlock_create_ruleset && (uint32_t)a[2] == VERSION) {
		long own = real(number, a[0], a[1], a[2]);

		return own < told ? own : told;
	}
	why = number == SYS_landlock_create_ruleset
		      ? refuse((const uint64_t *)a[0], (size_t)a[1])
	      : number == SYS_landlock_add_rule && a[1] == RULE_NET_PORT && told < 4 ? EINVAL
										       : 0;
	if (why != 0) {
		errno = why;
		return -1;
	}
	return real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
