/* hermes-askpass and the preloaded account, as bytes (embed.py). */
#ifndef HB_SSH_EMBEDDED_H
#define HB_SSH_EMBEDDED_H

#include <stddef.h>

extern const unsigned char hb_embedded_askpass[], hb_embedded_account[];
extern const size_t hb_embedded_askpass_len, hb_embedded_account_len;

#endif
