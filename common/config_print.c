/* Writing a configuration: as a commented file, and as the digest of its [runtime] part. */
#include <stdio.h>
#include <string.h>

#include "common/config_internal.h"
#include "common/json.h"

static void
print_help(const char *help, struct hb_buf *out)
{
	size_t n;

	/* Wrapped at blanks to about 100 columns. */
	while (strlen(help) > 98) {
		for (n = 98; n > 0 && help[n] != ' '; n--)
			continue;
		hb_buf_printf(out, "# %.*s\n", (int)n, help);
		help += n + 1;
	}
	hb_buf_printf(out, "# %s\n", help);
}

void
hb_config_print(const struct hb_config *c, struct hb_buf *out)
{
	const char *name, *dot, *section = "";
	size_t i, j, len, section_len = 0;

	hb_buf_adds(out, "# Hermes Broker. Strict: an unknown or repeated key is an error. No "
			 "secrets here.\n");
	for (i = 0; i < hb_config_key_count; i++) {
		name = hb_config_keys[i].name;
		dot = strchr(name, '.');
		len = (size_t)(dot - name);
		if (len != section_len || strncmp(section, name, len) != 0)
			hb_buf_printf(out, "\n[%.*s]\n", (int)len, name);
		section = name;
		section_len = len;
		print_help(hb_config_keys[i].help, out);
		if (strcmp(name, WILDCARD) != 0) {
			hb_buf_printf(out, "%s =%s%s\n", dot + 1,
				      *c->values[i].text != '\0' ? " " : "", c->values[i].text);
			continue;
		}
		/* PORT follows runtime.port unless somebody set it. */
		for (j = 0; j < c->env_count; j++)
			if (strcmp(c->env[j].split, "PORT") != 0 || c->env[j].layer != DEFAULTS)
				hb_buf_printf(out, "env.%s =%s%s\n", c->env[j].split,
					      *c->env[j].text != '\0' ? " " : "", c->env[j].text);
	}
}

int
hb_config_runtime_digest(const struct hb_config *c, char hex[65], struct hb_error *err)
{
	json_t *all = json_object();
	char name[128];
	size_t i;
	int rc;

	for (i = 0; i < hb_config_key_count; i++)
		if (strncmp(hb_config_keys[i].name, "runtime.", 8) == 0 &&
		    strcmp(hb_config_keys[i].name, WILDCARD) != 0)
			json_object_set_new(all, hb_config_keys[i].name,
					    json_string(c->values[i].text));
	for (i = 0; i < c->env_count; i++) {
		snprintf(name, sizeof(name), "runtime.env.%s", c->env[i].split);
		json_object_set_new(all, name, json_string(c->env[i].text));
	}
	rc = hb_json_digest(all, hex, err);
	json_decref(all);
	return rc;
}
