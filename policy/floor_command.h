/* The floor rules about commands; see floor.h for the whole. Inside policy/. */
#ifndef HB_POLICY_FLOOR_COMMAND_H
#define HB_POLICY_FLOOR_COMMAND_H

#include <stdbool.h>
#include <stddef.h>

#include "common/error.h"

/* Text for a shell. workdir: where relative paths begin, or NULL when that isn't known. */
int hb_floor_command(const char *text, const char *workdir, struct hb_error *err);
/* An exact argument vector. */
int hb_floor_argv(const char *const *argv, size_t count, const char *workdir, struct hb_error *err);

/* --- between floor_command.c (what is run) and floor_rules.c (what it may not do) --- */

struct hb_floor_look {
	const char *workdir;
	int depth;
	struct hb_error *err;
};

int hb_floor_refuse(const struct hb_floor_look *l, const char *rule, const char *what);
/* A simple command with whatever stands before its name. */
int hb_floor_words(const struct hb_floor_look *l, const char *const *words, size_t n);
/* The rules for the command `name`. */
int hb_floor_rule(const struct hb_floor_look *l, const char *name, const char *const *args,
		  size_t n);
bool hb_floor_is_device(const struct hb_floor_look *l, const char *path);
bool hb_floor_one_of(const char *const *names, size_t count, const char *name);
const char *hb_floor_base_name(const char *path);

/* A block device (or the machine's memory) that must not be written to as such. */
bool hb_floor_is_raw_device(const char *path);

#endif
