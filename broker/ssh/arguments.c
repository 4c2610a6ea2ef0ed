/*
 * The command line of ssh: every option is given, so that no file and no default of this host
 * decides anything.
 *
 * Destination and command stand behind "--", which also ends ssh's habit of looking for options
 * behind the destination. User and port are options of their own, so that the destination is a host
 * and nothing else.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "broker/ssh/run.h"
#include "common/buf.h"
#include "policy/ssh_profile.h"
#include "policy/text.h"

#define ARGUMENTS_MAX 160

static const char *const always[] = {
	/* who is spoken to */
	"StrictHostKeyChecking=yes",
	"GlobalKnownHostsFile=/dev/null",
	"KnownHostsCommand=none",
	"UpdateHostKeys=no",
	"VerifyHostKeyDNS=no",
	"CheckHostIP=no",
	"NoHostAuthenticationForLocalhost=no",
	"CanonicalizeHostname=no",
	"ProxyCommand=none",
	"ProxyJump=none",
	/* as whom */
	"IdentityAgent=none",
	"AddKeysToAgent=no",
	"IdentitiesOnly=yes",
	"PKCS11Provider=none",
	"GSSAPIAuthentication=no",
	"HostbasedAuthentication=no",
	"NumberOfPasswordPrompts=1",
	/* what comes of it: one command, nothing else */
	"ForwardAgent=no",
	"ForwardX11=no",
	"ClearAllForwardings=yes",
	"Tunnel=no",
	"PermitLocalCommand=no",
	"ControlMaster=no",
	"ControlPath=none",
	"ControlPersist=no",
	"RequestTTY=no",
	"EscapeChar=none",
	"Compression=no",
	/* when nobody answers any more */
	"ConnectionAttempts=1",
	"TCPKeepAlive=yes",
	"ServerAliveInterval=15",
	"ServerAliveCountMax=4",
	/* the lines that log.c reads */
	"LogLevel=DEBUG1",
};

static const char *const with_key[] = {
	"BatchMode=yes",
	"PreferredAuthentications=publickey",
	"PubkeyAuthentication=yes",
	"PasswordAuthentication=no",
	"KbdInteractiveAuthentication=no",
};

/* keyboard-interactive too: it is how many servers ask for a password. hermes-askpass answers
 * nothing else. */
static const char *const with_password[] = {
	"BatchMode=no",
	"PreferredAuthentications=password,keyboard-interactive",
	"PubkeyAuthentication=no",
	"PasswordAuthentication=yes",
	"KbdInteractiveAuthentication=yes",
};

struct list {
	char **argv;
	size_t n;
};

static void add(struct list *l, const char *text)
{
	if (l->n + 1 >= ARGUMENTS_MAX)
		abort(); /* the tables above are short */
	l->argv[l->n++] = hb_strdup(text);
}

static void option(struct list *l, const char *text)
{
	add(l, "-o");
	add(l, text);
}

static void option_take(struct list *l, char *text)
{
	option(l, text);
	free(text);
}

static int check(const struct hb_run_order *o, struct hb_error *err)
{
	bool auth = strcmp(o->auth, "publickey") == 0 || strcmp(o->auth, "password") == 0;

	if (!hb_host_name(o->host) || !hb_ssh_user_name(o->user) || o->port < 1 ||
	    o->port > 65535 || !auth || !hb_ssh_key_algorithms(o->key_type) ||
	    o->connect_timeout < 1 || o->command[0] == '\0')
		return hb_fail(err, "order_invalid",
			       "host, port, user, auth or key type of a run is not allowed");
	return 0;
}

char **hb_run_arguments(const struct hb_run_order *o, pid_t pid, const int fds[HB_RUN_FDS],
			struct hb_error *err)
{
	bool password = strcmp(o->auth, "password") == 0;
	const char *const *more = password ? with_password : with_key;
	struct list l = {0};
	char port[16];

	if (check(o, err) < 0)
		return NULL;
	l.argv = hb_calloc(ARGUMENTS_MAX, sizeof(*l.argv));
	/* No configuration file, no terminal, no agent, no X11, standard input from nowhere. */
	for (const char *const *p =
		     (const char *const[]){"ssh", "-F", "none", "-T", "-a", "-x", "-n", NULL};
	     *p; p++)
		add(&l, *p);
	for (size_t i = 0; i < sizeof(always) / sizeof(always[0]); i++)
		option(&l, always[i]);
	for (size_t i = 0; i < 5; i++)
		option(&l, more[i]);
	option(&l, "HostKeyAlias=" HB_HOST_ALIAS);
	option_take(&l, hb_asprintf("HostKeyAlgorithms=%s", hb_ssh_key_algorithms(o->key_type)));
	option_take(&l,
		    hb_asprintf("UserKnownHostsFile=/proc/%d/fd/%d", pid, fds[HB_RUN_KNOWN_HOSTS]));
	option_take(&l, hb_asprintf("ConnectTimeout=%lld", o->connect_timeout));
	if (!password)
		option_take(&l, hb_asprintf("IdentityFile=/proc/%d/fd/%d", pid,
					    fds[HB_RUN_CREDENTIAL]));
	else
		option(&l, "IdentityFile=none");
	/* Tried first; a host that trusts the bare key all the same gets the same command. */
	if (o->certificate)
		option_take(&l, hb_asprintf("CertificateFile=/proc/%d/fd/%d", pid,
					    fds[HB_RUN_CERTIFICATE]));
	add(&l, "-E");
	l.argv[l.n++] = hb_asprintf("/proc/%d/fd/%d", pid, fds[HB_RUN_LOG]);
	add(&l, "-l");
	add(&l, o->user);
	add(&l, "-p");
	snprintf(port, sizeof(port), "%lld", o->port);
	add(&l, port);
	add(&l, "--");
	add(&l, o->host);
	add(&l, o->command);
	return l.argv;
}

void hb_run_arguments_free(char **argv)
{
	for (char **p = argv; p && *p; p++)
		free(*p);
	free(argv);
}
