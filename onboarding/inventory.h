/*
 * The inventory: which accounts are connected to the runtime, whose they are, what they may do, and
 * when each was last seen to work. Written by root's command line; no credential is ever in it
 * (credential.h).
 *
 *   onboarding/inventory.json
 * {"version":1,"generation":N,"gateway":{"address":..,"seen":N},"connections":[
 *     {"name":..,"service":..,"identity":..,"owner":..,"scopes":[..],"query":..,"review_by":"YYYY-MM-DD",
 *      "last_validated":N,"checked_at":N,"result":"never"|"ok"|"failed"|"paused","reason":..}, ..]}
 *
 * Exact fields, sorted by name, names used once. Reading refuses what writing would not have
 * written. Messages name the field and never repeat a value.
 */
#ifndef HB_ONBOARDING_INVENTORY_H
#define HB_ONBOARDING_INVENTORY_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/buf.h"
#include "common/error.h"
#include "onboarding/keys.h"

#define HB_INVENTORY_FILE "onboarding/inventory.json"
#define HB_CONNECTIONS_MAX 200 /* accounts of two people fit many times */
#define HB_IDENTITY_MAX 200    /* code points */
#define HB_QUERY_MAX 1000      /* code points */
#define HB_SCOPES_MAX 64
#define HB_SCOPE_MAX 200	 /* bytes, visible ASCII */
#define HB_GATEWAY_MAX 300	 /* bytes of an address */
#define HB_IMPORT_MAX (1u << 20) /* bytes of a file to import */
#define HB_INVENTORY_FILE_MAX (4u << 20)

enum hb_validation { HB_NEVER_CHECKED, HB_CHECK_OK, HB_CHECK_FAILED, HB_CHECK_PAUSED };

struct hb_connection {
	char name[HB_ONBOARDING_NAME_MAX], service[HB_ONBOARDING_NAME_MAX],
		owner[HB_ONBOARDING_NAME_MAX];
	char identity[HB_IDENTITY_MAX * 4 + 1], query[HB_QUERY_MAX * 4 + 1], review_by[11];
	char (*scopes)[HB_SCOPE_MAX + 1];
	size_t scope_count;
	int64_t last_validated; /* when it last passed; 0: never */
	int64_t checked_at;
	enum hb_validation result;
	char reason[HB_ERROR_CODE_MAX]; /* why not ok: a code of ours, never the runtime's words */
	int line;			/* in an imported file */
};

struct hb_inventory {
	int64_t generation;		  /* 0: there is none yet */
	char gateway[HB_GATEWAY_MAX + 1]; /* the runtime's MCP address as last seen, "" */
	int64_t gateway_seen;
	struct hb_connection *items;
	size_t count;
};

const char *hb_validation_name(enum hb_validation v);

void hb_connection_free(struct hb_connection *c);
/* Copies, scopes included. */
void hb_connection_copy(struct hb_connection *to, const struct hb_connection *from);
/* Put text into a field with its limits; a value that is too long is an error. Codes: bad_name,
 * bad_text, bad_date, looks_like_credential, too_many. */
enum hb_connection_field {
	HB_C_NAME,
	HB_C_SERVICE,
	HB_C_IDENTITY,
	HB_C_OWNER,
	HB_C_QUERY,
	HB_C_REVIEW_BY
};
int hb_connection_set(struct hb_connection *c, enum hb_connection_field field, const char *value,
		      struct hb_error *err);
int hb_connection_add_scope(struct hb_connection *c, const char *scope, struct hb_error *err);
void hb_connection_clear_scopes(struct hb_connection *c);
/* Is every field there? Code missing_field. */
int hb_connection_complete(const struct hb_connection *c, struct hb_error *err);

/* A missing file is an empty inventory. Code bad_inventory and those of hb_onboarding_load. */
int hb_inventory_load(struct hb_inventory *out, struct hb_error *err);
void hb_inventory_free(struct hb_inventory *inv);
/* Under the lock; raises the generation. */
int hb_inventory_save(struct hb_inventory *inv, struct hb_error *err);

struct hb_connection *hb_inventory_find(struct hb_inventory *inv, const char *name);
/* Copies. Codes: exists, too_many. Keeps the order by name. */
int hb_inventory_add(struct hb_inventory *inv, const struct hb_connection *c, struct hb_error *err);
void hb_inventory_drop(struct hb_inventory *inv, struct hb_connection *c);

/* One result of a check; only "ok" moves last_validated. */
void hb_connection_record(struct hb_connection *c, enum hb_validation result, const char *reason,
			  int64_t now);

/* Another query, another account or other scopes were never validated. */
void hb_connection_unvalidate(struct hb_connection *c);

json_t *hb_connection_to_json(const struct hb_connection *c);

/* inventory_import.c: a whole file or nothing. On success the list is the caller's. Messages begin
 * with "line N: ". Codes as above, and bad_json, bad_csv, duplicate_name, unknown_field. */
int hb_inventory_read_json(const char *text, size_t len, struct hb_inventory *out,
			   struct hb_error *err);
int hb_inventory_read_csv(const char *text, size_t len, struct hb_inventory *out,
			  struct hb_error *err);

/* inventory_export.c: the report for people. */
struct hb_inventory_owners {
	const char *admin, *person;
};
json_t *hb_inventory_report(const struct hb_inventory *inv,
			    const struct hb_inventory_owners *owners, int64_t now);
void hb_inventory_markdown(const struct hb_inventory *inv, const struct hb_inventory_owners *owners,
			   int64_t now, struct hb_buf *out);
/* RFC 4180, CRLF; cells that a spreadsheet would take for a formula begin with an apostrophe. */
void hb_inventory_csv(const struct hb_inventory *inv, struct hb_buf *out);

#endif
