/* How a configuration is kept: shared by config.c (reading) and config_print.c (writing). */
#ifndef HB_COMMON_CONFIG_INTERNAL_H
#define HB_COMMON_CONFIG_INTERNAL_H

#include "common/config.h"

#define WILDCARD "runtime.env.*"
#define WILDCARD_LEN (sizeof(WILDCARD) - 2) /* without the star */

enum layer { DEFAULTS, IN_FILE, OVERRIDE };

struct value {
	char *text;
	const char **items; /* LIST: into `split` */
	char *split;
	size_t item_count;
	enum layer layer;
	int line;
};

struct hb_config {
	struct value *values; /* as hb_config_keys */
	struct value *env;    /* .split is the name; the other list members are not used */
	size_t env_count;
	const char **env_names, **env_values;
};

#endif
