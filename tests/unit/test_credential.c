/* What looks like a credential is named and never repeated; what people write down isn't taken for one. */
#include "tests/unit/test_util.h"

#include "common/buf.h"
#include "onboarding/credential.h"

/* Made up. Written in two parts, so that no scanner of sources takes them for real ones. */
static const struct {
	const char *a, *b;
} secrets[] = {
	{"gh", "p_x7Kd93mQpL2vNwR8sT5uYb1cZe4fGh"},
	{"github_", "pat_11AAAAAAA0abcdefghijkl"},
	{"gl", "pat-abcdEFGH1234ijklMNOP"},
	{"xo", "xb-1234567890-abcdefghij"},
	{"sk", "-proj-abcdefghijklmnop"},
	{"sk", "_live_abcdefgh12"},
	{"AK", "IAABCDEFGHIJKLMNOP"},
	{"AI", "zaSyA1234567890abcdefghijklmnopqrstu"},
	{"ya", "29.a0AfH6SMBxyz"},
	{"GOC", "SPX-abcdefgh"},
	{"nt", "n_abcdefghijklmnopqrstuvwx"},
	{"1/", "/0gabcdefghijklmnop"},
	{"AGE-SECRET-", "KEY-1QQQQQQQQQQ"},
	{"-----BEGIN OPENSSH ", "PRIVATE KEY-----"},
	{"-----begin RSA ", "private key-----"},
	{"eyJhbGciOiJIUzI1NiJ9.", "eyJzdWIiOiIxIn0.abc"},
	{"eyJhbGciOiJub25lIn0.", "eyJzdWIiOiIxIn0"},
	{"12345678", "90:AAabcdefghijklmnopqrstuvwxyz_-0123456"},
	{"MTAabcdefghijklmnopqrstu", ".Gabcde.abcdefghijklmnopqrstuvwxyz0"},
	{"Authorization", ": Digest abc"},
	{"Bearer ", "abcDEF123"},
	{"bearer ", "aaaaaaaaaaaaaaaaaaaaaaaa"},
	{"Basic ", "dXNlcjpwYXNz"},
	{"Cookie: ", "a=b; sid=abcdef123"},
	{"Set-Cookie:", "x"},
	{"session", "id=0123456789"},
	{"__Host-", "id"},
	{"https://user:", "pw@example.org/"},
	{"ftp://user", "@example.org"},
	{"pass", "word=hunter2"},
	{"Pass", "word : \"hunter2\""},
	{"{\"api", "_key\": \"abc\"}"},
	{"client-", "secret=xyz"},
	{"?access_", "token=abc"},
	{"hooks.slack.com/", "services/T0/B0/x"},
	{"https://discord.com/api/", "webhooks/1/x"},
	{"3f2b8c9d0e1a4b5c", "6d7e8f9a0b1c2d3e"},
	{"550e8400-e29b-41d4-", "a716-446655440000"},
	{"aB3dE5fG7hI9jK1l", "M2nO4pQ6"},
	{"QmFzZTY0IGxvb2tz", "IGxpa2UgdGhpcyE"},
	{"x9y8z7w6v5u4t3s2", "r1q0p9o8"},
	{"bqzvxkjwmhtfygcp", "lnrdsuieoa"},
	/* Base64 whose signs leave no run of twenty; alone, behind a path, a line of a PEM body. */
	{"q7Xw+Zk2Lp/9dRt4", "Vb+N8cYm1/Hs5JfGe0="},
	{"q7Xw-Zk2Lp_9dRt4", "Vb-N8cYm1_Hs5JfGe0"},
	{"https://files.example/share/q7Xw-Zk2Lp_9dRt4", "Vb-N8cYm1_Hs5JfGe0/index"},
	{"MIIEpAIBAAKCAQ/7Yd2", "+sK9xLm4/Wq8Zt1Rb6+Nv3Hc5Jg0/Fe"},
	/* What a browser's address bar gives away. */
	{"next=https%3A%2F%2Fuser", "%3Apw%40example.org%2F"},
	{"pass", "word%3dhunter2"},
	{"redirect=%2Fcb%253Faccess_", "token%253Dabcdef"},
	{"connect.sid%3Ds%253A", "abcdefgh"},
};

static const char *const harmless[] = {
	"",
	"google-ben-10xn",
	"notion-10xn-ops",
	"ben@10xn.example",
	"https://www.googleapis.com/auth/calendar.readonly",
	"https://www.googleapis.com/auth/gmail.readonly",
	"channels:history",
	"return await tools.google_calendar.org.ben.calendarCalendarListList({ maxResults: 1 })",
	"return await tools.search({ query: \"calendar\", limit: 5 })",
	"return (await tools.notion.search({ query: '' })).results.length",
	"googleCalendarEventsListV3PrimaryOnly",
	"list the first page with pageToken: undefined",
	"bearer tokens are refused here",
	"basic authentication is off",
	"the session: read only",
	"aVeryLongNameOfAToolThatPeopleWroteDownWithoutAnyBlank",
	"2026-12-01T00:00:00Z",
	"AKIA is a prefix",
	"sk- and ghp_ are prefixes",
	"Zo\xc3\xab \xd0\x98\xd0\xb2\xd0\xb0\xd0\xbd",
	"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
	"00000000000000000000000000000000",
	"return await tools.google.org.googleBen10xn.calendar.events.list({ calendarId: 'primary' })",
	"GET /v1/Users/Me/Calendars/Primary-2026/Events",
	"google-ben-10xn-Calendar-2027-ReadOnly-Org-V3-Primary",
	"------------------------------------------------",
	"q=100%25%20free%20time&fields=items(id%2Csummary)",
	"100% of it, 5%zz, 7%",
};

START_TEST(test_secrets_are_found)
{
	char *text = hb_asprintf("%s%s", secrets[_i].a, secrets[_i].b), *inside = hb_asprintf("see %s, thanks", text);
	struct hb_error err = {0};

	ck_assert_msg(hb_credential_find(text, strlen(text)) != NULL, "%s", text);
	ck_assert_msg(hb_credential_find(inside, strlen(inside)) != NULL, "%s", inside);
	ck_assert_int_eq(hb_credential_refuse("scopes", text, &err), -1);
	ck_assert_str_eq(err.code, "looks_like_credential");
	ck_assert_ptr_nonnull(strstr(err.message, "scopes"));
	ck_assert_ptr_null(strstr(err.message, text));
	ck_assert_ptr_null(strstr(err.message, secrets[_i].b));
	free(text);
	free(inside);
}
END_TEST

START_TEST(test_harmless_texts_are_not)
{
	const char *name = hb_credential_find(harmless[_i], strlen(harmless[_i]));

	ck_assert_msg(name == NULL, "%s: %s", harmless[_i], name);
}
END_TEST

START_TEST(test_any_bytes)
{
	char text[4096];

	for (size_t i = 0; i < sizeof text; i++)
		text[i] = (char)(i * 7 + i / 256);
	for (size_t len = 0; len < sizeof text; len += 13)
		hb_credential_find(text + (sizeof text - len), len);
	ck_assert_ptr_null(hb_credential_find("\xff\xfe\0\x80", 4));
}
END_TEST

int
main(void)
{
	Suite *s = suite_create("credential");
	TCase *t = test_case("credential");

	tcase_add_loop_test(t, test_secrets_are_found, 0, sizeof secrets / sizeof secrets[0]);
	tcase_add_loop_test(t, test_harmless_texts_are_not, 0, sizeof harmless / sizeof harmless[0]);
	tcase_add_test(t, test_any_bytes);
	suite_add_tcase(s, t);
	return test_run(s);
}
