/*
 * hermesctl doctor: everything a person could have got wrong, each with its fix. --authority reads the kernel's own view
 * of each live process and compares it with what the process may hold.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "admin/ctl/ctl.h"
#include "admin/ctl/ctl_onboarding.h"
#include "admin/ctl/doctor.h"
#include "common/fs.h"
#include "common/json.h"
#include "common/paths.h"
#include "policy/live.h"

void ctl_finding(struct ctl_findings *f, const char *check, const char *found, const char *fix)
{
	f->wrong += fix != NULL;
	json_array_append_new(f->list, json_pack("{s:s,s:b,s:s,s:s?}", "check", check, "ok", fix == NULL, "found", found,
						 "fix", fix));
	if (f->c->json)
		return;
	printf("%-4s %-22s ", fix ? "BAD" : "ok", check);
	ctl_print_text(found);
	if (fix) {
		printf("\n     fix: ");
		ctl_print_text(fix);
	}
	putchar('\n');
}

static void check_layout(struct ctl_findings *f)
{
	char found[256], fix[256];
	size_t bad = 0;

	for (size_t i = 0;; i++) {
		struct ctl_layout_entry e;
		struct stat st;
		if (!ctl_layout(i, &e))
			break;
		if (lstat(e.path, &st) < 0)
			snprintf(found, sizeof found, "%s is missing", e.path);
		else if (st.st_uid != e.uid || st.st_gid != e.gid || (st.st_mode & 07777) != e.mode)
			snprintf(found, sizeof found, "%s is %u:%u %04o, expected %u:%u %04o", e.path, st.st_uid, st.st_gid,
				 st.st_mode & 07777, e.uid, e.gid, e.mode);
		else
			continue;
		snprintf(fix, sizeof fix, "hermesctl --state %s setup", f->c->state);
		ctl_finding(f, "state directory", found, fix);
		bad++;
	}
	if (bad == 0)
		ctl_finding(f, "state directory", "every directory has its owner and mode", NULL);
}

static void check_secret(struct ctl_findings *f, const char *path, enum hb_peer owner)
{
	struct hb_error err = {0};
	struct hb_secret s;

	if (hb_secret_read(AT_FDCWD, path, hb_peer_uid(owner), 4096, &s, &err) == 0) {
		hb_secret_free(&s);
		ctl_finding(f, path, "0600, right owner", NULL);
	} else
		ctl_finding(f, path, err.message, "the message names the chmod or chown; a missing one is made by setup");
}

static void check_policy(struct ctl_findings *f)
{
	struct hb_policy_view view = {0};
	struct hb_error err = {0};
	char text[128];

	if (hb_policy_view_load(hb_peer_uid(HB_PEER_ADMIN), &view, &err) < 0) {
		ctl_finding(f, "policy", err.message, "mend the file that it names; until then nothing is enabled");
		return;
	}
	snprintf(text, sizeof text, "generation %lld, %zu approvers%s", (long long)view.live.generation,
		 view.live.user_count, view.live.paused ? ", paused" : "");
	ctl_finding(f, "policy", text, view.live.user_count ? NULL : "hermesctl policy set --add-user ID");
	hb_policy_view_free(&view);
}

static void check_services(struct ctl_findings *f)
{
	bool ok;
	json_t *all, *h;
	const char *name;

	if (ctl_launcher_pid(f->c) == 0) {
		ctl_finding(f, "launcher", "not running", "./manage.sh up");
		return;
	}
	all = ctl_health(f->c, &ok);
	json_object_foreach(all, name, h) {
		bool good = strcmp(hb_json_text(h, "status", ""), "ok") == 0;
		ctl_finding(f, name, good ? "healthy" : hb_json_text(h, "error", "unreachable"),
		     good ? NULL : "what it says above; its log is in log/ in the state directory");
	}
	json_decref(all);
}

/* What the executor itself finds wrong with profiles. */
static void check_profiles(struct ctl_findings *f)
{
	struct hb_error err = {0};
	json_t *answer = ctl_call(f->c, HB_PEER_SSH, "GET", "/profiles", NULL, &err), *item;
	char text[64];
	size_t i;

	if (!answer)
		return; /* that it isn't reachable is said with the services */
	json_array_foreach(json_object_get(answer, "broken"), i, item) {
		ctl_finding(f, "SSH profile", hb_json_text(item, "error", "?"),
			    "what it says; or hermesctl ssh profile remove and add");
	}
	snprintf(text, sizeof text, "%zu can be used", json_array_size(json_object_get(answer, "profiles")));
	ctl_finding(f, "SSH profiles", text, NULL);
	json_decref(answer);
}

static void check_space(struct ctl_findings *f)
{
	uint64_t bytes, inodes;
	struct hb_error err = {0};
	char size[32], text[96];

	if (hb_fs_space(AT_FDCWD, hb_config_text(f->c->config, "runtime.storage"), &bytes, &inodes, &err) < 0) {
		ctl_finding(f, "storage", err.message, "set runtime.storage to a directory on a local file system");
		return;
	}
	ctl_bytes((double)bytes, size, sizeof size);
	snprintf(text, sizeof text, "%s and %" PRIu64 " inodes free", size, inodes);
	ctl_finding(f, "storage", text, bytes < 1000000000 ? "free space, or move runtime.storage: 1 GB is the least to try with"
						    : NULL);
}

/* pid of whoever listens on a server's socket. */
pid_t ctl_server_pid(enum hb_peer server)
{
	struct sockaddr_un sa = {.sun_family = AF_UNIX};
	struct ucred peer = {0};
	socklen_t len = sizeof peer;
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	snprintf(sa.sun_path, sizeof sa.sun_path, "%s", hb_peer_socket(server));
	if (fd < 0 || connect(fd, (struct sockaddr *)&sa, sizeof sa) < 0 ||
	    getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0)
		peer.pid = 0;
	hb_close(&fd);
	return peer.pid;
}

/* /proc files have no size and lie outside what common/fs.h resolves. */
bool ctl_read_status(pid_t pid, char *out, size_t size)
{
	char path[64];
	ssize_t n;
	int fd;

	snprintf(path, sizeof path, "/proc/%d/status", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? -1 : read(fd, out, size - 1);
	hb_close(&fd);
	out[n > 0 ? n : 0] = 0;
	return n > 0;
}

/* A number of /proc/PID/status, in the given base; -1 when absent. */
long long ctl_status_number(const char *status, const char *name, int base)
{
	const char *line = strstr(status, name);

	return line ? (long long)strtoull(line + strlen(name), NULL, base) : -1;
}

static void check_authority(struct ctl_findings *f, enum hb_peer server, uint64_t most_caps)
{
	char text[8192], found[512];
	struct hb_buf excess = HB_BUF_INIT;
	pid_t pid = ctl_server_pid(server);
	long long uid, caps, bounding, nnp, seccomp;
	bool good;

	if (pid <= 0 || !ctl_read_status(pid, text, sizeof text)) {
		ctl_finding(f, hb_peer_name(server), "not running", "./manage.sh up");
		return;
	}
	uid = ctl_status_number(text, "\nUid:", 10);
	caps = ctl_status_number(text, "\nCapPrm:", 16);
	bounding = ctl_status_number(text, "\nCapBnd:", 16);
	nnp = ctl_status_number(text, "\nNoNewPrivs:", 10);
	seccomp = ctl_status_number(text, "\nSeccomp:", 10);
	good = ctl_doctor_process(f, server, pid, text, &excess);
	snprintf(found, sizeof found, "pid %d uid %lld caps %llx bounding %llx no_new_privs %lld seccomp %lld%s%s", pid, uid, caps,
		 bounding, nnp, seccomp, good ? "" : "; not declared:", good ? "" : excess.data);
	hb_buf_free(&excess);
	good = good && uid == (long long)hb_peer_uid(server) && ((uint64_t)caps & ~most_caps) == 0 &&
	       ((uint64_t)bounding & ~most_caps) == 0 && nnp == 1 && seccomp == 2;
	ctl_finding(f, hb_peer_name(server), found,
	     good ? NULL : "more authority than declared: stop it and compare the program with its sandbox table");
}

/* Not faults: what a careful host would also do. */
static void advise(struct ctl_findings *f, bool good, const char *check, const char *found, const char *advice)
{
	json_array_append_new(f->list, json_pack("{s:s,s:b,s:s,s:s?}", "check", check, "ok", 1, "found", found, "advice",
						 good ? NULL : advice));
	if (!f->c->json && !good)
		printf("tip  %-22s %s\n     advice: %s\n", check, found, advice);
}

static void check_advice(struct ctl_findings *f)
{
	bool grant = hb_config_bool(f->c->config, "admin.widening_needs_grant");
	bool agents = *hb_config_text(f->c->config, "approver.agent_bot_sha256_file") != 0;
	bool outside = *hb_config_text(f->c->config, "admin.listen_private") != 0;

	advise(f, grant, "widening", grant ? "widening the policy waits for a grant" : "the admin key alone can widen the policy",
	       "set admin.widening_needs_grant = yes, so that an approver must grant it");
	advise(f, agents, "agents' bots", agents ? "tokens of agents' bots are refused" : "agents' own bot tokens are not known",
	       "put their SHA-256 into a file and name it in approver.agent_bot_sha256_file");
	advise(f, !outside, "admin endpoint", outside ? "also on a private address" : "on loopback only",
	       "the admin key crosses that network in clear: use it only where nobody else listens");
}

int ctl_cmd_doctor(struct ctl *c, int argc, char **argv)
{
	static const enum hb_peer servers[] = {HB_PEER_BROKER, HB_PEER_FETCHER, HB_PEER_DOCKER, HB_PEER_SSH,
					       HB_PEER_APPROVER, HB_PEER_ADMIN};
	const char *authority = NULL;
	const struct ctl_option options[] = {
		{"authority", NULL, "compare each live process with what it may hold", &authority, NULL}};
	struct ctl_findings f = {.c = c, .list = json_array()};
	struct hb_error err = {0};

	if (ctl_parse(c, "doctor", options, 1, argc, argv, 0, 0) < 0)
		return CTL_USAGE;
	if (ctl_open(c, &err) < 0)
		return ctl_error(c, &err);
	if (geteuid() != 0) {
		hb_fail(&err, "not_root", "doctor looks into files of every process: run it with sudo");
		return ctl_error(c, &err);
	}
	if (authority) {
		for (size_t i = 0; i < sizeof servers / sizeof servers[0]; i++)
			check_authority(&f, servers[i], 0);
		check_authority(&f, HB_PEER_INSTALLER, CTL_INSTALLER_CAPS);
		ctl_doctor_reach(&f);
	} else {
		check_layout(&f);
		check_secret(&f, HB_PATH_CONTROL_SECRET, HB_PEER_BROKER);
		check_secret(&f, HB_PATH_BROKER_APPROVAL_SECRET, HB_PEER_BROKER);
		check_secret(&f, HB_PATH_APPROVER_APPROVAL_SECRET, HB_PEER_APPROVER);
		check_secret(&f, HB_PATH_SIGNING_KEY, HB_PEER_APPROVER);
		check_secret(&f, HB_PATH_ADMIN_KEY, HB_PEER_ADMIN);
		check_secret(&f, HB_PATH_SSH_INTEGRITY, HB_PEER_SSH);
		ctl_doctor_keys(&f);
		check_policy(&f);
		check_space(&f);
		check_advice(&f);
		check_services(&f);
		check_profiles(&f);
	}
	if (!c->json)
		printf("%d of %zu checks found something\n", f.wrong, json_array_size(f.list));
	return ctl_result(c, json_pack("{s:b,s:o}", "ok", f.wrong == 0, "checks", f.list),
			  f.wrong ? CTL_FAILED : CTL_OK);
}
