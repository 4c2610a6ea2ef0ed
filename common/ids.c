/* Randomness and clocks, each read in one place. */
#include "common/ids.h"

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "common/digest.h"

void
hb_random_hex(size_t bytes, char *out)
{
	unsigned char chunk[32];
	size_t n;

	/* Idempotent; without it randombytes may use a fallback on its first call. */
	if (sodium_init() < 0)
		abort();
	while (bytes > 0) {
		n = bytes < sizeof(chunk) ? bytes : sizeof(chunk);
		randombytes_buf(chunk, n);
		hb_hex(chunk, n, out);
		out += 2 * n;
		bytes -= n;
	}
	*out = '\0';
	sodium_memzero(chunk, sizeof(chunk));
}

int64_t
hb_now(void)
{
	struct timespec ts;

	if (clock_gettime(CLOCK_REALTIME, &ts) != 0)
		abort();
	return ts.tv_sec;
}

int64_t
hb_monotonic_ms(void)
{
	struct timespec ts;

	/* BOOTTIME: a deadline doesn't stand still while the machine is suspended. */
	if (clock_gettime(CLOCK_BOOTTIME, &ts) != 0)
		abort();
	return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

void
hb_time_rfc3339(int64_t t, char out[21])
{
	time_t seconds = (time_t)t;
	struct tm tm;

	if (gmtime_r(&seconds, &tm) == NULL || tm.tm_year < -1900 || tm.tm_year > 9999 - 1900 ||
	    strftime(out, 21, "%Y-%m-%dT%H:%M:%SZ", &tm) != 20)
		snprintf(out, 21, "0000-00-00T00:00:00Z");
}
