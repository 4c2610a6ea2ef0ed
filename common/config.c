/*
 * Values live in an array beside the table of keys. They come in three layers, the later winning:
 * defaults, the file, overrides. Each is checked against its key's type as it is put in, so that
 * the getters can't fail.
 */
#include "common/config_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/fields.h"
#include "common/fs.h"
#include "common/strict_ini.h"

static size_t
find_key(const char *name)
{
	size_t i;

	for (i = 0; i < hb_config_key_count; i++)
		if (strcmp(hb_config_keys[i].name, name) == 0)
			return i;
	return hb_config_key_count;
}

static const struct value *
get(const struct hb_config *c, const char *name, enum hb_config_type a, enum hb_config_type b)
{
	size_t i = find_key(name);

	if (i == hb_config_key_count ||
	    (hb_config_keys[i].type != a && hb_config_keys[i].type != b))
		abort();
	return &c->values[i];
}

static void
clear_value(struct value *v)
{
	free(v->text);
	free(v->split);
	free(v->items);
	*v = (struct value){0};
}

/* Digits with an optional K, M, G or T. */
static int
parse_number(const struct hb_config_key *key, const char *text, long long *out,
	     struct hb_error *err)
{
	static const char suffixes[] = "KMGT";
	const char *suffix;
	long long n;
	char *end;
	int shift = 0;

	errno = 0;
	n = strtoll(text, &end, 10);
	if (text[0] < '0' || text[0] > '9' || errno != 0)
		goto bad;
	if (key->type == HB_CONFIG_SIZE && *end != '\0' &&
	    (suffix = strchr(suffixes, *end)) != NULL) {
		shift = 10 * (int)(suffix - suffixes + 1);
		end++;
	}
	if (*end != '\0' || n > key->max >> shift || (n <<= shift) < key->min)
		goto bad;
	*out = n;
	return 0;
bad:
	return hb_fail(err, "config_invalid", "%s = %.80s: a %s from %lld to %lld is wanted",
		       key->name, text,
		       key->type == HB_CONFIG_SIZE ? "size (K, M, G, T)" : "number", key->min,
		       key->max);
}

static bool
is_word(const char *words, const char *text)
{
	size_t len = strlen(text), n;

	for (; *words != '\0'; words += n + (words[n] == ' ')) {
		n = strcspn(words, " ");
		if (len > 0 && n == len && memcmp(words, text, n) == 0)
			return true;
	}
	return false;
}

static char *
trim(char *text)
{
	size_t len;

	text += strspn(text, " \t");
	len = strlen(text);
	while (len > 0 && (text[len - 1] == ' ' || text[len - 1] == '\t'))
		text[--len] = '\0';
	return text;
}

static int
split_list(const struct hb_config_key *key, struct value *v, struct hb_error *err)
{
	char *rest, *item;
	size_t i, n = 1;

	v->split = hb_strdup(v->text);
	for (i = 0; v->text[i] != '\0'; i++)
		n += v->text[i] == ',';
	v->items = hb_calloc(n, sizeof(*v->items));
	rest = v->split;
	if (*trim(v->text) == '\0')
		return 0;
	while ((item = strsep(&rest, ",")) != NULL) {
		item = trim(item);
		if (*item == '\0')
			return hb_fail(err, "config_invalid", "%s: the list has an empty item",
				       key->name);
		v->items[v->item_count++] = item;
	}
	return 0;
}

/* Put `text` in as the value of `key`; *slot is untouched on failure. */
static int
set_value(const struct hb_config_key *key, struct value *slot, const char *text, enum layer layer,
	  int line, struct hb_error *err)
{
	struct value v = {.layer = layer, .line = line};
	long long n;
	int rc = 0;

	if (hb_text_check(key->name, text, 0, HB_INI_LINE_MAX, err) != 0 ||
	    strpbrk(text, "\r\n") != NULL)
		return hb_fail(err, "config_invalid",
			       "%s: the value must be one line of plain text", key->name);
	v.text = hb_strdup(text);
	switch (key->type) {
	case HB_CONFIG_TEXT:
		break;
	case HB_CONFIG_INT:
	case HB_CONFIG_SIZE:
		rc = parse_number(key, text, &n, err);
		break;
	case HB_CONFIG_BOOL:
		if (!is_word("yes no", text))
			rc = hb_fail(err, "config_invalid", "%s = %.80s: yes or no is wanted",
				     key->name, text);
		break;
	case HB_CONFIG_WORD:
		if (!is_word(key->words, text))
			rc = hb_fail(err, "config_invalid",
				     "%s = %.80s: one of these is wanted: %s", key->name, text,
				     key->words);
		break;
	case HB_CONFIG_LIST:
		rc = split_list(key, &v, err);
		break;
	}
	if (rc != 0) {
		clear_value(&v);
		return -1;
	}
	clear_value(slot);
	*slot = v;
	return 0;
}

/* The portable form of a variable's name, so that it can be shown and passed on without doubt. */
static bool
is_env_name(const char *name)
{
	static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_";

	return name[0] != '\0' && strchr(letters, name[0]) != NULL &&
	       name[strspn(name,
			   "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_0123456789")] ==
		       '\0';
}

static struct value *
env_slot(struct hb_config *c, const char *name)
{
	size_t i;

	for (i = 0; i < c->env_count; i++)
		if (strcmp(c->env[i].split, name) == 0)
			return &c->env[i];
	c->env = reallocarray(c->env, c->env_count + 1, sizeof(*c->env));
	if (c->env == NULL)
		abort();
	c->env[c->env_count] = (struct value){.split = hb_strdup(name)};
	return &c->env[c->env_count++];
}

static int
set_env(struct hb_config *c, const char *name, const char *text, enum layer layer, int line,
	struct hb_error *err)
{
	struct value *v;

	if (!is_env_name(name))
		return hb_fail(
			err, "config_invalid",
			"runtime.env.%.48s: a variable's name has letters, digits and _ only",
			name);
	if (hb_text_check(name, text, 0, HB_INI_LINE_MAX, err) != 0 ||
	    strpbrk(text, "\r\n") != NULL)
		return hb_fail(err, "config_invalid",
			       "runtime.env.%.48s: the value must be one line of plain text", name);
	v = env_slot(c, name);
	if (layer == IN_FILE && v->layer == IN_FILE)
		return hb_fail(err, "config_invalid", "runtime.env.%.48s is already set on line %d",
			       name, v->line);
	free(v->text);
	v->text = hb_strdup(text);
	v->layer = layer;
	v->line = line;
	return 0;
}

static int
set_named(struct hb_config *c, const char *name, const char *text, enum layer layer, int line,
	  struct hb_error *err)
{
	size_t i;

	if (strncmp(name, WILDCARD, WILDCARD_LEN) == 0)
		return set_env(c, name + WILDCARD_LEN, text, layer, line, err);
	i = find_key(name);
	if (i == hb_config_key_count)
		return hb_fail(err, "config_invalid", "there is no key %.100s", name);
	if (layer == IN_FILE && c->values[i].layer == IN_FILE)
		return hb_fail(err, "config_invalid", "%s is already set on line %d", name,
			       c->values[i].line);
	return set_value(&hb_config_keys[i], &c->values[i], text, layer, line, err);
}

static int
on_pair(const char *section, const char *name, const char *value, int line, void *arg,
	struct hb_error *err)
{
	char full[128];

	snprintf(full, sizeof(full), "%s.%s", section, name);
	return set_named(arg, full, value, IN_FILE, line, err);
}

static struct hb_config *
new_config(void)
{
	struct hb_config *c = hb_calloc(1, sizeof(*c));
	char *words, *rest, *word, *equals;
	struct hb_error err;
	size_t i;

	c->values = hb_calloc(hb_config_key_count, sizeof(*c->values));
	for (i = 0; i < hb_config_key_count; i++) {
		/* A default that doesn't fit its own type is a mistake in the table. */
		if (strcmp(hb_config_keys[i].name, WILDCARD) != 0 &&
		    set_value(&hb_config_keys[i], &c->values[i], hb_config_keys[i].fallback,
			      DEFAULTS, 0, &err) != 0)
			abort();
	}
	words = rest = hb_strdup(hb_config_keys[find_key(WILDCARD)].fallback);
	while ((word = strsep(&rest, " ")) != NULL) {
		equals = strchr(word, '=');
		if (equals == NULL)
			abort();
		*equals = '\0';
		if (set_env(c, word, equals + 1, DEFAULTS, 0, &err) != 0)
			abort();
	}
	free(words);
	return c;
}

/*
 * Platform pins belong to one image. They are dropped when the image was chosen in a later layer
 * than they were, or when the built-in pins stand beside an image that is not the built-in one.
 */
static void
drop_stale_pins(struct hb_config *c)
{
	size_t image_at = find_key("runtime.image"), pins_at = find_key("runtime.platform_digest");
	const struct hb_config_key *image_key = &hb_config_keys[image_at];
	const struct hb_config_key *pins_key = &hb_config_keys[pins_at];
	struct value *image = &c->values[image_at], *pins = &c->values[pins_at];

	if (strcmp(image->text, image_key->fallback) == 0 &&
	    strcmp(pins->text, pins_key->fallback) == 0)
		return;
	if (image->layer > pins->layer || (strcmp(image->text, image_key->fallback) != 0 &&
					   strcmp(pins->text, pins_key->fallback) == 0))
		if (set_value(pins_key, pins, "", pins->layer, pins->line, NULL) != 0)
			abort();
}

static int
finish(struct hb_config *c, const char *const *overrides, size_t count, struct hb_error *err)
{
	char port[32];
	const char *equals;
	size_t i;

	for (i = 0; i < count; i++) {
		char *name;
		int rc;

		equals = strchr(overrides[i], '=');
		if (equals == NULL)
			return hb_fail(err, "config_invalid", "%.100s: section.key=value is wanted",
				       overrides[i]);
		name = strndup(overrides[i], (size_t)(equals - overrides[i]));
		if (name == NULL)
			abort();
		rc = set_named(c, name, equals + 1, OVERRIDE, 0, err);
		free(name);
		if (rc != 0)
			return -1;
	}
	drop_stale_pins(c);
	snprintf(port, sizeof(port), "%lld", hb_config_int(c, "runtime.port"));
	if (env_slot(c, "PORT")->text == NULL && set_env(c, "PORT", port, DEFAULTS, 0, err) != 0)
		return -1;
	c->env_names = hb_calloc(c->env_count, sizeof(*c->env_names));
	c->env_values = hb_calloc(c->env_count, sizeof(*c->env_values));
	for (i = 0; i < c->env_count; i++) {
		c->env_names[i] = c->env[i].split;
		c->env_values[i] = c->env[i].text;
	}
	return 0;
}

static int
read_file(int dirfd, const char *path, struct hb_buf *text, struct hb_error *err)
{
	struct hb_error e;

	/* What decides about isolation and listeners may be written by root, or by whoever we are.
	 */
	if (hb_fs_read_trusted(dirfd, path, geteuid(), HB_INI_FILE_MAX, text, &e) == 0)
		return 0;
	if (strcmp(e.code, "not_found") == 0)
		return hb_fail(err, "config_missing", "the configuration can't be read: %s",
			       e.message);
	if (strcmp(e.code, "open_failed") == 0 || strcmp(e.code, "unsafe_path") == 0)
		return hb_fail(err, "config_unreadable", "the configuration can't be read: %s",
			       e.message);
	return hb_fail(err, e.code, "%s", e.message);
}

int
hb_config_load(int dirfd, const char *path, const char *const *overrides, size_t override_count,
	       struct hb_config **out, struct hb_error *err)
{
	struct hb_buf text = HB_BUF_INIT;
	struct hb_config *c = NULL;
	struct hb_error e;
	int rc = -1;

	if (read_file(dirfd, path, &text, err) != 0)
		goto out;
	c = new_config();
	if (hb_ini_parse(path, text.len > 0 ? text.data : "", text.len, on_pair, c, &e) != 0) {
		hb_fail(err, "config_invalid", "%s", e.message);
		goto out;
	}
	if (finish(c, overrides, override_count, err) != 0)
		goto out;
	*out = c;
	c = NULL;
	rc = 0;
out:
	hb_config_free(c);
	hb_buf_free(&text);
	return rc;
}

int
hb_config_defaults(const char *const *overrides, size_t override_count, struct hb_config **out,
		   struct hb_error *err)
{
	struct hb_config *c = new_config();

	if (finish(c, overrides, override_count, err) != 0) {
		hb_config_free(c);
		return -1;
	}
	*out = c;
	return 0;
}

void
hb_config_free(struct hb_config *c)
{
	size_t i;

	if (c == NULL)
		return;
	for (i = 0; i < hb_config_key_count; i++)
		clear_value(&c->values[i]);
	for (i = 0; i < c->env_count; i++)
		clear_value(&c->env[i]);
	free(c->values);
	free(c->env);
	free(c->env_names);
	free(c->env_values);
	free(c);
}

const char *
hb_config_text(const struct hb_config *c, const char *name)
{
	return get(c, name, HB_CONFIG_TEXT, HB_CONFIG_WORD)->text;
}

long long
hb_config_int(const struct hb_config *c, const char *name)
{
	const struct value *v = get(c, name, HB_CONFIG_INT, HB_CONFIG_SIZE);
	long long n = 0;

	if (parse_number(&hb_config_keys[v - c->values], v->text, &n, NULL) != 0)
		abort();
	return n;
}

bool
hb_config_bool(const struct hb_config *c, const char *name)
{
	return strcmp(get(c, name, HB_CONFIG_BOOL, HB_CONFIG_BOOL)->text, "yes") == 0;
}

size_t
hb_config_list(const struct hb_config *c, const char *name, const char ***items)
{
	const struct value *v = get(c, name, HB_CONFIG_LIST, HB_CONFIG_LIST);

	*items = v->items;
	return v->item_count;
}

size_t
hb_config_env(const struct hb_config *c, const char ***names, const char ***values)
{
	*names = c->env_names;
	*values = c->env_values;
	return c->env_count;
}
