/*
 * Sealing a runtime operation: names become identities (seal.c), and what this host has to say to it is added
 * (seal_facts.c). Used twice, by the same code: when an
 * operation is prepared, and again by the job worker before it acts, so that what runs is what was
 * approved or nothing at all.
 */
#ifndef HB_INSTALLER_SEAL_H
#define HB_INSTALLER_SEAL_H

#include <jansson.h>

#include "broker/installer/chain.h"
#include "broker/installer/store.h"
#include "common/config.h"
#include "common/error.h"
#include "common/server.h"

/* The manifest digest that the request and hermes.conf pin for this platform, or "". Codes:
 * platform_mismatch when they contradict each other, platform_not_host, bad_digest. */
int hb_seal_pin(const struct hb_config *config, const json_t *request, char hex[HB_HEX256],
		struct hb_error *err);

/* The chain of the request's image, from the bytes in the blob store. */
int hb_seal_chain(const struct hb_store *s, const struct hb_config *config, const json_t *request,
		  struct hb_chain *out, struct hb_error *err);
/* The object `resolved` for it (docs/PROTOCOL.md, Runtime operation, sealed). */
json_t *hb_seal_resolved(const struct hb_config *config, const json_t *request,
			 const struct hb_chain *c, struct hb_error *err);

/* What a person is shown of a release on disk, as it would run with these settings: {version,
 * config_digest, layers:[hex], entrypoint, command, working_dir, environment, user, ports, volumes}.
 * `image`: the reference it is known by, or "". */
json_t *hb_seal_details(const struct hb_store *s, const struct hb_config *config,
			const char *manifest, const char *image, struct hb_error *err);

/* The sealed object `current`: {manifest_digest, image, details?}. */
json_t *hb_seal_current(const struct hb_store *s, const struct hb_config *config,
			struct hb_error *err);
/* The sealed fields of a rollback: {release, target, snapshot?}. Codes: no_previous,
 * already_current, release_missing, no_snapshot. */
json_t *hb_seal_rollback(const struct hb_store *s, const struct hb_config *config,
			 const json_t *request, const char *current, struct hb_error *err);

/* The sealed fields of a prune: {set_aside:[paths that are removed], undo: the one that stays or ""}. */
json_t *hb_seal_prune(const struct hb_config *config);
/* What an upgrade shows of how the data is protected: {last_backup?:{name, created_at, last_verified},
 * last_drill?:{backup, at, ok, of_current}}. A note, from records on this host: not compared again. */
struct hb_backup_store;
json_t *hb_seal_protection(const struct hb_backup_store *backups, const char *current);
/* Refuses what there is no room for, with numbers, as far as that is seen quickly; the job looks again,
 * at everything. c: what would be installed, or NULL; more: what is sealed of a rollback or restore.
 * Code not_enough_space. */
struct hb_installer;
int hb_seal_room(struct hb_installer *in, const json_t *request, const struct hb_chain *c,
		 const json_t *more, struct hb_error *err);

/* What no operation is begun for: policy, bounds, floor, configuration. */
int hb_seal_check(struct hb_installer *in, const json_t *request, struct hb_error *err);

/* POST /seal */
void hb_seal_handle(struct hb_request *req, void *ctx);

#endif
