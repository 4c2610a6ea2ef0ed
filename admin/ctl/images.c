/*
 * hermesctl images ...: the image that is installed, written down digest by digest, and compared later. The lock is a file
 * of the host's own (public/images.lock) that can be kept in version control: the reference with its pin, the manifest of
 * this platform that the pin led to, and the hash of the tree that came out.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "admin/ctl/ctl.h"
#include "common/buf.h"
#include "common/fs.h"
#include "common/json.h"
#include "policy/image_ref.h"

#define LOCK_FILE "public/images.lock"
#define LOCK_MAX 65536

static const char *const fields[] = {"image", "platform", "manifest_digest", "tree_digest"};
#define FIELDS (sizeof fields / sizeof fields[0])

static json_t *installed_now(struct ctl *c, struct hb_error *err)
{
	json_t *r = ctl_call(c, HB_PEER_BROKER, "GET", "/runtime", NULL, err), *now;

	if (!r)
		return NULL;
	if (!hb_json_bool(r, "installed", false)) {
		json_decref(r);
		hb_fail(err, "not_installed", "no release is installed: ./manage.sh quickstart");
		return NULL;
	}
	now = json_pack("{s:s,s:s,s:s,s:s}", "image", hb_json_text(r, "installed_image", ""), "platform",
			hb_json_text(r, "platform", ""), "manifest_digest", hb_json_text(r, "manifest_digest", ""),
			"tree_digest", hb_json_text(r, "tree_digest", ""));
	json_decref(r);
	return now;
}

static void print_fields(struct ctl *c, const json_t *object)
{
	for (size_t i = 0; !c->json && i < FIELDS; i++) {
		printf("%-16s ", fields[i]);
		ctl_print_text(hb_json_text(object, fields[i], "-"));
		putchar('\n');
	}
}

int ctl_cmd_images_lock(struct ctl *c, int argc, char **argv)
{
	struct hb_error err = {0};
	struct hb_image_ref ref;
	json_t *now;
	char *text;
	int rc;

	if (ctl_parse(c, "images lock", NULL, 0, argc, argv, 0, 0) < 0)
		return CTL_USAGE;
	if (ctl_open(c, &err) < 0 || hb_image_ref_parse(hb_config_text(c->config, "runtime.image"), true, &ref, &err) < 0 ||
	    !(now = installed_now(c, &err)))
		return ctl_error(c, &err);
	text = json_dumps(now, JSON_INDENT(2) | JSON_SORT_KEYS);
	rc = hb_fs_write_atomic(AT_FDCWD, LOCK_FILE, text, strlen(text), 0644, 0, 0, &err);
	free(text);
	if (rc < 0) {
		json_decref(now);
		return ctl_error(c, &err);
	}
	print_fields(c, now);
	if (!c->json)
		printf("Written to %s/%s.\n", c->state, LOCK_FILE);
	return ctl_result(c, now, CTL_OK);
}

static json_t *read_lock(struct hb_error *err)
{
	struct hb_buf text = HB_BUF_INIT;
	json_t *lock = NULL;

	if (hb_fs_read(AT_FDCWD, LOCK_FILE, LOCK_MAX, &text, err) == 0)
		lock = hb_json_parse(text.data, text.len, err);
	else
		hb_fail(err, "not_found", "there is no lock yet: ./manage.sh lock-images");
	hb_buf_free(&text);
	return lock;
}

/* What runs and what is configured, against what was written down. The bytes themselves: runtime verify. */
int ctl_cmd_images_verify(struct ctl *c, int argc, char **argv)
{
	struct hb_error err = {0};
	json_t *lock, *now, *differences;
	const char *configured;
	bool ok;

	if (ctl_parse(c, "images verify", NULL, 0, argc, argv, 0, 0) < 0)
		return CTL_USAGE;
	if (ctl_open(c, &err) < 0 || !(lock = read_lock(&err)))
		return ctl_error(c, &err);
	if (!(now = installed_now(c, &err))) {
		json_decref(lock);
		return ctl_error(c, &err);
	}
	differences = json_array();
	for (size_t i = 0; i < FIELDS; i++)
		if (strcmp(hb_json_text(lock, fields[i], ""), hb_json_text(now, fields[i], "")) != 0)
			json_array_append_new(differences, json_pack("{s:s,s:s,s:s}", "what", fields[i], "locked",
								     hb_json_text(lock, fields[i], ""), "found",
								     hb_json_text(now, fields[i], "")));
	configured = hb_config_text(c->config, "runtime.image");
	if (strcmp(configured, hb_json_text(lock, "image", "")) != 0)
		json_array_append_new(differences, json_pack("{s:s,s:s,s:s}", "what", "configured image", "locked",
							     hb_json_text(lock, "image", ""), "found", configured));
	ok = json_array_size(differences) == 0;
	if (!c->json) {
		json_t *d;
		size_t i;
		puts(ok ? "What is installed and configured is what was locked." : "NOT what was locked:");
		json_array_foreach(differences, i, d) {
			printf("  %s: locked ", hb_json_text(d, "what", ""));
			ctl_print_text(hb_json_text(d, "locked", ""));
			printf(", found ");
			ctl_print_text(hb_json_text(d, "found", ""));
			putchar('\n');
		}
	}
	json_decref(lock);
	json_decref(now);
	return ctl_result(c, json_pack("{s:b,s:o}", "ok", ok, "differences", differences), ok ? CTL_OK : CTL_FAILED);
}
