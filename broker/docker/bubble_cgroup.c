/* Limits for all processes of a command together: a cgroup (v2) of its own below a directory that
 * was delegated to hermes-docker (kernel documentation, admin-guide/cgroup-v2, "Delegation"). */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "broker/docker/bubble.h"
#include "common/fs.h"
#include "common/ids.h"

#define MIB (1024LL * 1024)
#define PERIOD_US 100000LL
#define REMOVE_TRIES 100
#define REMOVE_PAUSE_US 20000

static int put(const struct hb_bubble_job *job, const char *file, const char *text,
	       struct hb_error *err)
{
	char path[600];
	int fd, rc = 0;

	snprintf(path, sizeof path, "%s/%s", job->cgroup, file);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0 || write(fd, text, strlen(text)) < 0)
		rc = hb_fail_errno(err, "sandbox_no_cgroup",
				   "the limit %s can't be set: delegate the controllers memory, "
				   "pids and cpu to local.cgroup",
				   file);
	hb_close(&fd);
	return rc;
}

int hb_bubble_cgroup_make(struct hb_bubble_job *job, struct hb_error *err)
{
	const char *parent = hb_config_text(job->config, "local.cgroup");
	long long cpus = hb_config_int(job->config, "local.cpus");
	char name[17], memory[32], pids[32], cpu[64];

	job->cgroup[0] = '\0';
	if (!*parent)
		return 0;
	hb_random_hex(8, name);
	if ((size_t)snprintf(job->cgroup, sizeof job->cgroup, "%s/run-%s", parent, name) >=
		    sizeof job->cgroup ||
	    mkdir(job->cgroup, 0755) < 0) {
		job->cgroup[0] = '\0';
		return hb_fail_errno(err, "sandbox_no_cgroup",
				     "no cgroup can be made below local.cgroup");
	}
	snprintf(memory, sizeof memory, "%lld",
		 hb_config_int(job->config, "local.memory_mb") * MIB);
	/* One more than asked for: bubblewrap's own first process. */
	snprintf(pids, sizeof pids, "%lld", hb_config_int(job->config, "local.pids_limit") + 1);
	snprintf(cpu, sizeof cpu, "%lld %lld", cpus * PERIOD_US, PERIOD_US);
	if (put(job, "memory.max", memory, err) < 0 || put(job, "pids.max", pids, err) < 0 ||
	    put(job, "cpu.max", cpu, err) < 0) {
		hb_bubble_cgroup_end(job);
		return -1;
	}
	put(job, "memory.swap.max", "0", NULL); /* not there without swap accounting */
	return 0;
}

void hb_bubble_cgroup_end(struct hb_bubble_job *job)
{
	if (!job->cgroup[0])
		return;
	put(job, "cgroup.kill", "1", NULL);
	for (int i = 0; i < REMOVE_TRIES && rmdir(job->cgroup) < 0 && errno == EBUSY; i++)
		usleep(REMOVE_PAUSE_US);
}
