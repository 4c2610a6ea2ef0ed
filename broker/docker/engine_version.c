/* Choosing the API version (engine_version.h). */
#include "broker/docker/engine_version.h"

#include <string.h>

#include "common/buf.h"

/* The minor number of "1.N", or -1. */
static int minor_of(const char *text)
{
	int n = 0;

	if (strncmp(text, "1.", 2) != 0 || text[2] == '\0' || strlen(text) > 5)
		return -1;
	for (const char *p = text + 2; *p; p++) {
		if (*p < '0' || *p > '9')
			return -1;
		n = n * 10 + (*p - '0');
	}
	return n;
}

int hb_engine_version_choose(const char *highest, const char *least, struct hb_error *err)
{
	int high = minor_of(highest), low = least ? minor_of(least) : 0;

	if (high < 0 || low < 0 || low > high)
		return hb_fail(err, "engine_bad_reply",
			       "the Docker engine names no API version that can be understood");
	if (high < HB_ENGINE_API_MIN || low > HB_ENGINE_API_MAX)
		return hb_fail(
			err, "engine_version",
			"the Docker engine speaks API 1.%d to 1.%d, this program 1.%d to 1.%d: %s",
			low, high, HB_ENGINE_API_MIN, HB_ENGINE_API_MAX,
			high < HB_ENGINE_API_MIN ? "upgrade the engine" : "upgrade Hermes Broker");
	return high < HB_ENGINE_API_MAX ? high : HB_ENGINE_API_MAX;
}
