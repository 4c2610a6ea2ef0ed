/*
 * Tries what must be denied. Each attempt runs in a child of its own that has applied a sandbox,
 * and ends in one of three ways: it was done, it was refused with an errno, or the kernel killed
 * the process for trying.
 */
#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <ftw.h>
#include <linux/capability.h>
#include <netdb.h>
#include <pthread.h>
#include <sched.h>
#include <seccomp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/sandbox.h"

#define DONE 0
#define KILLED 200
#define BROKEN 201 /* the sandbox could not be applied */

/* An attempt returns 0 when it succeeded and -1 with errno when it was refused. */
typedef long (*attempt)(void);

static char top_dir[64];
static pid_t outsider; /* a process that is none of the sandbox's business */
static int listening;  /* a TCP port of this test */
static uint16_t port;

static const struct hb_sandbox_path own_paths[] = {{"inside", HB_FS_READ | HB_FS_WRITE},
						   {"readable", HB_FS_READ}};

static const struct hb_sandbox server_box = {
	.name = "server",
	.syscalls = HB_SYS_BASE | HB_SYS_FILES | HB_SYS_UNIX | HB_SYS_EVENTS,
	.paths = own_paths,
	.path_count = 2,
};

static const struct hb_sandbox deny_box = {.name = "deny", .deny_list = true};

static int
remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
	return remove(path);
}

static void
put_file(const char *path, mode_t mode)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, mode);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, "text\n", 5), 5);
	ck_assert_int_eq(fchmod(fd, mode), 0);
	close(fd);
}

static void
setup(void)
{
	struct sockaddr_in sin = {.sin_family = AF_INET};
	struct sockaddr_un sun = {.sun_family = AF_UNIX};
	socklen_t len = sizeof(sin);
	int fd;

	snprintf(top_dir, sizeof(top_dir), "/tmp/hermes-prober-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(top_dir));
	ck_assert_int_eq(chdir(top_dir), 0);
	ck_assert_int_eq(mkdir("inside", 0755) + mkdir("outside", 0755) + mkdir("readable", 0755),
			 0);
	put_file("inside/file", 0644);
	put_file("outside/file", 0644);
	put_file("readable/file", 0644);
	outsider = fork();
	if (outsider == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		signal(SIGTERM, SIG_DFL); /* not the test runner's */
		for (;;)
			pause();
	}
	listening = socket(AF_INET, SOCK_STREAM, 0);
	sin.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	ck_assert_int_eq(bind(listening, (struct sockaddr *)&sin, sizeof(sin)), 0);
	ck_assert_int_eq(listen(listening, 4), 0);
	ck_assert_int_eq(getsockname(listening, (struct sockaddr *)&sin, &len), 0);
	port = ntohs(sin.sin_port);
	fd = socket(AF_UNIX, SOCK_STREAM, 0);
	snprintf(sun.sun_path + 1, sizeof(sun.sun_path) - 1, "hermes-prober-%d", (int)getpid());
	ck_assert_int_eq(bind(fd, (struct sockaddr *)&sun, sizeof(sun)), 0);
	ck_assert_int_eq(listen(fd, 4), 0);
}

static void
teardown(void)
{
	kill(outsider, SIGKILL);
	waitpid(outsider, NULL, 0);
	close(listening);
	ck_assert_int_eq(chdir("/"), 0);
	nftw(top_dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

/* DONE, KILLED, or the errno of the refusal. */
static int
try_in(const struct hb_sandbox *box, attempt what)
{
	int status;
	pid_t pid = fork();

	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		struct hb_error err;

		if (hb_sandbox_apply(box, false, NULL, &err) != 0) {
			fprintf(stderr, "%s\n", err.message);
			_exit(BROKEN);
		}
		_exit(what() >= 0 ? DONE : errno);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	if (WIFSIGNALED(status))
		return WTERMSIG(status) == SIGSYS ? KILLED : 1000 + WTERMSIG(status);
	return WEXITSTATUS(status);
}

/* ---- attempts ---- */

#define ATTEMPT(name, expression)                                                                  \
	static long name(void)                                                                     \
	{                                                                                          \
		return expression;                                                                 \
	}

ATTEMPT(inet_socket, socket(AF_INET, SOCK_STREAM, 0))
ATTEMPT(inet6_socket, socket(AF_INET6, SOCK_DGRAM, 0))
ATTEMPT(raw_socket, socket(AF_INET, SOCK_RAW, IPPROTO_ICMP))
ATTEMPT(packet_socket, socket(AF_PACKET, SOCK_RAW, 0))
ATTEMPT(netlink_socket, socket(AF_NETLINK, SOCK_RAW, 0))
ATTEMPT(netfilter_socket, socket(AF_NETLINK, SOCK_RAW, 12))
ATTEMPT(vsock_socket, socket(AF_VSOCK, SOCK_STREAM, 0))
ATTEMPT(alg_socket, socket(AF_ALG, SOCK_SEQPACKET, 0))
ATTEMPT(unix_socket, socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0))
ATTEMPT(do_exec, execl("/bin/true", "true", (char *)NULL))
ATTEMPT(do_ptrace, ptrace(PTRACE_ATTACH, outsider, 0, 0))
ATTEMPT(do_mount, mount("none", "inside", "tmpfs", 0, NULL))
ATTEMPT(do_umount, umount2("inside", MNT_DETACH))
ATTEMPT(do_unshare, unshare(CLONE_NEWNS))
ATTEMPT(do_unshare_user, unshare(CLONE_NEWUSER))
ATTEMPT(do_setns, syscall(SYS_setns, 0, 0))
ATTEMPT(do_chroot, chroot("inside"))
ATTEMPT(do_setuid, setuid(1000))
ATTEMPT(do_setgroups, syscall(SYS_setgroups, 0, NULL))
ATTEMPT(do_chown, chown("inside/file", 1, 1))
ATTEMPT(do_mknod, syscall(SYS_mknodat, AT_FDCWD, "inside/dev", S_IFCHR | 0600, 0x103))
ATTEMPT(do_fork, syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0))
ATTEMPT(do_vfork, syscall(SYS_clone, CLONE_VM | CLONE_VFORK | SIGCHLD, 0, 0, 0, 0))
ATTEMPT(clone_user, syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0))
ATTEMPT(clone_net, syscall(SYS_clone, CLONE_NEWNET | SIGCHLD, 0, 0, 0, 0))
ATTEMPT(do_clone3, syscall(SYS_clone3, NULL, 0))
ATTEMPT(do_bpf, syscall(SYS_bpf, 0, NULL, 0))
ATTEMPT(do_keyctl, syscall(SYS_keyctl, 0, 0, 0, 0, 0))
ATTEMPT(do_io_uring, syscall(SYS_io_uring_setup, 1, NULL))
ATTEMPT(do_perf, syscall(SYS_perf_event_open, NULL, 0, 0, 0, 0))
ATTEMPT(do_userfaultfd, syscall(SYS_userfaultfd, 0))
ATTEMPT(do_vm_read, syscall(SYS_process_vm_readv, outsider, NULL, 0, NULL, 0, 0))
ATTEMPT(do_pidfd_getfd, syscall(SYS_pidfd_getfd, 0, 0, 0))
ATTEMPT(do_kexec, syscall(SYS_kexec_load, 0, 0, NULL, 0))
ATTEMPT(do_module, syscall(SYS_init_module, NULL, 0, ""))
ATTEMPT(do_reboot, syscall(SYS_reboot, 0, 0, 0, NULL))
ATTEMPT(do_by_handle, syscall(SYS_open_by_handle_at, 0, NULL, 0))
ATTEMPT(do_memfd, syscall(SYS_memfd_create, "x", 0))
ATTEMPT(do_personality, syscall(SYS_personality, 0x0400000))
ATTEMPT(do_clock, syscall(SYS_clock_settime, 0, NULL))
ATTEMPT(make_dumpable, prctl(PR_SET_DUMPABLE, 1, 0, 0, 0))
ATTEMPT(kill_outsider, kill(outsider, SIGTERM))
ATTEMPT(tgkill_outsider, syscall(SYS_tgkill, outsider, outsider, SIGTERM))
ATTEMPT(raise_nothing, raise(0))
ATTEMPT(fake_input, ioctl(0, TIOCSTI, "x"))
ATTEMPT(raise_limit, setrlimit(RLIMIT_NOFILE, &(struct rlimit){1, 1}))
ATTEMPT(read_limit, getrlimit(RLIMIT_NOFILE, &(struct rlimit){0}))
ATTEMPT(read_outside, open("outside/file", O_RDONLY))
ATTEMPT(read_passwd, open("/etc/passwd", O_RDONLY))
ATTEMPT(read_up, open("inside/../outside/file", O_RDONLY))
ATTEMPT(list_outside, open("/", O_RDONLY | O_DIRECTORY))
ATTEMPT(create_outside, open("outside/new", O_WRONLY | O_CREAT, 0600))
ATTEMPT(truncate_readable, truncate("readable/file", 0))
ATTEMPT(write_readable, open("readable/file", O_WRONLY))
ATTEMPT(unlink_readable, unlink("readable/file"))
ATTEMPT(rename_out, rename("inside/file", "outside/stolen"))
ATTEMPT(link_in, link("outside/file", "inside/link"))
ATTEMPT(read_inside, open("inside/file", O_RDONLY))
ATTEMPT(read_readable, open("readable/file", O_RDONLY))
ATTEMPT(rename_inside, rename("inside/file", "inside/other"))
ATTEMPT(unlink_other, unlink("inside/other"))
ATTEMPT(mkdir_inside, mkdir("inside/sub", 0700))
ATTEMPT(device_inside, open("/dev/null", O_RDWR))

static long
read_through_link(void)
{
	return symlink("../outside/file", "inside/way") != 0 ? 0 : open("inside/way", O_RDONLY);
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
connect_port(void)
{
	struct sockaddr_in sin = {.sin_family = AF_INET, .sin_port = htons(port)};
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	sin.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	return fd < 0 ? -1 : connect(fd, (struct sockaddr *)&sin, sizeof(sin));
}

static long
bind_port(void)
{
	struct sockaddr_in sin = {.sin_family = AF_INET};
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	sin.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	sin.sin_port = htons(port == 65535 ? 65534 : (uint16_t)(port + 1));
	return fd < 0 ? -1 : bind(fd, (struct sockaddr *)&sin, sizeof(sin));
}

static long
connect_abstract(void)
{
	struct sockaddr_un sun = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	snprintf(sun.sun_path + 1, sizeof(sun.sun_path) - 1, "hermes-prober-%d", (int)getppid());
	return fd < 0 ? -1 : connect(fd, (struct sockaddr *)&sun, sizeof(sun));
}

static long
resolve_localhost(void)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list = NULL;
	int rc = getaddrinfo("localhost", "http", &hints, &list);

	if (rc != 0) {
		errno = EHOSTUNREACH;
		return -1;
	}
	freeaddrinfo(list);
	return 0;
}

static void *
thread(void *arg)
{
	*(int *)arg = 1;
	return NULL;
}

static void
fired(evutil_socket_t fd, short what, void *arg)
{
	event_base_loopbreak(arg);
}

/* What every server does all day: threads, memory, an event loop, files with locks. */
static long
ordinary_work(void)
{
	struct event_base *base = event_base_new();
	struct timeval tv = {.tv_usec = 1000};
	pthread_t t;
	int ran = 0, fd = open("inside/work", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	struct flock lock = {.l_type = F_WRLCK};
	char *block = malloc(1 << 20);

	block = realloc(block, 8 << 20);
	memset(block, 1, 8 << 20);
	free(block);
	if (base == NULL || fd < 0 || fcntl(fd, F_SETLK, &lock) != 0 ||
	    pwrite(fd, "x", 1, 0) != 1 || fdatasync(fd) != 0 || ftruncate(fd, 0) != 0 ||
	    pthread_create(&t, NULL, thread, &ran) != 0 || pthread_join(t, NULL) != 0 || !ran)
		return -1;
	event_base_once(base, -1, EV_TIMEOUT, fired, base, &tv);
	return event_base_dispatch(base);
}

static long
fork_and_wait(void)
{
	int status;
	pid_t pid = fork();

	if (pid == 0)
		_exit(7);
	return pid > 0 && waitpid(pid, &status, 0) == pid && WEXITSTATUS(status) == 7 ? 0 : -1;
}

/* ---- tests ---- */

struct expectation {
	const char *name;
	attempt what;
	int result;
};

#define E(what, result)                                                                            \
	{                                                                                          \
#what, what, result                                                                \
	}

static void
expect(const struct hb_sandbox *box, const struct expectation *list, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		int got = try_in(box, list[i].what);

		ck_assert_msg(got == list[i].result,
			      "%s in '%s': wanted %d, got %d (0 done, %d killed, else errno)",
			      list[i].name, box->name, list[i].result, got, KILLED);
	}
}
#define EXPECT(box, list) expect(box, list, sizeof(list) / sizeof(list[0]))

/* Where nothing is expected of an attempt without a sandbox, the one in it would show nothing. */
START_TEST(test_attempts_succeed_without_a_sandbox)
{
	static const attempt list[] = {inet_socket,	  raw_socket,	     packet_socket,
				       netlink_socket,	  do_setuid,	     do_chown,
				       do_memfd,	  do_chroot,	     do_unshare,
				       read_outside,	  read_passwd,	     create_outside,
				       write_readable,	  truncate_readable, map_executable,
				       make_executable,	  connect_port,	     bind_port,
				       connect_abstract,  do_fork,	     do_mount,
				       do_mknod,	  make_dumpable,     link_in,
				       read_through_link, rename_out,	     kill_outsider};
	int status;

	for (size_t i = 0; i < sizeof(list) / sizeof(list[0]); i++) {
		pid_t pid = fork();

		if (pid == 0) {
			/* A namespace of its own: mounts and the rest leave nothing behind. */
			if (unshare(CLONE_NEWNS) != 0 ||
			    mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0)
				_exit(199);
			_exit(list[i]() >= 0 ? DONE : errno);
		}
		ck_assert_int_eq(waitpid(pid, &status, 0), pid);
		ck_assert_msg(status == 0, "attempt %zu: %d", i, WEXITSTATUS(status));
	}
}
END_TEST

START_TEST(test_a_server_can_do_its_work)
{
	static const struct expectation list[] = {
		E(ordinary_work, DONE), E(unix_socket, DONE),	E(read_inside, DONE),
		E(read_readable, DONE), E(mkdir_inside, DONE),	E(rename_inside, DONE),
		E(unlink_other, DONE),	E(raise_nothing, DONE), E(read_limit, DONE),
	};

	EXPECT(&server_box, list);
}
END_TEST

START_TEST(test_a_server_reaches_no_network)
{
	static const struct expectation list[] = {
		E(inet_socket, KILLED),	  E(inet6_socket, KILLED),    E(raw_socket, KILLED),
		E(packet_socket, KILLED), E(netlink_socket, KILLED),  E(vsock_socket, KILLED),
		E(alg_socket, KILLED),	  E(connect_abstract, EPERM),
	};

	EXPECT(&server_box, list);
}
END_TEST

START_TEST(test_a_server_reaches_only_its_files)
{
	static const struct expectation list[] = {
		E(read_outside, EACCES),
		E(read_passwd, EACCES),
		E(read_up, EACCES),
		E(list_outside, EACCES),
		E(create_outside, EACCES),
		E(read_through_link, EACCES),
		E(truncate_readable, EACCES),
		E(write_readable, EACCES),
		E(unlink_readable, EACCES),
		E(rename_out, EACCES),
		E(link_in, EXDEV),
		E(device_inside, EACCES),
		E(do_mknod, KILLED),
		E(do_chown, KILLED),
	};

	EXPECT(&server_box, list);
}
END_TEST

START_TEST(test_a_server_runs_nothing_and_changes_nobody)
{
	static const struct expectation list[] = {
		E(do_exec, KILLED),	    E(do_fork, KILLED),	       E(do_vfork, KILLED),
		E(clone_user, KILLED),	    E(do_clone3, ENOSYS),      E(map_executable, EPERM),
		E(make_executable, EPERM),  E(do_memfd, KILLED),       E(do_ptrace, KILLED),
		E(do_vm_read, KILLED),	    E(do_pidfd_getfd, KILLED), E(kill_outsider, KILLED),
		E(tgkill_outsider, KILLED), E(do_setuid, KILLED),      E(do_setgroups, KILLED),
		E(make_dumpable, KILLED),   E(raise_limit, KILLED),    E(do_personality, KILLED),
		E(fake_input, KILLED),
	};

	EXPECT(&server_box, list);
}
END_TEST

START_TEST(test_a_server_touches_nothing_of_the_kernel)
{
	static const struct expectation list[] = {
		E(do_mount, KILLED),	    E(do_umount, KILLED),      E(do_unshare, KILLED),
		E(do_unshare_user, KILLED), E(do_setns, KILLED),       E(do_chroot, KILLED),
		E(do_bpf, KILLED),	    E(do_keyctl, KILLED),      E(do_io_uring, KILLED),
		E(do_perf, KILLED),	    E(do_userfaultfd, KILLED), E(do_kexec, KILLED),
		E(do_module, KILLED),	    E(do_reboot, KILLED),      E(do_by_handle, KILLED),
		E(do_clock, KILLED),
	};

	EXPECT(&server_box, list);
}
END_TEST

START_TEST(test_inet_is_streams_and_datagrams_to_named_ports)
{
	uint16_t ports[] = {port, 0};
	struct hb_sandbox box = {.name = "inet",
				 .syscalls = HB_SYS_BASE | HB_SYS_FILES | HB_SYS_INET,
				 .paths = hb_sandbox_inet_paths,
				 .path_count = hb_sandbox_inet_path_count};
	static const struct expectation some[] = {
		E(inet_socket, DONE),	  E(inet6_socket, DONE),       E(raw_socket, KILLED),
		E(packet_socket, KILLED), E(netfilter_socket, KILLED), E(netlink_socket, DONE),
		E(unix_socket, EACCES),	  E(resolve_localhost, DONE),  E(connect_port, EACCES),
		E(bind_port, EACCES),	  E(do_exec, KILLED),	       E(map_executable, EPERM),
	};
	static const struct expectation connecting[] = {E(connect_port, DONE),
							E(bind_port, EACCES)};

	EXPECT(&box, some);
	box.tcp_connect = ports;
	EXPECT(&box, connecting);
	box.tcp_connect = NULL;
	box.tcp_connect_any = true;
	EXPECT(&box, connecting);
}
END_TEST

START_TEST(test_fork_and_exec_when_declared)
{
	static const struct hb_sandbox_path programs[] = {{"/usr", HB_FS_EXEC},
							  {"/bin", HB_FS_EXEC},
							  {"/lib", HB_FS_EXEC},
							  {"/lib64", HB_FS_EXEC | HB_FS_OPTIONAL},
							  {"/etc/ld.so.cache",
							   HB_FS_READ | HB_FS_OPTIONAL}};
	struct hb_sandbox box = {.name = "forks",
				 .syscalls = HB_SYS_BASE | HB_SYS_FILES | HB_SYS_FORK};
	static const struct expectation forks[] = {
		E(fork_and_wait, DONE), E(clone_user, KILLED),	 E(clone_net, KILLED),
		E(do_exec, KILLED),	E(kill_outsider, EPERM), /* outside the Landlock domain */
	};
	static const struct expectation no_file[] = {E(do_exec, EACCES)};
	static const struct expectation file[] = {E(do_exec, DONE)};

	EXPECT(&box, forks);
	box.syscalls |= HB_SYS_EXEC;
	EXPECT(&box, no_file);
	box.paths = programs;
	box.path_count = sizeof(programs) / sizeof(programs[0]);
	EXPECT(&box, file);
}
END_TEST

START_TEST(test_deny_list_refuses_with_errors)
{
	static const struct expectation list[] = {
		E(do_mount, EPERM),   E(do_unshare_user, EPERM), E(clone_user, EPERM),
		E(clone_net, EPERM),  E(do_clone3, ENOSYS),	 E(do_ptrace, EPERM),
		E(do_bpf, EPERM),     E(do_keyctl, EPERM),	 E(do_io_uring, EPERM),
		E(do_perf, EPERM),    E(do_module, EPERM),	 E(do_kexec, EPERM),
		E(do_vm_read, EPERM), E(do_by_handle, EPERM),	 E(do_setns, EPERM),
		E(inet_socket, DONE), E(map_executable, DONE),	 E(fork_and_wait, DONE),
		E(do_exec, DONE),     E(read_passwd, DONE),
	};

	EXPECT(&deny_box, list);
}
END_TEST

/* Runs `check` in a child after the sandbox; it returns true when all is as it should be. */
static bool
holds_in(const struct hb_sandbox *box, bool degraded_ok,
	 bool (*check)(const struct hb_sandbox_report *report))
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		struct hb_sandbox_report report;

		if (hb_sandbox_apply(box, degraded_ok, &report, NULL) != 0)
			_exit(BROKEN);
		_exit(check(&report) ? 0 : 1);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	return status == 0;
}

static bool
nothing_left(const struct hb_sandbox_report *r)
{
	return r->landlock_abi > 0 && r->seccomp && r->no_new_privs && !r->degraded &&
	       r->caps_permitted == 0 && r->caps_bounding == 0 &&
	       open("inside/foreign", O_RDONLY) < 0 && errno == EACCES;
}

static bool
chown_left(const struct hb_sandbox_report *r)
{
	return r->caps_permitted == 1ULL << CAP_CHOWN && r->caps_bounding == 1ULL << CAP_CHOWN &&
	       fchownat(AT_FDCWD, "inside/file", 5, 5, 0) == 0 &&
	       open("inside/foreign", O_RDONLY) < 0;
}

START_TEST(test_root_without_capabilities_is_nobody_special)
{
	struct hb_sandbox box = server_box;

	put_file("inside/foreign", 0600);
	ck_assert_int_eq(chown("inside/foreign", 4242, 4242), 0);
	ck_assert(holds_in(&box, false, nothing_left));
	box.keep_caps = 1ULL << CAP_CHOWN;
	box.syscalls |= HB_SYS_OWNERS;
	ck_assert(holds_in(&box, false, chown_left));
}
END_TEST

static void *
sleeper(void *arg)
{
	for (;;)
		pause();
	return arg;
}

START_TEST(test_refuses_with_a_second_thread)
{
	struct hb_error err;
	pthread_t t;

	ck_assert_int_eq(pthread_create(&t, NULL, sleeper, NULL), 0);
	ck_assert_int_eq(hb_sandbox_apply(&server_box, false, NULL, &err), -1);
	ck_assert_str_eq(err.code, "sandbox_failed");
}
END_TEST

START_TEST(test_refuses_a_missing_path_unless_optional)
{
	struct hb_sandbox_path path = {"absent", HB_FS_READ};
	struct hb_sandbox box = server_box;
	struct hb_error err;

	box.paths = &path;
	box.path_count = 1;
	ck_assert_int_eq(try_in(&box, unix_socket), BROKEN);
	path.access |= HB_FS_OPTIONAL;
	ck_assert_int_eq(try_in(&box, unix_socket), DONE);
	path.access = HB_FS_READ;
	ck_assert_int_eq(hb_sandbox_apply(&box, true, NULL, &err),
			 -1); /* degraded is about the kernel, not about this */
	ck_assert_ptr_nonnull(strstr(err.message, "absent"));
}
END_TEST

/* A kernel without Landlock, as this process sees it. */
static void
hide_landlock(void)
{
	scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_ALLOW);

	ck_assert_int_eq(seccomp_rule_add(ctx, SCMP_ACT_ERRNO(ENOSYS),
					  SCMP_SYS(landlock_create_ruleset), 0),
			 0);
	ck_assert_int_eq(seccomp_load(ctx), 0);
	seccomp_release(ctx);
}

static bool
degraded(const struct hb_sandbox_report *r)
{
	return r->degraded && r->landlock_abi == 0 && r->seccomp && r->no_new_privs;
}

START_TEST(test_without_landlock_only_when_degraded_is_accepted)
{
	struct hb_error err;

	hide_landlock();
	ck_assert(holds_in(&server_box, true, degraded));
	ck_assert_int_eq(hb_sandbox_apply(&server_box, false, NULL, &err), -1);
	ck_assert_str_eq(err.code, "sandbox_unavailable");
}
END_TEST

int
main(void)
{
	Suite *s = suite_create("sandbox");
	TCase *tc = tcase_create("sandbox");
	SRunner *r;
	int failed;

	suite_add_tcase(s, tc);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, test_attempts_succeed_without_a_sandbox);
	tcase_add_test(tc, test_a_server_can_do_its_work);
	tcase_add_test(tc, test_a_server_reaches_no_network);
	tcase_add_test(tc, test_a_server_reaches_only_its_files);
	tcase_add_test(tc, test_a_server_runs_nothing_and_changes_nobody);
	tcase_add_test(tc, test_a_server_touches_nothing_of_the_kernel);
	tcase_add_test(tc, test_inet_is_streams_and_datagrams_to_named_ports);
	tcase_add_test(tc, test_fork_and_exec_when_declared);
	tcase_add_test(tc, test_deny_list_refuses_with_errors);
	tcase_add_test(tc, test_root_without_capabilities_is_nobody_special);
	tcase_add_test(tc, test_refuses_with_a_second_thread);
	tcase_add_test(tc, test_refuses_a_missing_path_unless_optional);
	tcase_add_test(tc, test_without_landlock_only_when_degraded_is_accepted);
	r = srunner_create(s);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
