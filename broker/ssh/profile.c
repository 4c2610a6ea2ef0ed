/* Reading profiles strictly (profile.h). */
#include "broker/ssh/profile.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/json.h"
#include "common/paths.h"

#define PROFILES_MAX 256

static int loose(struct hb_error *err, const char *path, const char *what, mode_t mode)
{
	return hb_fail(err, "profile_permissions", "%s must be %s: chown %u:%u %s && chmod %04o %s",
		       path, what, geteuid(), getegid(), path, mode, path);
}

static int open_directory(int at, const char *name, const char *path, struct hb_error *err)
{
	struct stat st;
	int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0 && errno == ENOENT)
		return hb_fail(err, "profile_unknown",
			       "there is no %s; profiles are made by `hermesctl ssh profile add`",
			       path);
	if (fd < 0)
		return hb_fail_errno(err, "profile_permissions",
				     "%s can't be opened as a directory", path);
	if (fstat(fd, &st) == 0 && st.st_uid == geteuid() && (st.st_mode & 07777) == 0700)
		return fd;
	hb_close(&fd);
	return loose(err, path, "a directory with mode 0700 of the ssh executor", 0700);
}

/* One file of a profile, whole, into protected memory. */
static int read_file(int dir, const char *profile, const char *name, size_t max,
		     struct hb_secret *out, struct hb_error *err)
{
	char path[160], *text = NULL;
	struct stat st;
	size_t len = 0;
	ssize_t n = 1;
	int rc = -1,
	    fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);

	snprintf(path, sizeof(path), HB_PATH_SSH_PROFILES "/%s/%s", profile, name);
	if (fd < 0 && errno == ENOENT)
		return hb_fail(err, "profile_invalid", "%s is missing", path);
	if (fd < 0)
		return hb_fail_errno(err, "profile_permissions", "%s can't be opened", path);
	if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_uid != geteuid() ||
	    (st.st_mode & 07777) != 0600 || st.st_nlink != 1) {
		loose(err, path, "a plain file with one name and mode 0600 of the ssh executor",
		      0600);
		goto out;
	}
	if (st.st_size <= 0 || (uintmax_t)st.st_size > max) {
		hb_fail(err, "profile_invalid", "%s has %jd bytes; 1 to %zu are allowed", path,
			(intmax_t)st.st_size, max);
		goto out;
	}
	if (sodium_init() < 0 || !(text = sodium_malloc((size_t)st.st_size + 1))) {
		hb_fail(err, "no_memory", "no protected memory for %s", path);
		goto out;
	}
	while (len < (size_t)st.st_size &&
	       (n = read(fd, text + len, (size_t)st.st_size - len)) != 0) {
		if (n < 0 && errno != EINTR)
			break;
		len += n > 0 ? (size_t)n : 0;
	}
	if (len != (size_t)st.st_size) {
		hb_fail(err, "profile_invalid", "%s changed while it was read, or can't be read",
			path);
		goto out;
	}
	text[len] = '\0';
	*out = (struct hb_secret){text, len};
	text = NULL;
	rc = 0;
out:
	sodium_free(text);
	hb_close(&fd);
	return rc;
}

/* Nothing that belongs to no profile, and not two credentials. */
static int check_names(int dir, struct hb_loaded *l, bool *ca, struct hb_error *err)
{
	static const char *const known[] = {"profile.json", "known_hosts", "identity", "password",
					    "ca"};
	int copy = fcntl(dir, F_DUPFD_CLOEXEC, 3), rc = 0;
	DIR *d = copy < 0 ? NULL : fdopendir(copy);
	struct dirent *de;

	if (!d) {
		hb_close(&copy);
		return hb_fail_errno(err, "profile_permissions",
				     HB_PATH_SSH_PROFILES "/%s can't be listed", l->name);
	}
	*ca = false;
	while (rc == 0 && (de = readdir(d))) {
		size_t i;

		if (strcmp(de->d_name, ".") == 0 || strcmp(de->d_name, "..") == 0)
			continue;
		for (i = 0; i < 5 && strcmp(known[i], de->d_name) != 0; i++)
			;
		if (i == 5)
			rc = hb_fail(err, "profile_invalid",
				     HB_PATH_SSH_PROFILES
				     "/%s holds a file that is no part of a profile; "
				     "its files are profile.json, known_hosts, identity or "
				     "password, and ca",
				     l->name);
		else if (strcmp(de->d_name, l->profile.password ? "identity" : "password") == 0)
			rc = hb_fail(err, "profile_invalid",
				     HB_PATH_SSH_PROFILES
				     "/%s: auth is %s, so there must be no file \"%s\"",
				     l->name, l->profile.auth, known[i]);
		*ca = *ca || i == 4;
	}
	closedir(d);
	if (rc == 0 && *ca && l->profile.password)
		rc = hb_fail(err, "profile_invalid",
			     HB_PATH_SSH_PROFILES
			     "/%s: a certificate authority needs an identity to "
			     "certify, not a password",
			     l->name);
	return rc;
}

static int check_password(struct hb_loaded *l, struct hb_error *err)
{
	struct hb_secret *s = &l->credential;

	if (s->text[s->len - 1] == '\n')
		s->text[--s->len] = '\0';
	if (s->len == 0 || strlen(s->text) != s->len || strpbrk(s->text, "\r\n"))
		return hb_fail(err, "profile_invalid",
			       HB_PATH_SSH_PROFILES
			       "/%s/password must be one line that isn't empty, and without NUL",
			       l->name);
	return 0;
}

static int read_credential(int dir, struct hb_loaded *l, bool ca, struct hb_error *err)
{
	struct hb_secret *s = &l->credential;
	char ca_type[32];

	if (l->profile.password)
		return read_file(dir, l->name, "password", HB_SSH_PASSWORD_MAX, s, err) < 0
			       ? -1
			       : check_password(l, err);
	if (read_file(dir, l->name, "identity", HB_SSH_IDENTITY_MAX, s, err) < 0 ||
	    hb_ssh_identity(s->text, s->len, l->identity_type, l->identity_fingerprint, err) < 0)
		return -1;
	hb_sha256_hex(s->text, s->len, l->identity_sha256);
	if (!ca)
		return 0;
	return read_file(dir, l->name, "ca", HB_SSH_IDENTITY_MAX, &l->ca, err) < 0
		       ? -1
		       : hb_ssh_identity(l->ca.text, l->ca.len, ca_type, l->ca_fingerprint, err);
}

int hb_loaded_open(const char *name, struct hb_loaded *out, struct hb_error *err)
{
	struct hb_loaded l = {0};
	struct hb_secret json = {0}, hosts = {0};
	char path[128];
	int top = -1, dir = -1, rc = -1;
	bool ca;

	if (!hb_ssh_profile_name(name))
		return hb_fail(err, "profile_unknown", "that is no name of a profile");
	memccpy(l.name, name, 0, sizeof(l.name) - 1);
	snprintf(path, sizeof(path), HB_PATH_SSH_PROFILES "/%s", name);
	top = open_directory(AT_FDCWD, HB_PATH_SSH_PROFILES, HB_PATH_SSH_PROFILES, err);
	dir = top < 0 ? -1 : open_directory(top, name, path, err);
	if (dir < 0 ||
	    read_file(dir, name, "profile.json", HB_SSH_PROFILE_JSON_MAX, &json, err) < 0)
		goto out;
	if (hb_ssh_profile_parse(json.text, json.len, &l.profile, err) < 0) {
		hb_fail_prefix(err, "profile %s", name);
		goto out;
	}
	if (check_names(dir, &l, &ca, err) < 0 ||
	    read_file(dir, name, "known_hosts", HB_SSH_KNOWN_HOSTS_MAX, &hosts, err) < 0)
		goto out;
	if (hb_ssh_known_host(hosts.text, hosts.len, &l.key, err) < 0) {
		hb_fail_prefix(err, "profile %s", name);
		goto out;
	}
	hb_sha256_hex(hosts.text, hosts.len, l.known_hosts_sha256);
	if (strcmp(l.key.fingerprint, l.profile.fingerprint) != 0) {
		hb_fail(err, "fingerprint_mismatch",
			"profile %s: known_hosts holds the key %s, but profile.json says that %s "
			"was verified; add the profile anew",
			name, l.key.fingerprint, l.profile.fingerprint);
		goto out;
	}
	if (read_credential(dir, &l, ca, err) < 0) {
		hb_fail_prefix(err, "profile %s", name);
		goto out;
	}
	*out = l;
	l = (struct hb_loaded){0};
	rc = 0;
out:
	hb_loaded_close(&l);
	hb_secret_free(&json);
	hb_secret_free(&hosts);
	hb_close(&dir);
	hb_close(&top);
	return rc;
}

void hb_loaded_close(struct hb_loaded *l)
{
	hb_secret_free(&l->credential);
	hb_secret_free(&l->ca);
}

/* The name is part of what is tagged: one password in two profiles has two tags. */
static int tag(const struct hb_loaded *l, char hex[HB_HEX256], struct hb_error *err)
{
	static const char domain[] = "hermes-ssh-credential-v1"; /* with its NUL */
	crypto_auth_hmacsha256_state state;
	unsigned char mac[crypto_auth_hmacsha256_BYTES];
	struct hb_secret key;

	if (hb_secret_read(AT_FDCWD, HB_PATH_SSH_INTEGRITY, geteuid(), 512, &key, err) < 0)
		return hb_fail_prefix(err, "the secret that password profiles are sealed with "
					   "(`hermesctl setup` makes it)");
	crypto_auth_hmacsha256_init(&state, (const unsigned char *)key.text, key.len);
	crypto_auth_hmacsha256_update(&state, (const unsigned char *)domain, sizeof(domain));
	crypto_auth_hmacsha256_update(&state, (const unsigned char *)l->name, strlen(l->name) + 1);
	crypto_auth_hmacsha256_update(&state, (const unsigned char *)l->credential.text,
				      l->credential.len);
	crypto_auth_hmacsha256_final(&state, mac);
	hb_secret_free(&key);
	sodium_memzero(&state, sizeof(state));
	hb_hex(mac, sizeof(mac), hex);
	return 0;
}

json_t *hb_loaded_seal(const struct hb_loaded *l, struct hb_error *err)
{
	const struct hb_ssh_profile *p = &l->profile;
	char hex[HB_HEX256];
	json_t *out;

	if (p->password && tag(l, hex, err) < 0)
		return NULL;
	out = json_pack("{s:s, s:i, s:s, s:s, s:s, s:s, s:s, s:s}", "host", p->host, "port",
			p->port, "user", p->user, "authority", p->authority, "fingerprint",
			p->fingerprint, "auth", p->auth, "credential_revision",
			p->credential_revision, "known_hosts_sha256", l->known_hosts_sha256);
	if (p->password) {
		json_object_set_new(out, "credential_tag", json_string(hex));
		return out;
	}
	json_object_set_new(out, "identity_fingerprint", json_string(l->identity_fingerprint));
	json_object_set_new(out, "identity_sha256", json_string(l->identity_sha256));
	if (l->ca.text)
		json_object_set_new(out, "ca_fingerprint", json_string(l->ca_fingerprint));
	return out;
}

int hb_sealed_equal(const json_t *approved, const json_t *now, struct hb_error *err)
{
	char names[200] = "";
	const json_t *sides[] = {approved, now};
	const char *key;
	json_t *value;

	for (int i = 0; i < 2; i++)
		json_object_foreach((json_t *)(uintptr_t)sides[i], key, value) {
			bool differs = !json_equal(value, json_object_get(sides[1 - i], key));
			size_t len = strlen(names);

			if (differs && !strstr(names, key))
				snprintf(names + len, sizeof(names) - len, "%s%s", len ? ", " : "",
					 key);
		}
	if (names[0] == '\0')
		return 0;
	return hb_fail(err, "profile_changed",
		       "the profile is not the one that was approved (different: %s); nothing was "
		       "started. Ask for it again",
		       names);
}

static int by_name(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static void list_one(const char *name, json_t *usable, json_t *broken)
{
	const bool ok = hb_ssh_profile_name(name);
	struct hb_loaded l;
	struct hb_error why;

	if (ok && hb_loaded_open(name, &l, &why) == 0) {
		json_array_append_new(usable,
				      json_pack("{s:s, s:s, s:s, s:i, s:s, s:s, s:s}", "name", name,
						"auth", l.profile.auth, "host", l.profile.host,
						"port", l.profile.port, "user", l.profile.user,
						"authority", l.profile.authority, "fingerprint",
						l.profile.fingerprint));
		hb_loaded_close(&l);
		return;
	}
	if (!ok)
		hb_fail(&why, "profile_invalid",
			"a profile's name has lower-case letters, digits, '_' and '-', at most 64");
	json_array_append_new(broken,
			      json_pack("{s:s, s:s, s:s}", "name", ok ? name : "(not a name)",
					"code", why.code, "error", why.message));
}

int hb_profiles_list(json_t **usable, json_t **broken, struct hb_error *err)
{
	char *names[PROFILES_MAX];
	size_t count = 0;
	struct dirent *de;
	int fd = open_directory(AT_FDCWD, HB_PATH_SSH_PROFILES, HB_PATH_SSH_PROFILES, err);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);

	if (!d) {
		hb_close(&fd);
		return -1;
	}
	while (count < PROFILES_MAX && (de = readdir(d)))
		if (de->d_name[0] !=
		    '.') /* `profile add` puts a dot before a name that isn't complete yet */
			names[count++] = strdup(de->d_name);
	closedir(d);
	qsort(names, count, sizeof(names[0]), by_name);
	*usable = json_array();
	*broken = json_array();
	for (size_t i = 0; i < count; i++) {
		list_one(names[i], *usable, *broken);
		free(names[i]);
	}
	return 0;
}
