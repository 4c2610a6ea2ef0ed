/*
 * A payload that misbehaves on demand. Linked statically: a rootfs with only this file runs it.
 *
 *   misbehave [option]...
 *     --listen ADDRESS      (127.0.0.1)       --late MS         bind the port so late
 *     --udp ADDRESS         also a UDP socket, bound and unconnected
 *     --exit CODE           at once           --life MS         serve that long, then exit 7
 *     --health TEXT         body of GET /api/health ({"status":"ok"})
 *     --no-challenge        POST /mcp answers 200 without a key
 *     --ignore-term         SIGTERM does nothing
 *     --family              a worker, its worker in a session of its own, and an orphan; all ignore SIGTERM and keep the
 *                           port's descriptor; then serve as usual
 *     --wrapper             like a shell wrapper: the parent does nothing but wait, a child serves
 *     --report              print what this process may do, as JSON, and exit 0
 *     --hang-after N        answer N requests, then accept no more
 * Port and data directory are PORT and EXECUTOR_DATA_DIR.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *address = "127.0.0.1", *udp, *health = "{\"status\":\"ok\"}";
static bool no_challenge, ignore_term, family, wrapper;
static int late_ms, life_ms, hang_after = -1;

static void on_term(int sig)
{
	_exit(130);
}

static void on_life(int sig)
{
	_exit(7);
}

static struct sockaddr_in bound(const char *host)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(getenv("PORT")))};

	inet_pton(AF_INET, host, &a.sin_addr);
	return a;
}

static void must_fail(const char *name, long rc)
{
	printf("\"%s\":\"%s\",", name, rc < 0 ? strerrorname_np(errno) : "allowed");
}

static void print_status_lines(void)
{
	char line[256];
	FILE *f = fopen("/proc/self/status", "r");

	while (f && fgets(line, sizeof(line), f)) {
		char *colon = strchr(line, ':');

		if (!colon || (strncmp(line, "Cap", 3) && strncmp(line, "NoNewPrivs", 10) && strncmp(line, "Uid", 3) &&
			       strncmp(line, "Gid", 3) && strncmp(line, "Groups", 6) && strncmp(line, "Seccomp:", 8)))
			continue;
		*colon = '\0';
		for (char *p = colon + 1; *p; p++)
			if (*p == '\t' || *p == '\n')
				*p = ' ';
		printf("\"%s\":\"%s\",", line, colon + 1);
	}
	if (f)
		fclose(f);
}

static void print_descriptors(void)
{
	printf("\"descriptors\":[");
	for (int fd = 0, first = 1; fd < 1024; fd++)
		if (fcntl(fd, F_GETFD) >= 0) {
			printf("%s%d", first ? "" : ",", fd);
			first = 0;
		}
	printf("],");
}

static long try_write(const char *path)
{
	int fd = open(path, O_WRONLY | O_CREAT, 0600);

	if (fd >= 0) {
		close(fd);
		unlink(path);
	}
	return fd;
}

static int report(char **argv)
{
	char cwd[4096] = "", data[4096], self[4096] = "";
	struct rlimit core;
	const char *dir = getenv("EXECUTOR_DATA_DIR");

	if (readlink("/proc/self/exe", self, sizeof(self) - 1) < 0)
		perror("/proc/self/exe");
	printf("REPORT {");
	print_status_lines();
	print_descriptors();
	snprintf(data, sizeof(data), "%s/probe-file", dir ? dir : "/nonexistent");
	must_fail("write_data", try_write(data));
	must_fail("write_root", try_write("/probe-file"));
	must_fail("write_program", open(self, O_WRONLY));
	must_fail("write_shared", try_write("shared/probe-file")); /* a directory of the image with mode 1777 */
	must_fail("write_dev", try_write("/dev/probe-file"));
	must_fail("read_shadow", open("/etc/shadow", O_RDONLY));
	must_fail("read_state", open("/hermes-state-marker", O_RDONLY));
	must_fail("null", open("/dev/null", O_RDWR));
	must_fail("urandom", open("/dev/urandom", O_RDONLY));
	must_fail("proc", open("/proc/self/maps", O_RDONLY));
	must_fail("resolv", open("/etc/resolv.conf", O_RDONLY));
	must_fail("mount", mount("none", "/tmp", "tmpfs", 0, NULL));
	must_fail("unshare_user", unshare(CLONE_NEWUSER));
	must_fail("clone_user", syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, NULL, NULL, NULL, NULL));
	must_fail("clone3", syscall(435, NULL, 0));
	must_fail("ptrace", syscall(SYS_ptrace, 16, 1, NULL, NULL));
	must_fail("keyctl", syscall(SYS_keyctl, 0, -3, 1));
	must_fail("bpf", syscall(SYS_bpf, 0, NULL, 0));
	must_fail("io_uring", syscall(425, 1, NULL));
	must_fail("packet_socket", socket(AF_PACKET, SOCK_RAW, 0));
	must_fail("vsock", socket(AF_VSOCK, SOCK_STREAM, 0));
	must_fail("inet_socket", socket(AF_INET, SOCK_STREAM, 0));
	must_fail("signal_init", kill(1, 0));
	must_fail("setuid_root", setuid(0));
	getrlimit(RLIMIT_CORE, &core);
	printf("\"core\":%lu,\"cwd\":\"%s\",\"home\":\"%s\",\"data\":\"%s\",\"path\":\"%s\",\"arg\":\"%s\",", core.rlim_cur,
	       getcwd(cwd, sizeof(cwd)), getenv("HOME") ? getenv("HOME") : "", dir ? dir : "",
	       getenv("PATH") ? getenv("PATH") : "", argv[1] ? argv[1] : "");
	printf("\"pid\":%d,\"umask\":%d,\"session\":%s}\n", (int)getpid(), (int)umask(0), getsid(0) == getpid() ? "true" : "false");
	return 0;
}

static void answer(int fd, const char *status, const char *header, const char *body)
{
	dprintf(fd, "HTTP/1.1 %s\r\nContent-Type: application/json\r\n%sContent-Length: %zu\r\nConnection: close\r\n\r\n%s",
		status, header, strlen(body), body);
}

static void serve(int fd)
{
	char request[8192];
	ssize_t n = read(fd, request, sizeof(request) - 1);

	if (n <= 0)
		return;
	request[n] = '\0';
	if (!strncmp(request, "GET /api/health ", 16))
		answer(fd, "200 OK", "", health);
	else if (!no_challenge && !strncmp(request, "POST /mcp ", 10))
		answer(fd, "401 Unauthorized", "www-authenticate: Bearer resource_metadata=\"https://x/\"\r\n", "{}");
	else
		answer(fd, "200 OK", "", "{}");
}

/* A child, its child in a session of its own, and an orphan of that one: all deaf to SIGTERM, all holding the port. */
static void start_family(void)
{
	for (int depth = 0; depth < 3; depth++) {
		if (fork() != 0) {
			if (depth == 0)
				return;
			if (depth == 2)
				_exit(0);
			for (;;)
				pause();
		}
		signal(SIGTERM, SIG_IGN);
		if (depth == 1)
			setsid();
	}
	for (;;)
		pause();
}

static void listen_and_serve(void)
{
	struct sockaddr_in a = bound(address);
	int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1, client;

	if (late_ms)
		usleep((useconds_t)late_ms * 1000);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(fd, (struct sockaddr *)&a, sizeof(a)) < 0 || listen(fd, 16) < 0) {
		perror("listen");
		exit(1);
	}
	if (family)
		start_family();
	for (int served = 0; (client = accept(fd, NULL, NULL)) >= 0; served++) {
		if (served == hang_after)
			for (;;)
				pause();
		serve(client);
		close(client);
	}
}

static void open_udp(void)
{
	struct sockaddr_in a = bound(udp);
	int fd = socket(AF_INET, SOCK_DGRAM, 0);

	if (bind(fd, (struct sockaddr *)&a, sizeof(a)) < 0)
		perror("udp");
}

int main(int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		const char *value = i + 1 < argc ? argv[i + 1] : "";

		if (!strcmp(argv[i], "--report"))
			return report(argv);
		if (!strcmp(argv[i], "--exit"))
			return atoi(value);
		if (!strcmp(argv[i], "--listen"))
			address = value;
		else if (!strcmp(argv[i], "--udp"))
			udp = value;
		else if (!strcmp(argv[i], "--health"))
			health = value;
		else if (!strcmp(argv[i], "--late"))
			late_ms = atoi(value);
		else if (!strcmp(argv[i], "--life"))
			life_ms = atoi(value);
		else if (!strcmp(argv[i], "--hang-after"))
			hang_after = atoi(value);
		no_challenge = no_challenge || !strcmp(argv[i], "--no-challenge");
		ignore_term = ignore_term || !strcmp(argv[i], "--ignore-term");
		family = family || !strcmp(argv[i], "--family");
		wrapper = wrapper || !strcmp(argv[i], "--wrapper");
	}
	signal(SIGPIPE, SIG_IGN);
	signal(SIGTERM, ignore_term ? SIG_IGN : on_term);
	if (life_ms) {
		struct itimerval life = {.it_value = {life_ms / 1000, life_ms % 1000 * 1000}};

		signal(SIGALRM, on_life);
		setitimer(ITIMER_REAL, &life, NULL);
	}
	if (udp)
		open_udp();
	if (wrapper && fork() != 0) {
		signal(SIGTERM, on_term);
		wait(NULL);
		return 0;
	}
	if (wrapper)
		signal(SIGTERM, SIG_IGN);
	listen_and_serve();
	return 1;
}
