/*
 * hermesctl: the command table and its help. Holds nothing; can only ask the broker, the approver's console and admin,
 * and on the host as root set the state up and start the launcher.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "admin/ctl/ctl.h"
#include "common/paths.h"

const struct ctl_command ctl_commands[] = {
	{"quickstart", "[OPTIONS]", "set up, start, and install the configured image", ctl_cmd_quickstart},
	{"setup", "[OPTIONS]", "create or complete the state directory", ctl_cmd_setup},
	{"up", "", "start the launcher and wait until everything is ready", ctl_cmd_up},
	{"down", "", "stop the payload and every process", ctl_cmd_down},
	{"status", "", "processes, policy and runtime at a glance", ctl_cmd_status},
	{"doctor", "[--authority]", "check what could be wrong and name the fix", ctl_cmd_doctor},
	{"runtime install", "[OPTIONS]", "install the configured or given image", ctl_cmd_runtime_install},
	{"runtime start", "[OPTIONS]", "start the installed release", ctl_cmd_runtime_start},
	{"runtime stop", "[OPTIONS]", "stop it", ctl_cmd_runtime_stop},
	{"runtime restart", "[OPTIONS]", "stop and start it", ctl_cmd_runtime_restart},
	{"runtime upgrade", "[OPTIONS]", "replace the release; back by itself if the new one fails", ctl_cmd_runtime_upgrade},
	{"runtime rollback", "[OPTIONS]", "back to the previous or a named release", ctl_cmd_runtime_rollback},
	{"runtime remove", "[OPTIONS]", "stop it and remove all releases; data is kept", ctl_cmd_runtime_remove},
	{"runtime prune", "[OPTIONS]", "remove releases, downloads and data copies not needed", ctl_cmd_runtime_prune},
	{"runtime stage", "[OPTIONS]", "fetch and unpack ahead of time (no approval)", ctl_cmd_runtime_stage},
	{"runtime quiesce", "[--for SECONDS]", "stop and sync for a machine snapshot (root, no approval)", ctl_cmd_runtime_quiesce},
	{"runtime resume", "", "start again after a snapshot (root, no approval)", ctl_cmd_runtime_resume},
	{"runtime check", "", "run all health checks now", ctl_cmd_runtime_check},
	{"runtime status", "", "release, isolation, health, MCP tools", ctl_cmd_runtime_status},
	{"runtime verify", "", "re-hash the installed tree against its manifest", ctl_cmd_runtime_verify},
	{"runtime releases", "", "releases on disk", ctl_cmd_runtime_releases},
	{"runtime key set", "[OPTIONS] NAME", "store an API key of the runtime for the prober", ctl_cmd_runtime_key_set},
	{"runtime key list", "", "stored keys: purpose, owner, last used; never the key", ctl_cmd_runtime_key_list},
	{"runtime key remove", "NAME", "forget a stored key", ctl_cmd_runtime_key_remove},
	{"inventory show", "[NAME]", "connected accounts: owner, scopes, last check, review date", ctl_cmd_inventory_show},
	{"inventory add", "[OPTIONS] NAME", "write down a connection", ctl_cmd_inventory_add},
	{"inventory edit", "[OPTIONS] NAME", "change what is written of it", ctl_cmd_inventory_edit},
	{"inventory remove", "NAME", "take it out", ctl_cmd_inventory_remove},
	{"inventory import", "[OPTIONS] FILE", "add the connections of a JSON or CSV file, all or none", ctl_cmd_inventory_import},
	{"inventory export", "[--format json|md|csv]", "the report for people", ctl_cmd_inventory_export},
	{"inventory check", "[OPTIONS] --key NAME [NAME...]", "run validation queries on the live runtime", ctl_cmd_inventory_check},
	{"guardrails list", "", "what agents may do, file by file, and the last check", ctl_cmd_guardrails_list},
	{"guardrails show", "[--policies] NAME", "one file, or the runtime's policies that put it in force",
	 ctl_cmd_guardrails_show},
	{"guardrails check", "[OPTIONS]", "prove them on the live runtime",
	 ctl_cmd_guardrails_check},
	{"guardrails diff", "[--key NAME]", "the runtime's tools, now and at the last check", ctl_cmd_guardrails_diff},
	{"acceptance run", "[OPTIONS]", "does this deployment do all it was made for", ctl_cmd_acceptance_run},
	{"acceptance show", "", "the last report", ctl_cmd_acceptance_show},
	{"review", "", "what is due to be looked at", ctl_cmd_review},
	{"docker list", "[--all]", "containers of this host", ctl_cmd_docker_list},
	{"docker pull", "IMAGE@DIGEST", "have the engine download an image", ctl_cmd_docker_pull},
	{"docker run", "[OPTIONS] IMAGE [-- CMD...]", "run a new container", ctl_cmd_docker_run},
	{"docker start", "CONTAINER", "start a container", ctl_cmd_docker_start},
	{"docker stop", "CONTAINER", "end a container", ctl_cmd_docker_stop},
	{"docker restart", "CONTAINER", "end a container and start it anew", ctl_cmd_docker_restart},
	{"docker remove", "[OPTIONS] CONTAINER", "delete a container", ctl_cmd_docker_remove},
	{"docker logs", "[--tail N] CONTAINER", "what a container has printed", ctl_cmd_docker_logs},
	{"docker inspect", "CONTAINER", "settings of a container, without secrets", ctl_cmd_docker_inspect},
	{"sandbox run", "[OPTIONS] -- CMD...", "a command in the sandbox, in /workspace", ctl_cmd_sandbox_run},
	{"ssh run", "[OPTIONS] PROFILE -- CMD...", "a command on a host that has a profile", ctl_cmd_ssh_run},
	{"ssh profile list", "", "profiles, and what is wrong with those that can't be used", ctl_cmd_ssh_profile_list},
	{"ssh profile add", "[OPTIONS] NAME", "make a profile; a person verifies the host's key", ctl_cmd_ssh_profile_add},
	{"ssh profile verify", "NAME", "does the host still show the pinned key", ctl_cmd_ssh_profile_verify},
	{"ssh profile set-password", "NAME", "ask for a new password in the terminal", ctl_cmd_ssh_profile_set_password},
	{"ssh profile remove", "[--yes] NAME", "remove a profile with its credential", ctl_cmd_ssh_profile_remove},
	{"runtime backup", "[OPTIONS]", "stop it, copy its data, start it, verify the copy", ctl_cmd_runtime_backup},
	{"runtime restore", "[OPTIONS] FILE", "put the data of a backup in the place of the present one",
	 ctl_cmd_runtime_restore},
	{"backup list", "", "backups: size, release, when last verified", ctl_cmd_backup_list},
	{"backup verify", "FILE", "read a backup whole and check its databases", ctl_cmd_backup_verify},
	{"backup drill", "FILE", "start the release with a copy on a spare port", ctl_cmd_backup_drill},
	{"backup decrypt", "--identity FILE FILE", "decrypt a backup beside itself", ctl_cmd_backup_decrypt},
	{"operations list", "[--limit N]", "recent operations", ctl_cmd_operations_list},
	{"operations show", "ID", "one operation, whole", ctl_cmd_operations_show},
	{"operations watch", "ID", "follow it to its end", ctl_cmd_operations_watch},
	{"operations cancel", "ID", "take it back before it runs", ctl_cmd_operations_cancel},
	{"pending", "", "what waits for a decision in this console", ctl_cmd_pending},
	{"approve", "ID", "show an operation and approve exactly it", ctl_cmd_approve},
	{"deny", "ID", "deny it", ctl_cmd_deny},
	{"explain", "[--bounds FILE]", "validate and explain a request on standard input", ctl_cmd_explain},
	{"policy show", "", "live policy and bounds", ctl_cmd_policy_show},
	{"policy set", "[OPTIONS]", "change live policy (raises the generation)", ctl_cmd_policy_set},
	{"users list", "", "who may be an approver, and who is", ctl_cmd_users_list},
	{"users set", "[ID...]", "exactly these approvers", ctl_cmd_users_set},
	{"users add", "ID...", "further approvers", ctl_cmd_users_add},
	{"users remove", "ID...", "no longer approvers", ctl_cmd_users_remove},
	{"features enable", "sandbox|docker|ssh|runtime|all", "let it be asked for", ctl_cmd_features_enable},
	{"features disable", "sandbox|docker|ssh|runtime|all", "refuse it from now on", ctl_cmd_features_disable},
	{"bot token set", "", "ask for the approval bot's token in the terminal", ctl_cmd_bot_token_set},
	{"bot token clear", "", "no bot any more", ctl_cmd_bot_token_clear},
	{"secrets rotate", "control|approval|admin-key|scrape-key", "a new one, delivered at once", ctl_cmd_secrets_rotate},
	{"admin status", "", "the admin endpoint: address, pages, process", ctl_cmd_admin_status},
	{"admin enable", "", "serve it", ctl_cmd_admin_enable},
	{"admin disable", "", "listen no more", ctl_cmd_admin_disable},
	{"admin browser", "ORIGIN [PRIVATE_IP]", "let pages of an origin use it", ctl_cmd_admin_browser},
	{"admin key show", "", "print the admin key, in a terminal only", ctl_cmd_admin_key_show},
	{"admin key rotate", "", "make a new one", ctl_cmd_admin_key_rotate},
	{"images lock", "", "write down the digests of what is installed", ctl_cmd_images_lock},
	{"images verify", "", "compare them with what is installed now", ctl_cmd_images_verify},
	{"purge", "", "end everything and remove the state directory", ctl_cmd_purge},
	{"grant verify", "--key FILE FILE", "check a grant offline", ctl_cmd_grant_verify},
	{"audit show", "[--process NAME] [--limit N]", "latest audit records", ctl_cmd_audit_show},
	{"audit verify", "[--witness TEXT]", "check every audit chain, also against what a phone kept", ctl_cmd_audit_verify},
	{"audit acknowledge", "--process NAME --reason TEXT", "set a damaged chain aside and begin a new one",
	 ctl_cmd_audit_acknowledge},
	{"audit checkpoint", "[--accept]", "have the approver sign the heads of all chains", ctl_cmd_audit_checkpoint},
	{"receipt export", "[--out FILE] ID", "one file about a decided operation", ctl_cmd_receipt_export},
	{"receipt show", "ID|FILE", "print it", ctl_cmd_receipt_show},
	{"receipt verify", "[--key FILE] ID|FILE", "check signatures, digests and chain", ctl_cmd_receipt_verify},
	{"keys init", "", "make the approver's signing key", ctl_cmd_keys_init},
	{"keys rotate", "--honour|--revoke", "make a new one", ctl_cmd_keys_rotate},
	{"keys show", "", "which keys count", ctl_cmd_keys_show},
	{"pause", "", "refuse everything, at once, until resumed", ctl_cmd_pause},
	{"resume", "[--yes]", "end a pause", ctl_cmd_resume},
	{"revoke", "ID|all", "take approvals back that have not run", ctl_cmd_revoke},
};
const size_t ctl_command_count = sizeof ctl_commands / sizeof ctl_commands[0];

static void usage(FILE *out)
{
	fprintf(out, "usage: hermesctl [--state DIR] [--socket PATH] [--json] [--no-input] COMMAND ...\n\n");
	for (size_t i = 0; i < ctl_command_count; i++)
		fprintf(out, "  %-18s %-30s %s\n", ctl_commands[i].name, ctl_commands[i].arguments,
			ctl_commands[i].help);
	fprintf(out,
		"\n"
		"  --state DIR    state directory (default: ./state if it is one, else /var/lib/hermes-broker)\n"
		"  --socket PATH  another socket of the broker\n"
		"  --json         one JSON object on standard output\n"
		"  --no-input     never ask; what would need an answer is refused\n\n"
		"Exit codes: 0 done, 1 it ran and failed, 2 usage, 3 refused, 4 denied by a person, 5 expired,\n"
		"cancelled or revoked, 6 a service can't be reached, 7 outcome unknown, 8 not found.\n"
		"`hermesctl COMMAND --help` explains one command.\n");
}

/* How many words of argv are the whole of `name`; 0: they are not. */
static int matches(const char *name, int argc, char **argv)
{
	int words = 0;

	for (const char *at = name; *at; words++) {
		size_t len = strcspn(at, " ");

		if (words >= argc || strlen(argv[words]) != len || strncmp(argv[words], at, len) != 0)
			return 0;
		at += len + (at[len] == ' ');
	}
	return words;
}

/* The command whose words begin argv; *words says how many there are. */
static const struct ctl_command *find(int argc, char **argv, int *words)
{
	for (size_t i = 0; i < ctl_command_count; i++)
		if ((*words = matches(ctl_commands[i].name, argc, argv)) > 0)
			return &ctl_commands[i];
	return NULL;
}

/* `hermesctl runtime`, `hermesctl bot token --help`: the commands that begin with these words. */
static int group_help(FILE *out, int argc, char **argv)
{
	char prefix[64] = "";
	size_t len = 0;
	int shown = 0;

	for (int i = 0; i < argc && argv[i][0] != '-' && len + strlen(argv[i]) + 1 < sizeof prefix; i++)
		len += (size_t)snprintf(prefix + len, sizeof prefix - len, "%s ", argv[i]);
	for (size_t i = 0; len > 0 && i < ctl_command_count; i++)
		if (strncmp(ctl_commands[i].name, prefix, len) == 0) {
			fprintf(out, "  hermesctl %-18s %-30s %s\n", ctl_commands[i].name, ctl_commands[i].arguments,
				ctl_commands[i].help);
			shown++;
		}
	return shown;
}

static int no_command(int argc, char **argv)
{
	bool asked = strcmp(argv[argc - 1], "--help") == 0;

	if (group_help(asked ? stdout : stderr, argc, argv) > 0)
		return asked ? CTL_OK : CTL_USAGE;
	fprintf(stderr, "hermesctl: no command \"");
	for (int i = 0; i < argc && (i == 0 || argv[i][0] != '-'); i++) {
		if (i > 0)
			fputc(' ', stderr);
		for (const char *p = argv[i]; *p; p++)
			fputc(*p >= 32 && *p < 127 ? *p : '?', stderr);
	}
	fprintf(stderr, "\"; see hermesctl --help\n");
	return CTL_USAGE;
}

static const char *default_state(void)
{
	struct stat st;

	return stat("state/" HB_PATH_CONFIG, &st) == 0 ? "state" : "/var/lib/hermes-broker";
}

/* --json and --no-input may stand anywhere, also behind the command; the rest only in front. */
static int take_global(struct ctl *c, int argc, char **argv)
{
	int kept = 1;
	bool literal = false, front = true;

	for (int i = 1; i < argc; i++) {
		const char *a = argv[i];
		if (strcmp(a, "--") == 0)
			literal = true;
		if (!literal && strcmp(a, "--json") == 0)
			c->json = true;
		else if (!literal && strcmp(a, "--no-input") == 0)
			c->no_input = true;
		else if (front && (strcmp(a, "--state") == 0 || strcmp(a, "--socket") == 0) && i + 1 < argc)
			*(a[3] == 't' ? &c->state : &c->socket) = argv[++i];
		else if (front && strncmp(a, "--state=", 8) == 0)
			c->state = a + 8;
		else if (front && strncmp(a, "--socket=", 9) == 0)
			c->socket = a + 9;
		else {
			front = front && a[0] == '-' && strcmp(a, "--help") != 0;
			argv[kept++] = argv[i];
		}
	}
	argv[kept] = NULL;
	return kept;
}

int main(int argc, char **argv)
{
	struct ctl c = {.program = argv[0], .screen = isatty(STDERR_FILENO)};
	const struct ctl_command *command;
	int words;

	argc = take_global(&c, argc, argv);
	if (!c.state)
		c.state = default_state();
	if (argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "help") == 0)) {
		usage(stdout);
		return CTL_OK;
	}
	if (argc > 1 && strcmp(argv[1], "--version") == 0) {
		printf("hermesctl %s\n", HB_VERSION);
		return CTL_OK;
	}
	if (argc < 2) {
		usage(stderr);
		return CTL_USAGE;
	}
	command = find(argc - 1, argv + 1, &words);
	if (!command)
		return no_command(argc - 1, argv + 1);
	return command->run(&c, argc - 1 - words, argv + 1 + words);
}
