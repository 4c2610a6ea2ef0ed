/*
 * Drives the unpack worker and the verifier for tests and measurements; one JSON object in, one
 * JSON object out.
 *
 *   unpack_driver unpack PLAN    PLAN is a file: {"staging": DIR, "uid": N, "limits": {name: n},
 * "wait": bool, "layers": [{"path", "digest", "diff_id", "size", "media_type"}]} unpack_driver
 * verify DIR OWNER [TREE_DIGEST]
 *
 * With "wait" it prints "ready PID" (of the worker) and reads a line before each layer, so that a
 * test can act in between. Exit status 0 when it could do its work, whatever the answer is.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "broker/installer/unpack.h"
#include "broker/installer/verify.h"
#include "common/fs.h"

static int progress_calls;

static void count_progress(const struct hb_unpack_progress *p, void *arg)
{
	(void)p;
	(void)arg;
	progress_calls++;
}

static int print(json_t *answer)
{
	json_dumpf(answer, stdout, JSON_SORT_KEYS);
	putchar('\n');
	json_decref(answer);
	return fflush(stdout) == 0 ? 0 : 1;
}

static json_t *failure(const struct hb_error *err)
{
	return json_pack("{s:b, s:s, s:s}", "ok", 0, "code", err->code, "message", err->message);
}

static uint64_t limit(const json_t *limits, const char *name, uint64_t fallback)
{
	const json_t *n = json_object_get(limits, name);

	return json_is_integer(n) ? (uint64_t)json_integer_value(n) : fallback;
}

static void read_limits(const json_t *limits, struct hb_unpack_limits *out)
{
	const struct hb_unpack_limits *d = &hb_unpack_default_limits;

	out->total_bytes = limit(limits, "total_bytes", d->total_bytes);
	out->file_bytes = limit(limits, "file_bytes", d->file_bytes);
	out->entries = limit(limits, "entries", d->entries);
	out->path_bytes = (uint32_t)limit(limits, "path_bytes", d->path_bytes);
	out->header_bytes = (uint32_t)limit(limits, "header_bytes", d->header_bytes);
}

static void copy_text(const json_t *object, const char *name, char *out, size_t size)
{
	const char *text = json_string_value(json_object_get(object, name));

	snprintf(out, size, "%s", text == NULL ? "" : text);
}

/* The first child, from the kernel's own list; 0 when there is none. */
static int worker_pid(void)
{
	FILE *f = fopen("/proc/thread-self/children", "r");
	int pid = 0;

	if (f != NULL) {
		if (fscanf(f, "%d", &pid) != 1)
			pid = 0;
		fclose(f);
	}
	return pid;
}

static void wait_for_test(const json_t *plan)
{
	char line[16];

	if (!json_is_true(json_object_get(plan, "wait")))
		return;
	printf("ready %d\n", worker_pid());
	fflush(stdout);
	if (fgets(line, sizeof(line), stdin) == NULL)
		exit(3);
}

static int one_layer(struct hb_unpacker *u, const json_t *item, struct hb_error *err)
{
	struct hb_unpack_layer layer = {
		.size = (uint64_t)json_integer_value(json_object_get(item, "size"))};
	char path[4096];
	int rc;

	copy_text(item, "path", path, sizeof(path));
	copy_text(item, "digest", layer.digest, sizeof(layer.digest));
	copy_text(item, "diff_id", layer.diff_id, sizeof(layer.diff_id));
	copy_text(item, "media_type", layer.media_type, sizeof(layer.media_type));
	layer.blob_fd = open(path, O_RDONLY | O_CLOEXEC);
	if (layer.blob_fd < 0) {
		perror(path);
		exit(2);
	}
	rc = hb_unpack_layer(u, &layer, count_progress, NULL, err);
	hb_close(&layer.blob_fd);
	return rc;
}

static json_t *info_json(const struct hb_tree_info *info)
{
	return json_pack("{s:b, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "ok", 1, "tree_digest",
			 info->tree_digest, "files", (json_int_t)info->files, "directories",
			 (json_int_t)info->directories, "links", (json_int_t)info->links, "bytes",
			 (json_int_t)info->bytes, "setuid_stripped",
			 (json_int_t)info->setuid_stripped, "xattrs_dropped",
			 (json_int_t)info->xattrs_dropped, "devices_skipped",
			 (json_int_t)info->devices_skipped);
}

static json_t *run_plan(const json_t *plan, int staging)
{
	struct hb_unpack_limits limits;
	struct hb_tree_info info;
	struct hb_error err = {0};
	struct hb_unpacker *u = NULL;
	uid_t uid = (uid_t)json_integer_value(json_object_get(plan, "uid"));
	const json_t *item;
	json_t *answer;
	size_t i;
	int rc;

	read_limits(json_object_get(plan, "limits"), &limits);
	rc = hb_unpack_start(staging, uid, uid, &limits, false, &u, &err);
	json_array_foreach(json_object_get(plan, "layers"), i, item)
	{
		if (rc == 0) {
			wait_for_test(plan);
			rc = one_layer(u, item, &err);
		}
	}
	if (rc == 0)
		rc = hb_unpack_finish(u, &info, &err);
	answer = rc == 0 ? info_json(&info) : failure(&err);
	hb_unpack_free(u);
	return answer;
}

static int unpack(const char *file)
{
	json_error_t why;
	json_t *plan = json_load_file(file, 0, &why), *answer;
	struct rusage usage;
	int staging;

	if (plan == NULL) {
		fprintf(stderr, "%s: %s\n", file, why.text);
		return 2;
	}
	staging = open(json_string_value(json_object_get(plan, "staging")),
		       O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (staging < 0) {
		perror("staging");
		return 2;
	}
	answer = run_plan(plan, staging);
	getrusage(RUSAGE_CHILDREN, &usage);
	json_object_set_new(answer, "worker_max_rss_kib", json_integer(usage.ru_maxrss));
	json_object_set_new(answer, "progress_calls", json_integer(progress_calls));
	hb_close(&staging);
	json_decref(plan);
	return print(answer);
}

static int verify(const char *dir, const char *owner, const char *digest)
{
	struct hb_verify_result result;
	struct hb_error err = {0};
	int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0) {
		perror(dir);
		return 2;
	}
	if (hb_tree_verify(fd, digest, (uid_t)strtoul(owner, NULL, 10), NULL, NULL, &result, &err) <
	    0)
		return print(failure(&err));
	hb_close(&fd);
	return print(json_pack("{s:b, s:b, s:s, s:I, s:I, s:I, s:o}", "ok", 1, "same", result.ok,
			       "tree_digest", result.tree_digest, "files", (json_int_t)result.files,
			       "bytes", (json_int_t)result.bytes, "difference_count",
			       (json_int_t)result.difference_count, "differences",
			       result.differences));
}

int main(int argc, char **argv)
{
	if (argc == 3 && strcmp(argv[1], "unpack") == 0)
		return unpack(argv[2]);
	if ((argc == 4 || argc == 5) && strcmp(argv[1], "verify") == 0)
		return verify(argv[2], argv[3], argc == 5 ? argv[4] : "");
	fprintf(stderr, "usage: unpack_driver unpack PLAN | verify DIR OWNER [TREE_DIGEST]\n");
	return 64;
}
