/*
 * Start-up after whatever happened: the journal says what the last operation was doing, and the
 * store and the ledger are brought to exactly the old or exactly the new state before anything else
 * is done. Idempotent: being killed in here changes nothing.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "broker/installer/activate.h"
#include "broker/installer/data_swap.h"
#include "broker/installer/installer.h"
#include "broker/installer/job.h"
#include "broker/installer/snapshot.h"
#include "broker/installer/spec.h"
#include "common/json.h"
#include "common/log.h"
#include "common/paths.h"

#define JOURNAL_PATH "installer/journal.ndjson"

static int audit(struct hb_installer *in, const struct hb_journal_state *state, const char *status,
		 const char *phase, struct hb_error *err)
{
	json_t *detail =
		json_pack("{s:s, s:s, s:s, s:s}", "operation_id", state->operation_id, "action",
			  state->action, "step", hb_step_name(state->step), "phase", phase);
	int rc = hb_audit_append(in->process->audit, "runtime.recover", status, detail, err);

	json_decref(detail);
	return rc;
}

/* What is known about the interrupted operation, in words. */
static json_t *outcome_of(const struct hb_journal_state *state)
{
	struct hb_error why;

	if (state->step == HB_STEP_COMMITTED)
		return hb_outcome(json_deep_copy(state->result), NULL, 0);
	hb_fail(&why, "interrupted",
		state->step == HB_STEP_BEGIN ? "the installer was interrupted before anything live "
					       "was changed; prepare the operation again"
					     : "the installer was interrupted while switching "
					       "releases; the state before the operation was "
					       "put back. Prepare it again");
	return hb_outcome(NULL, &why, 0);
}

/* Leftovers: staging, releases and copies that were being removed, the copy of an undone operation.
 */
static int clean(struct hb_installer *in, const char *undone, struct hb_error *err)
{
	char *data = hb_spec_absolute(hb_config_text(in->process->config, "runtime.data"));
	struct hb_error why;

	if (undone && hb_snapshot_drop(data, undone, &why) < 0)
		hb_log(HB_LOG_WARN, "snapshot_left", "msg", why.message, NULL);
	if (hb_snapshot_clean(data, &why) < 0)
		hb_log(HB_LOG_WARN, "snapshot_left", "msg", why.message, NULL);
	if (hb_data_clean(data, &why) < 0 || hb_backup_store_clean(&in->backups, &why) < 0)
		hb_log(HB_LOG_WARN, "backup_left", "msg", why.message, NULL);
	free(data);
	return hb_store_clean(&in->store, err);
}

int hb_installer_recover(struct hb_installer *in, struct hb_error *err)
{
	struct hb_journal_state state;
	json_t *outcome = NULL, *old = NULL;
	bool open, committed;
	int recovered = 0, rc = -1;

	if (hb_journal_open(AT_FDCWD, JOURNAL_PATH, &in->journal, err) < 0)
		return -1;
	state = hb_journal_state(in->journal);
	open = hb_journal_open_operation(in->journal);
	committed = state.step == HB_STEP_COMMITTED;
	if (open) {
		hb_log(HB_LOG_WARN, "recovering", "operation", state.operation_id, "step",
		       hb_step_name(state.step), NULL);
		outcome = outcome_of(&state);
		if (audit(in, &state, "ok", "intent", err) < 0)
			goto out;
		old = hb_journal_undo(in->journal);
		/* Data may only be put back when nothing of the new release writes to it. */
		if (old &&
		    (hb_supervisor_wait_up(in->supervisor, err) < 0 ||
		     hb_undo_files(&in->store, old, err) < 0 ||
		     hb_journal_append(in->journal, HB_STEP_UNDONE, state.operation_id,
				       state.action, NULL, err) < 0))
			goto out;
		if (committed && strcmp(state.action, "remove") == 0)
			(void)hb_store_discard_all(&in->store, NULL);
	}
	if (clean(in, open && !committed ? state.operation_id : NULL, err) < 0)
		goto out;
	if (hb_ledger_open_settled(HB_PATH_LEDGER("installer"), open ? state.operation_id : NULL,
				   committed ? "succeeded" : "outcome_unknown", outcome,
				   &in->ledger, &recovered, err) < 0)
		goto out;
	if (open && (audit(in, &state, committed ? "ok" : "crashed", "outcome", err) < 0 ||
		     hb_journal_append(in->journal, HB_STEP_END, state.operation_id, state.action,
				       NULL, err) < 0))
		goto out;
	rc = 0;
out:
	json_decref(outcome);
	json_decref(old);
	return rc;
}
