/*
 * A hand-written scanner over one string. The only ambiguity of the grammar is that a comma
 * separates both challenges and parameters: a name followed by "=" is a parameter, any other name
 * begins a challenge.
 */
#include "fetcher/challenge.h"

#include <stdbool.h>
#include <string.h>
#include <strings.h>

struct scanner {
	const char *at;
	struct hb_error *err;
};

static bool
is_token(unsigned char c)
{
	return c > 0x20 && c < 0x7f && !strchr("()<>@,;:\\\"/[]?={}", c);
}

static bool
is_token68(unsigned char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
	       (c && strchr("-._~+/", c));
}

static void
skip_blank(struct scanner *s)
{
	while (*s->at == ' ' || *s->at == '\t')
		s->at++;
}

static void
skip_separators(struct scanner *s)
{
	while (*s->at == ' ' || *s->at == '\t' || *s->at == ',')
		s->at++;
}

static int
read_token(struct scanner *s, char *out, size_t size)
{
	size_t n = 0;

	while (is_token((unsigned char)s->at[n]))
		n++;
	if (n == 0 || n >= size)
		return hb_fail(s->err, "bad_challenge",
			       "the registry's WWW-Authenticate header is malformed: a name was "
			       "expected");
	memcpy(out, s->at, n);
	out[n] = '\0';
	s->at += n;
	return 0;
}

static int
read_value(struct scanner *s, char *out, size_t size)
{
	size_t n = 0;

	if (*s->at != '"')
		return read_token(s, out, size);
	for (s->at++; *s->at != '"'; s->at++) {
		if (*s->at == '\\' && s->at[1])
			s->at++;
		if ((unsigned char)*s->at < 0x20 || *s->at == 0x7f)
			return hb_fail(s->err, "bad_challenge",
				       "the registry's WWW-Authenticate header has an "
				       "unterminated string or a control character");
		if (n + 1 >= size)
			return hb_fail(s->err, "bad_challenge",
				       "the registry's WWW-Authenticate header has a value that is "
				       "too long");
		out[n++] = *s->at;
	}
	s->at++;
	out[n] = '\0';
	return 0;
}

/* "Negotiate YII=": one run of token68 characters and padding that ends the challenge. */
static bool
skip_token68(struct scanner *s)
{
	const char *p = s->at;

	while (is_token68((unsigned char)*p))
		p++;
	if (p == s->at)
		return false;
	while (*p == '=')
		p++;
	while (*p == ' ' || *p == '\t')
		p++;
	if (*p && *p != ',')
		return false;
	s->at = p;
	return true;
}

/* Is what stands here "name = value"? Decides between a parameter and the next scheme. */
static bool
at_parameter(const struct scanner *s)
{
	const char *p = s->at;

	while (is_token((unsigned char)*p))
		p++;
	if (p == s->at)
		return false;
	while (*p == ' ' || *p == '\t')
		p++;
	if (*p++ != '=')
		return false;
	while (*p == ' ' || *p == '\t')
		p++;
	return *p == '"' || is_token((unsigned char)*p);
}

static int
read_parameter(struct scanner *s, struct hb_challenge *c, unsigned *seen)
{
	static const char *const names[] = {"realm", "service", "scope"};
	char *fields[] = {c->realm, c->service, c->scope};
	const size_t sizes[] = {sizeof(c->realm), sizeof(c->service), sizeof(c->scope)};
	char name[64], other[2048];
	size_t i;

	if (read_token(s, name, sizeof(name)))
		return -1;
	skip_blank(s);
	s->at++; /* '=', seen by at_parameter */
	skip_blank(s);
	for (i = 0; i < 3 && strcasecmp(name, names[i]) != 0; i++)
		;
	if (i == 3)
		return read_value(s, other, sizeof(other));
	if (*seen & (1u << i))
		return hb_fail(s->err, "bad_challenge",
			       "the registry's WWW-Authenticate header gives \"%s\" twice",
			       names[i]);
	*seen |= 1u << i;
	return read_value(s, fields[i], sizes[i]);
}

static int
read_challenge(struct scanner *s, struct hb_challenge *c)
{
	char scheme[64];
	unsigned seen = 0;

	memset(c, 0, sizeof(*c));
	if (read_token(s, scheme, sizeof(scheme)))
		return -1;
	if (strcasecmp(scheme, "Bearer") == 0)
		c->scheme = HB_AUTH_BEARER;
	else if (strcasecmp(scheme, "Basic") == 0)
		c->scheme = HB_AUTH_BASIC;
	if (*s->at && *s->at != ' ' && *s->at != '\t' && *s->at != ',')
		return hb_fail(s->err, "bad_challenge",
			       "the registry's WWW-Authenticate header is malformed after \"%s\"",
			       scheme);
	skip_blank(s);
	if (*s->at == ',' || !*s->at)
		return 0;
	if (!at_parameter(s))
		return skip_token68(s) ? 0
				       : hb_fail(s->err, "bad_challenge",
						 "the registry's WWW-Authenticate header is "
						 "malformed after \"%s\"",
						 scheme);
	while (at_parameter(s)) {
		if (read_parameter(s, c, &seen))
			return -1;
		skip_separators(s);
	}
	return 0;
}

int
hb_challenge_parse(const char *text, struct hb_challenge out[HB_CHALLENGE_MAX], size_t *count,
		   struct hb_error *err)
{
	struct scanner s = {text, err};
	size_t n = 0;

	if (strlen(text) > HB_CHALLENGE_TEXT_MAX)
		return hb_fail(err, "bad_challenge",
			       "the registry's WWW-Authenticate header is too long");
	for (skip_separators(&s); *s.at; skip_separators(&s)) {
		if (n == HB_CHALLENGE_MAX)
			return hb_fail(err, "bad_challenge",
				       "the registry sent more than %d challenges",
				       HB_CHALLENGE_MAX);
		if (read_challenge(&s, &out[n]))
			return -1;
		n++;
	}
	*count = n;
	return 0;
}
