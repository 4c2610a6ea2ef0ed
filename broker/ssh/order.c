/* The packet between worker and starter (run.h). */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "broker/ssh/run.h"
#include "common/fields.h"
#include "common/fs.h"
#include "common/json.h"

static const struct hb_field fields[] = {
	{"host", HB_FIELD_TEXT, HB_FIELD_REQUIRED, offsetof(struct hb_run_order, host), 1, 253},
	{"port", HB_FIELD_INT, HB_FIELD_REQUIRED, offsetof(struct hb_run_order, port), 1, 65535},
	{"user", HB_FIELD_TEXT, HB_FIELD_REQUIRED, offsetof(struct hb_run_order, user), 1, 64},
	{"auth", HB_FIELD_TEXT, HB_FIELD_REQUIRED, offsetof(struct hb_run_order, auth), 1, 11},
	{"key_type", HB_FIELD_TEXT, HB_FIELD_REQUIRED, offsetof(struct hb_run_order, key_type), 1,
	 31},
	{"connect_timeout", HB_FIELD_INT, HB_FIELD_REQUIRED,
	 offsetof(struct hb_run_order, connect_timeout), 1, 900},
	{"certificate", HB_FIELD_BOOL, HB_FIELD_REQUIRED,
	 offsetof(struct hb_run_order, certificate), 0, 0},
	{"command", HB_FIELD_TEXT, HB_FIELD_REQUIRED, offsetof(struct hb_run_order, command), 1,
	 100000},
};

int hb_run_send(int starter, const struct hb_run_order *o, const int fds[HB_RUN_FDS],
		struct hb_error *err)
{
	size_t count = o->certificate ? HB_RUN_FDS : HB_RUN_CERTIFICATE;
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int) * HB_RUN_FDS)];
	} control = {0};
	json_t *body = json_pack("{s:s, s:I, s:s, s:s, s:s, s:I, s:b, s:s}", "host", o->host,
				 "port", (json_int_t)o->port, "user", o->user, "auth", o->auth,
				 "key_type", o->key_type, "connect_timeout",
				 (json_int_t)o->connect_timeout, "certificate", o->certificate,
				 "command", o->command);
	char *text = json_dumps(body, JSON_COMPACT);
	struct iovec part = {text, text ? strlen(text) : 0};
	struct msghdr packet = {.msg_iov = &part,
				.msg_iovlen = 1,
				.msg_control = control.bytes,
				.msg_controllen = CMSG_SPACE(sizeof(int) * count)};
	struct cmsghdr *head = CMSG_FIRSTHDR(&packet);
	ssize_t n;

	json_decref(body);
	head->cmsg_level = SOL_SOCKET;
	head->cmsg_type = SCM_RIGHTS;
	head->cmsg_len = CMSG_LEN(sizeof(int) * count);
	memcpy(CMSG_DATA(head), fds, sizeof(int) * count);
	if (part.iov_len == 0 || part.iov_len > HB_RUN_PACKET_MAX) {
		free(text);
		return hb_fail(err, "out_of_range", "the command is too long for one run");
	}
	do
		n = sendmsg(starter, &packet, MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	free(text);
	return n < 0 ? hb_fail_errno(err, "starter_gone",
				     "the process that starts ssh can't be asked")
		     : 0;
}

/* Descriptors of one packet into fds; how many there were. */
static size_t take_fds(struct msghdr *packet, int fds[HB_RUN_FDS])
{
	size_t count = 0;

	for (size_t i = 0; i < HB_RUN_FDS; i++)
		fds[i] = -1;
	for (struct cmsghdr *h = CMSG_FIRSTHDR(packet); h; h = CMSG_NXTHDR(packet, h)) {
		if (h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t i = 0; i < (h->cmsg_len - CMSG_LEN(0)) / sizeof(int); i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(h) + i * sizeof(int), sizeof(int));
			if (count < HB_RUN_FDS)
				fds[count++] = fd;
			else
				close(fd);
		}
	}
	return count;
}

int hb_run_receive(int fd, json_t **body, struct hb_run_order *order, int fds[HB_RUN_FDS],
		   struct hb_error *err)
{
	static char text[HB_RUN_PACKET_MAX];
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int) * HB_RUN_FDS)];
	} control;
	struct iovec part = {text, sizeof(text)};
	struct msghdr packet = {.msg_iov = &part,
				.msg_iovlen = 1,
				.msg_control = control.bytes,
				.msg_controllen = sizeof(control)};
	ssize_t n;
	size_t count;

	do
		n = recvmsg(fd, &packet, MSG_CMSG_CLOEXEC);
	while (n < 0 && errno == EINTR);
	if (n <= 0)
		return 0;
	count = take_fds(&packet, fds);
	*body = hb_json_parse(text, (size_t)n, err);
	memset(order, 0, sizeof(*order));
	if (*body && !(packet.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) &&
	    hb_fields_decode(*body, fields, sizeof(fields) / sizeof(fields[0]), order, err) == 0 &&
	    count == (order->certificate ? HB_RUN_FDS : HB_RUN_CERTIFICATE))
		return 1;
	for (size_t i = 0; i < HB_RUN_FDS; i++)
		hb_close(&fds[i]);
	json_decref(*body);
	*body = NULL;
	return hb_fail(err, "order_invalid", "a packet that is no order to run ssh was refused");
}

int hb_memory_file(const char *name, const void *data, size_t len, mode_t mode,
		   struct hb_error *err)
{
	const int seals = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;
	const unsigned exec = mode & 0100 ? 0x0010u
					  : 0x0008u; /* MFD_EXEC, MFD_NOEXEC_SEAL of Linux 6.3 */
	const char *from = data;
	size_t done = 0;
	ssize_t n = 0;
	int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | exec);

	if (fd < 0 && errno == EINVAL)
		fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0)
		return hb_fail_errno(err, "no_memory", "a memory file can't be made");
	while (done < len && ((n = write(fd, from + done, len - done)) >= 0 || errno == EINTR))
		done += n > 0 ? (size_t)n : 0;
	if (done == len && fchmod(fd, mode) == 0 && lseek(fd, 0, SEEK_SET) == 0 &&
	    fcntl(fd, F_ADD_SEALS, seals) == 0)
		return fd;
	hb_fail_errno(err, "no_memory", "a memory file can't be written");
	hb_close(&fd);
	return -1;
}
