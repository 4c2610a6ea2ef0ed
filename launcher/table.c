/*
 * The processes, in the order of starting, with what each keeps of root's power. Who they run as
 * and which groups they are in follows from common/peers.c.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/fs.h"
#include "launcher/launcher.h"

#define CAP(name) (1ULL << CAP_##name)

/*
 * What the installer and its runner need; the installer drops what is the runner's alone once that
 * is forked. Ownership of releases and data: CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID.
 * Workers and payload under their own uids, with an empty bounding set: SETUID SETGID SETPCAP.
 * Ending them: KILL, and SYS_PTRACE to know the payload's processes by their environment. The
 * payload's view of files: SYS_ADMIN (mount namespaces), SYS_CHROOT.
 */
#define INSTALLER_CAPS                                                                             \
	(CAP(CHOWN) | CAP(DAC_OVERRIDE) | CAP(DAC_READ_SEARCH) | CAP(FOWNER) | CAP(FSETID) |       \
	 CAP(SETUID) | CAP(SETGID) | CAP(SETPCAP) | CAP(KILL) | CAP(SYS_PTRACE) | CAP(SYS_ADMIN) | \
	 CAP(SYS_CHROOT))

const struct hb_service hb_services[] = {
	{HB_PEER_FETCHER, "../fetcher", 0, SIGKILL, true, false},
	/* SIGTERM, so that it ends the payload, and nothing taken from under its runner when it
	   dies: that one does. */
	{HB_PEER_INSTALLER, "../broker/installer", INSTALLER_CAPS, SIGTERM, false, true},
	{HB_PEER_DOCKER, "../broker/docker", 0, SIGKILL, true, false},
	{HB_PEER_SSH, "../broker/ssh", 0, SIGKILL, true, false},
	{HB_PEER_APPROVER, "../approver", 0, SIGKILL, true, false},
	{HB_PEER_BROKER, "../broker", 0, SIGKILL, true, false},
	{HB_PEER_ADMIN, "../admin", 0, SIGKILL, true, false},
};
const size_t hb_service_count = sizeof(hb_services) / sizeof(hb_services[0]);
const uint64_t hb_service_caps_any = INSTALLER_CAPS;

int
hb_programs_init(struct hb_programs *p, const char *libexec, struct hb_error *err)
{
	char self[sizeof(p->own_dir)];
	ssize_t len = readlink("/proc/self/exe", self, sizeof(self) - 1);
	char *slash;

	p->libexec = libexec;
	if (len < 0)
		return hb_fail_errno(err, "program_missing",
				     "cannot find my own program file (is /proc mounted?)");
	self[len] = '\0';
	slash = strrchr(self, '/');
	if (slash != NULL)
		*slash = '\0';
	memcpy(p->own_dir, self, strlen(self) + 1);
	return 0;
}

/* Who may change a program that is given an identity: root, or who could change the launcher
 * itself. */
static int
judge(int fd, const char *path, struct hb_error *err)
{
	struct stat st, own;

	if (fstat(fd, &st) != 0 || stat("/proc/self/exe", &own) != 0)
		return hb_fail_errno(err, "program_permissions", "cannot look at %s", path);
	if (!S_ISREG(st.st_mode) || (st.st_mode & 022) != 0 ||
	    (st.st_uid != 0 && st.st_uid != own.st_uid))
		return hb_fail(err, "program_permissions",
			       "%s must be a file that only root or the launcher's owner can "
			       "write (it is uid %u, mode %04o): chmod go-w %s",
			       path, st.st_uid, st.st_mode & 07777, path);
	return 0;
}

int
hb_programs_open(const struct hb_programs *p, const struct hb_service *s, struct hb_error *err)
{
	const char *name = hb_peer_name(s->peer);
	char path[3][8192];
	int count = 0;

	if (p->libexec != NULL) {
		snprintf(path[count++], sizeof(path[0]), "%s/%s", p->libexec, name);
	} else {
		snprintf(path[count++], sizeof(path[0]), "%s/%s", p->own_dir, name);
		snprintf(path[count++], sizeof(path[0]), "%s/%s/%s", p->own_dir, s->build_dir,
			 name);
	}
	for (int i = 0; i < count; i++) {
		/* Opened here with our rights and started by descriptor: the directory may be
		 * closed to the process's uid. */
		int fd = open(path[i], O_PATH | O_CLOEXEC);

		if (fd < 0)
			continue;
		if (judge(fd, path[i], err) == 0)
			return fd;
		hb_close(&fd);
		return -1;
	}
	return hb_fail(err, "program_missing",
		       "%s is not in %s: build or install it, or name the directory by --libexec",
		       name, p->libexec != NULL ? p->libexec : p->own_dir);
}
