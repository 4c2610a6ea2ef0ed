/*
 * The Operations Center page, as it lies in admin/page/, out of the binary: no file of the host can change what the
 * browser runs. Its policy allows our own scripts and styles, calls to our own addresses, and nothing else.
 */
#include <string.h>

#include "admin/admin.h"
#include "admin/page_files.h"

static const struct admin_page_file *find(const char *path)
{
	const char *name = strcmp(path, "/") == 0 ? "/index.html" : path;

	for (size_t i = 0; i < admin_page_file_count; i++)
		if (strcmp(admin_page_files[i].path, name) == 0)
			return &admin_page_files[i];
	return NULL;
}

bool admin_is_page(const char *path)
{
	return find(path) != NULL;
}

static void policy_header(struct admin *a, struct hb_request *req)
{
	struct hb_buf csp = HB_BUF_INIT;

	hb_buf_adds(&csp, "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'");
	/* The page opened under one of our names may call the endpoint under another. */
	for (size_t i = 0; i < a->name_count; i++)
		hb_buf_printf(&csp, " http://%s", a->names[i]);
	hb_buf_adds(&csp, "; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'");
	hb_reply_header(req, "Content-Security-Policy", csp.data);
	hb_buf_free(&csp);
	hb_reply_header(req, "X-Frame-Options", "DENY");
	hb_reply_header(req, "Referrer-Policy", "no-referrer");
	hb_reply_header(req, "Cross-Origin-Opener-Policy", "same-origin");
	hb_reply_header(req, "Cross-Origin-Resource-Policy", "same-origin");
	hb_reply_header(req, "Permissions-Policy", "camera=(), microphone=(), geolocation=()");
}

void admin_page(struct hb_request *req, void *ctx)
{
	const struct admin_page_file *f = find(hb_request_path(req));

	if (!f) {
		admin_refuse(req, 404, "unknown_route", "there is nothing at this path");
		return;
	}
	policy_header(ctx, req);
	hb_reply_bytes(req, 200, f->type, f->data, f->size);
}
