/*
 * The probe's questions without the worker around them: probe_driver PORT reads JSON lines, each a question with "key"
 * and "token" in it, and prints the answers. The MCP session is kept in between, as in the worker.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "broker/installer/probe.h"
#include "common/json.h"

int main(int argc, char **argv)
{
	struct hb_mcp_session session = {0};
	char line[65536];

	if (argc != 2)
		return 64;
	while (fgets(line, sizeof(line), stdin)) {
		json_t *question = hb_json_parse(line, strlen(line), NULL), *answer;
		char *text;

		answer = hb_probe_run((uint16_t)atoi(argv[1]), &session, question, hb_json_text(question, "key", ""),
				      hb_json_text(question, "token", ""));
		text = json_dumps(answer, JSON_COMPACT);
		puts(text);
		fflush(stdout);
		free(text);
		json_decref(answer);
		json_decref(question);
	}
	return 0;
}
