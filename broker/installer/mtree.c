/* One mtree line: escaping, formatting, strict parsing. */
#include "broker/installer/mtree.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Backslash, blanks and "=" separate; "#" comments; "*", "?" and "[" are patterns to mtree(8). */
static bool is_plain(unsigned char c)
{
	return c > 0x20 && c < 0x7f && strchr("\\#=*?[", c) == NULL;
}

void hb_mtree_escape(struct hb_buf *out, const char *bytes, size_t len)
{
	size_t from = 0;
	char octal[4];

	for (size_t i = 0; i < len; i++) {
		unsigned char c = (unsigned char)bytes[i];

		if (is_plain(c))
			continue;
		hb_buf_add(out, bytes + from, i - from);
		octal[0] = '\\';
		octal[1] = (char)('0' + (c >> 6));
		octal[2] = (char)('0' + (c >> 3 & 7));
		octal[3] = (char)('0' + (c & 7));
		hb_buf_add(out, octal, sizeof(octal));
		from = i + 1;
	}
	hb_buf_add(out, bytes + from, len - from);
}

int hb_mtree_unescape(char *text)
{
	char *to = text;
	unsigned value;

	for (const char *p = text; *p != '\0'; p++) {
		if (*p != '\\') {
			*to++ = *p;
			continue;
		}
		value = 0;
		for (int i = 0; i < 3; i++) {
			p++;
			if (*p < '0' || *p > '7')
				return -1;
			value = value * 8 + (unsigned)(*p - '0');
		}
		if (value == 0 || value > 255)
			return -1;
		*to++ = (char)value;
	}
	*to = '\0';
	return 0;
}

static const char *type_name(mode_t mode)
{
	return S_ISDIR(mode) ? "dir" : S_ISLNK(mode) ? "link" : "file";
}

void hb_mtree_format(const struct hb_mtree_entry *e, struct hb_buf *out)
{
	hb_mtree_escape(out, e->path, strlen(e->path));
	hb_buf_printf(out, " type=%s mode=%04o", type_name(e->mode), (unsigned)(e->mode & 07777));
	if (S_ISREG(e->mode))
		hb_buf_printf(out, " size=%" PRIu64, e->size);
	hb_buf_printf(out, " time=%" PRId64 ".%09u", e->mtime, (unsigned)e->mtime_ns);
	if (e->nlink > 1)
		hb_buf_printf(out, " nlink=%" PRIu64 " inode=%" PRIu64, e->nlink, e->group);
	if (S_ISLNK(e->mode)) {
		hb_buf_adds(out, " link=");
		hb_mtree_escape(out, e->link, strlen(e->link));
	}
	if (S_ISREG(e->mode)) {
		hb_buf_adds(out, " sha256digest=");
		hb_buf_adds(out, e->sha256);
	}
	hb_buf_addc(out, '\n');
}

static int parse_number(const char *text, int base, uint64_t *out)
{
	char *end;

	if (text[0] < '0' || text[0] > '9')
		return -1;
	*out = strtoull(text, &end, base);
	return *end == '\0' ? 0 : -1;
}

static int parse_time(char *text, struct hb_mtree_entry *e)
{
	char *dot = strchr(text, '.'), *end;
	uint64_t ns;

	if (dot == NULL || strlen(dot + 1) != 9 || parse_number(dot + 1, 10, &ns) < 0)
		return -1;
	*dot = '\0';
	e->mtime = strtoll(text, &end, 10);
	e->mtime_ns = (uint32_t)ns;
	return end != text && *end == '\0' ? 0 : -1;
}

static int parse_type(const char *text, struct hb_mtree_entry *e)
{
	if (strcmp(text, "file") == 0)
		e->mode |= S_IFREG;
	else if (strcmp(text, "dir") == 0)
		e->mode |= S_IFDIR;
	else if (strcmp(text, "link") == 0)
		e->mode |= S_IFLNK;
	else
		return -1;
	return 0;
}

static int parse_word(char *key, char *value, struct hb_mtree_entry *e)
{
	uint64_t n = 0;

	if (strcmp(key, "type") == 0)
		return parse_type(value, e);
	if (strcmp(key, "mode") == 0) {
		if (parse_number(value, 8, &n) < 0 || n > 07777)
			return -1;
		e->mode |= (mode_t)n;
		return 0;
	}
	if (strcmp(key, "size") == 0)
		return parse_number(value, 10, &e->size);
	if (strcmp(key, "time") == 0)
		return parse_time(value, e);
	if (strcmp(key, "nlink") == 0)
		return parse_number(value, 10, &e->nlink);
	if (strcmp(key, "inode") == 0)
		return parse_number(value, 10, &e->group);
	if (strcmp(key, "link") == 0) {
		e->link = value;
		return hb_mtree_unescape(value);
	}
	if (strcmp(key, "sha256digest") == 0 && hb_is_hex64(value)) {
		memcpy(e->sha256, value, sizeof(e->sha256));
		return 0;
	}
	return -1;
}

int hb_mtree_parse(char *line, struct hb_mtree_entry *e, struct hb_error *err)
{
	char *save = NULL, *word, *equals, *path;

	*e = (struct hb_mtree_entry){0};
	path = strtok_r(line, " ", &save);
	if (path == NULL || path[0] != '.' || (path[1] != '/' && path[1] != '\0') ||
	    hb_mtree_unescape(path) < 0)
		return hb_fail(err, "bad_manifest",
			       "a line of the tree manifest has no valid path");
	e->path = path;
	while ((word = strtok_r(NULL, " ", &save)) != NULL) {
		equals = strchr(word, '=');
		if (equals == NULL)
			break;
		*equals = '\0';
		if (parse_word(word, equals + 1, e) < 0)
			break;
	}
	if (word != NULL || (e->mode & S_IFMT) == 0 || (S_ISLNK(e->mode) && e->link == NULL) ||
	    (S_ISREG(e->mode) && e->sha256[0] == '\0'))
		return hb_fail(err, "bad_manifest", "a line of the tree manifest is not valid");
	return 0;
}

/* A slash sorts above the end of a path and below every other byte. */
static int weight(char c)
{
	return c == '\0' ? 0 : c == '/' ? 1 : (unsigned char)c + 1;
}

int hb_mtree_compare(const char *a, const char *b)
{
	int x, y;

	while (*a == *b && *a != '\0') {
		a++;
		b++;
	}
	x = weight(*a);
	y = weight(*b);
	return x < y ? -1 : x > y;
}
