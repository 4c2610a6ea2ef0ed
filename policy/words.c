/* The lexer of POSIX XCU 2.3 and 2.2 (token recognition, quoting), as far as the floor needs it;
 * see words.h. */
#include "policy/words.h"

#include <stdlib.h>
#include <string.h>

#include "common/buf.h"

static const char *const operators[] = {"&>>", "<<<", "<<-", "&&", "||", ";;", "|&", "&>",
					">>",  "<<",  "<&",  ">&", "<>", ">|", "|",  "&",
					";",   "(",   ")",   "<",  ">",  "\n"};

static void *grow(void *items, size_t count, size_t *cap, size_t size)
{
	if (count < *cap)
		return items;
	*cap = *cap ? *cap * 2 : 16;
	items = reallocarray(items, *cap, size);
	if (!items)
		abort();
	return items;
}

static void add_token(struct hb_words *w, bool op, char *text)
{
	w->tokens = grow(w->tokens, w->count, &w->cap, sizeof(*w->tokens));
	w->tokens[w->count++] = (struct hb_token){.op = op, .text = text};
}

static void add_nested(struct hb_words *w, const char *text, size_t len)
{
	struct hb_buf copy = HB_BUF_INIT;

	hb_buf_add(&copy, text, len);
	w->nested = grow(w->nested, w->nested_count, &w->nested_cap, sizeof(*w->nested));
	w->nested[w->nested_count++] = hb_buf_take(&copy);
}

static int hex_digit(char c)
{
	const char *digits = "0123456789abcdef", *at;

	if (c >= 'A' && c <= 'F')
		c = (char)(c - 'A' + 'a');
	at = c ? strchr(digits, c) : NULL;
	return at ? (int)(at - digits) : -1;
}

/* One escape of $'...', p behind the backslash; returns what follows it. */
static const char *ansi_escape(const char *p, struct hb_buf *word)
{
	static const char from[] = "abefnrtv", to[] = "\a\b\033\f\n\r\t\v";
	const char *at = *p ? strchr(from, *p) : NULL;
	int value = 0, digits = 0;

	if (at) {
		hb_buf_addc(word, to[at - from]);
		return p + 1;
	}
	if (*p == 'x') {
		while (digits < 2 && hex_digit(p[1 + digits]) >= 0)
			value = value * 16 + hex_digit(p[1 + digits++]);
		if (digits > 0 && value != 0)
			hb_buf_addc(word, (char)value);
		return p + 1 + digits;
	}
	while (digits < 3 && p[digits] >= '0' && p[digits] <= '7')
		value = value * 8 + (p[digits++] - '0');
	if (digits > 0) {
		if (value != 0)
			hb_buf_addc(word, (char)value);
		return p + digits;
	}
	if (*p == '\0')
		return p;
	hb_buf_addc(word, *p);
	return p + 1;
}

static const char *ansi_quoted(const char *p, struct hb_buf *word)
{
	while (*p && *p != '\'') {
		if (*p == '\\')
			p = ansi_escape(p + 1, word);
		else
			hb_buf_addc(word, *p++);
	}
	return *p ? p + 1 : p;
}

/* `p` behind "$(" ; returns what follows the matching ")". Quotes inside keep their parentheses to
 * themselves. */
static const char *substitution(struct hb_words *w, const char *p, struct hb_buf *word)
{
	const char *start = p;
	int depth = 1;
	char quote = '\0';

	for (; *p; p++) {
		if (*p == '\\' && quote != '\'' && p[1])
			p++;
		else if (quote)
			quote = *p == quote ? '\0' : quote;
		else if (*p == '\'' || *p == '"')
			quote = *p;
		else if (*p == '(')
			depth++;
		else if (*p == ')' && --depth == 0)
			break;
	}
	add_nested(w, start, (size_t)(p - start));
	hb_buf_adds(word, "$(");
	hb_buf_add(word, start, (size_t)(p - start));
	hb_buf_addc(word, ')');
	return *p ? p + 1 : p;
}

/* `p` behind the opening backquote. */
static const char *backquoted(struct hb_words *w, const char *p, struct hb_buf *word)
{
	struct hb_buf inner = HB_BUF_INIT;

	for (; *p && *p != '`'; p++) {
		if (*p == '\\' && p[1] && strchr("`\\$", p[1]))
			p++;
		hb_buf_addc(&inner, *p);
	}
	if (inner.len > 0) {
		add_nested(w, inner.data, inner.len);
		hb_buf_add(word, inner.data, inner.len);
	}
	hb_buf_free(&inner);
	return *p ? p + 1 : p;
}

static const char *double_quoted(struct hb_words *w, const char *p, struct hb_buf *word)
{
	while (*p && *p != '"') {
		if (*p == '\\' && p[1] == '\n') {
			p += 2;
		} else if (*p == '\\' && p[1] && strchr("$`\"\\", p[1])) {
			hb_buf_addc(word, p[1]);
			p += 2;
		} else if (p[0] == '$' && p[1] == '(') {
			p = substitution(w, p + 2, word);
		} else if (*p == '`') {
			p = backquoted(w, p + 1, word);
		} else {
			hb_buf_addc(word, *p++);
		}
	}
	return *p ? p + 1 : p;
}

static const char *single_quoted(const char *p, struct hb_buf *word)
{
	size_t len = strcspn(p, "'");

	hb_buf_add(word, p, len);
	return p[len] ? p + len + 1 : p + len;
}

/* One word; p is not at a blank or operator. */
static const char *read_word(struct hb_words *w, const char *p)
{
	struct hb_buf word = HB_BUF_INIT;

	hb_buf_adds(&word, "");
	while (*p && !strchr(" \t\r\n|&;()<>", *p)) {
		if (p[0] == '\\' && p[1] == '\n') {
			p += 2;
		} else if (p[0] == '\\' && p[1]) {
			hb_buf_addc(&word, p[1]);
			p += 2;
		} else if (p[0] == '$' && p[1] == '(') {
			p = substitution(w, p + 2, &word);
		} else if (p[0] == '$' && p[1] == '\'') {
			p = ansi_quoted(p + 2, &word);
		} else if (p[0] == '$' && p[1] == '"') {
			p = double_quoted(w, p + 2, &word);
		} else if (*p == '\'') {
			p = single_quoted(p + 1, &word);
		} else if (*p == '"') {
			p = double_quoted(w, p + 1, &word);
		} else if (*p == '`') {
			p = backquoted(w, p + 1, &word);
		} else {
			hb_buf_addc(&word, *p++);
		}
	}
	add_token(w, false, hb_buf_take(&word));
	return p;
}

void hb_words_read(const char *p, struct hb_words *w)
{
	memset(w, 0, sizeof(*w));
	while (*p) {
		size_t i = 0, count = sizeof(operators) / sizeof(operators[0]);

		if (*p == ' ' || *p == '\t' || *p == '\r' || (p[0] == '\\' && p[1] == '\n')) {
			p += *p == '\\' ? 2 : 1;
			continue;
		}
		if (*p == '#') {
			p += strcspn(p, "\n");
			continue;
		}
		while (i < count && strncmp(p, operators[i], strlen(operators[i])) != 0)
			i++;
		if (i < count) {
			add_token(w, true, hb_strdup(operators[i]));
			p += strlen(operators[i]);
		} else {
			p = read_word(w, p);
		}
	}
}

void hb_words_free(struct hb_words *w)
{
	for (size_t i = 0; i < w->count; i++)
		free(w->tokens[i].text);
	for (size_t i = 0; i < w->nested_count; i++)
		free(w->nested[i]);
	free(w->tokens);
	free(w->nested);
	memset(w, 0, sizeof(*w));
}

bool hb_token_is(const struct hb_token *t, const char *op)
{
	return t->op && strcmp(t->text, op) == 0;
}

bool hb_token_redirects(const struct hb_token *t)
{
	return t->op && strpbrk(t->text, "<>") != NULL;
}
