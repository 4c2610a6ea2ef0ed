/*
 * Stands in for a service whose child outlives it: leaves a process in a session of its own, says ready and
 * ends when asked. The launcher has to end what was left.
 */
#include <unistd.h>

int
main(void)
{
	if (fork() == 0) {
		setsid();
		for (;;)
			pause();
	}
	if (write(3, "1", 1) != 1)
		return 1;
	for (;;)
		pause();
}
