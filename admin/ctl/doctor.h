/* Shared by doctor.c, doctor_process.c and doctor_reach.c. */
#ifndef HB_ADMIN_CTL_DOCTOR_H
#define HB_ADMIN_CTL_DOCTOR_H

#include "admin/ctl/ctl.h"
#include "common/buf.h"

struct ctl_findings {
	struct ctl *c;
	json_t *list;
	int wrong;
};

/* One line of the report; fix NULL: fine. */
void ctl_finding(struct ctl_findings *f, const char *check, const char *found, const char *fix);

/* pid of whoever listens on a server's socket; 0: nobody. */
pid_t ctl_server_pid(enum hb_peer server);
/* /proc/PID/status, and a number in it in the given base (-1 when absent). */
bool ctl_read_status(pid_t pid, char *out, size_t size);
long long ctl_status_number(const char *status, const char *name, int base);

/* Supplementary groups of /proc/PID/status. */
size_t ctl_status_groups(const char *status, gid_t *groups, size_t max);

/* doctor_process.c: ids, groups and open network sockets that are not declared are added to `excess`. True: none. */
bool ctl_doctor_process(struct ctl_findings *f, enum hb_peer server, pid_t pid, const char *status, struct hb_buf *excess);

/* Which live process reaches which secret or socket. */
void ctl_doctor_reach(struct ctl_findings *f);

#endif
