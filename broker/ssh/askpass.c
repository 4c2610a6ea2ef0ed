/*
 * hermes-askpass: tells ssh the password of one profile.
 *
 * ssh starts it with its question as the argument. The password is standard input, inherited from
 * whoever started ssh: there is no path and no variable that leads to it. Questions that are not
 * for a password (a one-time code, a host key) are not answered.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PASSWORD_MAX 1024

int main(int argc, char **argv)
{
	char password[PASSWORD_MAX + 1];
	ssize_t n;
	int rc = 1;

	if (argc != 2 || !strcasestr(argv[1], "password"))
		return 1;
	n = pread(STDIN_FILENO, password, PASSWORD_MAX, 0);
	if (n > 0) {
		password[n] = '\n';
		rc = write(STDOUT_FILENO, password, (size_t)n + 1) == n + 1 ? 0 : 1;
	}
	explicit_bzero(password, sizeof(password));
	return rc;
}
