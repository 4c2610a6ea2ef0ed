/*
 * One layer as the unpack worker sees it, applied twice over itself: whatever it says, nothing outside the staging directory
 * changes, and a tree that is finished equals its manifest.
 *
 * An input is a letter (t: tar, g: gzip, z: zstd) and the layer. Sums of tar headers are put right first, since else nearly
 * every change would end there. It runs as root, so before the first input everything on this host becomes read-only for it,
 * in a mount namespace of its own; the tree lies in memory, on a file system that is mounted nowhere. What libFuzzer finds is
 * written to $HB_FUZZ_FOUND, the one directory that stays.
 */
#include <fcntl.h>
#include <locale.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "broker/installer/unpack_layer.h"
#include "broker/installer/verify.h"
#include "common/fs.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define BLOCK 512
#define CHECKSUM_AT 148
#define SIZE_AT 124

static int scratch = -1;
static struct stat victim;

static const struct hb_unpack_limits limits = {.total_bytes = 4 << 20,
					       .file_bytes = 1 << 20,
					       .entries = 200,
					       .path_bytes = 1024,
					       .header_bytes = 65536};

static void must(bool ok, const char *what)
{
	if (ok)
		return;
	perror(what);
	abort();
}

static int memory(void)
{
	int fs = fsopen("tmpfs", FSOPEN_CLOEXEC), fd = -1;

	if (fs >= 0 && fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) == 0)
		fd = fsmount(fs, FSMOUNT_CLOEXEC, 0);
	hb_close(&fs);
	return fd;
}

/* Hostile archives are unpacked only where they can do no harm. */
static void confine(void)
{
	struct mount_attr read_only = {.attr_set = MOUNT_ATTR_RDONLY};
	const char *found = getenv("HB_FUZZ_FOUND");
	int keep = -1, fd;

	must(geteuid() == 0 && unshare(CLONE_NEWNS) == 0, "a mount namespace (this needs root)");
	must(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0, "making mounts private");
	if (found)
		keep = open_tree(AT_FDCWD, found, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
	must(mount_setattr(AT_FDCWD, "/", AT_RECURSIVE, &read_only, sizeof(read_only)) == 0,
	     "making every mount read-only");
	if (keep >= 0)
		must(move_mount(keep, "", AT_FDCWD, found, MOVE_MOUNT_F_EMPTY_PATH) == 0, found);
	hb_close(&keep);
	scratch = memory();
	must(scratch >= 0 && mkdirat(scratch, "probe", 0777) == 0, "a file system in memory");
	fd = openat(scratch, "probe/victim", O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
	must(fd >= 0 && write(fd, "secret", 6) == 6 && fstat(fd, &victim) == 0, "a file to protect");
	hb_close(&fd);
	setlocale(LC_ALL, "C");
	umask(0);
	hb_unpack_layer_prepare();
}

static void check_outside(void)
{
	struct stat now, top, probe;

	must(fstatat(scratch, "probe/victim", &now, AT_SYMLINK_NOFOLLOW) == 0, "the victim");
	must(fstat(scratch, &top) == 0 && fstatat(scratch, "probe", &probe, 0) == 0, "the scratch space");
	/* Directories count their directories as links, and tmpfs gives each name 20 bytes of size. */
	if (now.st_ino != victim.st_ino || now.st_mode != victim.st_mode || now.st_size != victim.st_size ||
	    now.st_nlink != 1 || now.st_ctim.tv_sec != victim.st_ctim.tv_sec ||
	    now.st_ctim.tv_nsec != victim.st_ctim.tv_nsec || top.st_nlink != 4 || top.st_size != 80 ||
	    probe.st_nlink != 2 || probe.st_size != 60) {
		fputs("something outside the staging directory was touched\n", stderr);
		abort();
	}
}

/* The sums of the headers, as far as sizes lead from one to the next. */
static void put_right(uint8_t *tar, size_t size)
{
	size_t at = 0;

	while (at + BLOCK <= size && tar[at] != 0) {
		char text[13] = "";
		unsigned sum = 0;

		memset(tar + at + CHECKSUM_AT, ' ', 8);
		for (size_t i = 0; i < BLOCK; i++)
			sum += tar[at + i];
		snprintf((char *)tar + at + CHECKSUM_AT, 8, "%06o", sum & 0777777);
		memcpy(text, tar + at + SIZE_AT, 12);
		unsigned long long content = strtoull(text, NULL, 8);
		if (content > size)
			return;
		at += BLOCK + (size_t)(content + BLOCK - 1) / BLOCK * BLOCK;
	}
}

static int go_on(const struct hb_unpack_progress *p, void *arg)
{
	(void)p;
	(void)arg;
	return 0;
}

static void check_tree(int staging, const struct hb_tree_info *info)
{
	struct hb_verify_result v = {0};
	struct hb_error err = {"", ""};

	if (hb_tree_verify(staging, info->tree_digest, geteuid(), NULL, NULL, &v, &err) < 0 || !v.ok) {
		fprintf(stderr, "the tree differs from its manifest: %s %s\n", err.code, err.message);
		if (v.differences)
			json_dumpf(v.differences, stderr, JSON_INDENT(1));
		abort();
	}
	json_decref(v.differences);
}

static void apply_twice(const struct hb_unpack_layer *layer)
{
	struct hb_unpack_totals totals = {0};
	struct hb_tree_info info = {0};
	struct hb_tree *tree = NULL;
	struct hb_error err = {"", ""};
	int staging;

	must(mkdirat(scratch, "staging", 0700) == 0, "the staging directory");
	staging = openat(scratch, "staging", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	must(staging >= 0 && hb_tree_new(staging, &limits, &tree, &err) == 0, err.message);
	if (hb_unpack_apply(tree, layer, &limits, &totals, go_on, NULL, &err) == 0 &&
	    hb_unpack_apply(tree, layer, &limits, &totals, go_on, NULL, &err) == 0 &&
	    hb_tree_finish(tree, &info, &err) == 0)
		check_tree(staging, &info);
	hb_tree_free(tree);
	hb_close(&staging);
	check_outside();
	must(hb_fs_remove_tree(scratch, "staging", &err) == 0, err.message);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct hb_unpack_layer layer = {.size = size > 0 ? size - 1 : 0};
	uint8_t *copy;
	const char *kind;

	if (size < 2)
		return 0;
	if (scratch < 0)
		confine();
	kind = data[0] == 'g' ? "+gzip" : data[0] == 'z' ? "+zstd" : "";
	copy = malloc(size);
	must(copy != NULL, "memory");
	memcpy(copy, data + 1, size - 1);
	if (!kind[0])
		put_right(copy, size - 1);
	snprintf(layer.media_type, sizeof(layer.media_type), "application/vnd.oci.image.layer.v1.tar%s", kind);
	hb_sha256_hex(copy, size - 1, layer.digest);
	memcpy(layer.diff_id, layer.digest, sizeof(layer.diff_id)); /* right for a plain one */
	layer.blob_fd = memfd_create("layer", MFD_CLOEXEC);
	must(layer.blob_fd >= 0 && write(layer.blob_fd, copy, size - 1) == (ssize_t)size - 1, "the layer");
	apply_twice(&layer);
	hb_close(&layer.blob_fd);
	free(copy);
	return 0;
}
