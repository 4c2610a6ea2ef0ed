/*
 * Stands in for bubblewrap at its weakest moment: the inner process is there and has not yet asked
 * to die with the outer one. It stays there until the outer one has died, then goes on to the
 * command as the real one would.
 */
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	pid_t outer = getpid();
	int at = 1;

	while (at < argc && strcmp(argv[at], "--") != 0)
		at++;
	if (at + 1 >= argc)
		return 1;
	if (fork() == 0) {
		while (getppid() == outer)
			usleep(20000);
		execv(argv[at + 1], argv + at + 1);
		_exit(127);
	}
	for (;;)
		pause();
}
