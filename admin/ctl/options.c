/* Options of one command, from its table: the same table parses, checks and prints the help. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "admin/ctl/ctl.h"
#include "common/buf.h"
#include "onboarding/credential.h"

static void command_help(FILE *out, const char *name, const struct ctl_option *options, size_t count)
{
	for (size_t i = 0; i < ctl_command_count; i++)
		if (strcmp(ctl_commands[i].name, name) == 0)
			fprintf(out, "usage: hermesctl %s %s\n%s\n", name, ctl_commands[i].arguments,
				ctl_commands[i].help);
	for (size_t i = 0; i < count; i++) {
		char left[64];
		snprintf(left, sizeof left, "--%s %s", options[i].name,
			 options[i].value_name ? options[i].value_name : "");
		fprintf(out, "  %-32s %s\n", left, options[i].help);
	}
}

static int usage_error(const char *command, const char *what, const char *arg)
{
	fprintf(stderr, "hermesctl %s: %s \"", command, what);
	/* The name alone, and only if it is one: a value, or what stands where an option should, may be a secret. */
	fwrite(arg, 1, hb_credential_find(arg, strlen(arg)) ? 0 : strspn(arg, "abcdefghijklmnopqrstuvwxyz0123456789-"), stderr);
	fprintf(stderr, "\"; see hermesctl %s --help\n", command);
	return -1;
}

static void append(const char ***values, const char *value)
{
	size_t n = 0;

	while (*values && (*values)[n])
		n++;
	const char **more = hb_calloc(n + 2, sizeof *more);
	for (size_t i = 0; i < n; i++)
		more[i] = (*values)[i];
	more[n] = value;
	free(*values);
	*values = more;
}

static int take_option(const char *command, const struct ctl_option *options, size_t count, int argc, char **argv,
		       int *i)
{
	const char *name = argv[*i] + 2, *equals = strchr(name, '=');
	size_t len = equals ? (size_t)(equals - name) : strlen(name);

	for (size_t k = 0; k < count; k++) {
		const struct ctl_option *o = &options[k];
		const char *value = "";
		if (strlen(o->name) != len || strncmp(o->name, name, len) != 0)
			continue;
		if (o->value_name && equals)
			value = equals + 1;
		else if (o->value_name && *i + 1 < argc)
			value = argv[++*i];
		else if (o->value_name)
			return usage_error(command, "a value is missing after", argv[*i]);
		else if (equals)
			return usage_error(command, "no value is taken by", argv[*i]);
		if (o->values)
			append(o->values, value);
		else if (*o->value && o->value_name)
			return usage_error(command, "given twice:", argv[*i]);
		else
			*o->value = value;
		return 0;
	}
	return usage_error(command, "unknown option", argv[*i]);
}

int ctl_parse(struct ctl *c, const char *command, const struct ctl_option *options, size_t count, int argc,
	      char **argv, int least, int most)
{
	int kept = 0;
	bool literal = false;

	(void)c;
	for (int i = 0; i < argc; i++) {
		if (!literal && strcmp(argv[i], "--help") == 0) {
			command_help(stdout, command, options, count);
			exit(CTL_OK);
		}
		if (!literal && strcmp(argv[i], "--") == 0)
			literal = true;
		else if (!literal && strncmp(argv[i], "--", 2) == 0) {
			if (take_option(command, options, count, argc, argv, &i) < 0)
				return -1;
		} else
			argv[kept++] = argv[i];
	}
	if (kept < least || kept > most) {
		fprintf(stderr, "hermesctl %s: %s; see hermesctl %s --help\n", command,
			kept < least ? "an argument is missing" : "too many arguments", command);
		return -1;
	}
	return kept;
}
