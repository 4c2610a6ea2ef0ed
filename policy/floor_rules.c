/*
 * The floor's rules for one simple command, its name already found (see floor_command.c): a line
 * each in the table at the end, a function for each kind.
 */
#include <stdlib.h>
#include <string.h>

#include "common/buf.h"
#include "policy/floor_command.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

/* --- paths --- */

/* Absolute form without ".", ".." and "//"; "" for a relative path when the beginning isn't known.
 */
static char *normalise(const struct hb_floor_look *l, const char *path)
{
	struct hb_buf full = HB_BUF_INIT, out = HB_BUF_INIT;

	if (path[0] != '/' && !l->workdir)
		return hb_strdup("");
	if (path[0] != '/')
		hb_buf_printf(&full, "%s/", l->workdir);
	hb_buf_adds(&full, path);
	hb_buf_adds(&out, "");
	for (const char *p = full.data; *p;) {
		size_t len = strcspn(p, "/");

		if (len == 2 && p[0] == '.' && p[1] == '.') {
			char *slash = strrchr(out.data, '/');

			out.len = slash ? (size_t)(slash - out.data) : 0;
			out.data[out.len] = '\0';
		} else if (len > 0 && !(len == 1 && p[0] == '.')) {
			hb_buf_addc(&out, '/');
			hb_buf_add(&out, p, len);
		}
		p += len + (p[len] == '/');
	}
	hb_buf_free(&full);
	if (out.len == 0)
		hb_buf_addc(&out, '/');
	return hb_buf_take(&out);
}

/* "/" itself, or "/" and a pattern that takes in everything there. */
static bool is_root(const struct hb_floor_look *l, const char *path)
{
	char *normal = normalise(l, path);
	bool root = strcmp(normal, "/") == 0 ||
		    (normal[0] == '/' && strspn(normal + 1, "*?.[]!^{},") == strlen(normal + 1));

	free(normal);
	return root;
}

bool hb_floor_is_raw_device(const char *path)
{
	static const char *const disks[] = {
		"sd", "hd", "vd",  "xvd",  "nvme",    "mmcblk", "dm-",    "md",     "loop", "nbd",
		"sr", "zd", "ram", "pmem", "mapper/", "disk/",  "block/", "bcache", "rbd",  "drbd"};
	static const char *const memory[] = {"mem", "kmem", "port"};

	if (strncmp(path, "/dev/", 5) != 0)
		return false;
	for (size_t i = 0; i < COUNT(disks); i++) {
		size_t len = strlen(disks[i]);
		const char *rest = path + 5 + len;

		if (strncmp(path + 5, disks[i], len) != 0)
			continue;
		/* sda, nvme0n1, mapper/x; but not "mdadm.conf" or "random" */
		if (disks[i][len - 1] == '/' ||
		    strspn(rest, "abcdefghijklmnopqrstuvwxyz0123456789") == strlen(rest))
			return rest[0] != '\0';
	}
	return hb_floor_one_of(memory, COUNT(memory), path + 5);
}

bool hb_floor_is_device(const struct hb_floor_look *l, const char *path)
{
	char *normal = normalise(l, path);
	bool device = hb_floor_is_raw_device(normal);

	free(normal);
	return device;
}

/* --- the rules for one command, arguments behind the name --- */

static bool has_option(const char *const *args, size_t n, const char *letters,
		       const char *long_name)
{
	for (size_t i = 0; i < n && strcmp(args[i], "--") != 0; i++) {
		if (args[i][0] != '-')
			continue;
		if (args[i][1] == '-') {
			/* abbreviations count, as getopt_long takes them */
			size_t len = strlen(args[i]);

			if (len > 2 && strncmp(args[i], long_name, len) == 0)
				return true;
		} else if (strpbrk(args[i], letters)) {
			return true;
		}
	}
	return false;
}

static bool names_root(const struct hb_floor_look *l, const char *const *args, size_t n)
{
	bool options = true;

	for (size_t i = 0; i < n; i++) {
		if (options && strcmp(args[i], "--") == 0)
			options = false;
		else if (!(options && args[i][0] == '-') && is_root(l, args[i]))
			return true;
	}
	return false;
}

static int check_rm(const struct hb_floor_look *l, const char *const *args, size_t n)
{
	if (has_option(args, n, "rR", "--recursive") && names_root(l, args, n))
		return hb_floor_refuse(l, "floor_recursive_delete", "it deletes / recursively");
	return 0;
}

static bool is_everyone(const char *mode)
{
	static const char *const symbolic[] = {"a+rwx", "a=rwx", "ugo+rwx", "ugo=rwx",
					       "+rwx",  "=rwx",  "a+rwX",   "a=rwX"};
	size_t len = strlen(mode);

	if (hb_floor_one_of(symbolic, COUNT(symbolic), mode))
		return true;
	return len >= 3 && strspn(mode, "01234567") == len && strcmp(mode + len - 3, "777") == 0;
}

static int check_chmod(const struct hb_floor_look *l, const char *const *args, size_t n)
{
	bool everyone = false;

	for (size_t i = 0; i < n; i++)
		everyone = everyone || is_everyone(args[i]);
	if (everyone && names_root(l, args, n))
		return hb_floor_refuse(l, "floor_chmod_root", "it gives everyone every right on /");
	return 0;
}

static int check_find(const struct hb_floor_look *l, const char *const *args, size_t n)
{
	static const char *const wide[] = {"-delete",   "-xdev",     "-mount", "-depth",  "-type",
					   "-mindepth", "-maxdepth", "-print", "-print0", "-exec",
					   "-execdir",  "-ok",       "-okdir"};
	bool root = false, deletes = false, filtered = false;

	for (size_t i = 0; i < n; i++) {
		if (args[i][0] == '/')
			root = root || is_root(l, args[i]);
		deletes = deletes || strcmp(args[i], "-delete") == 0;
		if (args[i][0] == '-' && strlen(args[i]) > 2 &&
		    !hb_floor_one_of(wide, COUNT(wide), args[i]))
			filtered = true;
		if (strncmp(args[i], "-exec", 5) != 0 && strncmp(args[i], "-ok", 3) != 0)
			continue;
		if (hb_floor_words(l, args + i + 1, n - i - 1) < 0)
			return -1;
		deletes = deletes ||
			  (i + 1 < n && strcmp(hb_floor_base_name(args[i + 1]), "rm") == 0);
		break;
	}
	if (root && deletes && !filtered)
		return hb_floor_refuse(l, "floor_recursive_delete", "it deletes / recursively");
	return 0;
}

static int check_dd(const struct hb_floor_look *l, const char *const *args, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (strncmp(args[i], "of=", 3) == 0 && hb_floor_is_device(l, args[i] + 3))
			return hb_floor_refuse(l, "floor_raw_device",
					       "it writes to a block device");
	}
	return 0;
}

static int check_device_writer(const struct hb_floor_look *l, const char *const *args, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (hb_floor_is_device(l, args[i]))
			return hb_floor_refuse(l, "floor_raw_device",
					       "it writes to a block device");
	}
	return 0;
}

static int check_mkfs(const struct hb_floor_look *l, const char *const *args, size_t n)
{
	(void)args;
	(void)n;
	return hb_floor_refuse(l, "floor_mkfs", "it makes a file system");
}

static int check_shutdown(const struct hb_floor_look *l, const char *const *args, size_t n)
{
	(void)args;
	(void)n;
	return hb_floor_refuse(l, "floor_shutdown", "it stops or restarts the machine");
}

static int check_init(const struct hb_floor_look *l, const char *const *args, size_t n)
{
	if (n > 0 && (strcmp(args[0], "0") == 0 || strcmp(args[0], "6") == 0))
		return check_shutdown(l, args, n);
	return 0;
}

static int check_systemctl(const struct hb_floor_look *l, const char *const *args, size_t n)
{
	static const char *const verbs[] = {"reboot",      "poweroff",  "halt",   "kexec",
					    "soft-reboot", "emergency", "rescue", "exit",
					    "suspend",     "hibernate"};
	static const char *const units[] = {"reboot.target", "poweroff.target", "halt.target",
					    "shutdown.target", "kexec.target"};

	for (size_t i = 0; i < n; i++) {
		if (hb_floor_one_of(units, COUNT(units), args[i]))
			return check_shutdown(l, args, n);
	}
	for (size_t i = 0; i < n; i++) {
		if (args[i][0] != '-')
			return hb_floor_one_of(verbs, COUNT(verbs), args[i])
				       ? check_shutdown(l, args, n)
				       : 0;
	}
	return 0;
}

static const struct {
	const char *name;
	int (*check)(const struct hb_floor_look *l, const char *const *args, size_t n);
} rules[] = {
	{"rm", check_rm},
	{"chmod", check_chmod},
	{"find", check_find},
	{"dd", check_dd},
	{"tee", check_device_writer},
	{"cp", check_device_writer},
	{"mv", check_device_writer},
	{"install", check_device_writer},
	{"shred", check_device_writer},
	{"truncate", check_device_writer},
	{"blkdiscard", check_device_writer},
	{"wipefs", check_device_writer},
	{"badblocks", check_device_writer},
	{"fdisk", check_device_writer},
	{"cfdisk", check_device_writer},
	{"sfdisk", check_device_writer},
	{"gdisk", check_device_writer},
	{"sgdisk", check_device_writer},
	{"parted", check_device_writer},
	{"mkfs", check_mkfs},
	{"mke2fs", check_mkfs},
	{"mkswap", check_mkfs},
	{"mkdosfs", check_mkfs},
	{"mkntfs", check_mkfs},
	{"shutdown", check_shutdown},
	{"reboot", check_shutdown},
	{"halt", check_shutdown},
	{"poweroff", check_shutdown},
	{"kexec", check_shutdown},
	{"init", check_init},
	{"telinit", check_init},
	{"systemctl", check_systemctl},
	{"loginctl", check_systemctl},
};

int hb_floor_rule(const struct hb_floor_look *l, const char *name, const char *const *args,
		  size_t n)
{
	if (strncmp(name, "mkfs.", 5) == 0)
		return check_mkfs(l, args, n);
	for (size_t i = 0; i < COUNT(rules); i++) {
		if (strcmp(rules[i].name, name) == 0 && rules[i].check(l, args, n) < 0)
			return -1;
	}
	return 0;
}
