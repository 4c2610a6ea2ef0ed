/*
 * What of an image will really run: the image's own wishes (OCI image-spec, config.md) with the
 * overrides of [runtime] in hermes.conf on top. One place decides it, so that what is sealed and
 * shown is what is started.
 */
#ifndef HB_INSTALLER_SPEC_H
#define HB_INSTALLER_SPEC_H

#include <jansson.h>

#include "broker/installer/supervise.h"
#include "common/config.h"
#include "common/error.h"

/* {entrypoint:[..], command:[..], working_dir, environment:[sorted names], user, ports:[..],
 * volumes:[..], version}. With runtime.command the image's entrypoint and command are both
 * replaced. `tag` is the version when the image has no label that says it. Codes: bad_image,
 * bad_command. */
json_t *hb_spec_describe(const struct hb_config *config, const json_t *image, const char *tag,
			 struct hb_error *err);

/* The full specification for one release below `storage` (absolute). Code no_command when nothing
 * would be run. */
int hb_spec_build(const struct hb_config *config, const json_t *image, const char *storage,
		  const char *manifest, uid_t uid, struct hb_run_spec *out, struct hb_error *err);

/* A path of hermes.conf, which may be relative to the state directory (the working directory), in
 * full; free() it. */
char *hb_spec_absolute(const char *path);

#endif
