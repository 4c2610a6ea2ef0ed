/*
 * A prober that is preloaded into the real programs and tries, inside the sandbox of each process and worker, what must
 * fail there.
 *
 * A program is confined step by step and its seccomp filter comes last. The call that loads it is taken over: for each
 * attempt a child is forked that loads the very same filter, tries, and ends; its parent writes what came of it. Then the
 * program goes on as if nothing had been. One line an attempt: NAME-OF-PROCESS ATTEMPT HOW, where HOW is `done`,
 * `killed`, or the number of the error.
 *
 *   HERMES_INSIDE_REPORT  file that is appended to; without it nothing is done
 *   HERMES_INSIDE_STATE   the state directory
 *   HERMES_INSIDE_PORT    a TCP port of 127.0.0.1 where somebody listens
 *   HERMES_INSIDE_PID     a process that is none of the program's business
 *
 * With HERMES_INSIDE_CONTROL set the attempts are made at once and without a sandbox, in whatever program.
 */
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <sched.h>
#include <seccomp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define PATH_SIZE 512
#define HIGH 512

static char state[PATH_SIZE / 2];
static int report = -1;
static uint16_t port;
static pid_t outsider, peer;

/* ---- attempts: -1 and errno when refused ---- */

typedef long (*attempt)(void);

#define ATTEMPT(name, expression)                                                                  \
	static long name(void)                                                                     \
	{                                                                                          \
		return expression;                                                                 \
	}

static long
connect_inet(void)
{
	struct sockaddr_in sin = {.sin_family = AF_INET, .sin_port = htons(port)};
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	sin.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	return fd < 0 ? -1 : connect(fd, (struct sockaddr *)&sin, sizeof(sin));
}

static long
bind_inet(void)
{
	struct sockaddr_in sin = {.sin_family = AF_INET};
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	sin.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	return fd < 0 ? -1 : bind(fd, (struct sockaddr *)&sin, sizeof(sin));
}

static long
connect_abstract(void)
{
	struct sockaddr_un sun = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM, 0), n;

	n = snprintf(sun.sun_path + 1, sizeof(sun.sun_path) - 1, "hermes-inside-%d", (int)outsider);
	return fd < 0 ? -1
		      : connect(fd, (struct sockaddr *)&sun,
				(socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n));
}

/* Any file of another process below /proc. */
static long
proc_of(pid_t pid, const char *name, int flags)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
	return open(path, flags);
}

/* One that no process of ours keeps. */
static long
raise_net_raw(void)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2];

	if (syscall(SYS_capget, &header, data) != 0)
		return -1;
	data[0].permitted |= 1u << CAP_NET_RAW;
	data[0].effective |= 1u << CAP_NET_RAW;
	return syscall(SYS_capset, &header, data);
}

static long
map_executable(void)
{
	return mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) ==
			       MAP_FAILED
		       ? -1
		       : 0;
}

static long
make_executable(void)
{
	void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return page == MAP_FAILED ? 0 : mprotect(page, 4096, PROT_READ | PROT_EXEC);
}

static long
core_again(void)
{
	struct rlimit some = {4096, 4096};

	return setrlimit(RLIMIT_CORE, &some);
}

ATTEMPT(socket_inet, socket(AF_INET, SOCK_STREAM, 0))
ATTEMPT(socket_inet6_udp, socket(AF_INET6, SOCK_DGRAM, 0))
ATTEMPT(socket_raw, socket(AF_INET, SOCK_RAW, IPPROTO_ICMP))
ATTEMPT(socket_packet, socket(AF_PACKET, SOCK_RAW, 0))
ATTEMPT(exec_true, execl("/bin/true", "true", (char *)NULL))
ATTEMPT(ptrace_outsider, ptrace(PTRACE_SEIZE, outsider, 0, 0))
ATTEMPT(ptrace_peer, ptrace(PTRACE_SEIZE, peer, 0, 0))
ATTEMPT(read_memory, syscall(SYS_process_vm_readv, peer, NULL, 0, NULL, 0, 0))
ATTEMPT(take_descriptor, syscall(SYS_pidfd_getfd, -1, 0, 0))
ATTEMPT(signal_outsider, kill(outsider, 0))
ATTEMPT(proc_environ_outsider, proc_of(outsider, "environ", O_RDONLY))
ATTEMPT(proc_mem_outsider, proc_of(outsider, "mem", O_RDWR))
ATTEMPT(proc_environ_peer, proc_of(peer, "environ", O_RDONLY))
ATTEMPT(proc_mem_peer, proc_of(peer, "mem", O_RDWR))
ATTEMPT(do_mount, mount("none", "/mnt", "tmpfs", 0, NULL))
ATTEMPT(do_umount, umount2("/mnt", MNT_DETACH))
ATTEMPT(new_mounts, unshare(CLONE_NEWNS))
ATTEMPT(new_users, unshare(CLONE_NEWUSER))
ATTEMPT(new_net, unshare(CLONE_NEWNET))
ATTEMPT(clone_users, syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0))
ATTEMPT(enter_namespace, syscall(SYS_setns, -1, 0))
ATTEMPT(do_chroot, chroot("/"))
ATTEMPT(do_pivot, syscall(SYS_pivot_root, "/", "/"))
ATTEMPT(become_root, setresuid(0, 0, 0))
ATTEMPT(become_other, setresuid(4242, 4242, 4242))
ATTEMPT(join_group, setgroups(1, &(gid_t){0}))
ATTEMPT(io_uring, syscall(SYS_io_uring_setup, 1, NULL))
ATTEMPT(bpf, syscall(SYS_bpf, 0, NULL, 0))
ATTEMPT(perf, syscall(SYS_perf_event_open, NULL, 0, -1, -1, 0))
ATTEMPT(keyctl, syscall(SYS_keyctl, 0, -3, 0, 0, 0))
ATTEMPT(add_key, syscall(SYS_add_key, NULL, NULL, NULL, 0, 0))
ATTEMPT(kexec, syscall(SYS_kexec_load, 0, 17, NULL, 0))
ATTEMPT(module, syscall(SYS_init_module, NULL, 0, ""))
ATTEMPT(reboot, syscall(SYS_reboot, 0, 0, 0, NULL))
ATTEMPT(by_handle, syscall(SYS_open_by_handle_at, -1, NULL, 0))
ATTEMPT(userfault, syscall(SYS_userfaultfd, ~0))
ATTEMPT(memory_file, syscall(SYS_memfd_create, "x", 0))
ATTEMPT(set_clock, syscall(SYS_clock_settime, -1, NULL))
ATTEMPT(personality, syscall(SYS_personality, 0x0400000))
ATTEMPT(dumpable, prctl(PR_SET_DUMPABLE, 1, 0, 0, 0))
ATTEMPT(list_root, open("/", O_RDONLY | O_DIRECTORY))
ATTEMPT(read_shadow, open("/etc/shadow", O_RDONLY))
ATTEMPT(read_home, open("/root", O_RDONLY | O_DIRECTORY))

static const struct {
	const char *name;
	attempt what;
} attempts[] = {
#define A(name) {#name, name}
	A(socket_inet), A(socket_inet6_udp), A(socket_raw), A(socket_packet), A(connect_inet),
	A(bind_inet), A(connect_abstract), A(exec_true), A(ptrace_outsider), A(ptrace_peer),
	A(read_memory), A(take_descriptor), A(signal_outsider), A(proc_environ_outsider),
	A(proc_mem_outsider), A(proc_environ_peer), A(proc_mem_peer), A(do_mount), A(do_umount),
	A(new_mounts), A(new_users), A(new_net), A(clone_users), A(enter_namespace), A(do_chroot),
	A(do_pivot), A(become_root), A(become_other), A(join_group), A(raise_net_raw), A(io_uring),
	A(bpf), A(perf), A(keyctl), A(add_key), A(kexec), A(module), A(reboot), A(by_handle),
	A(userfault), A(memory_file), A(set_clock), A(personality), A(dumpable), A(map_executable),
	A(make_executable), A(core_again), A(list_root), A(read_shadow),
	A(read_home),
};

/* Below the state directory, each tried for reading; a directory also for writing. */
static const char *const secrets[] = {
	"broker/control-secret", "broker/approval-secret", "approver/signing.key",
	"approver/approval-secret", "approver/bot-token", "admin/admin-key", "ssh/integrity-secret",
	"fetcher/credentials.json", "probe/keys/inside", "ssh/profiles/inside/key",
};
static const char *const directories[] = {
	"broker", "approver", "admin", "installer", "docker", "ssh", "fetcher", "policy", "public",
	"conf", "run", "log", "storage/releases", "storage/blobs", "data", "/tmp", "/etc", "/usr",
};

static const char *
below_state(const char *name, char path[PATH_SIZE])
{
	if (name[0] == '/')
		return name;
	snprintf(path, PATH_SIZE, "%s/%s", state, name);
	return path;
}

static long
write_in(const char *directory)
{
	char full[PATH_SIZE], name[PATH_SIZE + 32];
	int fd;

	snprintf(name, sizeof(name), "%s/.inside-%d", below_state(directory, full), (int)getpid());
	fd = open(name, O_WRONLY | O_CREAT | O_EXCL, 0600);
	if (fd >= 0)
		unlink(name);
	return fd;
}

static long
read_secret(const char *name)
{
	char full[PATH_SIZE];

	return open(below_state(name, full), O_RDONLY);
}

/* ---- one attempt in a child ---- */

static void
one(const scmp_filter_ctx ctx, int (*load)(const scmp_filter_ctx), const char *kind,
    const char *name, attempt what, long (*with)(const char *))
{
	char comm[17] = "", line[160], how[24] = "done";
	int status, n;
	pid_t pid;

	prctl(PR_GET_NAME, comm, 0, 0, 0);
	peer = getpid();
	pid = fork();
	if (pid == 0) {
		/* Neither what the program does with signals nor its descriptors matter here. */
		if (load != NULL && load(ctx) != 0)
			_exit(255);
		_exit((what != NULL ? what() : with(name)) >= 0 ? 0 : errno);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		return;
	if (WIFSIGNALED(status))
		snprintf(how, sizeof(how), WTERMSIG(status) == SIGSYS ? "killed" : "signal %d",
			 WTERMSIG(status));
	else if (WEXITSTATUS(status) != 0)
		snprintf(how, sizeof(how), "%d", WEXITSTATUS(status));
	n = snprintf(line, sizeof(line), "%s %s%s %s\n", comm, kind, name, how);
	if (write(report, line, (size_t)n) != n)
		_exit(254);
}

static void
all(const scmp_filter_ctx ctx, int (*load)(const scmp_filter_ctx))
{
	for (size_t i = 0; i < sizeof(attempts) / sizeof(attempts[0]); i++)
		one(ctx, load, "", attempts[i].name, attempts[i].what, NULL);
	for (size_t i = 0; i < sizeof(secrets) / sizeof(secrets[0]); i++)
		one(ctx, load, "read:", secrets[i], NULL, read_secret);
	for (size_t i = 0; i < sizeof(directories) / sizeof(directories[0]); i++)
		one(ctx, load, "write:", directories[i], NULL, write_in);
}

/* ---- what is taken over ---- */

static void __attribute__((constructor))
read_environment(void)
{
	const char *to = getenv("HERMES_INSIDE_REPORT"), *from = getenv("HERMES_INSIDE_STATE"),
		   *number = getenv("HERMES_INSIDE_PORT"), *pid = getenv("HERMES_INSIDE_PID");
	int fd;

	if (to == NULL || from == NULL || number == NULL || pid == NULL)
		return;
	snprintf(state, sizeof(state), "%s", from);
	port = (uint16_t)atoi(number);
	outsider = atoi(pid);
	unsetenv("HERMES_INSIDE_REPORT"); /* not for programs that are started from here */
	fd = open(to, O_WRONLY | O_APPEND | O_CLOEXEC);
	report = fcntl(fd, F_DUPFD_CLOEXEC, HIGH); /* out of the way of those that number theirs */
	close(fd);
	if (getenv("HERMES_INSIDE_CONTROL") != NULL) {
		all(NULL, NULL);
		_exit(report < 0);
	}
}

/* Workers close what they don't know; the report stays open. */
int
close_range(unsigned first, unsigned last, int flags)
{
	unsigned own = (unsigned)report;

	if (report < 0 || own < first || own > last)
		return (int)syscall(SYS_close_range, first, last, flags);
	if (own > first && syscall(SYS_close_range, first, own - 1, flags) != 0)
		return -1;
	return own < last ? (int)syscall(SYS_close_range, own + 1, last, flags) : 0;
}

int
seccomp_load(const scmp_filter_ctx ctx)
{
	static int (*load)(const scmp_filter_ctx);

	if (load == NULL)
		*(void **)&load = dlsym(RTLD_NEXT, "seccomp_load");
	if (report >= 0) {
		/* A child can't be waited for where they are ignored. */
		void (*before)(int) = signal(SIGCHLD, SIG_DFL);

		all(ctx, load);
		signal(SIGCHLD, before);
	}
	return load(ctx);
}
