/* hermesctl inventory import and export: files for people and from people. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "admin/ctl/ctl.h"
#include "admin/ctl/ctl_onboarding.h"
#include "admin/ctl/files.h"
#include "common/fs.h"
#include "common/ids.h"
#include "common/json.h"
#include "onboarding/inventory.h"
#include "onboarding/store.h"

static int read_input(const char *path, struct hb_buf *out, struct hb_error *err)
{
	char piece[8192];
	const char *name;
	ssize_t n = 0;
	int fd, rc;

	if (strcmp(path, "-") != 0) {
		fd = ctl_open_parent(path, &name, err);
		rc = fd < 0 ? -1 : hb_fs_read(fd, name, HB_IMPORT_MAX, out, err);
		hb_close(&fd);
		return rc;
	}
	while (out->len <= HB_IMPORT_MAX &&
	       ((n = read(STDIN_FILENO, piece, sizeof piece)) > 0 || (n < 0 && errno == EINTR)))
		if (n > 0)
			hb_buf_add(out, piece, (size_t)n);
	if (n < 0)
		return hb_fail_errno(err, "read_failed", "standard input");
	return out->len > HB_IMPORT_MAX
		       ? hb_fail(err, "too_large", "standard input has more than %u bytes",
				 HB_IMPORT_MAX)
		       : 0;
}

/* --format, or what the name ends with, or what the text begins with. */
static int is_csv(const char *format, const char *path, const struct hb_buf *text, bool *csv,
		  struct hb_error *err)
{
	const char *dot = strrchr(path, '.');
	size_t i = 0;

	if (format && strcmp(format, "json") != 0 && strcmp(format, "csv") != 0)
		return hb_fail(err, "usage", "--format must be json or csv");
	if (!format && dot && (strcmp(dot, ".csv") == 0 || strcmp(dot, ".json") == 0))
		format = dot + 1;
	while (i < text->len && strchr(" \t\r\n", text->data[i]) && text->data[i])
		i++;
	*csv = format ? strcmp(format, "csv") == 0 : i < text->len && text->data[i] != '{';
	return 0;
}

/* Into the inventory, all or none. Existing ones are refused unless they are to be replaced. */
static int merge(struct ctl *c, struct hb_inventory *inv, const struct hb_inventory *list,
		 bool replace, json_t *names, struct hb_error *err)
{
	for (size_t i = 0; i < list->count; i++) {
		const struct hb_connection *it = &list->items[i];
		struct hb_connection *old = hb_inventory_find(inv, it->name);
		int rc = ctl_onboarding_owner(c, it->owner, err);

		if (rc == 0 && old && !replace)
			rc = hb_fail(err, "exists",
				     "there is a connection %s already; --replace puts this in its "
				     "place",
				     it->name);
		else if (rc == 0 && old)
			hb_inventory_drop(inv, old);
		if (rc == 0)
			rc = hb_inventory_add(inv, it, err);
		if (rc < 0)
			return hb_fail_prefix(err, "line %d", it->line);
		json_array_append_new(names, json_string(it->name));
	}
	return 0;
}

static int import(struct ctl *c, const struct hb_inventory *list, bool replace,
		  struct hb_error *err)
{
	struct hb_inventory inv = {0};
	json_t *names = json_array();
	int lock = -1, rc = -1;

	if (ctl_onboarding_open(c, &lock, err) < 0 || hb_inventory_load(&inv, err) < 0 ||
	    merge(c, &inv, list, replace, names, err) < 0 ||
	    hb_onboarding_audit("inventory_import", "intent", NULL,
				json_pack("{s:O}", "names", names), err) < 0)
		goto out;
	rc = hb_inventory_save(&inv, err);
	if (rc < 0) {
		(void)hb_onboarding_audit("inventory_import", "failed", NULL, NULL, NULL);
		goto out;
	}
	rc = hb_onboarding_audit("inventory_import", "ok", NULL, json_pack("{s:O}", "names", names),
				 err) < 0
		     ? -1
		     : ctl_reviews_publish(c, err);
out:
	hb_close(&lock);
	hb_inventory_free(&inv);
	json_decref(names);
	return rc;
}

int ctl_cmd_inventory_import(struct ctl *c, int argc, char **argv)
{
	const char *format = NULL, *replace = NULL;
	const struct ctl_option options[] = {
		{"format", "json|csv",
		 "what the file is (default: by its name, then by how it begins)", &format, NULL},
		{"replace", NULL, "put them in the place of connections with the same names",
		 &replace, NULL}};
	struct hb_buf text = HB_BUF_INIT;
	struct hb_inventory list = {0};
	struct hb_error err = {0};
	size_t count = 0;
	bool csv;
	int rc;

	if (ctl_parse(c, "inventory import", options, 2, argc, argv, 1, 1) < 0)
		return CTL_USAGE;
	rc = read_input(argv[0], &text,
			&err); /* before the state directory becomes the working directory */
	if (rc == 0)
		rc = is_csv(format, argv[0], &text, &csv, &err);
	if (rc == 0)
		rc = (csv ? hb_inventory_read_csv : hb_inventory_read_json)(
			text.data ? text.data : "", text.len, &list, &err);
	if (rc == 0)
		rc = import(c, &list, replace != NULL, &err);
	count = list.count;
	hb_inventory_free(&list);
	hb_buf_free(&text);
	if (rc < 0)
		return ctl_error(c, &err);
	if (!c->json)
		printf("Imported: %zu.\n", count);
	return ctl_result(c, json_pack("{s:s, s:I}", "status", "ok", "imported", (json_int_t)count),
			  CTL_OK);
}

int ctl_cmd_inventory_export(struct ctl *c, int argc, char **argv)
{
	const char *format = NULL;
	const struct ctl_option options[] = {
		{"format", "json|md|csv", "of the report (default json)", &format, NULL}};
	struct hb_inventory_owners owners;
	struct hb_inventory inv = {0};
	struct hb_buf text = HB_BUF_INIT;
	struct hb_error err = {0};
	json_t *report;

	if (ctl_parse(c, "inventory export", options, 1, argc, argv, 0, 0) < 0)
		return CTL_USAGE;
	if (!format)
		format = "json";
	if (strcmp(format, "json") != 0 &&
	    (c->json || (strcmp(format, "md") != 0 && strcmp(format, "csv") != 0))) {
		hb_fail(&err, "usage",
			c->json ? "with --json the format is json"
				: "--format must be json, md or csv");
		return ctl_error(c, &err);
	}
	if (ctl_onboarding_open(c, NULL, &err) < 0 || hb_inventory_load(&inv, &err) < 0)
		return ctl_error(c, &err);
	owners = ctl_onboarding_owners(c);
	report = hb_inventory_report(&inv, &owners, hb_now());
	if (strcmp(format, "md") == 0)
		hb_inventory_markdown(&inv, &owners, hb_now(), &text);
	else if (strcmp(format, "csv") == 0)
		hb_inventory_csv(&inv, &text);
	hb_inventory_free(&inv);
	if (strcmp(format, "json") == 0)
		c->json = true;
	else
		fwrite(text.data, 1, text.len, stdout);
	hb_buf_free(&text);
	return ctl_result(c, report, CTL_OK);
}
