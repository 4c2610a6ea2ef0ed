/* The patterns, in tables (credential.h). No regular expressions. Callers bound the length first: a
 * rule may look from every word to the end. */
#include "onboarding/credential.h"

#include <ctype.h>
#include <math.h>
#include <sodium.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "common/buf.h"

/* Of a value behind "Bearer" or a cookie's name: shorter ones are words of a sentence. */
#define WORD_MIN 6
#define HEX_RUN 32 /* 128 bits */
#define HEX_BITS 2.0
/* Entropy of a character: twenty different-looking ones, not "aaaa1111aaaa1111". */
#define SPREAD_BITS 3.3
#define DIGIT_GROUPS 3
#define CHANGES_PERCENT 45
#define LETTERS_RUN 24 /* letters of one size alone, so only with a spread that no words have */
#define LETTERS_BITS 4.3
#define MIXED_LEAST 24	/* 144 bits of base64 */
#define MIXED_WINDOW 32 /* so that words behind a key don't dilute it */
#define ENCODED_DEPTH 3 /* an address inside an address inside an address */

/* A prefix at the beginning of a word, and how many characters of a token must follow. */
static const struct {
	const char *prefix, *name;
	size_t least;
} prefixes[] = {
	{"ghp_", "a GitHub token", 16},
	{"gho_", "a GitHub token", 16},
	{"ghu_", "a GitHub token", 16},
	{"ghs_", "a GitHub token", 16},
	{"ghr_", "a GitHub token", 16},
	{"github_pat_", "a GitHub token", 16},
	{"glpat-", "a GitLab token", 16},
	{"xoxa-", "a Slack token", 8},
	{"xoxb-", "a Slack token", 8},
	{"xoxp-", "a Slack token", 8},
	{"xoxr-", "a Slack token", 8},
	{"xoxs-", "a Slack token", 8},
	{"xoxe-", "a Slack token", 8},
	{"xoxe.", "a Slack token", 8},
	{"xapp-", "a Slack token", 8},
	{"sk-", "an API key", 12},
	{"sk_live_", "a payment key", 8},
	{"sk_test_", "a payment key", 8},
	{"rk_live_", "a payment key", 8},
	{"rk_test_", "a payment key", 8},
	{"whsec_", "a webhook secret", 8},
	{"AKIA", "an AWS key id", 16},
	{"ASIA", "an AWS key id", 16},
	{"AIza", "a Google API key", 20},
	{"ya29.", "a Google access token", 8},
	{"1//0", "a Google refresh token", 16},
	{"GOCSPX-", "a Google client secret", 8},
	{"secret_", "a Notion token", 20},
	{"ntn_", "a Notion token", 20},
	{"npm_", "an npm token", 20},
	{"pypi-", "a PyPI token", 16},
	{"hf_", "a Hugging Face token", 16},
	{"dop_v1_", "a DigitalOcean token", 16},
	{"shpat_", "a Shopify token", 16},
	{"lin_api_", "a Linear key", 16},
	{"SG.", "a SendGrid key", 16},
	{"EAAC", "a Meta token", 20},
	{"AGE-SECRET-KEY-1", "an age identity", 8},
};

/* Anywhere, in any case. */
static const struct {
	const char *text, *name;
} phrases[] = {
	{"-----begin", "a PEM block"},
	{"private key-----", "a private key"},
	{"openssh private key", "a private key"},
	{"putty-user-key-file", "a private key"},
	{"set-cookie:", "a cookie"},
	{"__secure-", "a cookie"},
	{"__host-", "a cookie"},
	{"hooks.slack.com/services/", "a webhook address"},
	{"/api/webhooks/", "a webhook address"},
	{"authorization:", "an Authorization header"},
	{"x-api-key:", "an API key header"},
};

/* A name, then = or :, then a value: `password=...`, "api_key": "...". Compared without case, '-'
 * and '_'. */
static const char *const pair_names[] = {
	"password",	"passwd",	 "passphrase",	 "pwd",		 "secret",
	"clientsecret", "token",	 "accesstoken",	 "refreshtoken", "idtoken",
	"authtoken",	"bearertoken",	 "sessiontoken", "apikey",	 "apitoken",
	"accesskey",	"secretkey",	 "privatekey",	 "signingkey",	 "credential",
	"credentials",	"authorization", "sig",		 "signature",	 "xamzsignature",
	"bottoken",	"webhooksecret", "otp",
};
static const char *const cookie_names[] = {"cookie",	 "session",    "sessionid",
					   "sid",	 "connectsid", "phpsessid",
					   "jsessionid", "csrftoken",  "xsrftoken"};

static bool token_char(unsigned char c)
{
	return isalnum(c) || c == '_' || c == '-' || c == '.' || c == '/' || c == '+' || c == '=' ||
	       c == '~';
}

/* Signed cookies have colons in them. */
static bool cookie_char(unsigned char c)
{
	return token_char(c) || c == ':';
}

static size_t run_of(const char *p, const char *end, bool (*is)(unsigned char))
{
	size_t n = 0;

	while (p + n < end && is((unsigned char)p[n]))
		n++;
	return n;
}

static bool is_alnum(unsigned char c)
{
	return c < 0x80 && isalnum(c);
}

static bool is_base64url(unsigned char c)
{
	return is_alnum(c) || c == '-' || c == '_';
}

static bool is_digit(unsigned char c)
{
	return c >= '0' && c <= '9';
}

static bool begins(const char *p, const char *end, const char *with)
{
	size_t n = strlen(with);

	return (size_t)(end - p) >= n && strncmp(p, with, n) == 0;
}

static bool begins_nocase(const char *p, const char *end, const char *with)
{
	size_t n = strlen(with);

	return (size_t)(end - p) >= n && strncasecmp(p, with, n) == 0;
}

static const char *by_prefix(const char *p, const char *end)
{
	for (size_t i = 0; i < sizeof prefixes / sizeof prefixes[0]; i++)
		if (begins(p, end, prefixes[i].prefix) &&
		    run_of(p + strlen(prefixes[i].prefix), end, token_char) >= prefixes[i].least)
			return prefixes[i].name;
	return NULL;
}

/* eyJ is the base64url of `{"`: header, payload, and perhaps no signature (RFC 7519, 6). */
static bool is_jwt(const char *p, const char *end)
{
	size_t head, body;

	if (!begins(p, end, "eyJ"))
		return false;
	head = run_of(p, end, is_base64url);
	if (head < 10 || p + head >= end || p[head] != '.')
		return false;
	body = run_of(p + head + 1, end, is_base64url);
	return body >= 4;
}

/* 123456789:AA..., and the three parts of a chat bot's token. */
static bool is_bot_token(const char *p, const char *end)
{
	size_t a = run_of(p, end, is_digit), b;

	if (a >= 6 && a <= 12 && p + a < end && p[a] == ':' &&
	    run_of(p + a + 1, end, is_base64url) >= 30)
		return true;
	a = run_of(p, end, is_base64url);
	if (a < 22 || a > 30 || p + a >= end || p[a] != '.')
		return false;
	b = run_of(p + a + 1, end, is_base64url);
	if (b < 5 || b > 8 || p + a + 1 + b >= end || p[a + 1 + b] != '.')
		return false;
	return run_of(p + a + b + 2, end, is_base64url) >= 20;
}

static bool is_uuid(const char *p, const char *end)
{
	static const size_t parts[] = {8, 4, 4, 4, 12};

	for (size_t i = 0; i < 5; i++) {
		for (size_t k = 0; k < parts[i]; k++, p++)
			if (p >= end || !isxdigit((unsigned char)*p))
				return false;
		if (i < 4 && (p >= end || *p++ != '-'))
			return false;
	}
	return true;
}

static const char *by_scheme(const char *p, const char *end)
{
	static const struct {
		const char *scheme, *name;
	} schemes[] = {{"Bearer ", "a bearer token"}, {"Basic ", "basic credentials"}};

	for (size_t i = 0; i < 2; i++) {
		size_t n = strlen(schemes[i].scheme), len;
		bool odd = false;

		if (!begins_nocase(p, end, schemes[i].scheme))
			continue;
		len = run_of(p + n, end, token_char);
		for (size_t k = 0; k < len; k++)
			odd = odd || !islower((unsigned char)p[n + k]);
		if (len >= WORD_MIN &&
		    (odd || len >= HB_CREDENTIAL_RUN)) /* not: "bearer tokens are ..." */
			return schemes[i].name;
	}
	return NULL;
}

/* Is the name that ends before `at` one of these? Letters and digits count; '-', '_', '.' inside
 * are skipped. */
static bool name_before(const char *text, const char *at, const char *const *names, size_t count)
{
	char name[24];
	size_t n = sizeof name;
	const char *p = at;

	while (p > text && (p[-1] == ' ' || p[-1] == '\t' || p[-1] == '"' || p[-1] == '\''))
		p--;
	for (; p > text && (is_alnum((unsigned char)p[-1]) || strchr("-_.", p[-1])); p--) {
		if (!is_alnum((unsigned char)p[-1]))
			continue;
		if (n == 0)
			return false;
		name[--n] = (char)tolower((unsigned char)p[-1]);
	}
	for (size_t i = 0; i < count; i++) {
		size_t len = strlen(names[i]);

		if (sizeof name - n == len && memcmp(name + n, names[i], len) == 0)
			return true;
	}
	return false;
}

static const char *by_pair(const char *text, const char *p, const char *end)
{
	const char *value = p + 1;
	size_t len;

	if (*p != '=' && *p != ':')
		return NULL;
	while (value < end && strchr(" \t\"'`=>", *value) && *value)
		value++;
	len = run_of(value, end, token_char);
	if (len >= 3 && name_before(text, p, pair_names, sizeof pair_names / sizeof pair_names[0]))
		return "a name with a secret value";
	if (run_of(value, end, cookie_char) >= WORD_MIN &&
	    name_before(text, p, cookie_names, sizeof cookie_names / sizeof cookie_names[0]))
		return "a cookie";
	return NULL;
}

/* scheme://user@host or scheme://user:password@host (RFC 3986, 3.2.1). */
static bool has_userinfo(const char *p, const char *end)
{
	if (!begins(p, end, "://"))
		return false;
	for (p += 3; p < end && !isspace((unsigned char)*p) && !strchr("/?#\"'<>`", *p); p++)
		if (*p == '@')
			return true;
	return false;
}

static double bits(const char *p, size_t len)
{
	size_t count[256] = {0};
	double sum = 0;

	for (size_t i = 0; i < len; i++)
		count[(unsigned char)p[i]]++;
	for (size_t c = 0; c < 256; c++)
		if (count[c])
			sum -= (double)count[c] / (double)len *
			       log2((double)count[c] / (double)len);
	return sum;
}

enum char_class { LOWER, UPPER, DIGIT };

static enum char_class class_of(unsigned char c)
{
	return is_digit(c) ? DIGIT : isupper(c) ? UPPER : LOWER;
}

/*
 * One unbroken run of letters and digits. Words run together (aLongNameOfTheV3Kind) have as much
 * entropy as keys of the same length, but change between small letters, capitals and digits about
 * every third character; keys do so at more than every second.
 */
static bool is_random(const char *p, size_t len)
{
	size_t hex = 0, groups = 0, changes = 0;
	enum char_class before = LOWER;

	if (len < HB_CREDENTIAL_RUN)
		return false;
	for (size_t i = 0; i < len; i++) {
		enum char_class now = class_of((unsigned char)p[i]);

		hex += isxdigit((unsigned char)p[i]) != 0;
		groups += now == DIGIT && (i == 0 || before != DIGIT);
		changes += i > 0 && now != before;
		before = now;
	}
	if (hex == len && len >= HEX_RUN && groups > 0 && bits(p, len) > HEX_BITS)
		return true;
	if (bits(p, len) >= SPREAD_BITS &&
	    (groups >= DIGIT_GROUPS || changes * 100 >= len * CHANGES_PERCENT))
		return true;
	return len >= LETTERS_RUN && changes == 0 && bits(p, len) >= LETTERS_BITS;
}

/*
 * Base64 in either alphabet (RFC 4648, 4 and 5): its two signs cut a key into runs that are too
 * short to be judged one by one. Judged without the signs, from each word on; more strictly than
 * one run, as names with hyphens and paths are written this way too.
 */
static bool is_mixed(const char *p, const char *end)
{
	size_t count[3] = {0}, len = 0, changes = 0;
	enum char_class before = LOWER;

	for (; p < end && len < MIXED_WINDOW; p++) {
		enum char_class now;

		if (!is_alnum((unsigned char)*p)) {
			/* One sign after the other is a ruler or a path, and no key's. */
			if (!strchr("+/-_", *p) || !*p ||
			    (p + 1 < end && p[1] && strchr("+/-_", p[1])))
				break;
			continue;
		}
		now = class_of((unsigned char)*p);
		count[now]++;
		changes += len > 0 && now != before;
		before = now;
		len++;
	}
	return len >= MIXED_LEAST && count[LOWER] && count[UPPER] && count[DIGIT] &&
	       changes * 100 >= len * CHANGES_PERCENT;
}

static const char *at_word(const char *text, const char *p, const char *end)
{
	const char *name;
	size_t run;

	if (p > text && is_alnum((unsigned char)p[-1]))
		return NULL;
	if ((name = by_prefix(p, end)) || (name = by_scheme(p, end)))
		return name;
	if (is_jwt(p, end))
		return "a JSON Web Token";
	if (is_bot_token(p, end))
		return "a bot token";
	if (is_uuid(p, end))
		return "a UUID, which some services use as a key";
	run = run_of(p, end, is_alnum);
	return is_random(p, run) || is_mixed(p, end) ? "a long random string" : NULL;
}

static const char *find_plain(const char *text, size_t len)
{
	const char *end = text + len, *name;

	for (const char *p = text; p < end; p++) {
		for (size_t i = 0; i < sizeof phrases / sizeof phrases[0]; i++)
			if (begins_nocase(p, end, phrases[i].text))
				return phrases[i].name;
		if ((name = at_word(text, p, end)) || (name = by_pair(text, p, end)))
			return name;
		if (has_userinfo(p, end))
			return "a URL with a user or password in it";
	}
	return NULL;
}

/* %3D and the like become what they stand for (RFC 3986, 2.1), in place; false: there was none. */
static bool decode(char *text, size_t *len)
{
	size_t to = 0;

	for (size_t from = 0; from < *len; from++, to++) {
		char hex[3] = "";

		if (text[from] == '%' && *len - from > 2 &&
		    isxdigit((unsigned char)text[from + 1]) &&
		    isxdigit((unsigned char)text[from + 2])) {
			memcpy(hex, text + from + 1, 2);
			text[to] = (char)strtol(hex, NULL, 16);
			from += 2;
		} else
			text[to] = text[from];
	}
	if (to == *len)
		return false;
	*len = to;
	return true;
}

const char *hb_credential_find(const char *text, size_t len)
{
	const char *name = find_plain(text, len);
	size_t size = len;
	char *plain;

	if (name || !memchr(text, '%', len))
		return name;
	plain = hb_calloc(len + 1, 1);
	memcpy(plain, text, len);
	for (int i = 0; !name && i < ENCODED_DEPTH && decode(plain, &len); i++)
		name = find_plain(plain, len);
	sodium_memzero(plain, size);
	free(plain);
	return name;
}

int hb_credential_refuse(const char *field, const char *text, struct hb_error *err)
{
	const char *name = hb_credential_find(text, strlen(text));

	if (!name)
		return 0;
	return hb_fail(err, "looks_like_credential",
		       "%s holds what looks like %s; it is not shown and was not stored. "
		       "Credentials belong into the runtime "
		       "(or `hermesctl runtime key set`), never here: if it is one, replace it "
		       "where it was made",
		       field, name);
}
