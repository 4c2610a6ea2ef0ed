/*
 * The child. Everything it has is the configuration in memory, the store's directory, the pipe and
 * standard error: the parent's sockets and logs are closed before anything else happens. When the
 * pipe breaks, the parent is gone and the child ends.
 */
#include <curl/curl.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/log.h"
#include "fetcher/job.h"

#define PIPE_FD 3
#define STORE_FD 4

static pthread_mutex_t write_lock = PTHREAD_MUTEX_INITIALIZER; /* notes come from any thread */

static void
emit(json_t *event, void *arg)
{
	char *text = json_dumps(event, JSON_COMPACT | JSON_ENSURE_ASCII);
	size_t len = text ? strlen(text) : 0, at = 0;

	json_decref(event);
	if (!text)
		_exit(1);
	text[len++] = '\n'; /* in the place of the NUL */
	pthread_mutex_lock(&write_lock);
	while (at < len) {
		ssize_t n = write(PIPE_FD, text + at, len - at);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			_exit(1);
		at += (size_t)n;
	}
	pthread_mutex_unlock(&write_lock);
	free(text);
}

static void
note(const char *text, void *arg)
{
	emit(json_pack("{s:s, s:s}", "event", "note", "text", text), NULL);
}

static void
keep_only(int fd, const struct hb_store *store)
{
	int spare = dup(store->dirfd),
	    pipe_copy = dup(fd); /* out of the way of the numbers below */

	if (spare < 0 || pipe_copy < 0 || dup2(pipe_copy, PIPE_FD) < 0)
		_exit(1);
	/* dup2 may just have closed what `spare` names: it can't be 3, since 3 was open or is now
	 * the pipe */
	if (spare != PIPE_FD && dup2(spare, STORE_FD) < 0)
		_exit(1);
	close_range(STORE_FD + 1, ~0U, 0);
}

_Noreturn void
hb_worker_run(const struct hb_config *config, const struct hb_store *store, int fd,
	      const struct hb_resolve_request *resolve, const struct hb_fetch_request *fetch)
{
	static const int numbers[] = {SIGTERM, SIGINT, SIGCHLD, SIGHUP};
	struct hb_store own = {STORE_FD};
	struct hb_pull_env env = {.config = config, .store = &own, .uid = geteuid(), .note = note};
	struct hb_error err = {0};
	json_t *result = NULL;
	int rc;

	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
		signal(numbers[i], SIG_DFL); /* the parent's handlers belong to its event loop */
	keep_only(fd, store);
	if (sodium_init() < 0 || curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
		_exit(1);
	if (resolve) {
		result = hb_resolve(&env, resolve, &err);
		rc = result ? 0 : -1;
	} else {
		rc = hb_fetch(&env, fetch, emit, NULL, &err);
	}
	if (rc)
		emit(json_pack("{s:s, s:s, s:s}", "event", "error", "error", err.message, "code",
			       err.code),
		     NULL);
	else if (result)
		emit(json_pack("{s:s, s:o}", "event", "result", "reply", result), NULL);
	else
		emit(json_pack("{s:s}", "event", "done"), NULL);
	_exit(0);
}
