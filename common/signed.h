/*
 * Records that the approver signs besides grants: its control record (pause, revocations),
 * checkpoints of audit heads, receipts.
 *
 * Bytes signed: <kind> NUL canonical JSON of the record. On disk and on the wire it is the envelope
 * {"record": {"v":1, "audience":.., "key_id":.., ...}, "signature": "<base64, 64 bytes>"}. The kind
 * is never the same for two uses, nor that of grants, so a signature on one thing is none on
 * another.
 */
#ifndef HB_COMMON_SIGNED_H
#define HB_COMMON_SIGNED_H

#include <jansson.h>

#include "common/error.h"
#include "common/keyring.h"

#define HB_KIND_CONTROL "hermes-control-v1"
#define HB_KIND_CHECKPOINT "hermes-checkpoint-v1"
#define HB_KIND_RECEIPT "hermes-receipt-v1"

/* `record` is stolen; v, audience and key_id are added. NULL with err. */
json_t *hb_signed_seal(const char *kind, const char *audience, json_t *record,
		       const struct hb_signing_key *key, struct hb_error *err);

/* The record inside, borrowed; NULL with err. audience NULL: not compared. Codes: record_malformed,
 * record_unknown_key, record_bad_signature, record_wrong_audience. */
json_t *hb_signed_open(const char *kind, const char *audience, const json_t *envelope,
		       const struct hb_keyring *keys, struct hb_error *err);

#endif
