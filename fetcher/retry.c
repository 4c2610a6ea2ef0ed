/*
 * The file maps host to UTC seconds: {"hosts":{"ghcr.io":1790000000}}. Times further away than the
 * ceiling (a clock that was set back, a file that was edited) are cut to it, so that the file can
 * never lock us out for good.
 */
#include "fetcher/retry.h"

#include <curl/curl.h>
#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "common/fs.h"
#include "common/ids.h"
#include "common/json.h"

#define RATELIMIT_LOCK "fetcher/ratelimit.lock"
#define RATELIMIT_MAX 65536

int
hb_retry_after(const char *value, int64_t now)
{
	int64_t seconds = 0;
	size_t digits;

	while (*value == ' ')
		value++;
	digits = strspn(value, "0123456789");
	if (digits && !value[digits]) {
		seconds = digits > 9 ? HB_RETRY_CEILING : strtoll(value, NULL, 10);
	} else if (value[0] >= 'A' && value[0] <= 'Z') {
		time_t at = curl_getdate(value, NULL);

		seconds = at == (time_t)-1 ? 0 : (int64_t)at - now;
	}
	if (seconds <= 0)
		return 0;
	return (int)(seconds > HB_RETRY_CEILING ? HB_RETRY_CEILING : seconds);
}

int
hb_backoff_ms(int n)
{
	int whole = n >= 6 ? 20000 : 500 << n;

	if (whole > 20000)
		whole = 20000;
	return whole / 2 + (int)randombytes_uniform((uint32_t)whole / 2 + 1);
}

static json_t *
load(int dirfd)
{
	struct hb_buf text = HB_BUF_INIT;
	json_t *doc = NULL, *hosts;

	if (hb_fs_read(dirfd, HB_RATELIMIT_PATH, RATELIMIT_MAX, &text, NULL) == 0 && text.len)
		doc = hb_json_parse(text.data, text.len, NULL);
	hosts = json_incref(json_object_get(doc, "hosts"));
	json_decref(doc);
	hb_buf_free(&text);
	if (json_is_object(hosts))
		return hosts;
	json_decref(hosts);
	return json_object();
}

static int64_t
in_force(const json_t *value, int64_t now)
{
	int64_t until = json_is_integer(value) ? json_integer_value(value) : 0;

	if (until <= now)
		return 0;
	return until > now + HB_RETRY_CEILING ? now + HB_RETRY_CEILING : until;
}

/* A copy of hosts without what is over, and with the new entry. */
static json_t *
merge(json_t *hosts, const char *host, int64_t until, int64_t now)
{
	json_t *next = json_object(), *value;
	const char *name;

	json_object_foreach (hosts, name, value)
		if (in_force(value, now))
			json_object_set_new(next, name, json_integer(in_force(value, now)));
	if (in_force(json_object_get(next, host), now) < until)
		json_object_set_new(next, host, json_integer(until));
	return next;
}

int
hb_ratelimit_set(int dirfd, const char *host, int64_t until, int64_t now, struct hb_error *err)
{
	json_t *hosts = NULL, *doc = NULL;
	char *text = NULL;
	int lock, rc = -1;

	lock = hb_fs_open_beneath(dirfd, RATELIMIT_LOCK, O_RDWR | O_CREAT | O_CLOEXEC, 0600, err);
	if (lock < 0)
		return -1;
	while (flock(lock, LOCK_EX) && errno == EINTR)
		;
	hosts = load(dirfd);
	doc = json_pack("{s:o}", "hosts", merge(hosts, host, until, now));
	text = json_dumps(doc, JSON_COMPACT | JSON_SORT_KEYS);
	if (!text) {
		hb_fail(err, "no_memory", "out of memory");
		goto out;
	}
	rc = hb_fs_write_atomic(dirfd, HB_RATELIMIT_PATH, text, strlen(text), 0600, (uid_t)-1,
				(gid_t)-1, err);
out:
	free(text);
	json_decref(doc);
	json_decref(hosts);
	hb_close(&lock);
	return rc;
}

int64_t
hb_ratelimit_until(int dirfd, const char *host, int64_t now)
{
	json_t *hosts = load(dirfd);
	int64_t until = in_force(json_object_get(hosts, host), now);

	json_decref(hosts);
	return until;
}

json_t *
hb_ratelimit_list(int dirfd, int64_t now)
{
	json_t *hosts = load(dirfd), *list = json_array(), *value;
	const char *name;
	char when[21];

	json_object_foreach (hosts, name, value) {
		int64_t until = in_force(value, now);
		char *text;

		if (!until)
			continue;
		hb_time_rfc3339(until, when);
		text = hb_asprintf("rate limited, next try at %s", when);
		json_array_append_new(list, json_pack("{s:s, s:I, s:s}", "host", name, "next_try",
						      (json_int_t)until, "text", text));
		free(text);
	}
	json_decref(hosts);
	return list;
}
