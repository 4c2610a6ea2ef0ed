/*
 * Getting the current release back when the disposable store has lost it: the very manifest that is
 * current, from the image that was approved when it was installed. Its digest was sealed into the
 * operation that needs it.
 */
#include "broker/installer/install.h"

#include <string.h>

#include "broker/installer/activate.h"
#include "broker/installer/seal.h"
#include "common/json.h"

int hb_install_again(struct hb_work *w, const char *manifest, struct hb_error *err)
{
	struct hb_installed made = {0};
	struct hb_chain c = {0};
	struct hb_work mine = *w;
	json_t *activation = NULL, *request = NULL, *resolved;
	int rc = -1;

	if (hb_store_has(w->store, manifest))
		return 0;
	if (hb_activation_load(&activation, err) < 0)
		return -1;
	if (strcmp(hb_json_text(activation, "manifest_digest", ""), manifest) != 0 ||
	    !*hb_json_text(activation, "image", "")) {
		hb_fail(err, "release_missing",
			"release %.12s is not on disk and nothing says where it came from; install "
			"it again",
			manifest);
		goto out;
	}
	request = json_pack("{s:O, s:O}", "image", json_object_get(activation, "image"), "platform",
			    json_object_get(activation, "platform"));
	if (hb_fetch_resolve(request, err) < 0 ||
	    hb_seal_chain(w->store, w->config, request, &c, err) < 0)
		goto out;
	resolved = strcmp(c.manifest, manifest) == 0 ? hb_seal_resolved(w->config, request, &c, err)
						     : NULL;
	if (!resolved) {
		if (strcmp(c.manifest, manifest) != 0)
			hb_fail(err, "sealed_changed",
				"the image no longer resolves to release %.12s", manifest);
		goto chain;
	}
	json_object_set_new(request, "sealed", json_pack("{s:o}", "resolved", resolved));
	mine.request = request;
	rc = hb_install_release(&mine, &made, err);
	w->reported_ms = mine.reported_ms;
	w->in = mine.in; /* it is one conversation with the installer */
	hb_installed_free(&made);
chain:
	hb_chain_free(&c);
out:
	json_decref(request);
	json_decref(activation);
	return rc < 0 ? hb_fail_prefix(err, "the current release is missing and") : 0;
}
