/*
 * Proving the guardrails on the live runtime.
 *
 * Nothing is called that could do harm unless the guardrail under test is missing and the service
 * itself accepts the call:
 *  - a tool that must not be reachable and is listed is a finding already, and is not called;
 *  - one that is hidden is called with the arguments that the file gives for it ([call]), else with
 * none, and that only when the tool says that it needs some: the service then refuses what the
 * runtime should not have sent;
 *  - without either it is not called, and the finding says "not run"; a tool that should wait for
 * approval and was not tried is not proven to wait, so that the whole is not;
 *  - what pauses is declined; only calls of [resume] are let run.
 * What a tool returns never leaves the runtime: the code there tells whether it ran, and how many
 * items a limit counts.
 */
#ifndef HB_ONBOARDING_GUARDRAIL_CHECK_H
#define HB_ONBOARDING_GUARDRAIL_CHECK_H

#include <jansson.h>

#include "common/error.h"
#include "onboarding/catalogue.h"
#include "onboarding/guardrail.h"

#define HB_GUARDRAIL_CALLS_MAX 300 /* of one check; further ones are "not run" */

/*
 * 0 with a report (new reference), also when things were found; -1 when it could not be brought to
 * an end, with nothing proven: codes of mcp_call.h, bad_reply, runtime_failed, catalogue_changed
 * (between its beginning and its end). `before` is the catalogue of the last check, or NULL.
 *   {"ok":b, "passed":N, "failed":N, "not_run":N, "catalogue":{..},
 *    "findings":[{"connection","tool","check","expected","found","result":"pass|fail|not
 * run","file","rule"}], "unmatched_tools":[..],
 * "unmatched_rules":[{"file","line","verdict","rule"}], "idle_files":[..], "problems":[..]}
 */
int hb_guardrails_check(struct hb_guardrails *all, const struct hb_runtime *runtime,
			const json_t *before, json_t **report, struct hb_error *err);

#endif
