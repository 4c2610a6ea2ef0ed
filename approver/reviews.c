/*
 * Reviews that are due, told to approvers once a week. hermesctl writes kinds, names and dates into
 * approver/reviews.json; nothing else of the inventory is known here. When it was last told is on
 * disk before the message goes out: a restart never repeats it, and a message that is lost comes
 * again a week later.
 */
#include <string.h>

#include "approver/approver.h"
#include "approver/telegram.h"
#include "common/ids.h"
#include "common/json.h"
#include "common/log.h"
#include "onboarding/review.h"

#define EVERY_SECONDS (7 * 86400LL)
#define LOOK_EVERY_MS 30000
#define SHOWN_MAX 40  /* names; within one message with the longest of them */
#define TOLD "reviews_told_at"

static void words(const json_t *due, struct hb_buf *out)
{
	const json_t *items = json_object_get(due, "items"), *item;
	size_t i;

	hb_buf_printf(out, "Reviews due: %lld", hb_json_int(due, "due", 0));
	json_array_foreach(items, i, item) {
		if (i == SHOWN_MAX) {
			hb_buf_printf(out, "\nand %zu more", json_array_size(items) - i);
			break;
		}
		hb_buf_printf(out, "\n%s: %s", hb_json_text(item, "kind", ""),
			      hb_json_text(item, "name", ""));
	}
	hb_buf_adds(out, "\nOn the host: hermesctl review");
}

static bool can_tell(struct hb_approver *a)
{
	json_t *checks = json_object();
	bool can = !hb_telegram_health(a->telegram, checks) &&
		   hb_json_bool(checks, "bot_configured", false);

	json_decref(checks);
	return can && a->policy_ok && a->policy.live.user_count > 0;
}

void hb_reviews_tick(struct hb_approver *a)
{
	struct hb_buf text = HB_BUF_INIT;
	int64_t now = hb_now(), told;
	struct hb_error err;
	json_t *due;

	if (hb_monotonic_ms() < a->reviews_look_ms || !can_tell(a))
		return;
	a->reviews_look_ms = hb_monotonic_ms() + LOOK_EVERY_MS;
	if (hb_meta_get(a->decisions, TOLD, &told, &err) < 0 ||
	    (told <= now && now - told < EVERY_SECONDS))
		return;
	due = hb_reviews_read(HB_REVIEWS_APPROVER, now, &err);
	if (!due)
		hb_log(HB_LOG_WARN, "reviews_unusable", "code", err.code, "error", err.message,
		       NULL);
	else if (hb_json_int(due, "due", 0) > 0 &&
		 hb_meta_put(a->decisions, TOLD, now, &err) == 0) {
		words(due, &text);
		hb_telegram_notice(a->telegram, "", text.data);
		hb_buf_free(&text);
	}
	json_decref(due);
}
