/*
 * Reading a command line as POSIX shell words, without expanding anything: quotes and backslashes
 * are taken off (also $'...'), operators stand apart, and the text of every $(...) and `...` is
 * handed out to be read on its own. Not a shell: made for the floor rules, which ask "could this be
 * ...?" and are a last net.
 */
#ifndef HB_POLICY_WORDS_H
#define HB_POLICY_WORDS_H

#include <stdbool.h>
#include <stddef.h>

struct hb_token {
	bool op;    /* operator: | || & && ; ;; ( ) newline and redirections */
	char *text; /* the word with its quoting taken off, or the operator */
};

struct hb_words {
	struct hb_token *tokens;
	size_t count, cap;
	char **nested; /* texts of command substitutions */
	size_t nested_count, nested_cap;
};

void hb_words_read(const char *text, struct hb_words *out);
void hb_words_free(struct hb_words *w);

bool hb_token_is(const struct hb_token *t, const char *op); /* an operator with this text */
bool hb_token_redirects(const struct hb_token *t);          /* takes the next word as its file */

#endif
