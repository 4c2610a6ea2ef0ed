/* What a person is shown of a local command. */
#include <string.h>

#include "common/json.h"
#include "policy/draw.h"
#include "policy/operation.h"

void hb_summary_local(struct hb_page *p, const json_t *request)
{
	hb_draw_block(p, "command", hb_json_text(request, "command", ""));
	hb_draw_field(p, request, "workdir");
	hb_draw_int(p, "timeout", hb_operation_timeout("local", request), "s");
	hb_draw_field(p, request, "network");
	hb_draw_field(p, request, "net_raw");
	hb_draw_sealed(p, "image", hb_json_text(request, "resolved_image_id", NULL));
	hb_draw_sealed(p, "workspace", hb_json_text(request, "workspace_generation", NULL));

	hb_draw_note(p, "runs in a sandbox container; it may read, change and delete everything in "
			"/workspace");
	if (strcmp(hb_json_text(request, "network", ""), "egress") == 0)
		hb_draw_warning(
			p, "network_egress",
			"it may send anything in the workspace to any address it can reach");
	if (hb_json_bool(request, "net_raw", false))
		hb_draw_warning(p, "raw_network", "it may make raw network packets (CAP_NET_RAW)");
}
