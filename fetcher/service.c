/* See service.h. */
#include "fetcher/service.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#include "common/ids.h"
#include "common/json.h"
#include "common/log.h"
#include "common/paths.h"
#include "fetcher/credentials.h"
#include "fetcher/job.h"
#include "fetcher/known.h"
#include "fetcher/retry.h"

#define PATHS_MAX 24

struct fetcher {
	struct hb_jobs jobs;
	char *store_path, *layout_path;
	struct hb_sandbox_path paths[PATHS_MAX];
	size_t path_count;
};

static void
handle_resolve(struct hb_request *req, void *ctx)
{
	struct fetcher *f = ctx;
	struct hb_resolve_request what;
	struct hb_error err;

	if (hb_resolve_decode(hb_request_json(req), &what, &err))
		hb_reply_error(req, 200, &err);
	else
		hb_job_resolve(&f->jobs, req, &what);
}

static void
handle_fetch(struct hb_request *req, void *ctx)
{
	struct fetcher *f = ctx;
	struct hb_fetch_request what;
	struct hb_error err;

	if (hb_fetch_decode(hb_request_json(req), &what, &err))
		hb_reply_error(req, 200, &err);
	else
		hb_job_fetch(&f->jobs, req, &what);
}

/* "none", the number of registries, or what is wrong with the file; never anything from it. */
static const char *
credentials_state(struct hb_process *p, struct hb_error *err, char *text, size_t size)
{
	struct hb_credentials c;

	if (hb_credentials_load(AT_FDCWD, HB_PATH_FETCHER_CREDENTIALS, hb_peer_uid(p->self), &c,
				err))
		return "error";
	snprintf(text, size, c.count ? "%zu registries" : "none", c.count);
	hb_credentials_free(&c);
	return text;
}

static void
handle_health(struct hb_request *req, void *ctx)
{
	struct fetcher *f = ctx;
	struct hb_process *p = f->jobs.process;
	struct hb_error bad = {0}, err;
	struct statvfs vfs = {0};
	char text[32];
	const char *credentials = credentials_state(p, &bad, text, sizeof(text));
	json_t *health, *own;

	if (hb_store_usable(&f->jobs.store, &err) ||
	    (!bad.code[0] && hb_store_space(&f->jobs.store, 1, 1, &err)))
		bad = err;
	fstatvfs(f->jobs.store.dirfd, &vfs);
	own = json_pack("{s:i, s:i, s:s, s:o, s:{s:I}}", "jobs", (int)f->jobs.count, "waiting",
			(int)f->jobs.waiting, "credentials",
			credentials, "rate_limited", hb_ratelimit_list(AT_FDCWD, hb_now()), "store",
			"free_bytes", (json_int_t)(vfs.f_bavail * vfs.f_frsize));
	health = hb_process_health(p, bad.code[0] ? bad.message : NULL);
	json_object_set_new(json_object_get(health, "checks"), "fetcher", own);
	hb_reply_json(req, 200, health);
}

/* What may be asked by whom; who may call at all is the table of common/peers.c. */
#define CALLERS (HB_PEER_BIT(HB_PEER_INSTALLER))
#define WATCHERS \
	(CALLERS | HB_PEER_BIT(HB_PEER_ADMIN) | HB_PEER_BIT(HB_PEER_LAUNCHER) | \
	 HB_PEER_BIT(HB_PEER_OPERATOR))

const struct hb_route hb_fetcher_routes[] = {
	{HB_GET, "/health", WATCHERS, 0, HB_ROUTE_NOBODY, handle_health},
	{HB_POST, "/resolve", CALLERS, 0, 0, handle_resolve},
	{HB_POST, "/fetch", CALLERS, 0, 0, handle_fetch},
};
const size_t hb_fetcher_route_count = sizeof(hb_fetcher_routes) / sizeof(hb_fetcher_routes[0]);

void *
hb_fetcher_open(struct hb_process *p, struct hb_error *err)
{
	struct fetcher *f = hb_calloc(1, sizeof(*f));
	struct hb_image_ref ref;

	f->jobs.process = p;
	f->jobs.store.dirfd = -1;
	if (hb_store_open(hb_config_text(p->config, "runtime.storage"), &f->jobs.store, err)) {
		free(f);
		return NULL;
	}
	f->jobs.known = hb_known_new();
	f->store_path = hb_asprintf("%s/blobs", hb_config_text(p->config, "runtime.storage"));
	if (hb_image_ref_parse(hb_config_text(p->config, "runtime.image"), false, &ref, NULL) ==
		    0 &&
	    ref.layout)
		f->layout_path = hb_strdup(ref.repository);
	return f;
}

static void
add_path(struct fetcher *f, const char *path, unsigned access)
{
	if (path && path[0] && f->path_count < PATHS_MAX)
		f->paths[f->path_count++] = (struct hb_sandbox_path){path, access};
}

/*
 * Outbound to registries, files only in its own directory and the blob store; an image layout to
 * read when the configuration names one. No exec, no root, no key. Children are forked copies under
 * the same rules.
 */
int
hb_fetcher_sandbox(struct hb_process *p, void *ctx, struct hb_sandbox *out, struct hb_error *err)
{
	struct fetcher *f = ctx;

	add_path(f, "fetcher", HB_FS_READ | HB_FS_WRITE);
	add_path(f, f->store_path, HB_FS_READ | HB_FS_WRITE);
	add_path(f, f->layout_path, HB_FS_READ | HB_FS_OPTIONAL);
	add_path(f, hb_config_text(p->config, "fetcher.ca_file"), HB_FS_READ);
	for (size_t i = 0; i < hb_sandbox_inet_path_count; i++)
		add_path(f, hb_sandbox_inet_paths[i].path, hb_sandbox_inet_paths[i].access);
	*out = (struct hb_sandbox){
		.name = "hermes-fetcher",
		.syscalls = HB_SYS_BASE | HB_SYS_FILES | HB_SYS_UNIX | HB_SYS_INET | HB_SYS_FORK |
			    HB_SYS_EVENTS,
		.paths = f->paths,
		.path_count = f->path_count,
		.tcp_connect_any = true,
	};
	return 0;
}

void
hb_fetcher_stop(struct hb_process *p, void *ctx)
{
	struct fetcher *f = ctx;

	hb_jobs_stop(&f->jobs);
	hb_process_exit(p, 0);
}

void
hb_fetcher_close(void *ctx)
{
	struct fetcher *f = ctx;

	hb_jobs_stop(&f->jobs);
	hb_known_free(f->jobs.known);
	hb_store_close(&f->jobs.store);
	free(f->store_path);
	free(f->layout_path);
	free(f);
}
