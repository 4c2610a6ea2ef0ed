/*
 * The kernel starts writing back on its own only at a tenth of the memory, more than most images; without this thread
 * the disk would idle during the whole unpacking and everything would wait for it afterwards. It costs no CPU that the
 * last sync would not cost as well.
 */
#include "broker/installer/unpack_flush.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "common/buf.h"

#define PAUSE_NS 250000000 /* long enough that small images are not synced twice */

struct hb_flusher {
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t wake;
	bool stop;
	int fd; /* opened here: an error is reported once to each open file */
};

static void *flush(void *arg)
{
	struct hb_flusher *f = arg;

	pthread_mutex_lock(&f->lock);
	while (!f->stop) {
		struct timespec until;
		clock_gettime(CLOCK_REALTIME, &until);
		until.tv_nsec += PAUSE_NS;
		until.tv_sec += until.tv_nsec / 1000000000;
		until.tv_nsec %= 1000000000;
		pthread_cond_timedwait(&f->wake, &f->lock, &until);
		if (f->stop)
			break;
		pthread_mutex_unlock(&f->lock);
		(void)syncfs(f->fd);
		pthread_mutex_lock(&f->lock);
	}
	pthread_mutex_unlock(&f->lock);
	return NULL;
}

struct hb_flusher *hb_flusher_start(int dirfd)
{
	struct hb_flusher *f = hb_calloc(1, sizeof(*f));

	f->fd = openat(dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	pthread_mutex_init(&f->lock, NULL);
	pthread_cond_init(&f->wake, NULL);
	if (f->fd >= 0 && pthread_create(&f->thread, NULL, flush, f) == 0)
		return f;
	if (f->fd >= 0)
		close(f->fd);
	free(f);
	return NULL;
}

void hb_flusher_stop(struct hb_flusher *f)
{
	if (f == NULL)
		return;
	pthread_mutex_lock(&f->lock);
	f->stop = true;
	pthread_cond_signal(&f->wake);
	pthread_mutex_unlock(&f->lock);
	pthread_join(f->thread, NULL);
	close(f->fd);
	pthread_mutex_destroy(&f->lock);
	pthread_cond_destroy(&f->wake);
	free(f);
}
