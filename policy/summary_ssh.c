/* What a person is shown of a command on another host: an argument vector as a list, never as a
 * joined line. */
#include <string.h>

#include "common/json.h"
#include "policy/draw.h"
#include "policy/operation.h"

static void draw_profile(struct hb_page *p, const json_t *profile)
{
	static const char *const texts[] = {"host",
					    "user",
					    "authority",
					    "fingerprint",
					    "auth",
					    "credential_revision",
					    "known_hosts_sha256"};
	static const char *const credential[] = {"identity_fingerprint", "identity_sha256",
						 "credential_tag"};
	const char *ca = hb_json_text(profile, "ca_fingerprint", NULL);

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		hb_draw_sealed(p, texts[i], hb_json_text(profile, texts[i], NULL));
		if (i == 0 && profile)
			hb_draw_int(p, "port", hb_json_int(profile, "port", 0), "");
		else if (i == 0)
			hb_draw_sealed(p, "port", NULL);
	}
	/* One kind of credential has the first two, the other the last. */
	for (size_t i = 0; i < sizeof(credential) / sizeof(credential[0]); i++) {
		const char *text = hb_json_text(profile, credential[i], NULL);

		if (text || !profile)
			hb_draw_sealed(p, credential[i], text);
	}
	if (ca) /* few profiles have a certificate authority */
		hb_draw_sealed(p, "ca_fingerprint", ca);
}

static void draw_consequences(struct hb_page *p, const json_t *request)
{
	const json_t *profile = json_object_get(request, "sealed_profile");
	const char *authority = hb_json_text(profile, "authority", "");

	if (json_object_get(request, "argv"))
		hb_draw_note(p, "the program gets exactly these arguments; they are quoted for the "
				"remote shell");
	else
		hb_draw_warning(p, "remote_shell",
				"the command is read by the login shell of the remote user");
	if (strcmp(authority, "root") == 0)
		hb_draw_warning(p, "remote_root",
				"it runs as root on the remote host and may do anything there");
	if (strcmp(authority, "sudo-nopasswd") == 0)
		hb_draw_warning(p, "remote_sudo",
				"the remote user may become root without a password");
	if (strcmp(hb_json_text(profile, "auth", ""), "password") == 0)
		hb_draw_warning(p, "password_login", "the login is by password");
	if (json_object_get(profile, "ca_fingerprint"))
		hb_draw_note(p, "a certificate for this one command, good for minutes, is made for "
				"the login");
	hb_draw_note(
		p, "when the time is over the connection is cut; what was started there may go on");
}

void hb_summary_ssh(struct hb_page *p, const json_t *request)
{
	hb_draw_field(p, request, "profile");
	if (json_object_get(request, "argv"))
		hb_draw_field(p, request, "argv");
	else
		hb_draw_block(p, "command", hb_json_text(request, "command", ""));
	hb_draw_int(p, "timeout", hb_operation_timeout("ssh", request), "s");
	draw_profile(p, json_object_get(request, "sealed_profile"));
	draw_consequences(p, request);
}
