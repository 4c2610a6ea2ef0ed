/* The directory of guardrails: read by descriptor, completed from what is shipped (guardrail.h). */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/buf.h"
#include "common/digest.h"
#include "common/fs.h"
#include "common/json.h"
#include "common/strict_ini.h"
#include "onboarding/guardrail.h"

#define SUFFIX ".ini"
#define STEM_MAX 40

/* "notes.ini" -> "notes"; false for what is no guardrail's name. */
static bool stem_of(const char *file, char stem[STEM_MAX + 1])
{
	size_t len = strlen(file);

	if (len <= strlen(SUFFIX) || strcmp(file + len - strlen(SUFFIX), SUFFIX) != 0)
		return false;
	len -= strlen(SUFFIX);
	if (len > STEM_MAX || strspn(file, "abcdefghijklmnopqrstuvwxyz0123456789-") != len ||
	    file[0] == '-')
		return false;
	memcpy(stem, file, len);
	stem[len] = '\0';
	return true;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct hb_guardrail *)a)->name,
		      ((const struct hb_guardrail *)b)->name);
}

static int load_one(int dir, const char *file, struct hb_guardrails *all, struct hb_error *err)
{
	struct hb_buf text = HB_BUF_INIT;
	char stem[STEM_MAX + 1];
	int rc = -1;

	if (!stem_of(file, stem))
		return hb_fail(err, "bad_guardrail",
			       HB_GUARDRAIL_DIR
			       " holds a file whose name is not lower-case letters, "
			       "digits and '-' before .ini");
	if (all->count >= HB_GUARDRAIL_FILES_MAX)
		return hb_fail(err, "bad_guardrail", HB_GUARDRAIL_DIR " holds more than %d files",
			       HB_GUARDRAIL_FILES_MAX);
	if (hb_fs_read_trusted(dir, file, 0, HB_INI_FILE_MAX, &text, err) == 0 &&
	    hb_guardrail_parse(stem, text.data ? text.data : "", text.len, &all->files[all->count],
			       err) == 0) {
		all->count++;
		rc = 0;
	}
	hb_buf_free(&text);
	return rc;
}

int hb_guardrails_load(struct hb_guardrails *out, struct hb_error *err)
{
	struct hb_guardrails all = {.files = hb_calloc(HB_GUARDRAIL_FILES_MAX, sizeof *all.files)};
	int dir = hb_fs_open_beneath(AT_FDCWD, HB_GUARDRAIL_DIR, O_RDONLY | O_DIRECTORY | O_CLOEXEC,
				     0, NULL),
	    rc = -1;
	DIR *list = NULL;
	struct stat st;

	if (dir < 0) {
		hb_fail(err, "no_guardrails",
			"there is no directory " HB_GUARDRAIL_DIR
			" in the state directory; `hermesctl "
			"setup` makes it with the shipped files");
		goto out;
	}
	if (fstat(dir, &st) < 0 || st.st_uid != 0 || st.st_mode & 022) {
		hb_fail(err, "loose_permissions",
			HB_GUARDRAIL_DIR
			" must be root's and nobody else's to write: chown root " HB_GUARDRAIL_DIR
			"; chmod go-w " HB_GUARDRAIL_DIR);
		goto out;
	}
	list = fdopendir(dup(dir));
	if (!list) {
		hb_fail_errno(err, "io_failed", HB_GUARDRAIL_DIR);
		goto out;
	}
	for (const struct dirent *e; (e = readdir(list));) {
		size_t len = strlen(e->d_name);

		/* What an editor leaves beside a file is none of them. */
		if (len < strlen(SUFFIX) || strcmp(e->d_name + len - strlen(SUFFIX), SUFFIX) != 0 ||
		    e->d_name[0] == '.')
			continue;
		if (load_one(dir, e->d_name, &all, err) < 0)
			goto out;
	}
	qsort(all.files, all.count, sizeof *all.files, by_name);
	if (all.count == 0)
		hb_fail(err, "no_guardrails",
			HB_GUARDRAIL_DIR
			" holds no file; `hermesctl setup` puts the shipped ones there");
	else
		rc = 0;
out:
	if (list)
		closedir(list);
	hb_close(&dir);
	if (rc == 0)
		*out = all;
	else
		hb_guardrails_free(&all);
	return rc;
}

void hb_guardrails_digest(const struct hb_guardrails *all, char hex[65])
{
	json_t *texts = json_object();

	for (size_t i = 0; i < all->count; i++)
		json_object_set_new(texts, all->files[i].name, json_string(all->files[i].text));
	if (hb_json_digest(texts, hex, NULL) < 0)
		hex[0] = '\0';
	json_decref(texts);
}

const char *hb_guardrail_origin(const struct hb_guardrail *g)
{
	for (size_t i = 0; i < hb_shipped_guardrail_count; i++) {
		const struct hb_shipped_file *s = &hb_shipped_guardrails[i];

		if (strcmp(s->name, g->name) == 0)
			return strlen(g->text) == s->len && memcmp(g->text, s->text, s->len) == 0
				       ? "shipped"
				       : "changed";
	}
	return "own";
}

int hb_guardrails_ship(int *changed, struct hb_error *err)
{
	struct hb_error why;

	if (hb_fs_mkdirs(AT_FDCWD, HB_GUARDRAIL_DIR, 0755, 0, 0, err) < 0)
		return -1;
	for (size_t i = 0; i < hb_shipped_guardrail_count; i++) {
		const struct hb_shipped_file *s = &hb_shipped_guardrails[i];
		char path[sizeof HB_GUARDRAIL_DIR + STEM_MAX + sizeof SUFFIX + 1];

		snprintf(path, sizeof path, "%s/%s" SUFFIX, HB_GUARDRAIL_DIR, s->name);
		if (hb_fs_write_new(AT_FDCWD, path, s->text, s->len, 0644, 0, 0, &why) == 0) {
			++*changed;
		} else if (strcmp(why.code, "exists") != 0) {
			if (err)
				*err = why;
			return -1;
		}
	}
	return 0;
}
