/*
 * Signs a grant as the approver would, for tests of executors without an approver.
 *
 *   sign_grant KEY < {"operation_id", "audience", "generation", "feature", "request", "set":
 * {field: value, ...}}
 *
 * Digest, summary digest, action and target are computed from the request with the same library the
 * executors use; members of "set" then replace fields of the grant before it is signed, so that a
 * test can sign a wrong one. Prints the envelope.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/buf.h"
#include "common/grant.h"
#include "common/ids.h"
#include "common/json.h"
#include "policy/live.h"
#include "policy/operation.h"
#include "policy/summary.h"

static void fill(struct hb_grant *g, const json_t *in)
{
	const char *feature = hb_json_text(in, "feature", "");
	const json_t *request = json_object_get(in, "request");
	struct hb_buf summary = HB_BUF_INIT;
	struct hb_error err = {"", ""};

	hb_random_hex(32, g->grant_id);
	hb_random_hex(32, g->capability);
	snprintf(g->operation_id, sizeof g->operation_id, "%s",
		 hb_json_text(in, "operation_id", ""));
	snprintf(g->audience, sizeof g->audience, "%s", hb_json_text(in, "audience", ""));
	snprintf(g->target, sizeof g->target, "%s", hb_feature_target(feature));
	snprintf(g->feature, sizeof g->feature, "%s", feature);
	snprintf(g->action, sizeof g->action, "%s", hb_operation_action(feature, request));
	snprintf(g->session, sizeof g->session, "test");
	snprintf(g->user_ids[0], sizeof g->user_ids[0], "0");
	g->user_count = 1;
	g->generation = hb_json_int(in, "generation", 1);
	g->approved = true;
	g->issued_at = g->not_before = hb_now();
	g->expires_at = g->issued_at + 120;
	if (hb_operation_digest(feature, request, g->digest, &err) < 0 ||
	    hb_summary(feature, request, &summary, NULL, &err) < 0) {
		fprintf(stderr, "sign_grant: %s: %s\n", err.code, err.message);
		exit(1);
	}
	hb_summary_digest(&summary, g->summary_digest);
	hb_buf_free(&summary);
}

int main(int argc, char **argv)
{
	struct hb_buf text = HB_BUF_INIT, out = HB_BUF_INIT;
	struct hb_signing_key *key = NULL;
	struct hb_grant grant = {0};
	struct hb_error err = {"", ""};
	json_t *in, *fields, *envelope;
	char chunk[4096];
	struct stat st;
	size_t n;

	while ((n = fread(chunk, 1, sizeof chunk, stdin)) > 0)
		hb_buf_add(&text, chunk, n);
	in = hb_json_parse(text.data ? text.data : "", text.len, &err);
	if (argc != 2 || !in || stat(argv[1], &st) < 0 ||
	    hb_signing_key_load(AT_FDCWD, argv[1], st.st_uid, &key, &err) < 0)
		goto fail;
	fill(&grant, in);
	fields = hb_grant_to_json(&grant);
	json_object_update(fields, json_object_get(in, "set"));
	json_object_del(fields, "key_id");
	json_object_set_new(fields, "key_id", json_string(hb_signing_key_public(key)->id));
	if (hb_grant_from_json(fields, &grant, &err) < 0)
		goto fail;
	envelope = hb_grant_seal(&grant, key, &err);
	if (!envelope || hb_json_canonical(envelope, &out, &err) < 0)
		goto fail;
	printf("%s\n", out.data);
	return 0;
fail:
	fprintf(stderr, "sign_grant: %s: %s\n", err.code, err.message);
	return 1;
}
