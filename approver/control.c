/*
 * Pause, resume and revoke, whoever of the approvers says so and by whatever channel.
 *
 * The database first (with the Telegram update it came from), then the signed record that every
 * executor reads. What stops things is never held up: a pause counts here even when it can't be
 * recorded in the audit chain or published, and publishing is tried again every second. What lets
 * things go on needs its audit record first.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "approver/approver.h"
#include "approver/telegram.h"
#include "common/fs.h"
#include "common/grant.h"
#include "common/ids.h"
#include "common/json.h"
#include "common/log.h"
#include "common/paths.h"

static int
publish(struct hb_approver *a, struct hb_error *err)
{
	json_t *envelope;
	int rc;

	if (a->control.sequence == 0)
		return 0;
	envelope = hb_control_seal(&a->control, a->process->host_id, a->key, err);
	rc = envelope ? hb_control_write(envelope, err) : -1;
	json_decref(envelope);
	a->control_due = rc < 0;
	return rc;
}

int
hb_control_start(struct hb_approver *a, struct hb_error *err)
{
	struct hb_error why;

	if (hb_control_get(a->decisions, &a->control, err) < 0)
		return -1;
	/* It may have been lost, or be signed by a key before. */
	if (publish(a, &why) < 0)
		hb_log(HB_LOG_ERROR, "control_not_published", "code", why.code, "error",
		       why.message, NULL);
	return 0;
}

void
hb_control_tick(struct hb_approver *a)
{
	struct stat st;
	struct hb_error err;

	if (a->control.sequence > 0 &&
	    fstatat(AT_FDCWD, HB_PATH_CONTROL, &st, AT_SYMLINK_NOFOLLOW) < 0)
		a->control_due = true;
	if (a->control_due && publish(a, &err) < 0)
		hb_log(HB_LOG_ERROR, "control_not_published", "code", err.code, "error",
		       err.message, NULL);
}

static int
record(struct hb_approver *a, const char *action, const char *user, const char *channel,
       const char *id, struct hb_error *err)
{
	json_t *detail = json_pack("{s:s, s:s, s:s, s:I}", "user_id", user, "channel", channel,
				   "operation_id", id, "sequence", (json_int_t)a->control.sequence);
	int rc = hb_audit_append(a->process->audit, action, "ok", detail, err);

	json_decref(detail);
	return rc;
}

/* Revocations that can't matter any more make room: their grants have expired. */
static void
forget_old(struct hb_approver *a, struct hb_control *c)
{
	size_t kept = 0;
	struct hb_ask ask;

	for (size_t i = 0; i < c->revoked_count; i++) {
		if (hb_ask_find(a->decisions, c->revoked[i], &ask, NULL) < 0 ||
		    ask.decided_at + a->grant_life + HB_REVOKED_KEEP < hb_now())
			continue;
		memmove(c->revoked[kept++], c->revoked[i], sizeof(c->revoked[0]));
	}
	c->revoked_count = kept;
}

static int
change(struct hb_approver *a, struct hb_control *next, const char *user, const char *channel,
       const struct hb_update_mark *mark, struct hb_error *err)
{
	forget_old(a, next);
	next->sequence = a->control.sequence + 1;
	next->at = hb_now();
	memset(next->by, 0, sizeof(next->by));
	memset(next->channel, 0, sizeof(next->channel));
	memccpy(next->by, user, 0, sizeof(next->by) - 1);
	memccpy(next->channel, channel, 0, sizeof(next->channel) - 1);
	if (hb_control_put(a->decisions, next, hb_now(), mark, err) < 0)
		return -1;
	a->control = *next;
	if (publish(a, err) < 0)
		return hb_fail_prefix(
			err, "it counts here, but could not be published yet and is tried again");
	return 0;
}

static void
recorded(struct hb_approver *a, const char *action, const char *user, const char *channel,
	 const char *id)
{
	struct hb_error err;

	hb_log(HB_LOG_WARN, action, "user", user, "channel", channel, "operation", id, NULL);
	if (record(a, action, user, channel, id, &err) < 0)
		hb_log(HB_LOG_ERROR, "audit_failed", "error", err.message, NULL);
}

int
hb_control_pause(struct hb_approver *a, const char *user, const char *channel,
		 const struct hb_update_mark *mark, struct hb_error *err)
{
	struct hb_control next = a->control;
	int rc;

	next.paused = true;
	rc = change(a, &next, user, channel, mark, err);
	recorded(a, "pause", user, channel, "");
	return rc;
}

int
hb_control_resume(struct hb_approver *a, const char *user, const char *channel,
		  const struct hb_update_mark *mark, struct hb_error *err)
{
	struct hb_control next = a->control;

	if (!a->control.paused)
		return hb_fail(err, "not_paused", "nothing is paused by the approver");
	if (record(a, "resume", user, channel, "", err) < 0)
		return -1;
	next.paused = false;
	return change(a, &next, user, channel, mark, err);
}

int
hb_control_revoke(struct hb_approver *a, const char *id, const char *user, const char *channel,
		  const struct hb_update_mark *mark, struct hb_error *err)
{
	struct hb_control next = a->control;
	struct hb_ask_record r;
	struct hb_ask ask;
	int rc;

	if (hb_ask_find(a->decisions, id, &ask, err) < 0 ||
	    hb_record_get(a->decisions, id, &r, err) < 0)
		return -1;
	if (ask.state == HB_ASK_PENDING)
		return hb_decide(a->decisions, id, user, false, channel, hb_now(), mark, &ask, err);
	if (ask.state != HB_ASK_APPROVED || *r.outcome)
		return hb_fail(err, "request_closed", "operation %s is %s already", id,
			       *r.outcome ? r.outcome : hb_ask_state_name(ask.state));
	forget_old(a, &next);
	if (hb_control_revokes(&next, id, ask.decided_at))
		return hb_fail(err, "request_closed", "operation %s was revoked already", id);
	if (next.revoked_count < HB_REVOKED_MAX)
		memcpy(next.revoked[next.revoked_count++], id, 33);
	else
		next.revoked_before = hb_now(); /* no room for one: all, which is the safe side */
	rc = change(a, &next, user, channel, mark, err);
	recorded(a, "revoke", user, channel, id);
	return rc;
}

int
hb_control_revoke_all(struct hb_approver *a, const char *user, const char *channel,
		      const struct hb_update_mark *mark, size_t *denied, struct hb_error *err)
{
	struct hb_control next = a->control;
	char(*ids)[HB_OP_ID];
	struct hb_ask ask;
	size_t count;
	int rc;

	/* What can be used already goes first. */
	next.revoked_before = hb_now();
	next.revoked_count = 0;
	rc = change(a, &next, user, channel, mark, err);
	recorded(a, "revoke", user, channel, "all");
	*denied = 0;
	if (hb_ask_ids(a->decisions, HB_A_PENDING, hb_now(), HB_PENDING_MAX, &ids, &count, NULL) <
	    0)
		return rc;
	for (size_t i = 0; i < count; i++)
		*denied += hb_decide(a->decisions, ids[i], user, false, channel, hb_now(), NULL,
				     &ask, NULL) == 0;
	free(ids);
	return rc;
}

/* ---- the signing key ---- */

static bool
key_changed(struct hb_approver *a)
{
	struct stat st;

	if (fstatat(AT_FDCWD, HB_PATH_SIGNING_KEY, &st, AT_SYMLINK_NOFOLLOW) < 0)
		memset(&st, 0, sizeof(st));
	if (st.st_ino == a->key_seen.st_ino && st.st_ctim.tv_sec == a->key_seen.st_ctim.tv_sec &&
	    st.st_ctim.tv_nsec == a->key_seen.st_ctim.tv_nsec)
		return false;
	a->key_seen = st;
	return true;
}

int
hb_approver_key(struct hb_approver *a, struct hb_error *err)
{
	struct hb_signing_key *fresh;
	json_t *detail;

	if (!key_changed(a) && a->key)
		return 0;
	memset(&a->key_error, 0, sizeof(a->key_error));
	if (hb_signing_key_load(AT_FDCWD, HB_PATH_SIGNING_KEY, geteuid(), &fresh, err) < 0) {
		/* The one in memory goes on; health says what is wrong with the file. */
		a->key_error = *err;
		hb_log(HB_LOG_ERROR, "signing_key_unusable", "code", err->code, "error",
		       err->message, NULL);
		return -1;
	}
	if (a->key &&
	    strcmp(hb_signing_key_public(a->key)->id, hb_signing_key_public(fresh)->id) != 0) {
		detail = json_pack("{s:s, s:s}", "from", hb_signing_key_public(a->key)->id, "to",
				   hb_signing_key_public(fresh)->id);
		hb_audit_append(a->process->audit, "key", "ok", detail, NULL);
		json_decref(detail);
		hb_log(HB_LOG_WARN, "key_rotated", "key", hb_signing_key_public(fresh)->id, NULL);
		/* What stands signed by the one before is signed anew. */
		a->control_due = a->control.sequence > 0;
		a->checkpoint_due = true;
	}
	hb_signing_key_free(a->key);
	a->key = fresh;
	return 0;
}

const char *
hb_approver_key_trouble(struct hb_approver *a)
{
	struct hb_public_key published;
	struct hb_error err;

	if (*a->key_error.code)
		return a->key_error.message;
	if (hb_public_key_load(AT_FDCWD, HB_PATH_PUBLIC_KEY, &published, &err) < 0)
		return "public/approver.pub can't be read, so nobody can check what is signed here";
	if (strcmp(published.id, hb_signing_key_public(a->key)->id) != 0)
		return "public/approver.pub is not the key that is signed with here: rotate again "
		       "with hermesctl keys rotate";
	return NULL;
}
