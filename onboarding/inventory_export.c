/*
 * The report for people: JSON, Markdown, CSV. The inventory was judged when it was read, so no
 * credential is in it; what is defused here is what a reader's program would make of a value: a
 * spreadsheet of "=1+1", a page of "<b>" or "](".
 */
#include <string.h>

#include "common/ids.h"
#include "common/json.h"
#include "onboarding/inventory.h"

json_t *hb_inventory_report(const struct hb_inventory *inv,
			    const struct hb_inventory_owners *owners, int64_t now)
{
	json_t *list = json_array();

	for (size_t i = 0; i < inv->count; i++)
		json_array_append_new(list, hb_connection_to_json(&inv->items[i]));
	return json_pack("{s:I, s:I, s:{s:s, s:s}, s:{s:s, s:I}, s:o}", "generated_at",
			 (json_int_t)now, "generation", (json_int_t)inv->generation, "owners",
			 "infrastructure_admin", owners->admin, "connections_owner", owners->person,
			 "gateway", "address", inv->gateway, "seen", (json_int_t)inv->gateway_seen,
			 "connections", list);
}

/* --- Markdown --- */

/* What CommonMark and its tables, HTML and autolinks begin with; a backslash may stand before any
 * ASCII sign (2.4). */
static void markdown(const char *text, struct hb_buf *out)
{
	for (; *text; text++) {
		if (strchr("\\`*_{}[]<>()#+!|~&@:$", *text))
			hb_buf_addc(out, '\\');
		hb_buf_addc(out, *text);
	}
}

static void day(int64_t t, struct hb_buf *out)
{
	char text[11];

	hb_onboarding_date_of(t, text);
	hb_buf_adds(out, t > 0 ? text : "never");
}

static void cell(const char *text, struct hb_buf *out)
{
	markdown(text, out);
	hb_buf_adds(out, " | ");
}

static void row(const struct hb_connection *c, int64_t now, struct hb_buf *out)
{
	hb_buf_adds(out, "| ");
	cell(c->name, out);
	cell(c->service, out);
	cell(c->identity, out);
	cell(c->owner, out);
	for (size_t i = 0; i < c->scope_count; i++) {
		if (i)
			hb_buf_adds(out, ", ");
		markdown(c->scopes[i], out);
	}
	hb_buf_adds(out, " | ");
	cell(c->query, out);
	day(c->last_validated, out);
	hb_buf_printf(out, " | %s", hb_validation_name(c->result));
	if (c->reason[0]) {
		hb_buf_adds(out, " (");
		markdown(c->reason, out);
		hb_buf_adds(out, ")");
	}
	hb_buf_printf(out, " | %s%s |\n", c->review_by,
		      hb_onboarding_past(c->review_by, now) ? ", overdue" : "");
}

void hb_inventory_markdown(const struct hb_inventory *inv, const struct hb_inventory_owners *owners,
			   int64_t now, struct hb_buf *out)
{
	hb_buf_adds(out, "# Connected accounts\n\nAs of ");
	day(now, out);
	hb_buf_printf(out, ", generation %lld. No credential is in this report.\n\n",
		      (long long)inv->generation);
	hb_buf_adds(out, "- Infrastructure admin: ");
	markdown(owners->admin, out);
	hb_buf_adds(out, "\n- Owner of the connections: ");
	markdown(owners->person, out);
	hb_buf_adds(out, "\n- MCP address of the gateway: ");
	markdown(inv->gateway[0] ? inv->gateway : "not seen yet", out);
	hb_buf_adds(out, "\n\n| Connection | Service | Identity | Owner | Scopes | Validation "
			 "query | Last validated | Last check | "
			 "Review by |\n|---|---|---|---|---|---|---|---|---|\n");
	for (size_t i = 0; i < inv->count; i++)
		row(&inv->items[i], now, out);
}

/* --- CSV --- */

static void csv_cell(const char *text, const char *end, struct hb_buf *out)
{
	hb_buf_addc(out, '"');
	/* Spreadsheets take these for the beginning of a formula, quoted or not. */
	if (*text && strchr("=+-@\t\r", *text))
		hb_buf_addc(out, '\'');
	for (; *text; text++) {
		if (*text == '"')
			hb_buf_addc(out, '"');
		hb_buf_addc(out, *text);
	}
	hb_buf_printf(out, "\"%s", end);
}

static void csv_day(int64_t t, struct hb_buf *out)
{
	char text[11];

	hb_onboarding_date_of(t, text);
	csv_cell(t > 0 ? text : "", ",", out);
}

void hb_inventory_csv(const struct hb_inventory *inv, struct hb_buf *out)
{
	hb_buf_adds(out, "name,service,identity,owner,scopes,query,review_by,last_validated,"
			 "checked,result,reason\r\n");
	for (size_t i = 0; i < inv->count; i++) {
		const struct hb_connection *c = &inv->items[i];
		struct hb_buf scopes = HB_BUF_INIT;

		for (size_t k = 0; k < c->scope_count; k++)
			hb_buf_printf(&scopes, "%s%s", k ? " " : "", c->scopes[k]);
		csv_cell(c->name, ",", out);
		csv_cell(c->service, ",", out);
		csv_cell(c->identity, ",", out);
		csv_cell(c->owner, ",", out);
		csv_cell(scopes.data ? scopes.data : "", ",", out);
		csv_cell(c->query, ",", out);
		csv_cell(c->review_by, ",", out);
		csv_day(c->last_validated, out);
		csv_day(c->checked_at, out);
		csv_cell(hb_validation_name(c->result), ",", out);
		csv_cell(c->reason, "\r\n", out);
		hb_buf_free(&scopes);
	}
}
