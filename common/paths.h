/*
 * Layout of the state directory. Every program changes into it first and uses these relative names, so that
 * a state below a directory that others may not enter (a root-only home, say) still works for the
 * unprivileged processes: only the directory itself must be enterable.
 *
 * owner            path                          mode
 * root             conf/hermes.conf, bounds.conf 0644
 * root             public/                       0755   approver.pub, host-id; keys of a rotation (common/keyring.h)
 * approver         public/approver/              0755   what the approver signs for everybody to read: control.json
 *                                                       (pause, revocations), checkpoint.json (audit heads), 0644
 * admin            policy/                       0755   policy.json 0644 (live policy); for readers that are not
 *                                                       ours, one line each, 0644: features, users, policy-generation
 * each process     run/<process>/sock            dir 0750, group = its callers' group
 * each process     <process>/                    0700   its own files, below
 * probe            probe/keys/                   0700   named API keys of the payload, 0600 (onboarding/keys.h)
 * root             onboarding/                   0700   inventory, descriptions of keys, chain (onboarding/store.h)
 */
#ifndef HB_COMMON_PATHS_H
#define HB_COMMON_PATHS_H

#define HB_PATH_CONF "conf" /* a rule on the directory holds for files that are replaced in it */
#define HB_PATH_CONFIG HB_PATH_CONF "/hermes.conf"
#define HB_PATH_BOUNDS HB_PATH_CONF "/bounds.conf"
#define HB_PATH_POLICY "policy/policy.json"
#define HB_PATH_POLICY_LOCK "policy/policy.lock"
#define HB_PATH_POLICY_FEATURES "policy/features"
#define HB_PATH_POLICY_USERS "policy/users"
#define HB_PATH_POLICY_GENERATION "policy/policy-generation"
#define HB_PATH_PUBLIC_KEY "public/approver.pub"
#define HB_PATH_PREVIOUS_KEY "public/approver-previous.pub"
#define HB_PATH_RETIRED_KEYS "public/retired"
#define HB_PATH_APPROVER_PUBLIC "public/approver"
#define HB_PATH_CONTROL "public/approver/control.json"
#define HB_PATH_CHECKPOINT "public/approver/checkpoint.json"
#define HB_PATH_HOST_ID "public/host-id" /* 32 hex digits and newline */

#define HB_PATH_BROKER_DB "broker/operations.db"
#define HB_PATH_CONTROL_SECRET "broker/control-secret"    /* and clients/<uid>/control-secret, owned by that uid */
#define HB_PATH_BROKER_APPROVAL_SECRET "broker/approval-secret"
#define HB_PATH_APPROVER_APPROVAL_SECRET "approver/approval-secret"
#define HB_PATH_SIGNING_KEY "approver/signing.key"
#define HB_PATH_BOT_TOKEN "approver/bot-token"
#define HB_PATH_APPROVER_DB "approver/approver.db"
#define HB_PATH_ADMIN_KEY "admin/admin-key"
#define HB_PATH_SCRAPE_KEY "admin/scrape-key" /* reads /metrics and nothing else */
#define HB_PATH_FETCHER_CREDENTIALS "fetcher/credentials.json"
#define HB_PATH_SSH_PROFILES "ssh/profiles"
#define HB_PATH_SSH_INTEGRITY "ssh/integrity-secret"
#define HB_PATH_LEDGER(process) process "/ledger.db"
#define HB_PATH_AUDIT(process) process "/audit.log"
#define HB_PATH_SOCKET(process) "run/" process "/sock"

#endif
