/*
 * The bounds: what no live policy, page or phone can widen. One table of keys; anything the table
 * doesn't know, a key given twice and a value that isn't exactly right are errors with file and
 * line, and an error allows nothing.
 *
 * A root-owned allow-list must not have two ways to be read: no continued lines, no comments after
 * a value, names of repositories and directories only in their full form.
 */
#include "policy/bounds.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/buf.h"
#include "common/grant.h"
#include "common/strict_ini.h"
#include "policy/image_ref.h"
#include "policy/live.h"
#include "policy/text.h"
#include "policy/trusted.h"

#define BOUNDS_SIZE_MAX 65536 /* a few hundred users and repositories */
#define LIST_MAX 256          /* items of one list */
#define ITEM_MAX 512          /* bytes of one item */

struct list {
	char **items;
	size_t count;
};

enum { USERS, EXECUTORS, REPOSITORIES, BIND_ROOTS, NO_SELF, LIST_COUNT };

static const char *const docker_fields[] = {"privileged",   "host_namespaces",     "devices",
					    "capabilities", "published_addresses", "security_opt",
					    "sysctls"};
#define DOCKER_FIELDS (sizeof(docker_fields) / sizeof(docker_fields[0]))

static const char *const features[] = {"runtime", "local", "docker", "ssh"};
#define FEATURES (sizeof(features) / sizeof(features[0]))

struct hb_bounds {
	struct list lists[LIST_COUNT];
	bool docker[DOCKER_FIELDS];
	int quorum[FEATURES];
};

/* State while reading one file. */
struct reader {
	struct hb_bounds *bounds;
	struct hb_buf seen; /* "\nsection.key\n" of what was set */
};

static int bad(struct hb_error *err, const char *what, const char *thing, const char *fix)
{
	char shown[81];

	hb_show(thing, shown, sizeof(shown));
	return hb_fail(err, "bounds_malformed", "%s '%s'; %s", what, shown, fix);
}

static bool listed(const struct list *list, const char *item)
{
	for (size_t i = 0; i < list->count; i++) {
		if (strcmp(list->items[i], item) == 0)
			return true;
	}
	return false;
}

static bool good_user(const char *item)
{
	return hb_is_user_id(item);
}

static bool good_executor(const char *item)
{
	return strcmp(item, "installer") == 0 || strcmp(item, "docker") == 0 ||
	       strcmp(item, "ssh") == 0;
}

/* A repository, or a prefix whose last component is "all". Checked by the one parser of image
 * names. */
static bool good_repository(const char *item)
{
	static const char pin[] =
		"@sha256:0000000000000000000000000000000000000000000000000000000000000000";
	struct hb_image_ref ref;
	char full[ITEM_MAX + sizeof(pin)], name[ITEM_MAX + 64];

	if (strlen(item) > ITEM_MAX)
		return false;
	memcpy(full, item, strlen(item));
	memcpy(full + strlen(item), pin, sizeof(pin));
	if (hb_image_ref_parse(full, false, &ref, NULL) < 0 || ref.tag[0] != '\0')
		return false;
	hb_image_ref_name(&ref, name, sizeof(name));
	/* Must be spelled in full, so that the comparison below is of like with like. */
	return strcmp(name, item) == 0;
}

static bool good_bind_root(const char *item)
{
	return hb_path_normal(item) && strcmp(item, "/") != 0 && strlen(item) <= ITEM_MAX;
}

static bool good_feature(const char *item)
{
	for (size_t i = 0; i < FEATURES; i++) {
		if (strcmp(features[i], item) == 0)
			return true;
	}
	return false;
}

static const struct {
	const char *section, *key;
	int list;
	bool (*good)(const char *item);
	const char *fix;
} list_keys[] = {
	{"users", "allowed", USERS, good_user, "write numeric user ids, separated by commas"},
	{"executors", "deployed", EXECUTORS, good_executor, "known are installer, docker and ssh"},
	{"images", "repositories", REPOSITORIES, good_repository,
	 "write registry/repository in full, registry/path/all, or oci:/directory"},
	{"docker", "bind_roots", BIND_ROOTS, good_bind_root,
	 "write absolute directories other than /"},
	{"quorum", "no_self_approval", NO_SELF, good_feature,
	 "known are runtime, local, docker and ssh"},
};

static char *trim(char *s)
{
	s += strspn(s, " \t");
	size_t len = strlen(s);
	while (len > 0 && (s[len - 1] == ' ' || s[len - 1] == '\t'))
		len--;
	s[len] = '\0';
	return s;
}

static int set_list(struct list *list, size_t key, const char *value, struct hb_error *err)
{
	char *copy = hb_strdup(value);
	int rc = -1;

	list->items = hb_calloc(LIST_MAX, sizeof(*list->items));
	for (char *item = copy[0] ? copy : NULL, *next; item; item = next) {
		next = strchr(item, ',');
		if (next)
			*next++ = '\0';
		item = trim(item);
		if (!list_keys[key].good(item)) {
			bad(err, "bad value", item, list_keys[key].fix);
			goto out;
		}
		if (listed(list, item)) {
			bad(err, "value given twice:", item, "remove one");
			goto out;
		}
		if (list->count == LIST_MAX) {
			bad(err, "too many values from", item, "at most 256 are allowed");
			goto out;
		}
		list->items[list->count++] = hb_strdup(item);
	}
	rc = 0;
out:
	free(copy);
	return rc;
}

static int set_docker(bool *field, const char *value, struct hb_error *err)
{
	if (strcmp(value, "yes") != 0 && strcmp(value, "no") != 0)
		return bad(err, "bad value", value, "write yes or no");
	*field = value[0] == 'y';
	return 0;
}

static int set_quorum(int *quorum, const char *value, struct hb_error *err)
{
	int n = hb_is_user_id(value) && strlen(value) <= 2 ? atoi(value) : 0;

	if (n < 1 || n > HB_GRANT_USERS_MAX)
		return bad(err, "bad value", value, "write a number from 1 to 16");
	*quorum = n;
	return 0;
}

static int set_value(struct hb_bounds *b, const char *section, const char *key, const char *value,
		     struct hb_error *err)
{
	for (size_t i = 0; i < sizeof(list_keys) / sizeof(list_keys[0]); i++) {
		if (strcmp(section, list_keys[i].section) == 0 &&
		    strcmp(key, list_keys[i].key) == 0)
			return set_list(&b->lists[list_keys[i].list], i, value, err);
	}
	for (size_t i = 0; strcmp(section, "docker") == 0 && i < DOCKER_FIELDS; i++) {
		if (strcmp(key, docker_fields[i]) == 0)
			return set_docker(&b->docker[i], value, err);
	}
	for (size_t i = 0; strcmp(section, "quorum") == 0 && i < FEATURES; i++) {
		if (strcmp(key, features[i]) == 0)
			return set_quorum(&b->quorum[i], value, err);
	}
	return bad(err, "unknown key", key, "the keys are in the bounds.conf manual page");
}

static int on_pair(const char *section, const char *key, const char *value, int line, void *arg,
		   struct hb_error *err)
{
	struct reader *r = arg;
	char mark[128];

	(void)line;
	snprintf(mark, sizeof(mark), "\n%s.%s\n", section, key);
	if (r->seen.data && strstr(r->seen.data, mark))
		return bad(err, "key given twice:", key, "keep one");
	hb_buf_adds(&r->seen, mark);
	return set_value(r->bounds, section, key, value, err);
}

int hb_bounds_load(int dirfd, const char *path, struct hb_bounds **out, struct hb_error *err)
{
	struct hb_buf text = HB_BUF_INIT;
	struct reader r = {0};
	struct hb_error why = {0};
	int rc = -1;

	if (hb_trusted_read(dirfd, path, 0, BOUNDS_SIZE_MAX, "bounds_missing", &text, err) < 0)
		goto out;
	r.bounds = hb_calloc(1, sizeof(*r.bounds));
	for (size_t i = 0; i < FEATURES; i++)
		r.bounds->quorum[i] = 1;
	if (hb_ini_parse(path, text.data, text.len, on_pair, &r, &why) < 0) {
		hb_fail(err, "bounds_malformed", "%s", why.message);
		goto out;
	}
	*out = r.bounds;
	r.bounds = NULL;
	rc = 0;
out:
	hb_bounds_free(r.bounds);
	hb_buf_free(&r.seen);
	hb_buf_free(&text);
	return rc;
}

void hb_bounds_free(struct hb_bounds *b)
{
	if (!b)
		return;
	for (size_t i = 0; i < LIST_COUNT; i++) {
		for (size_t j = 0; j < b->lists[i].count; j++)
			free(b->lists[i].items[j]);
		free(b->lists[i].items);
	}
	free(b);
}

static size_t give(const struct list *list, const char *const **items)
{
	*items = (const char *const *)list->items;
	return list->count;
}

bool hb_bounds_user(const struct hb_bounds *b, const char *user_id)
{
	return listed(&b->lists[USERS], user_id);
}

size_t hb_bounds_users(const struct hb_bounds *b, const char *const **users)
{
	return give(&b->lists[USERS], users);
}

bool hb_bounds_executor(const struct hb_bounds *b, const char *executor)
{
	/* admin is always there: it carries out changes of policy, within these bounds. */
	return strcmp(executor, "admin") == 0 || listed(&b->lists[EXECUTORS], executor);
}

bool hb_bounds_repository(const struct hb_bounds *b, const char *name)
{
	const struct list *list = &b->lists[REPOSITORIES];

	for (size_t i = 0; i < list->count; i++) {
		size_t len = strlen(list->items[i]);

		if (strcmp(list->items[i], name) == 0)
			return true;
		/* "host/path/all": what lies below "host/path/". */
		if (len > 4 && strcmp(list->items[i] + len - 4, "/all") == 0 &&
		    strncmp(list->items[i], name, len - 3) == 0 && name[len - 3] != '\0')
			return true;
	}
	return false;
}

bool hb_bounds_docker_field(const struct hb_bounds *b, const char *field)
{
	for (size_t i = 0; i < DOCKER_FIELDS; i++) {
		if (strcmp(field, docker_fields[i]) == 0)
			return b->docker[i];
	}
	return false;
}

size_t hb_bounds_bind_roots(const struct hb_bounds *b, const char *const **roots)
{
	return give(&b->lists[BIND_ROOTS], roots);
}

bool hb_bounds_no_self(const struct hb_bounds *b, const char *feature)
{
	return listed(&b->lists[NO_SELF], feature);
}

int hb_bounds_quorum(const struct hb_bounds *b, const char *feature)
{
	int most = 1;

	for (size_t i = 0; i < FEATURES; i++)
		most = b->quorum[i] > most ? b->quorum[i] : most;
	if (strcmp(feature, "policy") == 0)
		return most;
	for (size_t i = 0; i < FEATURES; i++) {
		if (strcmp(feature, features[i]) == 0)
			return b->quorum[i];
	}
	return HB_GRANT_USERS_MAX;
}
