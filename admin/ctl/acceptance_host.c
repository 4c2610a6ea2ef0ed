/* hermesctl acceptance: what the host shows of this deployment. */
#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "admin/ctl/acceptance.h"
#include "common/bind_address.h"
#include "common/buf.h"
#include "common/fs.h"
#include "common/paths.h"
#include "onboarding/credential.h"
#include "onboarding/inventory.h"

#define LISTEN 0x0a /* the state's number in /proc/net/tcp */
#define FILE_MAX (1u << 20)

/* --- listeners --- */

/* The kernel prints an address as words of 32 bits in its own byte order (proc(5), /proc/net/tcp). */
static bool
read_address(const char *hex, char *out, size_t size, bool *loopback)
{
	size_t len = strlen(hex), words = len / 8;
	struct in6_addr six = {0};
	uint32_t part[4] = {0};

	if (len != 8 && len != 32)
		return false;
	for (size_t i = 0; i < words; i++) {
		char word[9] = "";

		memcpy(word, hex + 8 * i, 8);
		part[i] = (uint32_t)strtoul(word, NULL, 16);
	}
	if (words == 1) {
		*loopback = (ntohl(part[0]) >> 24) == 127;
		return inet_ntop(AF_INET, part, out, (socklen_t)size) != NULL;
	}
	memcpy(&six, part, sizeof six);
	*loopback = IN6_IS_ADDR_LOOPBACK(&six) ||
		    (IN6_IS_ADDR_V4MAPPED(&six) && six.s6_addr[12] == 127);
	return inet_ntop(AF_INET6, &six, out, (socklen_t)size) != NULL;
}

static bool
same_host(const char *configured, const char *address)
{
	struct hb_bind_address b;
	struct hb_error err;

	return hb_bind_address_parse("", configured, true, &b, &err) == 0 &&
	       strcmp(b.host, address) == 0;
}

/* A private address that was asked for is no public one. */
static bool
is_configured(const struct ctl_acceptance *a, const char *address)
{
	const char *admin = hb_config_text(a->c->config, "admin.listen_private"), **broker;
	size_t n = hb_config_list(a->c->config, "broker.listen_tcp", &broker);

	if (*admin && same_host(admin, address))
		return true;
	for (size_t i = 0; hb_config_bool(a->c->config, "broker.listen_tcp_private") && i < n; i++)
		if (same_host(broker[i], address))
			return true;
	return false;
}

struct listening {
	int ours;
	struct hb_buf outside;
};

static int
read_table(const struct ctl_acceptance *a, const char *path, struct listening *l)
{
	uid_t first = (uid_t)hb_config_int(a->c->config, "identities.base_uid"),
	      last = hb_peer_uid(HB_PEER_RUNTIME);
	char line[512], hex[40], address[INET6_ADDRSTRLEN];
	FILE *f = fopen(path, "re");
	unsigned port, state, uid;
	bool loopback = false;

	if (!f)
		return -1;
	while (fgets(line, sizeof line, f)) {
		if (sscanf(line, " %*u: %39[0-9A-F]:%x %*s %x %*s %*s %*s %u", hex, &port, &state,
			   &uid) != 4 ||
		    state != LISTEN || uid < first || uid > last)
			continue;
		l->ours++;
		if (read_address(hex, address, sizeof address, &loopback) &&
		    (loopback || is_configured(a, address)))
			continue;
		hb_buf_printf(&l->outside, "%s%s port %u of uid %u", l->outside.len ? ", " : "",
			      address, port, uid);
	}
	fclose(f);
	return 0;
}

void
ctl_accept_listeners(struct ctl_acceptance *a)
{
	struct listening l = {.outside = HB_BUF_INIT};

	if (read_table(a, "/proc/net/tcp", &l) < 0)
		ctl_accept(a, "no public listener", CTL_NOT_RUN, "/proc/net/tcp can't be read");
	else if (read_table(a, "/proc/net/tcp6", &l) < 0 && access("/proc/net/if_inet6", F_OK) == 0)
		ctl_accept(a, "no public listener", CTL_NOT_RUN, "/proc/net/tcp6 can't be read");
	else if (l.outside.len)
		ctl_accept(a, "no public listener", CTL_FAIL, "listens outside loopback: %s",
			   l.outside.data);
	else
		ctl_accept(a, "no public listener", CTL_PASS,
			   "%d listening sockets of our users, all on loopback%s", l.ours,
			   *hb_config_text(a->c->config, "admin.listen_private")
				   ? " or the private address that is configured"
				   : "");
	hb_buf_free(&l.outside);
}

/* --- credentials in files that are no secrets --- */

/* Digests and age recipients are long and random, and public. */
static void
blank_public(char *line)
{
	static const char *const marks[] = {"sha256:", "age1"};

	for (size_t i = 0; i < 2; i++)
		for (char *at = strstr(line, marks[i]); at; at = strstr(at, marks[i]))
			for (; *at && strchr("0123456789abcdefghijklmnopqrstuvwxyz:", *at); at++)
				*at = ' ';
}

/* The line on which one stands, 0: none; -1: the file can't be read. */
static int
find_in(const char *path, const char **pattern)
{
	struct hb_buf text = HB_BUF_INIT;
	int number = 0, found = 0;

	if (hb_fs_read(AT_FDCWD, path, FILE_MAX, &text, NULL) < 0) {
		hb_buf_free(&text);
		return -1;
	}
	for (char *line = text.len ? text.data : NULL, *next; line && !found; line = next) {
		next = strchr(line, '\n');
		if (next)
			*next++ = '\0';
		number++;
		blank_public(line);
		*pattern = hb_credential_find(line, strlen(line));
		if (*pattern)
			found = number;
	}
	hb_buf_free(&text);
	return found;
}

struct search {
	struct ctl_acceptance *a;
	int files;
	bool failed;
};

static void
look_into(struct search *s, const char *path)
{
	const char *pattern = NULL;
	int line = find_in(path, &pattern);

	s->files++;
	if (line == 0 || s->failed)
		return;
	s->failed = true;
	if (line < 0)
		ctl_accept(s->a, "no credential", CTL_FAIL, "%s can't be read", path);
	else
		ctl_accept(s->a, "no credential", CTL_FAIL,
			   "%s, line %d, looks like %s: secrets have files of their own", path,
			   line, pattern);
}

static void
look_through(struct search *s, const char *dir)
{
	DIR *d = opendir(dir);
	struct dirent *de;
	struct stat st;

	while (d && (de = readdir(d))) {
		char *path = hb_asprintf("%s/%s", dir, de->d_name);

		if (lstat(path, &st) == 0 && S_ISREG(st.st_mode))
			look_into(s, path);
		free(path);
	}
	if (d)
		closedir(d);
}

void
ctl_accept_credentials(struct ctl_acceptance *a)
{
	struct hb_inventory inventory = {0};
	struct search s = {.a = a};
	struct hb_error err = {0};

	look_through(&s, HB_PATH_CONF);
	look_through(&s, HB_PATH_CONF "/guardrails");
	/* Reading it judges every field. */
	if (!s.failed && hb_inventory_load(&inventory, &err) < 0) {
		s.failed = true;
		ctl_accept(a, "no credential", CTL_FAIL, "%s", err.message);
	}
	hb_inventory_free(&inventory);
	if (!s.failed)
		ctl_accept(a, "no credential", CTL_PASS,
			   "%d files of configuration and the inventory hold nothing like one",
			   s.files);
}

/* --- generated state outside the source tree --- */

/* The checkout that a directory lies in; false: none. */
static bool
find_checkout(const char *from, char *out, size_t size, struct stat *st)
{
	snprintf(out, size, "%s", from);
	while (*out) {
		char *git = hb_asprintf("%s/.git", out);
		bool found = lstat(git, st) == 0;

		free(git);
		if (found)
			return true;
		*strrchr(out, '/') = '\0';
	}
	return false;
}

/* git obeys the checkout's own settings, so it runs as the owner. Its first line, or -1. */
static int
ask_git(const char *top, const char *state, const struct stat *owner, char *line, size_t size)
{
	int pipes[2], status = -1;
	ssize_t n;
	pid_t pid;

	if (pipe2(pipes, O_CLOEXEC) < 0)
		return -1;
	pid = fork();
	if (pid == 0) {
		if (setgroups(0, NULL) < 0 || setresgid(owner->st_gid, owner->st_gid, owner->st_gid) < 0 ||
		    setresuid(owner->st_uid, owner->st_uid, owner->st_uid) < 0)
			_exit(126);
		dup2(pipes[1], 1);
		dup2(open("/dev/null", O_WRONLY | O_CLOEXEC), 2); /* directories it may not enter */
		execle("/usr/bin/git", "git", "-c", "safe.directory=*", "-c", "core.fsmonitor=",
		       "-C", top, "ls-files", "--cached", "--others", "--exclude-standard", "--",
		       state, (char *)NULL,
		       (char *[]){(char *)"PATH=/usr/bin:/bin", (char *)"GIT_CONFIG_NOSYSTEM=1",
				  (char *)"HOME=/nonexistent", NULL});
		_exit(127);
	}
	close(pipes[1]);
	n = pid > 0 ? read(pipes[0], line, size - 1) : -1;
	line[n > 0 ? n : 0] = '\0';
	line[strcspn(line, "\n")] = '\0';
	close(pipes[0]);
	if (pid > 0)
		waitpid(pid, &status, 0);
	/* It may have been cut short by us, with more to say. */
	return *line || (WIFEXITED(status) && WEXITSTATUS(status) == 0) ? 0 : -1;
}

void
ctl_accept_state(struct ctl_acceptance *a)
{
	char state[PATH_MAX], top[PATH_MAX], line[512];
	struct stat st;

	if (!getcwd(state, sizeof state))
		ctl_accept(a, "clean source tree", CTL_NOT_RUN,
			   "the state directory has no name any more");
	else if (!find_checkout(state, top, sizeof top, &st))
		ctl_accept(a, "clean source tree", CTL_PASS, "%s lies in no checkout", state);
	else if (ask_git(top, state, &st, line, sizeof line) < 0)
		ctl_accept(a, "clean source tree", CTL_NOT_RUN, "git can't be asked about %s", top);
	else if (*line)
		ctl_accept(a, "clean source tree", CTL_FAIL,
			   "git does not ignore the state directory: %s", line);
	else
		ctl_accept(a, "clean source tree", CTL_PASS,
			   "git keeps nothing of %s and ignores all of it", state);
}
