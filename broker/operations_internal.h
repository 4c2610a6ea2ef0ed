/* For operations_view.c only: the connection that operations.c holds. */
#ifndef HB_BROKER_OPERATIONS_INTERNAL_H
#define HB_BROKER_OPERATIONS_INTERNAL_H

#include "broker/operations.h"
#include "common/db.h"

sqlite3 *hb_store_db(const struct hb_store *s);

#endif
