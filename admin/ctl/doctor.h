/* Shared by doctor.c and doctor_reach.c. */
#ifndef HB_ADMIN_CTL_DOCTOR_H
#define HB_ADMIN_CTL_DOCTOR_H

#include "admin/ctl/ctl.h"

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

/* Which live process reaches which secret or socket. */
void ctl_doctor_reach(struct ctl_findings *f);

#endif
