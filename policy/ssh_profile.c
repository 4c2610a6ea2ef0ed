/* profile.json, read strictly (ssh_profile.h). */
#include "policy/ssh_profile.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "common/fields.h"
#include "common/json.h"
#include "policy/text.h"

bool hb_ssh_profile_name(const char *text)
{
	return hb_word(text, HB_SET_LOWER HB_SET_DIGIT, HB_SET_LOWER HB_SET_DIGIT "_-",
		       HB_SSH_NAME_MAX);
}

bool hb_ssh_user_name(const char *text)
{
	return hb_word(text, HB_SET_ALNUM "_", HB_SET_ALNUM "_.-", 64);
}

struct decoded {
	long long version, port;
	const char *host, *user, *authority, *fingerprint, *auth, *credential_revision;
};

static const struct hb_field fields[] = {
	{"version", HB_FIELD_INT, HB_FIELD_REQUIRED, offsetof(struct decoded, version), 2, 2},
	{"host", HB_FIELD_TEXT, HB_FIELD_REQUIRED, offsetof(struct decoded, host), 1, 253},
	{"port", HB_FIELD_INT, HB_FIELD_REQUIRED, offsetof(struct decoded, port), 1, 65535},
	{"user", HB_FIELD_TEXT, HB_FIELD_REQUIRED, offsetof(struct decoded, user), 1, 64},
	{"authority", HB_FIELD_TEXT, HB_FIELD_REQUIRED, offsetof(struct decoded, authority), 1, 15},
	{"fingerprint", HB_FIELD_TEXT, HB_FIELD_REQUIRED, offsetof(struct decoded, fingerprint), 1,
	 64},
	{"auth", HB_FIELD_TEXT, HB_FIELD_REQUIRED, offsetof(struct decoded, auth), 1, 11},
	{"credential_revision", HB_FIELD_TEXT, HB_FIELD_REQUIRED | HB_FIELD_HEX64,
	 offsetof(struct decoded, credential_revision), 64, 64},
};

static int bad(struct hb_error *err, const char *field, const char *must)
{
	/* The value is not repeated: whatever stands there may be hostile. */
	return hb_fail(err, "profile_invalid", "profile.json: %s must be %s", field, must);
}

static int check(const struct decoded *d, struct hb_error *err)
{
	if (!hb_host_name(d->host))
		return bad(err, "host",
			   "a host name or numeric address, without user, port or brackets");
	if (!hb_ssh_user_name(d->user))
		return bad(err, "user",
			   "a login name: letters, digits and _.-, not beginning with '-' or '.'");
	if (strcmp(d->authority, "user") != 0 && strcmp(d->authority, "root") != 0 &&
	    strcmp(d->authority, "sudo-nopasswd") != 0)
		return bad(err, "authority", "user, root or sudo-nopasswd");
	if (!hb_is_fingerprint(d->fingerprint))
		return bad(err, "fingerprint", "SHA256: and 43 base64 characters");
	if (strcmp(d->auth, "publickey") != 0 && strcmp(d->auth, "password") != 0)
		return bad(err, "auth", "publickey or password");
	if (strcmp(d->user, "root") == 0 && strcmp(d->authority, "root") != 0)
		return bad(err, "authority", "root when the user is root");
	return 0;
}

int hb_ssh_profile_parse(const char *text, size_t len, struct hb_ssh_profile *out,
			 struct hb_error *err)
{
	struct decoded d = {0};
	struct hb_error why;
	json_t *object = hb_json_parse(text, len, &why);
	int rc = -1;

	if (!object ||
	    hb_fields_decode(object, fields, sizeof(fields) / sizeof(fields[0]), &d, &why) < 0) {
		hb_fail(err, "profile_invalid", "profile.json: %s", why.message);
		goto out;
	}
	if (check(&d, err) < 0)
		goto out;
	memset(out, 0, sizeof(*out));
	snprintf(out->host, sizeof(out->host), "%s", d.host);
	snprintf(out->user, sizeof(out->user), "%s", d.user);
	snprintf(out->authority, sizeof(out->authority), "%s", d.authority);
	snprintf(out->fingerprint, sizeof(out->fingerprint), "%s", d.fingerprint);
	snprintf(out->auth, sizeof(out->auth), "%s", d.auth);
	snprintf(out->credential_revision, sizeof(out->credential_revision), "%s",
		 d.credential_revision);
	out->port = (int)d.port;
	out->password = strcmp(d.auth, "password") == 0;
	rc = 0;
out:
	json_decref(object);
	return rc;
}
