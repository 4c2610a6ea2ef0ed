/*
 * The caller worker's questions without the worker around them: caller_driver PORT reads JSON lines
 * and prints answers. The working directory is the state directory; keys are the caller's own. The
 * sessions are kept in between, as in the worker.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "broker/installer/caller.h"
#include "common/json.h"

int main(int argc, char **argv)
{
	struct hb_caller_sessions *sessions = hb_caller_sessions_new();
	struct hb_caller_options options = {.uid = geteuid(), .gid = getegid(), .mcp_path = "/mcp"};
	char *line = NULL;
	size_t size = 0;
	ssize_t n;

	if (argc != 2)
		return 64;
	options.port = (uint16_t)atoi(argv[1]);
	while ((n = getline(&line, &size, stdin)) > 0) {
		json_t *question = hb_json_parse(line, (size_t)n - 1, NULL), *answer;
		char *text;

		answer = hb_caller_run(&options, sessions, question);
		text = json_dumps(answer, JSON_COMPACT);
		puts(text);
		fflush(stdout);
		free(text);
		json_decref(answer);
		json_decref(question);
	}
	free(line);
	free(sessions);
	return 0;
}
