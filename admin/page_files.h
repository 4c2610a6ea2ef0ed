/* The files of admin/page/, made into C at build time by admin/page/embed.py. */
#ifndef HB_ADMIN_PAGE_FILES_H
#define HB_ADMIN_PAGE_FILES_H

#include <stddef.h>

struct admin_page_file {
	const char *path; /* "/app.js" */
	const char *type;
	const unsigned char *data;
	size_t size;
};

extern const struct admin_page_file admin_page_files[];
extern const size_t admin_page_file_count;

#endif
