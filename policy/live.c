/*
 * Live policy: which features are on, who may approve, how many must. Loading is strict and closed:
 * a file that is missing, loose, malformed or wider than the bounds enables nothing. Writing is
 * durable before it is believed, and every change raises the generation, which ends all earlier
 * consent.
 */
#include "policy/live.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/fields.h"
#include "common/fs.h"
#include "common/grant.h"
#include "common/json.h"
#include "common/paths.h"
#include "policy/text.h"
#include "policy/trusted.h"

#define POLICY_SIZE_MAX 16384 /* 64 users and four features need under 2 KiB */

static const struct {
	const char *name, *target;
} features[] = {
	/* by bit number; local commands run in containers, so the docker executor does them */
	{"runtime", "installer"},
	{"local", "docker"},
	{"docker", "docker"},
	{"ssh", "ssh"},
};
#define FEATURES (sizeof(features) / sizeof(features[0]))

static int feature_index(const char *name)
{
	if (strcmp(name, "sandbox") == 0)
		name = "local";
	for (size_t i = 0; i < FEATURES; i++) {
		if (strcmp(features[i].name, name) == 0)
			return (int)i;
	}
	return -1;
}

unsigned hb_feature_bit(const char *name)
{
	int i = feature_index(name);

	if (strcmp(name, "policy") == 0)
		return HB_FEATURE_POLICY;
	return i < 0 ? 0 : 1u << i;
}

const char *hb_feature_name(unsigned bit)
{
	for (size_t i = 0; i < FEATURES; i++) {
		if (bit == 1u << i)
			return features[i].name;
	}
	return bit == HB_FEATURE_POLICY ? "policy" : NULL;
}

const char *hb_feature_target(const char *feature)
{
	int i = feature_index(feature);

	if (strcmp(feature, "policy") == 0)
		return "admin";
	return i < 0 ? NULL : features[i].target;
}

static int malformed(struct hb_error *err, const char *why)
{
	return hb_fail(err, "policy_malformed", "%s: %s; nothing is enabled until it is mended",
		       HB_PATH_POLICY, why);
}

static int take_features(const json_t *array, const char *what, unsigned *out, struct hb_error *err)
{
	char why[64];
	size_t i;
	json_t *item;

	json_array_foreach(array, i, item)
	{
		const char *name = json_string_value(item);
		/* Only canonical names in the file: one spelling. */
		unsigned bit = name && strcmp(name, "sandbox") != 0 ? hb_feature_bit(name) : 0;

		if (bit == HB_FEATURE_POLICY)
			bit = 0;
		if (bit == 0 || (*out & bit)) {
			snprintf(why, sizeof(why),
				 bit == 0 ? "%s holds an unknown name" : "%s names one twice",
				 what);
			return malformed(err, why);
		}
		*out |= bit;
	}
	return 0;
}

static int take_users(const json_t *array, struct hb_policy *p, struct hb_error *err)
{
	size_t i;
	json_t *item;

	if (json_array_size(array) > HB_POLICY_USERS_MAX)
		return malformed(err, "more than 64 users");
	json_array_foreach(array, i, item)
	{
		const char *id = json_string_value(item);

		if (!id || !hb_is_user_id(id) || strlen(id) != json_string_length(item))
			return malformed(err, "users must be strings of decimal digits");
		if (hb_policy_user(p, id))
			return malformed(err, "users names one twice");
		memcpy(p->users[p->user_count++], id, strlen(id) + 1);
	}
	return 0;
}

static int take_quorum(const json_t *object, struct hb_policy *p, struct hb_error *err)
{
	if (json_object_size(object) != FEATURES)
		return malformed(err, "quorum must name runtime, local, docker and ssh");
	for (size_t i = 0; i < FEATURES; i++) {
		const json_t *n = json_object_get(object, features[i].name);

		if (!json_is_integer(n) || json_integer_value(n) < 1 ||
		    json_integer_value(n) > HB_GRANT_USERS_MAX)
			return malformed(err, "each quorum must be a number from 1 to 16");
		p->quorum[i] = (int)json_integer_value(n);
	}
	return 0;
}

static int policy_from_json(const json_t *object, struct hb_policy *out, struct hb_error *err)
{
	struct {
		long long version, generation;
		json_t *features, *users, *quorum, *no_self;
		bool paused;
	} f = {0};
	static const struct hb_field fields[] = {
		{"version", HB_FIELD_INT, HB_FIELD_REQUIRED, offsetof(__typeof__(f), version), 1,
		 1},
		{"generation", HB_FIELD_INT, HB_FIELD_REQUIRED, offsetof(__typeof__(f), generation),
		 1, HB_JSON_INT_MAX},
		{"features", HB_FIELD_ARRAY, HB_FIELD_REQUIRED, offsetof(__typeof__(f), features),
		 0, FEATURES},
		{"users", HB_FIELD_ARRAY, HB_FIELD_REQUIRED, offsetof(__typeof__(f), users), 0,
		 HB_POLICY_USERS_MAX},
		{"quorum", HB_FIELD_OBJECT, HB_FIELD_REQUIRED, offsetof(__typeof__(f), quorum), 0,
		 0},
		{"paused", HB_FIELD_BOOL, HB_FIELD_REQUIRED, offsetof(__typeof__(f), paused), 0, 0},
		{"no_self_approval", HB_FIELD_ARRAY, 0, offsetof(__typeof__(f), no_self), 0,
		 FEATURES},
	};
	struct hb_policy p = {0};
	struct hb_error why = {0};

	if (hb_fields_decode(object, fields, sizeof(fields) / sizeof(fields[0]), &f, &why) < 0)
		return malformed(err, why.message);
	p.generation = f.generation;
	p.paused = f.paused;
	if (take_features(f.features, "features", &p.features, err) < 0 ||
	    take_features(f.no_self, "no_self_approval", &p.no_self, err) < 0 ||
	    take_users(f.users, &p, err) < 0 || take_quorum(f.quorum, &p, err) < 0)
		return -1;
	*out = p;
	return 0;
}

/* The live policy may only narrow. */
static int check_within(const struct hb_policy *p, const struct hb_bounds *bounds,
			struct hb_error *err)
{
	for (size_t i = 0; i < p->user_count; i++) {
		if (!hb_bounds_user(bounds, p->users[i]))
			return hb_fail(err, "policy_out_of_bounds",
				       "user %s is not in [users] allowed of %s; remove the user "
				       "from the policy, or "
				       "have root add it there",
				       p->users[i], HB_PATH_BOUNDS);
	}
	for (size_t i = 0; i < FEATURES; i++) {
		int least = hb_bounds_quorum(bounds, features[i].name);

		if (p->quorum[i] < least)
			return hb_fail(err, "policy_out_of_bounds",
				       "quorum of %s is %d, but %s asks for at least %d",
				       features[i].name, p->quorum[i], HB_PATH_BOUNDS, least);
	}
	return 0;
}

static int read_policy(uid_t owner, struct hb_policy *out, struct hb_error *err)
{
	struct hb_buf text = HB_BUF_INIT;
	struct hb_error why = {0};
	json_t *object = NULL;
	int rc = -1;

	if (hb_trusted_read(AT_FDCWD, HB_PATH_POLICY, owner, POLICY_SIZE_MAX, "policy_missing",
			    &text, err) < 0)
		goto out;
	object = hb_json_parse(text.data, text.len, &why);
	if (!object) {
		malformed(err, why.message);
		goto out;
	}
	rc = policy_from_json(object, out, err);
out:
	json_decref(object);
	hb_buf_free(&text);
	return rc;
}

int hb_policy_load(uid_t admin_uid, const struct hb_bounds *bounds, struct hb_policy *out,
		   struct hb_error *err)
{
	struct hb_policy p;

	if (read_policy(admin_uid, &p, err) < 0 || check_within(&p, bounds, err) < 0)
		return -1;
	*out = p;
	return 0;
}

int hb_policy_view_load(uid_t admin_uid, struct hb_policy_view *out, struct hb_error *err)
{
	struct hb_policy_view v = {0};

	if (hb_bounds_load(AT_FDCWD, HB_PATH_BOUNDS, &v.bounds, err) < 0)
		return -1;
	if (hb_policy_load(admin_uid, v.bounds, &v.live, err) < 0) {
		hb_bounds_free(v.bounds);
		return -1;
	}
	*out = v;
	return 0;
}

void hb_policy_view_free(struct hb_policy_view *v)
{
	hb_bounds_free(v->bounds);
	memset(v, 0, sizeof(*v));
}

bool hb_policy_user(const struct hb_policy *p, const char *user_id)
{
	for (size_t i = 0; i < p->user_count; i++) {
		if (strcmp(p->users[i], user_id) == 0)
			return true;
	}
	return false;
}

int hb_policy_quorum(const struct hb_policy *p, const struct hb_bounds *b, const char *feature)
{
	unsigned bit = hb_feature_bit(feature);
	int most = hb_bounds_quorum(b, feature);

	for (size_t i = 0; i < FEATURES; i++)
		if ((bit == 1u << i || bit == HB_FEATURE_POLICY) && p->quorum[i] > most)
			most = p->quorum[i];
	return most < 1 ? 1 : most;
}

bool hb_policy_no_self(const struct hb_policy_view *v, const char *feature)
{
	return (v->live.no_self & hb_feature_bit(feature)) != 0 ||
	       hb_bounds_no_self(v->bounds, feature);
}

int hb_policy_permits(const struct hb_policy *p, const char *feature, const char *user_id,
		      struct hb_error *err)
{
	if (p->paused)
		return hb_fail(
			err, "paused",
			"all operations are paused; resume with: hermesctl policy set --resume");
	unsigned bit = hb_feature_bit(feature);
	if (bit == 0 || (bit != HB_FEATURE_POLICY && !(p->features & bit))) {
		char shown[33];

		hb_show(feature, shown, sizeof(shown));
		return hb_fail(err, "feature_disabled",
			       "feature '%s' is not enabled in the live policy", shown);
	}
	if (user_id && !hb_policy_user(p, user_id)) {
		char shown[33];

		hb_show(user_id, shown, sizeof(shown));
		return hb_fail(err, "user_not_allowed",
			       "user '%s' is not one of the execution approvers", shown);
	}
	return 0;
}

json_t *hb_policy_to_json(const struct hb_policy *p)
{
	json_t *names = json_array(), *users = json_array(), *quorum = json_object(),
	       *no_self = json_array();
	json_t *o;

	for (size_t i = 0; i < FEATURES; i++) {
		if (p->features & (1u << i))
			json_array_append_new(names, json_string(features[i].name));
		if (p->no_self & (1u << i))
			json_array_append_new(no_self, json_string(features[i].name));
		json_object_set_new(quorum, features[i].name, json_integer(p->quorum[i]));
	}
	for (size_t i = 0; i < p->user_count; i++)
		json_array_append_new(users, json_string(p->users[i]));
	o = json_pack("{s:i, s:I, s:o, s:o, s:o, s:b}", "version", 1, "generation",
			 (json_int_t)p->generation, "features", names, "users", users, "quorum",
			 quorum, "paused", (int)p->paused);
	/* Absent when empty: a policy that doesn't use it stays readable to a release without it.
	 */
	if (json_array_size(no_self) > 0)
		json_object_set_new(o, "no_self_approval", no_self);
	else
		json_decref(no_self);
	return o;
}

static bool stat_stamp(const char *path, unsigned long long *ino, long long *ns, long long *size)
{
	struct stat st;
	unsigned long long new_ino = 0;
	long long new_ns = 0, new_size = 0;

	if (stat(path, &st) == 0) {
		new_ino = st.st_ino;
		/* ctime: a change of owner or mode matters as much as one of content */
		new_ns = st.st_ctim.tv_sec * 1000000000LL + st.st_ctim.tv_nsec;
		new_size = st.st_size;
	}
	bool same = *ino == new_ino && *ns == new_ns && *size == new_size;
	*ino = new_ino;
	*ns = new_ns;
	*size = new_size;
	return !same;
}

bool hb_policy_changed(struct hb_policy_stamp *s)
{
	bool policy = stat_stamp(HB_PATH_POLICY, &s->policy_ino, &s->policy_ns, &s->policy_size);
	bool bounds = stat_stamp(HB_PATH_BOUNDS, &s->bounds_ino, &s->bounds_ns, &s->bounds_size);

	return policy || bounds;
}

/* --- writing --- */

/* Readers that are not ours (agent plugins, scripts) take these lines instead of parsing the
 * policy. */
static int write_projections(const struct hb_policy *p, uid_t owner, struct hb_error *err)
{
	struct hb_buf names = HB_BUF_INIT, users = HB_BUF_INIT, generation = HB_BUF_INIT;
	const struct {
		const char *path;
		const struct hb_buf *text;
	} files[] = {{HB_PATH_POLICY_FEATURES, &names},
		     {HB_PATH_POLICY_USERS, &users},
		     {HB_PATH_POLICY_GENERATION, &generation}};
	int rc = 0;

	for (size_t i = 0; i < FEATURES; i++) {
		if (p->features & (1u << i))
			hb_buf_printf(&names, "%s%s", names.len > 0 ? "," : "", features[i].name);
	}
	for (size_t i = 0; i < p->user_count; i++)
		hb_buf_printf(&users, "%s%s", i > 0 ? "," : "", p->users[i]);
	hb_buf_addc(&names, '\n');
	hb_buf_addc(&users, '\n');
	hb_buf_printf(&generation, "%lld\n", (long long)p->generation);

	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		struct hb_buf now = HB_BUF_INIT;
		bool same = hb_fs_read(AT_FDCWD, files[i].path, POLICY_SIZE_MAX, &now, NULL) == 0 &&
			    now.len == files[i].text->len &&
			    memcmp(now.data, files[i].text->data, now.len) == 0;

		hb_buf_free(&now);
		if (!same &&
		    hb_fs_write_atomic(AT_FDCWD, files[i].path, files[i].text->data,
				       files[i].text->len, 0644, owner, (gid_t)-1, err) < 0) {
			rc = hb_fail_prefix(
				err,
				"policy generation %lld is in force, but a file for other readers "
				"is not up to date",
				(long long)p->generation);
			break;
		}
	}
	hb_buf_free(&names);
	hb_buf_free(&users);
	hb_buf_free(&generation);
	return rc;
}

static int write_policy(const struct hb_policy *p, uid_t owner, struct hb_error *err)
{
	struct hb_buf text = HB_BUF_INIT;
	json_t *object = hb_policy_to_json(p);
	int rc = hb_json_canonical(object, &text, err);

	if (rc == 0) {
		hb_buf_addc(&text, '\n');
		rc = hb_fs_write_atomic(AT_FDCWD, HB_PATH_POLICY, text.data, text.len, 0644, owner,
					(gid_t)-1, err);
	}
	json_decref(object);
	hb_buf_free(&text);
	return rc;
}

/* Exclusive among writers; the file stays, only the lock on it matters. */
static int take_lock(uid_t owner, struct hb_error *err)
{
	int fd = hb_fs_open_beneath(AT_FDCWD, HB_PATH_POLICY_LOCK,
				    O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600, err);

	if (fd < 0)
		return -1;
	if (geteuid() == 0 && fchown(fd, owner, (gid_t)-1) < 0) {
		hb_fail_errno(err, "policy_unwritable", "can't give %s to uid %u",
			      HB_PATH_POLICY_LOCK, owner);
		hb_close(&fd);
		return -1;
	}
	while (flock(fd, LOCK_EX) < 0) {
		if (errno == EINTR)
			continue;
		hb_fail_errno(err, "policy_unwritable", "can't lock %s", HB_PATH_POLICY_LOCK);
		hb_close(&fd);
		return -1;
	}
	return fd;
}

/* The generation that was published last, which may be more than what the file says now: the file
 * was lost, or an old one was put back. 0 when it is not known. */
static int64_t published_generation(void)
{
	struct hb_buf text = HB_BUF_INIT;
	int64_t last = 0;

	if (hb_fs_read(AT_FDCWD, HB_PATH_POLICY_GENERATION, 32, &text, NULL) == 0 && text.len > 0)
		last = strtoll(text.data, NULL, 10);
	hb_buf_free(&text);
	return last > 0 && last < HB_JSON_INT_MAX ? last : 0;
}

static bool same_policy(const struct hb_policy *a, const struct hb_policy *b)
{
	json_t *x = hb_policy_to_json(a), *y = hb_policy_to_json(b);
	bool same = json_equal(x, y) != 0;

	json_decref(x);
	json_decref(y);
	return same;
}

/* What a program changed must still be something that could be loaded. */
static int check_again(struct hb_policy *p, const struct hb_bounds *bounds, struct hb_error *err)
{
	struct hb_policy parsed;
	json_t *object = hb_policy_to_json(p);
	int rc = policy_from_json(object, &parsed, err);

	json_decref(object);
	return rc < 0 ? rc : check_within(p, bounds, err);
}

static int read_or_begin(uid_t owner, bool create, const struct hb_bounds *bounds,
			 struct hb_policy *p, bool *fresh, struct hb_error *err)
{
	struct hb_error why = {0};

	if (read_policy(owner, p, &why) == 0) {
		*fresh = false;
		return 0;
	}
	if (!create || strcmp(why.code, "policy_missing") != 0)
		return hb_fail(err, why.code, "%s", why.message);
	memset(p, 0, sizeof(*p));
	p->generation = 1;
	for (size_t i = 0; i < FEATURES; i++)
		p->quorum[i] = hb_bounds_quorum(bounds, features[i].name);
	*fresh = true;
	return 0;
}

static int update(uid_t owner, bool create, bool raise, hb_policy_change change, void *arg,
		  struct hb_policy *after, struct hb_error *err)
{
	struct hb_bounds *bounds = NULL;
	struct hb_policy p, before;
	int64_t highest;
	bool fresh;
	int rc = -1, lock = -1;

	if (hb_bounds_load(AT_FDCWD, HB_PATH_BOUNDS, &bounds, err) < 0)
		return -1;
	lock = take_lock(owner, err);
	if (lock < 0)
		goto out;
	/* Not checked against the bounds yet: narrower bounds must not stop the change that mends
	 * the policy. */
	if (read_or_begin(owner, create, bounds, &p, &fresh, err) < 0)
		goto out;
	before = p;
	/* An old file put back counts as a change: verifiers refuse a generation that goes down,
	 * and a number once used for another policy must not come again. */
	highest = published_generation();
	if (highest > p.generation)
		raise = true;
	else if (!fresh)
		highest = p.generation;
	if (change && change(&p, bounds, arg, err) < 0)
		goto out;
	p.generation = before.generation;
	if (check_again(&p, bounds, err) < 0)
		goto out;
	rc = fresh || raise || !same_policy(&before, &p);
	if (rc == 1) {
		p.generation = highest + 1;
		if (write_policy(&p, owner, err) < 0) {
			rc = -1;
			goto out;
		}
	}
	if (write_projections(&p, owner, err) < 0)
		rc = -1;
	if (after)
		*after = p;
out:
	hb_close(&lock);
	hb_bounds_free(bounds);
	return rc;
}

int hb_policy_update(uid_t owner, bool create, hb_policy_change change, void *arg,
		     struct hb_policy *after, struct hb_error *err)
{
	return update(owner, create, false, change, arg, after, err);
}

int hb_policy_raise(uid_t owner, struct hb_policy *after, struct hb_error *err)
{
	return update(owner, false, true, NULL, NULL, after, err) < 0 ? -1 : 0;
}
