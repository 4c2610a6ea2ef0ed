/* Files and trees: nothing leaves its directory, nothing is believed by name, nothing half-written
 * is seen. */
#include "tests/unit/test_util.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

static int
entries(const char *dir)
{
	struct dirent **list;
	int n = scandir(dir, &list, NULL, NULL), i;

	for (i = 0; i < n; i++)
		free(list[i]);
	free(list);
	return n - 2;
}

static unsigned
mode_of(const char *path)
{
	struct stat st;

	ck_assert_int_eq(lstat(path, &st), 0);
	return st.st_mode & 07777;
}

START_TEST(test_open_beneath)
{
	int dir, fd;

	mkdir("in", 0755);
	mkdir("in/sub", 0755);
	test_puts("in/sub/file", "x");
	test_puts("outside", "secret");
	ck_assert_int_eq(symlink("../outside", "in/out"), 0);
	ck_assert_int_eq(symlink("sub", "in/link"), 0);
	ck_assert_int_eq(symlink("/proc/self/cwd", "in/magic"), 0);
	dir = open("in", O_RDONLY | O_DIRECTORY);
	fd = hb_fs_open_beneath(dir, "sub/file", O_RDONLY, 0, NULL);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(fcntl(fd, F_GETFD), FD_CLOEXEC);
	hb_close(&fd);
	ck_assert_int_eq(fd, -1);
	hb_close(&fd);
	ck_fails(hb_fs_open_beneath(dir, "../outside", O_RDONLY, 0, err), "unsafe_path");
	ck_fails(hb_fs_open_beneath(dir, "/etc/passwd", O_RDONLY, 0, err), "unsafe_path");
	ck_fails(hb_fs_open_beneath(dir, "out", O_RDONLY, 0, err), "unsafe_path");
	ck_fails(hb_fs_open_beneath(dir, "link/file", O_RDONLY, 0, err), "unsafe_path");
	ck_fails(hb_fs_open_beneath(dir, "magic/outside", O_RDONLY, 0, err), "unsafe_path");
	ck_fails(hb_fs_open_beneath(dir, "out", O_WRONLY | O_CREAT, 0600, err), "unsafe_path");
	ck_fails(hb_fs_open_beneath(dir, "none", O_RDONLY, 0, err), "not_found");
	close(dir);
}
END_TEST

START_TEST(test_read_whole)
{
	struct hb_buf b = HB_BUF_INIT;

	test_puts("file", "12345");
	ck_works(hb_fs_read(AT_FDCWD, "file", 5, &b, err));
	ck_assert_str_eq(b.data, "12345");
	ck_fails(hb_fs_read(AT_FDCWD, "file", 4, &b, err), "too_large");
	mkdir("dir", 0755);
	ck_fails(hb_fs_read(AT_FDCWD, "dir", 5, &b, err), "not_regular");
	/* Must not wait for a writer. */
	ck_assert_int_eq(mkfifo("fifo", 0600), 0);
	ck_fails(hb_fs_read(AT_FDCWD, "fifo", 5, &b, err), "not_regular");
	test_puts("empty", "");
	ck_works(hb_fs_read(AT_FDCWD, "empty", 5, &b, err));
	ck_assert_str_eq(b.data, "12345");
	hb_buf_free(&b);
}
END_TEST

START_TEST(test_secret)
{
	struct hb_secret s = {0};
	uid_t me = geteuid();

	ck_fails(hb_secret_read(AT_FDCWD, "key", me, 10, &s, err), "secret_missing");
	test_puts("key", "hunter2\n");
	chmod("key", 0640);
	ck_fails(hb_secret_read(AT_FDCWD, "key", me, 10, &s, err), "secret_permissions");
	chmod("key", 0604);
	ck_fails(hb_secret_read(AT_FDCWD, "key", me, 10, &s, err), "secret_permissions");
	chmod("key", 0600);
	ck_works(hb_secret_read(AT_FDCWD, "key", me, 10, &s, err));
	ck_assert_str_eq(s.text, "hunter2");
	ck_assert_uint_eq(s.len, 7);
	ck_assert(hb_secret_equal(&s, "hunter2"));
	ck_assert(!hb_secret_equal(&s, "hunter"));
	ck_assert(!hb_secret_equal(&s, "hunter22"));
	ck_assert(!hb_secret_equal(&s, "hunter3"));
	ck_assert(!hb_secret_equal(&s, "gunter2"));
	ck_assert(!hb_secret_equal(&s, ""));
	ck_assert(!hb_secret_equal(&s, NULL));
	hb_secret_free(&s);
	/* Nothing equals a secret that isn't there. */
	ck_assert(!hb_secret_equal(&s, ""));
	ck_fails(hb_secret_read(AT_FDCWD, "key", me, 7, &s, err), "too_large");
	ck_assert_int_eq(link("key", "second"), 0);
	ck_fails(hb_secret_read(AT_FDCWD, "key", me, 10, &s, err), "secret_permissions");
	unlink("second");
	ck_assert_int_eq(symlink("key", "link"), 0);
	ck_fails(hb_secret_read(AT_FDCWD, "link", me, 10, &s, err), "secret_permissions");
	test_puts("key", "\n");
	ck_fails(hb_secret_read(AT_FDCWD, "key", me, 10, &s, err), "secret_empty");
	test_write("key", "a\0b", 3);
	ck_fails(hb_secret_read(AT_FDCWD, "key", me, 10, &s, err), "secret_empty");
	ck_assert_int_eq(mkfifo("fifo", 0600), 0);
	ck_fails(hb_secret_read(AT_FDCWD, "fifo", me, 10, &s, err), "secret_permissions");
	if (me == 0) {
		test_puts("key", "x");
		ck_assert_int_eq(chown("key", 4242, 4242), 0);
		ck_fails(hb_secret_read(AT_FDCWD, "key", 4243, 10, &s, err), "secret_permissions");
		ck_works(hb_secret_read(AT_FDCWD, "key", 4242, 10, &s, err));
		hb_secret_free(&s);
	}
	ck_assert_ptr_null(s.text);
}
END_TEST

/* The message says what to type. */
START_TEST(test_secret_messages_name_the_fix)
{
	struct hb_secret s = {0};
	struct hb_error e;

	test_puts("key", "x");
	chmod("key", 0644);
	ck_assert_int_eq(hb_secret_read(AT_FDCWD, "key", geteuid(), 10, &s, &e), -1);
	ck_assert_ptr_nonnull(strstr(e.message, "chmod 600 key"));
}
END_TEST

START_TEST(test_write_atomic)
{
	char *text;

	mkdir("d", 0755);
	umask(077);
	ck_works(hb_fs_write_atomic(AT_FDCWD, "d/file", "one", 3, 0644, (uid_t)-1, (gid_t)-1, err));
	ck_assert_uint_eq(mode_of("d/file"), 0644);
	ck_works(hb_fs_write_atomic(AT_FDCWD, "d/file", "two", 3, 0600, (uid_t)-1, (gid_t)-1, err));
	text = test_read("d/file", NULL);
	ck_assert_str_eq(text, "two");
	free(text);
	ck_assert_uint_eq(mode_of("d/file"), 0600);
	ck_fails(hb_fs_write_atomic(AT_FDCWD, "none/file", "x", 1, 0600, (uid_t)-1, (gid_t)-1, err),
		 "not_found");
	ck_fails(hb_fs_write_atomic(AT_FDCWD, "d/..", "x", 1, 0600, (uid_t)-1, (gid_t)-1, err),
		 "unsafe_path");
	/* A link in its place is replaced, not followed. */
	test_puts("target", "kept");
	unlink("d/file");
	ck_assert_int_eq(symlink("../target", "d/file"), 0);
	ck_works(hb_fs_write_atomic(AT_FDCWD, "d/file", "new", 3, 0600, (uid_t)-1, (gid_t)-1, err));
	text = test_read("target", NULL);
	ck_assert_str_eq(text, "kept");
	free(text);
	/* Failing at the last step leaves nothing behind. */
	mkdir("d/dir", 0755);
	ck_fails(hb_fs_write_atomic(AT_FDCWD, "d/dir", "x", 1, 0600, (uid_t)-1, (gid_t)-1, err),
		 "write_failed");
	ck_assert_int_eq(entries("d"), 2);
	ck_works(hb_fs_write_new(AT_FDCWD, "d/fresh", "x", 1, 0600, (uid_t)-1, (gid_t)-1, err));
	ck_fails(hb_fs_write_new(AT_FDCWD, "d/fresh", "y", 1, 0600, (uid_t)-1, (gid_t)-1, err),
		 "exists");
	text = test_read("d/fresh", NULL);
	ck_assert_str_eq(text, "x");
	free(text);
	ck_assert_int_eq(entries("d"), 3);
}
END_TEST

/* A limit on file size stands in for a disk that fills up in the middle. */
START_TEST(test_h22_full_disk_leaves_the_old_file)
{
	static char big[100000];
	const struct rlimit small = {4096, RLIM_INFINITY}, none = {RLIM_INFINITY, RLIM_INFINITY};
	char *text;

	mkdir("d", 0755);
	signal(SIGXFSZ, SIG_IGN);
	ck_works(hb_fs_write_atomic(AT_FDCWD, "d/f", "old", 3, 0600, (uid_t)-1, (gid_t)-1, err));
	ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &small), 0);
	ck_fails(hb_fs_write_atomic(AT_FDCWD, "d/f", big, sizeof(big), 0600, (uid_t)-1, (gid_t)-1,
				    err),
		 "write_failed");
	ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &none), 0);
	text = test_read("d/f", NULL);
	ck_assert_str_eq(text, "old");
	free(text);
	ck_assert_int_eq(entries("d"), 1);
}
END_TEST

START_TEST(test_full_disk_has_one_code)
{
	struct hb_error e;

	errno = ENOSPC;
	hb_fail_errno(&e, "write_failed", "writing %s", "x");
	ck_assert_str_eq(e.code, "disk_full");
	ck_assert_int_eq(errno, ENOSPC);
	errno = EDQUOT;
	hb_fail_errno(&e, "write_failed", "writing %s", "x");
	ck_assert_str_eq(e.code, "disk_full");
	errno = EIO;
	hb_fail_errno(&e, "write_failed", "writing %s", "x");
	ck_assert_str_eq(e.code, "write_failed");
	ck_assert_str_eq(e.message, "writing x: Input/output error");
}
END_TEST

START_TEST(test_mkdirs)
{
	char here[512], *path;

	umask(077);
	ck_works(hb_fs_mkdirs(AT_FDCWD, "a/b/c", 0750, (uid_t)-1, (gid_t)-1, err));
	ck_assert_uint_eq(mode_of("a"), 0755);
	ck_assert_uint_eq(mode_of("a/b"), 0755);
	ck_assert_uint_eq(mode_of("a/b/c"), 0750);
	ck_works(hb_fs_mkdirs(AT_FDCWD, "a/b/c", 0700, (uid_t)-1, (gid_t)-1, err));
	ck_assert_uint_eq(mode_of("a/b/c"), 0700);
	test_puts("file", "");
	ck_fails(hb_fs_mkdirs(AT_FDCWD, "file/x", 0700, (uid_t)-1, (gid_t)-1, err), "mkdir_failed");
	ck_assert_int_eq(symlink("a", "link"), 0);
	ck_fails(hb_fs_mkdirs(AT_FDCWD, "link/x", 0700, (uid_t)-1, (gid_t)-1, err), "mkdir_failed");
	ck_fails(hb_fs_mkdirs(AT_FDCWD, "link", 0700, (uid_t)-1, (gid_t)-1, err), "mkdir_failed");
	ck_fails(hb_fs_mkdirs(AT_FDCWD, "a/../../x", 0700, (uid_t)-1, (gid_t)-1, err),
		 "unsafe_path");
	ck_assert_ptr_nonnull(getcwd(here, sizeof(here)));
	path = hb_asprintf("%s/link/abs", here);
	ck_works(hb_fs_mkdirs(AT_FDCWD, path, 0711, (uid_t)-1, (gid_t)-1, err));
	ck_assert_uint_eq(mode_of("a/abs"), 0711);
	free(path);
	path = hb_asprintf("%s/link", here);
	ck_fails(hb_fs_mkdirs(AT_FDCWD, path, 0711, (uid_t)-1, (gid_t)-1, err), "mkdir_failed");
	free(path);
}
END_TEST

START_TEST(test_link_switch)
{
	char target[64] = "";
	int dir;

	mkdir("d", 0755);
	dir = open("d", O_RDONLY | O_DIRECTORY);
	ck_works(hb_fs_link_switch(dir, "current", "releases/a", err));
	ck_works(hb_fs_link_switch(dir, "current", "releases/b", err));
	ck_assert_int_eq(readlinkat(dir, "current", target, sizeof(target)), 10);
	ck_assert_str_eq(target, "releases/b");
	ck_works(hb_fs_link_switch(AT_FDCWD, "here", "x", err));
	mkdir("d/dir", 0755);
	ck_fails(hb_fs_link_switch(dir, "dir", "x", err), "write_failed");
	ck_fails(hb_fs_link_switch(dir, "../x", "x", err), "unsafe_path");
	ck_assert_int_eq(entries("d"), 2);
	close(dir);
}
END_TEST

START_TEST(test_remove_tree)
{
	ck_works(hb_fs_remove_tree(AT_FDCWD, "absent", err));
	mkdir("t", 0755);
	mkdir("t/sub", 0755);
	mkdir("t/sub/empty", 0);
	mkdir("kept", 0755);
	test_puts("kept/file", "x");
	test_puts("t/sub/f", "x");
	ck_assert_int_eq(symlink("../../kept", "t/sub/link"), 0);
	ck_assert_int_eq(symlink("/", "t/root"), 0);
	ck_assert_int_eq(mkfifo("t/fifo", 0600), 0);
	for (int i = 0; i < 2000; i++) {
		char name[32];

		snprintf(name, sizeof(name), "t/%d", i);
		test_puts(name, "");
	}
	ck_works(hb_fs_remove_tree(AT_FDCWD, "t", err));
	ck_assert_int_ne(access("t", F_OK), 0);
	ck_assert_int_eq(access("kept/file", F_OK), 0);
	/* A link itself, and a plain file. */
	ck_assert_int_eq(symlink("kept", "link"), 0);
	ck_works(hb_fs_remove_tree(AT_FDCWD, "link", err));
	ck_assert_int_eq(access("kept/file", F_OK), 0);
	ck_works(hb_fs_remove_tree(AT_FDCWD, "kept/file", err));
	ck_assert_int_eq(entries("kept"), 0);
}
END_TEST

/* Deeper than there are descriptors or path bytes: neither may run out. */
START_TEST(test_remove_deep_tree)
{
	const struct rlimit few = {64, 64};
	int dir, next;

	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &few), 0);
	mkdir("t", 0755);
	dir = open("t", O_RDONLY | O_DIRECTORY);
	for (int i = 0; i < 5000; i++) {
		ck_assert_int_eq(mkdirat(dir, "a-name-that-takes-some-room", 0755), 0);
		next = openat(dir, "a-name-that-takes-some-room", O_RDONLY | O_DIRECTORY);
		ck_assert_int_ge(next, 0);
		close(dir);
		dir = next;
	}
	close(dir);
	ck_works(hb_fs_remove_tree(AT_FDCWD, "t", err));
	ck_assert_int_ne(access("t", F_OK), 0);
}
END_TEST

START_TEST(test_space)
{
	uint64_t bytes = 0, inodes = 0;

	ck_works(hb_fs_space(AT_FDCWD, ".", &bytes, &inodes, err));
	ck_assert(bytes > 0 && inodes > 0);
	ck_fails(hb_fs_space(AT_FDCWD, "none", &bytes, &inodes, err), "open_failed");
}
END_TEST

START_TEST(test_read_trusted)
{
	struct hb_buf text = HB_BUF_INIT;

	test_puts("f", "abc");
	chmod("f", 0664);
	ck_fails(hb_fs_read_trusted(AT_FDCWD, "f", geteuid(), 3, &text, err), "loose_permissions");
	ck_assert_uint_eq(text.len, 0);
	chmod("f", 0644);
	ck_fails(hb_fs_read_trusted(AT_FDCWD, "f", geteuid(), 2, &text, err), "too_large");
	ck_works(hb_fs_read_trusted(AT_FDCWD, "f", geteuid(), 3, &text, err));
	ck_assert_str_eq(text.data, "abc");
	ck_fails(hb_fs_read_trusted(AT_FDCWD, "g", geteuid(), 3, &text, err), "not_found");
	hb_buf_free(&text);
}
END_TEST

START_TEST(test_check_trusted)
{
	int fd;

	test_puts("f", "x");
	fd = open("f", O_RDONLY);
	chmod("f", 0644);
	ck_works(hb_fs_check_trusted(fd, "f", geteuid(), err));
	chmod("f", 0664);
	ck_fails(hb_fs_check_trusted(fd, "f", geteuid(), err), "loose_permissions");
	chmod("f", 0646);
	ck_fails(hb_fs_check_trusted(fd, "f", geteuid(), err), "loose_permissions");
	chmod("f", 0644);
	if (geteuid() == 0) {
		ck_assert_int_eq(fchown(fd, 4242, 4242), 0);
		ck_fails(hb_fs_check_trusted(fd, "f", 4243, err), "loose_permissions");
		ck_works(hb_fs_check_trusted(fd, "f", 4242, err));
	}
	close(fd);
	fd = open(".", O_RDONLY);
	ck_fails(hb_fs_check_trusted(fd, ".", geteuid(), err), "loose_permissions");
	close(fd);
}
END_TEST

int
main(void)
{
	Suite *s = suite_create("fs");
	TCase *t = test_case("fs");

	tcase_add_test(t, test_open_beneath);
	tcase_add_test(t, test_read_whole);
	tcase_add_test(t, test_secret);
	tcase_add_test(t, test_secret_messages_name_the_fix);
	tcase_add_test(t, test_write_atomic);
	tcase_add_test(t, test_h22_full_disk_leaves_the_old_file);
	tcase_add_test(t, test_full_disk_has_one_code);
	tcase_add_test(t, test_mkdirs);
	tcase_add_test(t, test_link_switch);
	tcase_add_test(t, test_remove_tree);
	tcase_add_test(t, test_remove_deep_tree);
	tcase_add_test(t, test_space);
	tcase_add_test(t, test_read_trusted);
	tcase_add_test(t, test_check_trusted);
	suite_add_tcase(s, t);
	return test_run(s);
}
