/* Guardrail files, patterns, precedence, and the check against a runtime that a script plays, well and badly. */
#include "tests/unit/test_util.h"

#include <jansson.h>
#include <sys/stat.h>

#include "common/json.h"
#include "onboarding/catalogue.h"
#include "onboarding/guardrail.h"
#include "onboarding/guardrail_check.h"

#define HEAD "[guardrail]\ntitle = T\nconnection = google.*.*\n"

static int parse(const char *text, struct hb_guardrail *out, struct hb_error *err)
{
	return hb_guardrail_parse("t", text, strlen(text), out, err);
}

static struct hb_guardrails load(size_t count, const char *const *texts)
{
	struct hb_guardrails all = {.files = hb_calloc(count, sizeof *all.files)};
	char name[2] = "a";

	for (; all.count < count; all.count++, name[0]++)
		ck_works(hb_guardrail_parse(name, texts[all.count], strlen(texts[all.count]), &all.files[all.count], err));
	return all;
}

/* --- files --- */

START_TEST(test_file)
{
	struct hb_guardrail g;

	ck_works(parse(HEAD "[allow]\ntool = a.b\ntool = a.*.c\n[approval]\ntool = w\n[never]\ntool = x.**\n"
			    "[call]\ncall = a.b {\"n\":1,\"t\":\"x # y\"}\n[resume]\ncall = w {}\n"
			    "[limit]\nat-most = a.b /data/items 3\n", &g, err));
	ck_assert_uint_eq(g.rule_count, 4);
	ck_assert_str_eq(g.rules[1].pattern, "a.*.c");
	ck_assert_int_eq(g.rules[3].verdict, HB_VERDICT_NEVER);
	ck_assert_int_eq(g.rules[3].line, 10);
	ck_assert_str_eq(hb_json_text(g.calls[0].arguments, "t", ""), "x # y");
	ck_assert(g.calls[1].resume);
	ck_assert_str_eq(g.limits[0].pointer, "/data/items");
	ck_assert_int_eq(g.limits[0].most, 3);
	hb_guardrail_free(&g);
}
END_TEST

static const struct {
	const char *text, *code;
} bad_files[] = {
	{"", "bad_guardrail"},
	{HEAD, "bad_guardrail"},
	{"[guardrail]\ntitle = T\n[allow]\ntool = a\n", "bad_guardrail"},
	{"[guardrail]\ntitle = T\ntitle = U\nconnection = a\n[allow]\ntool = a\n", "bad_guardrail"},
	{"[guardrail]\ntitle = T\nconnection = a\nowner = me\n[allow]\ntool = a\n", "bad_guardrail"},
	{"[guardrail]\ntitle = T\nconnection = *.*.*\n[allow]\ntool = a\n", "bad_guardrail"},
	{"[guardrail]\ntitle = T\nconnection = a.**\n[allow]\ntool = a\n", "bad_guardrail"},
	{"[guardrail]\ntitle = T\nconnection = a.b.c.d\n[allow]\ntool = a\n", "bad_guardrail"},
	{HEAD "[allow]\ntool = a..b\n", "bad_guardrail"},
	{HEAD "[allow]\ntool = a.b*\n", "bad_guardrail"},
	{HEAD "[allow]\ntool = **.a\n", "bad_guardrail"},
	{HEAD "[allow]\ntool = a.\n", "bad_guardrail"},
	{HEAD "[allow]\ntool = a b\n", "bad_guardrail"},
	{HEAD "[allow]\ntool =\n", "bad_guardrail"},
	{HEAD "[allow]\npattern = a\n", "bad_guardrail"},
	{HEAD "[deny]\ntool = a\n", "bad_guardrail"},
	{HEAD "[allow]\ntool = a\ntool = a\n", "bad_guardrail"},
	{HEAD "[allow]\ntool = a\n[never]\ntool = a\n", "bad_guardrail"},
	{HEAD "[allow]\ntool = a\n[call]\ncall = a\n", "bad_guardrail"},
	{HEAD "[allow]\ntool = a\n[call]\ncall = a []\n", "bad_guardrail"},
	{HEAD "[allow]\ntool = a\n[call]\ncall = a {\"x\":1,\"x\":2}\n", "bad_guardrail"},
	{HEAD "[allow]\ntool = a.*\n[call]\ncall = a.* {}\n", "bad_guardrail"},
	{HEAD "[allow]\ntool = a\n[call]\ncall = b {}\n", "bad_guardrail"},
	{HEAD "[allow]\ntool = a\n[call]\ncall = a {}\ncall = a {}\n", "bad_guardrail"},
	{HEAD "[allow]\ntool = a\n[resume]\ncall = a {}\n", "bad_guardrail"},
	{HEAD "[never]\ntool = a\n[limit]\nat-most = a /x 1\n", "bad_guardrail"},
	{HEAD "[allow]\ntool = a\n[limit]\nat-most = a x 1\n", "bad_guardrail"},
	{HEAD "[allow]\ntool = a\n[limit]\nat-most = a /x -1\n", "bad_guardrail"},
	{HEAD "[allow]\ntool = a\n[limit]\nat-most = a /x\n", "bad_guardrail"},
	{HEAD "[allow]\ntool = a\n tool = b\n", "ini_malformed"},
	{HEAD "[allow]\ntool: a\n", "ini_malformed"},
	{"tool = a\n", "ini_malformed"},
	{HEAD "[allow]\ntool = a\x1b[2J\n", "ini_malformed"},
};

START_TEST(test_bad_file)
{
	struct hb_guardrail g;

	ck_fails(parse(bad_files[_i].text, &g, err), bad_files[_i].code);
}
END_TEST

START_TEST(test_shipped)
{
	struct hb_guardrails all = {.files = hb_calloc(HB_GUARDRAIL_FILES_MAX, sizeof *all.files)};
	json_t *problems;

	for (size_t i = 0; i < hb_shipped_guardrail_count; i++, all.count++)
		ck_works(hb_guardrail_parse(hb_shipped_guardrails[i].name, (const char *)hb_shipped_guardrails[i].text,
					    hb_shipped_guardrails[i].len, &all.files[i], err));
	ck_assert_uint_eq(all.count, 9);
	problems = hb_guardrails_problems(&all);
	ck_assert_uint_eq(json_array_size(problems), 0);
	json_decref(problems);
	hb_guardrails_free(&all);
}
END_TEST

/* Files that somebody else could have written are not believed. */
START_TEST(test_directory)
{
	struct hb_guardrails all;
	int changed = 0;

	ck_fails(hb_guardrails_load(&all, err), "no_guardrails");
	ck_works(hb_guardrails_ship(&changed, err));
	ck_assert_int_eq(changed, 9);
	ck_works(hb_guardrails_load(&all, err));
	ck_assert_uint_eq(all.count, 9);
	ck_assert_str_eq(hb_guardrail_origin(&all.files[0]), "shipped");
	hb_guardrails_free(&all);
	test_puts(HB_GUARDRAIL_DIR "/mail.ini", HEAD "[allow]\ntool = a\n");
	test_puts(HB_GUARDRAIL_DIR "/own.ini", HEAD "[allow]\ntool = b\n");
	test_puts(HB_GUARDRAIL_DIR "/own.ini~", "not read");
	changed = 0;
	ck_works(hb_guardrails_ship(&changed, err));
	ck_assert_int_eq(changed, 0);
	ck_works(hb_guardrails_load(&all, err));
	ck_assert_uint_eq(all.count, 10);
	ck_assert_str_eq(hb_guardrail_origin(&all.files[4]), "changed");
	ck_assert_str_eq(hb_guardrail_origin(&all.files[6]), "own");
	hb_guardrails_free(&all);
	ck_assert_int_eq(chmod(HB_GUARDRAIL_DIR "/own.ini", 0666), 0);
	ck_fails(hb_guardrails_load(&all, err), "loose_permissions");
	ck_assert_int_eq(chmod(HB_GUARDRAIL_DIR "/own.ini", 0644), 0);
	ck_assert_int_eq(chmod(HB_GUARDRAIL_DIR, 0777), 0);
	ck_fails(hb_guardrails_load(&all, err), "loose_permissions");
	ck_assert_int_eq(chmod(HB_GUARDRAIL_DIR, 0755), 0);
	test_puts(HB_GUARDRAIL_DIR "/Mail.ini", HEAD "[allow]\ntool = b\n");
	ck_fails(hb_guardrails_load(&all, err), "bad_guardrail");
}
END_TEST

/* --- patterns --- */

static const struct {
	const char *wide, *narrow;
	bool covers;
} covers[] = {
	{"a.b", "a.b", true}, {"a.b", "a.B", false}, {"a.b", "a", false}, {"a", "a.b", false},
	{"a.*", "a.b", true}, {"a.*", "a", false}, {"a.*", "a.b.c", false}, {"*.b", "a.b", true},
	{"*", "a", true}, {"**", "a.b.c", true}, {"a.**", "a", false}, {"a.**", "a.b", true},
	{"a.**", "a.b.c", true}, {"a.**", "a.*", true}, {"a.*", "a.**", false}, {"a.**", "a.**", true},
	{"a.**", "a.*.c", true}, {"a.*.c", "a.b.*", false}, {"a.b", "a.*", false}, {"*.*", "a.**", false},
	{"a", "ab", false}, {"ab", "a", false}, {"a.b.c", "a.b.cd", false},
};

START_TEST(test_covers)
{
	ck_assert_msg(hb_pattern_covers(covers[_i].wide, covers[_i].narrow) == covers[_i].covers, "%s %s",
		      covers[_i].wide, covers[_i].narrow);
}
END_TEST

START_TEST(test_paths)
{
	char deep[200] = "a", longer[HB_TOOL_PATH_MAX + 3];

	ck_assert(hb_tool_path_ok("google.org.ben10xn.gmail.users-x.$y_1"));
	ck_assert(!hb_tool_path_ok("") && !hb_tool_path_ok(".a") && !hb_tool_path_ok("a.") && !hb_tool_path_ok("a..b"));
	ck_assert(!hb_tool_path_ok("a.*") && !hb_tool_path_ok("a b") && !hb_tool_path_ok("a\xc3\xa9"));
	for (int i = 1; i < HB_TOOL_SEGMENTS_MAX; i++)
		strcat(deep, ".a");
	ck_assert(hb_tool_path_ok(deep));
	strcat(deep, ".a");
	ck_assert(!hb_tool_path_ok(deep));
	memset(longer, 'a', sizeof longer - 1);
	longer[sizeof longer - 1] = '\0';
	ck_assert(!hb_tool_path_ok(longer));
	ck_assert_str_eq(hb_connection_tail("g.*.*", "g.o.c.t.u"), "t.u");
	ck_assert_ptr_null(hb_connection_tail("g.*.*", "g.o.c"));
	ck_assert_ptr_null(hb_connection_tail("g.*.*", "h.o.c.t"));
	ck_assert_ptr_null(hb_connection_tail("g.*.*", "gg.o.c.t"));
}
END_TEST

START_TEST(test_precedence)
{
	static const char *const texts[] = {HEAD "[allow]\ntool = m.**\n[approval]\ntool = m.write\n",
					    "[guardrail]\ntitle = U\nconnection = google.org.ben\n[never]\ntool = m.*.purge\n"
					    "tool = m.write2\n[allow]\ntool = n.x\n"};
	struct hb_guardrails all = load(2, texts);
	struct hb_decision d;

	hb_guardrails_decide(&all, "google.org.ben.m.read", &d);
	ck_assert_int_eq(d.verdict, HB_VERDICT_ALLOW);
	ck_assert_str_eq(d.connection, "google.org.ben");
	hb_guardrails_decide(&all, "google.org.ben.m.write", &d);
	ck_assert_int_eq(d.verdict, HB_VERDICT_APPROVAL);
	hb_guardrails_decide(&all, "google.org.ben.m.x.purge", &d);
	ck_assert_int_eq(d.verdict, HB_VERDICT_NEVER);
	ck_assert_str_eq(d.file->name, "b");
	hb_guardrails_decide(&all, "google.org.ann.m.x.purge", &d);
	ck_assert_int_eq(d.verdict, HB_VERDICT_ALLOW);
	hb_guardrails_decide(&all, "google.org.ben.other", &d);
	ck_assert_int_eq(d.verdict, HB_VERDICT_NONE);
	ck_assert_ptr_nonnull(d.file);
	hb_guardrails_decide(&all, "other.org.ben.m.read", &d);
	ck_assert_ptr_null(d.file);
	ck_assert_str_eq(d.connection, "other.org.ben");
	hb_guardrails_decide(&all, "google.org", &d);
	ck_assert_ptr_null(d.file);
	hb_guardrails_free(&all);
}
END_TEST

START_TEST(test_problems)
{
	static const char *const texts[] = {HEAD "[allow]\ntool = m.read\ntool = m.write\n[never]\ntool = m.**\n",
					    HEAD "[allow]\ntool = k.a\ntool = k.*\n[approval]\ntool = k.b\n",
					    HEAD "[allow]\ntool = k.a\n",
					    "[guardrail]\ntitle = U\nconnection = google.org.ben\n[approval]\ntool = k.*\n"};
	struct hb_guardrails all = load(4, texts);
	json_t *problems = hb_guardrails_problems(&all), *p;
	char text[200] = "";
	size_t i;

	json_array_foreach(problems, i, p)
		snprintf(text + strlen(text), sizeof text - strlen(text), "%s:%lld ", hb_json_text(p, "file", ""),
			 hb_json_int(p, "line", 0));
	/* a: both reads lie below never; b: k.a lies in k.*; c: says again what b says. In b k.* goes on for k.b's sake. */
	ck_assert_str_eq(text, "a:5 a:6 b:5 c:5 ");
	json_decref(problems);
	hb_guardrails_free(&all);
}
END_TEST

START_TEST(test_policies)
{
	static const char *const texts[] = {HEAD "[allow]\ntool = m.read\ntool = m.*.get\n[never]\ntool = m.x.**\n"
						 "tool = m.send\ntool = m.read.x\n",
					    HEAD "[approval]\ntool = k.w\n[never]\ntool = k.*\n",
					    "[guardrail]\ntitle = U\nconnection = other\n[allow]\ntool = **\n"};
	struct hb_guardrails all = load(3, texts);
	json_t *policies = hb_guardrail_policies(&all, "google.*.*");
	char *text = json_dumps(policies, JSON_COMPACT | JSON_SORT_KEYS);

	ck_assert_str_eq(text, "[{\"action\":\"block\",\"pattern\":\"google.*.*.*\"},"
			       "{\"action\":\"approve\",\"pattern\":\"google.*.*.m.read\"},"
			       "{\"action\":\"approve\",\"pattern\":\"google.*.*.m.*.get\"},"
			       "{\"action\":\"require_approval\",\"pattern\":\"google.*.*.k.w\"},"
			       "{\"action\":\"block\",\"pattern\":\"google.*.*.m.x.*\"},"
			       "{\"action\":\"block\",\"pattern\":\"google.*.*.k.*\"}]");
	free(text);
	json_decref(policies);
	hb_guardrails_free(&all);
}
END_TEST

/* --- the check against a script --- */

#define READ "google.org.ben.m.read"
#define WRITE "google.org.ben.m.write"
#define SEND "google.org.ben.m.send"

struct script {
	const char *tools;              /* JSON list of those that are listed */
	const char *catalogue, *again;  /* the whole value instead; of the second question */
	const char *needs;              /* word for every description */
	const char *read, *write, *send; /* value of the call, or "paused", "failed", "timeout" */
	const char *declined;           /* value after resume */
	int asked, executed, declines;
	char called[400];
};

static const char fine_tools[] = "[\"" READ "\",\"" WRITE "\"]";
#define RAN "{\"did\":\"ran\",\"items\":[1]}"
#define BLOCKED "{\"did\":\"refused\",\"why\":\"tool_blocked\"}"
#define THREW "{\"did\":\"threw\",\"why\":\"declined\"}"

static struct script fine(void)
{
	return (struct script){.tools = fine_tools, .needs = "needs", .read = RAN, .write = "paused", .send = BLOCKED,
			       .declined = THREW};
}

static int say(const char *value, const char *tool, struct hb_mcp_result *out, struct hb_error *err)
{
	if (strcmp(value, "timeout") == 0)
		return hb_fail(err, "timeout", "no answer");
	*out = (struct hb_mcp_result){.text = hb_strdup("text"), .execution = hb_strdup("exec_1"), .address = hb_strdup(tool)};
	if (strcmp(value, "paused") == 0)
		out->state = HB_MCP_PAUSED;
	else if (strcmp(value, "elsewhere") == 0) {
		out->state = HB_MCP_PAUSED;
		free(out->address);
		out->address = hb_strdup("google.org.ben.other");
	} else if (strcmp(value, "failed") == 0)
		out->state = HB_MCP_FAILED;
	else
		out->value = json_loads(value, JSON_DECODE_ANY, NULL);
	return 0;
}

static int script_execute(void *arg, const char *code, struct hb_mcp_result *out, struct hb_error *err)
{
	struct script *s = arg;
	json_t *q = json_loads(code + strlen("const q = "), JSON_DISABLE_EOF_CHECK, NULL);
	const char *ask = hb_json_text(q, "ask", ""), *tool = hb_json_text(q, "tool", "");
	struct hb_buf text = HB_BUF_INIT;
	int rc;

	s->executed++;
	if (strcmp(ask, "catalogue") == 0) {
		const char *whole = s->asked++ && s->again ? s->again : s->catalogue;

		hb_buf_printf(&text, "{\"connections\":[\"google.org.ben\"],\"tools\":%s,\"cut\":false}", s->tools);
		rc = say(whole ? whole : text.data, "", out, err);
	} else if (strcmp(ask, "describe") == 0) {
		json_t *path, *words = json_object();
		size_t i;

		json_array_foreach(json_object_get(q, "paths"), i, path)
			json_object_set_new(words, json_string_value(path), json_string(s->needs));
		rc = say("null", "", out, err);
		json_decref(out->value);
		out->value = words;
	} else {
		snprintf(s->called + strlen(s->called), sizeof s->called - strlen(s->called), "%s ", strrchr(tool, '.') + 1);
		rc = say(strcmp(tool, READ) == 0 ? s->read : strcmp(tool, WRITE) == 0 ? s->write : s->send, tool, out, err);
	}
	hb_buf_free(&text);
	json_decref(q);
	return rc;
}

static int script_resume(void *arg, const char *execution, const char *action, struct hb_mcp_result *out,
			 struct hb_error *err)
{
	struct script *s = arg;

	ck_assert_str_eq(execution, "exec_1");
	ck_assert_str_eq(action, "decline");
	s->declines++;
	return say(s->declined, "", out, err);
}

/* "code" or "ok" or "tool:check ..." of what failed or was not run. */
static const char *outcome(struct script *s, const json_t *before)
{
	static const char *const texts[] = {"[guardrail]\ntitle = T\nconnection = google.*.*\n[allow]\ntool = m.read\n"
					    "[approval]\ntool = m.write\n[never]\ntool = m.send\n"
					    "[call]\ncall = m.read {}\n[limit]\nat-most = m.read /items 1\n"};
	const struct hb_runtime runtime = {.execute = script_execute, .resume = script_resume, .arg = s};
	struct hb_guardrails all = load(1, texts);
	static char out[500];
	struct hb_error err;
	json_t *report = NULL, *f;
	size_t i;

	out[0] = '\0';
	if (hb_guardrails_check(&all, &runtime, before, &report, &err) < 0)
		snprintf(out, sizeof out, "%s", err.code);
	else if (hb_json_bool(report, "ok", false))
		snprintf(out, sizeof out, "ok ");
	json_array_foreach(json_object_get(report, "findings"), i, f)
		if (strcmp(hb_json_text(f, "result", ""), "pass") != 0)
			snprintf(out + strlen(out), sizeof out - strlen(out), "%s:%s:%s ",
				 strrchr(hb_json_text(f, "tool", "."), '.') ? strrchr(hb_json_text(f, "tool", "."), '.') + 1
									    : "*",
				 hb_json_text(f, "check", ""), hb_json_text(f, "result", ""));
	json_decref(report);
	hb_guardrails_free(&all);
	return out;
}

START_TEST(test_check_passes)
{
	struct script s = fine();

	ck_assert_str_eq(outcome(&s, NULL), "ok ");
	ck_assert_str_eq(s.called, "read write send ");
	ck_assert_int_eq(s.declines, 1);
}
END_TEST

static const struct {
	const char *what, *value, *outcome, *called;
} faults[] = {
	{"send", RAN, "send:refused:fail ", NULL},
	{"send", THREW, "send:refused:fail ", NULL},
	{"send", "paused", "send:refused:fail ", NULL},
	{"send", "failed", "send:refused:fail ", NULL},
	{"send", "{\"did\":\"refused\",\"why\":\"tool_not_found\"}", "ok ", NULL},
	{"send", "{\"did\":\"refused\",\"why\":\"quota\"}", "send:refused:fail ", NULL},
	{"send", "{\"did\":\"slept\"}", "bad_reply", NULL},
	{"send", "null", "bad_reply", NULL},
	{"send", "timeout", "timeout", NULL},
	{"write", RAN, "write:pauses:fail ", NULL},
	{"write", BLOCKED, "write:pauses:fail ", NULL},
	{"write", "elsewhere", "bad_reply", NULL},
	{"declined", RAN, "write:declined:fail ", NULL},
	{"declined", "paused", "write:declined:fail ", NULL},
	{"declined", "timeout", "timeout", NULL},
	{"read", BLOCKED, "read:sample:fail ", NULL},
	{"read", "paused", "read:sample:fail ", NULL},
	{"read", "{\"did\":\"ran\"}", "bad_reply", NULL},
	{"read", "{\"did\":\"ran\",\"items\":[2]}", "read:at-most:fail ", NULL},
	{"read", "{\"did\":\"ran\",\"items\":[null]}", "read:at-most:fail ", NULL},
	{"read", "{\"did\":\"ran\",\"items\":[-1]}", "read:at-most:fail ", NULL},
	{"needs", "free", "write:pauses:not run send:refused:not run ", "read "},
	{"needs", "absent", "ok ", "read "},
	{"needs", "perhaps", "bad_reply", ""},
	/* What is listed and must not be is a finding, and is not called. */
	{"tools", "[\"" READ "\",\"" WRITE "\",\"" SEND "\"]", "send:hidden:fail ", "read write "},
	{"tools", "[\"" READ "\",\"" WRITE "\",\"google.org.ben.m.new\"]", "new:denied:fail ", "read write send "},
	{"tools", "[\"" READ "\",\"" WRITE "\",\"other.org.x.a\",\"other.org.x.b\"]", "*:guardrail:fail ", NULL},
	{"tools", "[\"" READ "\"]", "write:listed:fail ", "read send "},
	{"tools", "[\"a..b\"]", "bad_reply", ""},
	{"tools", "[1]", "bad_reply", ""},
	{"tools", "[\"a\\u0000b\"]", "bad_reply", ""},
	{"tools", "{}", "bad_reply", ""},
	{"catalogue", "null", "bad_reply", ""},
	{"catalogue", "{\"connections\":[],\"tools\":[],\"cut\":true}", "bad_reply", ""},
	{"catalogue", "failed", "runtime_failed", ""},
	{"catalogue", "timeout", "timeout", ""},
	{"again", "{\"connections\":[\"google.org.ben\"],\"tools\":[\"" READ "\"],\"cut\":false}", "catalogue_changed", NULL},
	{"again", "{\"connections\":[],\"tools\":[\"" READ "\",\"" WRITE "\"],\"cut\":false}", "catalogue_changed", NULL},
	{"again", "timeout", "timeout", NULL},
};

START_TEST(test_check_faults)
{
	struct script s = fine();
	const char *const names[] = {"tools", "catalogue", "again", "needs", "read", "write", "send", "declined"};
	const char **places[] = {&s.tools, &s.catalogue, &s.again, &s.needs, &s.read, &s.write, &s.send, &s.declined};

	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
		if (strcmp(names[i], faults[_i].what) == 0)
			*places[i] = faults[_i].value;
	if (strcmp(faults[_i].what, "needs") == 0 && strcmp(faults[_i].value, "absent") == 0)
		s.tools = "[\"" READ "\"]";
	ck_assert_str_eq(outcome(&s, NULL), faults[_i].outcome);
	if (faults[_i].called)
		ck_assert_str_eq(s.called, faults[_i].called);
}
END_TEST

/* What the last check saw is looked for again, although nothing names it. */
START_TEST(test_check_remembers)
{
	json_t *before = json_loads("{\"tools\":[\"google.org.ben.m.gone\",\"other.org.x.y\"]}", 0, NULL);
	struct script s = fine();

	ck_assert_str_eq(outcome(&s, before), "ok ");
	ck_assert_str_eq(s.called, "read write gone send ");
	json_decref(before);
}
END_TEST

/* A runtime that asks whether it may list connections is told no, and goes on; not for ever. */
START_TEST(test_catalogue_that_waits)
{
	struct script s = fine();

	s.catalogue = "paused";
	s.declined = "{\"connections\":[\"google.org.ben\"],\"tools\":[\"" READ "\",\"" WRITE "\"],\"cut\":false}";
	s.write = BLOCKED;
	ck_assert_str_eq(outcome(&s, NULL), "write:pauses:fail ");
	s = fine();
	s.catalogue = s.declined = "paused";
	ck_assert_str_eq(outcome(&s, NULL), "runtime_failed");
	ck_assert_int_eq(s.declines, 3);
}
END_TEST

START_TEST(test_diff)
{
	json_t *a = json_loads("{\"connections\":[\"c\"],\"tools\":[\"t1\",\"t2\"]}", 0, NULL),
	       *b = json_loads("{\"connections\":[\"c\",\"d\"],\"tools\":[\"t2\",\"t3\"]}", 0, NULL),
	       *diff = hb_catalogue_diff(a, b), *none = hb_catalogue_diff(b, b);
	char *text = json_dumps(diff, JSON_COMPACT | JSON_SORT_KEYS);

	ck_assert_str_eq(text, "{\"connections_added\":[\"d\"],\"connections_removed\":[],\"tools_added\":[\"t3\"],"
			       "\"tools_removed\":[\"t1\"]}");
	ck_assert(!hb_catalogue_same(diff) && hb_catalogue_same(none));
	free(text);
	json_decref(a);
	json_decref(b);
	json_decref(diff);
	json_decref(none);
}
END_TEST

#define COUNT(table) (int)(sizeof(table) / sizeof((table)[0]))

int main(void)
{
	Suite *suite = suite_create("guardrail");
	TCase *t = test_case("files"), *p = test_case("patterns"), *c = test_case("check");

	tcase_add_test(t, test_file);
	tcase_add_loop_test(t, test_bad_file, 0, COUNT(bad_files));
	tcase_add_test(t, test_shipped);
	tcase_add_test(t, test_directory);
	tcase_add_loop_test(p, test_covers, 0, COUNT(covers));
	tcase_add_test(p, test_paths);
	tcase_add_test(p, test_precedence);
	tcase_add_test(p, test_problems);
	tcase_add_test(p, test_policies);
	tcase_add_test(c, test_check_passes);
	tcase_add_loop_test(c, test_check_faults, 0, COUNT(faults));
	tcase_add_test(c, test_check_remembers);
	tcase_add_test(c, test_catalogue_that_waits);
	tcase_add_test(c, test_diff);
	suite_add_tcase(suite, t);
	suite_add_tcase(suite, p);
	suite_add_tcase(suite, c);
	return test_run(suite);
}
