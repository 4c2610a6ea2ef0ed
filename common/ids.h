/* Random identifiers and time. Randomness is libsodium's; times are UTC seconds. */
#ifndef HB_COMMON_IDS_H
#define HB_COMMON_IDS_H

#include <stddef.h>
#include <stdint.h>

void hb_random_hex(size_t bytes, char *out /* 2*bytes+1 */);
int64_t hb_now(void);          /* CLOCK_REALTIME, seconds; HB only reads it here */
int64_t hb_monotonic_ms(void); /* CLOCK_BOOTTIME, milliseconds: for durations and deadlines */
void hb_time_rfc3339(int64_t t, char out[21]);

#endif
