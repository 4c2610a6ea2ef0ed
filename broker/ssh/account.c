/*
 * Preloaded into ssh: the account it runs as.
 *
 * ssh refuses to start for a uid without an entry in the system's user database. Our processes have
 * numbers and no entries, so that setting the broker up adds no accounts to a host; this says what
 * an entry would: no home directory, no shell. ssh uses it for nothing else, since each of its
 * files is named on its command line.
 */
#include <errno.h>
#include <pwd.h>
#include <string.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT struct passwd *getpwuid(uid_t uid)
{
	static char name[] = "hermes-ssh", none[] = "/nonexistent", shell[] = "/bin/false",
		    empty[] = "", star[] = "*";
	static struct passwd entry;

	if (uid != geteuid()) {
		errno = ENOENT;
		return NULL;
	}
	entry = (struct passwd){.pw_name = name,
				.pw_passwd = star,
				.pw_uid = uid,
				.pw_gid = getegid(),
				.pw_gecos = empty,
				.pw_dir = none,
				.pw_shell = shell};
	return &entry;
}
