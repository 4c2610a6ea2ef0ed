/* Files to import and texts that may hold credentials: what is accepted has every field, no name twice and nothing that looks
 * like a credential; what is refused gives nothing out and says the reason in one line. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common/utf8.h"
#include "onboarding/credential.h"
#include "onboarding/inventory.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void clean(const char *text)
{
	if (hb_credential_find(text, strlen(text)) || strchr(text, '\n'))
		abort();
}

static void look(const struct hb_inventory *list)
{
	for (size_t i = 0; i < list->count; i++) {
		const struct hb_connection *c = &list->items[i];

		if (hb_connection_complete(c, NULL) < 0 || c->line < 1 || c->result != HB_NEVER_CHECKED || c->last_validated ||
		    (i > 0 && strcmp(list->items[i - 1].name, c->name) >= 0))
			abort();
		clean(c->name);
		clean(c->service);
		clean(c->identity);
		clean(c->owner);
		clean(c->query);
		for (size_t k = 0; k < c->scope_count; k++)
			clean(c->scopes[k]);
	}
}

static void run(int (*read)(const char *, size_t, struct hb_inventory *, struct hb_error *), const char *text, size_t size)
{
	static const struct hb_inventory_owners owners = {"admin", "owner"};
	struct hb_inventory list = {0};
	struct hb_error err = {0};
	struct hb_buf out = HB_BUF_INIT;

	if (read(text, size, &list, &err) < 0) {
		if (list.count || !err.code[0] || !err.message[0] || strchr(err.message, '\n') ||
		    hb_utf8_count(err.message, strlen(err.message)) == (size_t)-1)
			abort();
		return;
	}
	look(&list);
	hb_inventory_csv(&list, &out);
	hb_inventory_markdown(&list, &owners, 0, &out);
	json_decref(hb_inventory_report(&list, &owners, 0));
	hb_buf_free(&out);
	hb_inventory_free(&list);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *text = size ? (const char *)data : "";

	hb_credential_find(text, size);
	run(hb_inventory_read_json, text, size);
	run(hb_inventory_read_csv, text, size);
	return 0;
}
