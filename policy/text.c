/* The shared grammars; see text.h. */
#include "policy/text.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "common/digest.h"

void hb_show(const char *text, char *out, size_t size)
{
	size_t n = 0, room = size - 4;

	for (; n < room && text[n] != '\0'; n++)
		out[n] = isprint((unsigned char)text[n]) && (unsigned char)text[n] < 0x7f ? text[n]
											  : '?';
	memcpy(out + n, text[n] != '\0' ? "..." : "", text[n] != '\0' ? 4 : 1);
}

bool hb_word(const char *text, const char *first, const char *rest, size_t max)
{
	size_t len = strlen(text);

	if (len == 0 || len > max || !strchr(first, text[0]))
		return false;
	return strspn(text + 1, rest) == len - 1;
}

bool hb_path_normal(const char *path)
{
	if (path[0] != '/')
		return false;
	if (path[1] == '\0')
		return true;
	for (const char *p = path; *p == '/';) {
		size_t len = strcspn(++p, "/");

		if (len == 0 || (len == 1 && p[0] == '.') ||
		    (len == 2 && p[0] == '.' && p[1] == '.'))
			return false;
		p += len;
	}
	return true;
}

bool hb_path_within(const char *path, const char *dir)
{
	size_t len = strlen(dir);

	if (strcmp(dir, "/") == 0)
		return path[0] == '/';
	return strncmp(path, dir, len) == 0 && (path[len] == '\0' || path[len] == '/');
}

bool hb_is_address(const char *text)
{
	unsigned char bytes[16];

	return inet_pton(AF_INET, text, bytes) == 1 || inet_pton(AF_INET6, text, bytes) == 1;
}

bool hb_is_loopback_address(const char *text)
{
	static const unsigned char one[16] = {[15] = 1};
	unsigned char bytes[16];

	if (inet_pton(AF_INET, text, bytes) == 1)
		return bytes[0] == 127;
	return inet_pton(AF_INET6, text, bytes) == 1 && memcmp(bytes, one, sizeof(one)) == 0;
}

bool hb_host_name(const char *text)
{
	if (strlen(text) > 253 || text[0] == '\0')
		return false;
	if (strchr(text, ':'))
		return hb_is_address(text);
	for (const char *p = text;;) {
		size_t len = strcspn(p, ".");

		if (len == 0 || len > 63 || p[0] == '-' || p[len - 1] == '-')
			return false;
		if (strspn(p, HB_SET_ALNUM "_-") < len)
			return false;
		p += len;
		if (*p == '\0')
			return true;
		p++;
	}
}

static bool valid_port(const char *text)
{
	size_t len = strlen(text);

	if (len == 0 || len > 5 || text[0] == '0' || strspn(text, HB_SET_DIGIT) != len)
		return false;
	return atoi(text) <= 65535;
}

bool hb_host_port(const char *text)
{
	char host[256];
	const char *end;

	if (text[0] == '[') {
		text++;
		end = strchr(text, ']');
		if (!end || (size_t)(end - text) >= sizeof(host))
			return false;
	} else {
		end = text + strcspn(text, ":");
		if ((size_t)(end - text) >= sizeof(host))
			return false;
	}
	memcpy(host, text, (size_t)(end - text));
	host[end - text] = '\0';
	if (*end == ']') {
		if (!strchr(host, ':') || !hb_is_address(host))
			return false;
		end++;
	} else if (!hb_host_name(host)) {
		return false;
	}
	return *end == '\0' || (*end == ':' && valid_port(end + 1));
}

bool hb_is_user_id(const char *text)
{
	size_t len = strlen(text);

	if (len == 0 || len > 20 || strspn(text, HB_SET_DIGIT) != len)
		return false;
	return text[0] != '0' || len == 1;
}

bool hb_is_digest(const char *text)
{
	return strncmp(text, "sha256:", 7) == 0 && hb_is_hex64(text + 7);
}

bool hb_is_fingerprint(const char *text)
{
	return strncmp(text, "SHA256:", 7) == 0 && strlen(text + 7) == 43 &&
	       strspn(text + 7, HB_SET_ALNUM "+/") == 43;
}
