/* Shared by the files of hermesctl acceptance: the report and what a criterion may ask. */
#ifndef HB_ADMIN_CTL_ACCEPTANCE_H
#define HB_ADMIN_CTL_ACCEPTANCE_H

#include "admin/ctl/ctl.h"
#include "onboarding/keys.h"

enum ctl_verdict { CTL_PASS, CTL_FAIL, CTL_NOT_RUN };

struct ctl_acceptance {
	struct ctl *c;
	const char *user, *browser; /* --user, --browser or NULL */
	bool approve;               /* consent in advance */
	bool look;                  /* change nothing, not even by a restart */
	bool repull;                /* remove the runtime and restore it */
	char key[HB_ONBOARDING_NAME_MAX]; /* named key to ask with; "": none */
	struct hb_error no_key;           /* then why */
	json_t *runtime;                  /* as the last probe left it; NULL: it could not be asked */
	json_t *lines;                    /* the report: {name, result, evidence} */
};

/* One line of the report, shown at once. */
void ctl_accept(struct ctl_acceptance *a, const char *name, enum ctl_verdict verdict,
		const char *evidence, ...) __attribute__((format(printf, 4, 5)));

/* acceptance_look.c: what is found without changing anything. */
void ctl_accept_health(struct ctl_acceptance *a); /* sets a->runtime */
void ctl_accept_challenge(struct ctl_acceptance *a);
void ctl_accept_tools(struct ctl_acceptance *a);
void ctl_accept_pin(struct ctl_acceptance *a);
void ctl_accept_tree(struct ctl_acceptance *a);

/* acceptance_host.c: of the host, not of the runtime. */
void ctl_accept_listeners(struct ctl_acceptance *a);
void ctl_accept_credentials(struct ctl_acceptance *a);
void ctl_accept_state(struct ctl_acceptance *a);

/* acceptance_life.c: operations, each with an approval of its own. */
void ctl_accept_restart(struct ctl_acceptance *a);
void ctl_accept_restore(struct ctl_acceptance *a);

/* Name of the newest backup, to be freed; NULL with err (not_found: there is none). */
char *ctl_newest_backup(struct ctl *c, struct hb_error *err);

/* acceptance_browser.c */
void ctl_accept_pages(struct ctl_acceptance *a);

/* acceptance_scratch.c: all of it in an instance beside this one, which is removed afterwards.
 * Returns an exit code. */
int ctl_accept_disposable(struct ctl_acceptance *a);

#endif
