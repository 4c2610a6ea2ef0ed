/* The JSON tree holds the passwords for the moment of reading only, and its strings are wiped
 * before it is freed. */
#include "fetcher/credentials.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "common/buf.h"
#include "common/fs.h"
#include "common/json.h"

#define CREDENTIALS_MAX 65536
#define PASSWORD_MAX 8192

static int
bad(struct hb_error *err, const char *registry, const char *why)
{
	return hb_fail(err, "bad_credentials", "fetcher/credentials.json: %.100s%s%s", registry,
		       registry[0] ? ": " : "", why);
}

static void
make_basic(struct hb_credential *c, const char *user, const char *password)
{
	size_t n = strlen(user) + 1 + strlen(password);
	size_t size = sodium_base64_ENCODED_LEN(n, sodium_base64_VARIANT_ORIGINAL);
	char *pair = sodium_malloc(n + 1);

	c->basic = sodium_malloc(size);
	if (!pair || !c->basic)
		abort(); /* the same rule as buf.h: nothing can go on without memory */
	memcpy(pair, user, strlen(user));
	pair[strlen(user)] = ':';
	memcpy(pair + strlen(user) + 1, password, strlen(password) + 1);
	sodium_bin2base64(c->basic, size, (const unsigned char *)pair, n,
			  sodium_base64_VARIANT_ORIGINAL);
	sodium_free(pair);
}

static int
read_entry(const char *registry, json_t *entry, struct hb_credential *c, struct hb_error *err)
{
	const char *user = hb_json_text(entry, "username", NULL), *key;
	const char *password = hb_json_text(entry, "password", NULL);
	json_t *hosts = json_object_get(entry, "realm_hosts"), *value;
	size_t i;

	if (!registry[0] || strlen(registry) >= sizeof(c->registry))
		return bad(err, "", "a registry name is empty or too long");
	json_object_foreach (entry, key, value)
		if (strcmp(key, "username") != 0 && strcmp(key, "password") != 0 &&
		    strcmp(key, "realm_hosts") != 0)
			return bad(err, registry,
				   "has a field other than username, password and realm_hosts");
	if (!user || !password || !user[0] || strchr(user, ':') ||
	    strlen(user) + strlen(password) > PASSWORD_MAX)
		return bad(err, registry, "needs a username (without a colon) and a password");
	if (hosts && (!json_is_array(hosts) || json_array_size(hosts) > HB_REALM_HOSTS_MAX))
		return bad(err, registry, "realm_hosts must be a list of at most 8 host names");
	json_array_foreach (hosts, i, value) {
		if (!json_is_string(value) ||
		    json_string_length(value) >= sizeof(c->realm_hosts[0]))
			return bad(err, registry,
				   "realm_hosts must be a list of at most 8 host names");
		strcpy(c->realm_hosts[i], json_string_value(value)); /* length checked above */
		c->realm_list[i] = c->realm_hosts[i];
	}
	strcpy(c->registry, registry); /* length checked above */
	make_basic(c, user, password);
	return 0;
}

static void
wipe(json_t *registries)
{
	const char *name;
	json_t *entry;

	json_object_foreach (registries, name, entry) {
		const char *p = hb_json_text(entry, "password", NULL);

		/* jansson owns the copy and is about to free it */
		if (p)
			sodium_memzero((void *)(uintptr_t)p, strlen(p));
	}
}

static int
read_all(json_t *registries, struct hb_credentials *c, struct hb_error *err)
{
	const char *name;
	json_t *entry;

	if (!json_is_object(registries))
		return bad(err, "",
			   "must be {\"registries\": {\"host\": {\"username\": .., \"password\": "
			   "..}}}");
	c->entries = hb_calloc(json_object_size(registries) + 1, sizeof(*c->entries));
	json_object_foreach (registries, name, entry)
		if (read_entry(name, entry, &c->entries[c->count++], err))
			return -1;
	return 0;
}

int
hb_credentials_load(int dirfd, const char *path, uid_t owner, struct hb_credentials *out,
		    struct hb_error *err)
{
	struct hb_credentials c = {0};
	struct hb_secret text = {0};
	struct hb_error why = {0};
	json_t *doc;
	int rc;

	if (hb_secret_read(dirfd, path, owner, CREDENTIALS_MAX, &text, &why)) {
		if (strcmp(why.code, "secret_missing") != 0) {
			if (err)
				*err = why;
			return -1;
		}
		memset(out, 0, sizeof(*out));
		return 0;
	}
	doc = hb_json_parse(text.text, text.len, NULL);
	hb_secret_free(&text);
	rc = read_all(json_object_get(doc, "registries"), &c, err);
	wipe(json_object_get(doc, "registries"));
	json_decref(doc);
	if (rc)
		hb_credentials_free(&c);
	else
		*out = c;
	return rc;
}

void
hb_credentials_free(struct hb_credentials *c)
{
	for (size_t i = 0; i < c->count; i++)
		sodium_free(c->entries[i].basic);
	free(c->entries);
	memset(c, 0, sizeof(*c));
}

const struct hb_credential *
hb_credentials_find(const struct hb_credentials *c, const char *hostport)
{
	for (size_t i = 0; i < c->count; i++)
		if (strcasecmp(c->entries[i].registry, hostport) == 0)
			return &c->entries[i];
	return NULL;
}
