/*
 * The releases journal: what an operation is about to do to the runtime, one durable JSON line a
 * step, written before the step happens. After a crash at any instant it says what to finish and
 * what to undo.
 *
 *   {"step":"begin","operation_id":..,"action":..}       an operation began; so far it only adds
 * files of its own
 *   {"step":"activate", ...,"old":{current,previous,desired,activation},"new":"<hex>"}  from here
 * on the switch is in doubt
 *   {"step":"snapshot", ...,"snapshot":{id,data,dev,ino}}  the data was copied; from here on it may
 * be changed, and undoing puts the copy back
 *   {"step":"committed", ...,"result":{..}}              the new state serves; it stays, whatever
 * happens next
 *   {"step":"undone", ...}                               the old state was put back
 *   {"step":"end", ...}                                  the ledger has the outcome: nothing left
 * to do
 *
 * Only the installer process itself writes it. A torn last line is a step that was not taken: it is
 * cut off.
 */
#ifndef HB_INSTALLER_JOURNAL_H
#define HB_INSTALLER_JOURNAL_H

#include <jansson.h>
#include <stdbool.h>

#include "common/error.h"

enum hb_step {
	HB_STEP_NONE,
	HB_STEP_BEGIN,
	HB_STEP_ACTIVATE,
	HB_STEP_SNAPSHOT,
	HB_STEP_COMMITTED,
	HB_STEP_UNDONE,
	HB_STEP_END
};

const char *hb_step_name(enum hb_step step);

struct hb_journal;

/* Opens or creates (0600). Codes: journal_unreadable, journal_broken (a whole line that is no
 * step). */
int hb_journal_open(int dirfd, const char *path, struct hb_journal **out, struct hb_error *err);
void hb_journal_close(struct hb_journal *j);

/* Where the last operation stands. The strings and objects are borrowed until the next append. */
struct hb_journal_state {
	enum hb_step step;        /* NONE and END: nothing under way */
	const char *operation_id; /* "" when NONE */
	const char *action;
	const json_t *old;    /* of the activate step, or NULL */
	const json_t *snapshot; /* of the snapshot step, or NULL */
	const json_t *result; /* of the committed step, or NULL */
};
struct hb_journal_state hb_journal_state(const struct hb_journal *j);
bool hb_journal_open_operation(const struct hb_journal *j);
/* What undoing has to put back, when something live may have been changed: `old` with the member
 * `snapshot` (new reference); else NULL. */
json_t *hb_journal_undo(const struct hb_journal *j);

/* Durable when it returns 0. `more` may be NULL; its members are added to the line. Steps out of
 * order are refused (journal_order): begin only after none/end; activate after begin; snapshot after
 * activate; committed and undone after either; end after any. */
int hb_journal_append(struct hb_journal *j, enum hb_step step, const char *operation_id,
		      const char *action, const json_t *more, struct hb_error *err);

#endif
