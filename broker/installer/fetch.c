/*
 * The fetcher's client, as the job worker uses it. Layers are unpacked in order while later ones
 * download: the loop of this connection runs until the next layer is there, and is polled from the
 * unpacking in between.
 */
#include <event2/event.h>
#include <stdlib.h>
#include <string.h>

#include "broker/installer/install.h"
#include "common/client.h"
#include "common/json.h"

/* The fetcher repeats its progress line while it waits for a registry; this long a silence means
 * it's gone. */
#define SILENCE_MS 120000

struct hb_fetch {
	struct hb_work *w;
	const struct hb_chain *chain;
	struct event_base *base;
	struct hb_client *client;
	bool *have; /* by layer */
	bool ended, failed, quiet;
	struct hb_error err;
};

static void on_line(json_t *line, void *arg)
{
	struct hb_fetch *f = arg;
	const char *event = hb_json_text(line, "event", ""),
		   *digest = hb_json_text(line, "digest", "");

	if (strcmp(event, "blob") == 0) {
		for (size_t i = 0; i < f->chain->layer_count; i++)
			if (strcmp(f->chain->layers[i].digest, digest) == 0)
				f->have[i] = true;
	} else if (strcmp(event, "progress") == 0 && !f->quiet) {
		struct hb_progress p = {.phase = "fetch",
					.unit = "bytes",
					.done = (uint64_t)hb_json_int(line, "all_done", 0),
					.total = (uint64_t)hb_json_int(line, "all_total", 0),
					.files_total = f->chain->layer_count};

		for (size_t i = 0; i < f->chain->layer_count; i++)
			p.files_done += f->have[i];
		hb_work_progress(f->w, &p);
	} else if (strcmp(event, "error") == 0) {
		f->failed = true;
		hb_fail(&f->err, hb_json_text(line, "code", "fetch_failed"), "%.400s",
			hb_json_text(line, "error", "the fetcher failed"));
	} else if (strcmp(event, "done") == 0) {
		memset(f->have, 1, f->chain->layer_count * sizeof *f->have);
	}
}

static void on_done(int status, const json_t *body, const struct hb_error *err, void *arg)
{
	struct hb_fetch *f = arg;
	struct hb_error reply;

	f->ended = true;
	if (f->failed)
		return;
	if (status == 0 || hb_reply_failed(status, body, &reply) < 0) {
		f->failed = true;
		f->err = status == 0 ? *err : reply;
		hb_fail_prefix(&f->err, "fetcher");
	}
}

void hb_fetch_poll(struct hb_fetch *f)
{
	/* Unpacking tells its own progress meanwhile. */
	f->quiet = true;
	if (!f->ended)
		event_base_loop(f->base, EVLOOP_NONBLOCK);
	f->quiet = false;
}

static json_t *body_of(const struct hb_work *w, const struct hb_chain *c)
{
	json_t *blobs = json_array();

	for (size_t i = 0; i < c->layer_count; i++)
		json_array_append_new(blobs, json_pack("{s:s, s:I}", "digest", c->layers[i].digest,
						       "size", (json_int_t)c->layers[i].size));
	return json_pack("{s:O, s:o}", "image", json_object_get(w->request, "image"), "blobs",
			 blobs);
}

int hb_fetch_layers(struct hb_work *w, const struct hb_chain *c,
		    int (*ready)(struct hb_fetch *, size_t, void *, struct hb_error *), void *arg,
		    struct hb_error *err)
{
	struct hb_fetch f = {.w = w, .chain = c};
	json_t *body = body_of(w, c);
	struct hb_call call = {.server = HB_PEER_FETCHER,
			       .method = "POST",
			       .path = "/fetch",
			       .body = body,
			       .timeout_ms = SILENCE_MS,
			       .on_line = on_line,
			       .on_done = on_done,
			       .arg = &f};
	struct hb_client_call *under_way = NULL;
	int rc = -1;

	f.have = hb_calloc(c->layer_count + 1, sizeof *f.have);
	f.base = event_base_new();
	f.client = f.base ? hb_client_new(f.base) : NULL;
	if (!f.client) {
		hb_fail(err, "no_events", "the job worker can't make an event loop");
		goto out;
	}
	under_way = hb_client_start(f.client, &call);
	for (size_t i = 0; i < c->layer_count; i++) {
		while (!f.have[i] && !f.failed && !f.ended)
			if (event_base_loop(f.base, EVLOOP_ONCE) != 0)
				break;
		if (f.failed) {
			*err = f.err;
			goto out;
		}
		if (!f.have[i]) {
			hb_fail(err, "fetch_failed",
				"the fetcher ended without delivering sha256:%s",
				c->layers[i].digest);
			goto out;
		}
		if (ready(&f, i, arg, err) < 0)
			goto out;
	}
	rc = 0;
out:
	if (under_way && !f.ended)
		hb_client_cancel(under_way);
	if (f.client)
		hb_client_free(f.client);
	if (f.base)
		event_base_free(f.base);
	free(f.have);
	json_decref(body);
	return rc;
}

int hb_fetch_resolve(const json_t *request, struct hb_error *err)
{
	json_t *body = json_pack("{s:O, s:O}", "image", json_object_get(request, "image"),
				 "platform", json_object_get(request, "platform"));
	struct hb_call call = {.server = HB_PEER_FETCHER,
			       .method = "POST",
			       .path = "/resolve",
			       .body = body,
			       .timeout_ms = SILENCE_MS};
	int status, rc = -1;
	json_t *reply = hb_client_call_sync(&call, &status, err);

	if (reply)
		rc = hb_reply_failed(status, reply, err);
	json_decref(reply);
	json_decref(body);
	return rc;
}
