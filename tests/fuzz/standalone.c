/*
 * Runs a fuzz target without a fuzzer: each file of its corpus, then COUNT seeded mutations of them.
 *
 *   fuzz_NAME CORPUS_DIR [COUNT [SEED]]
 *
 * The same target links with libFuzzer for `make fuzz`. A finding is a crash or a sanitizer's report.
 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define FILES_MAX 256
#define SIZE_MAX_INPUT 65536

struct input {
	uint8_t *data;
	size_t size;
};

static uint64_t state;

/* splitmix64: small, seeded, good enough to move bytes about. */
static uint64_t next(void)
{
	uint64_t z = (state += 0x9e3779b97f4a7c15u);

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

static size_t load(const char *dir, struct input *inputs)
{
	DIR *d = opendir(dir);
	struct dirent *e;
	size_t n = 0;

	if (!d) {
		fprintf(stderr, "no corpus at %s\n", dir);
		exit(2);
	}
	while ((e = readdir(d)) && n < FILES_MAX) {
		char path[4096];
		FILE *f;
		if (e->d_name[0] == '.')
			continue;
		snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
		f = fopen(path, "rb");
		if (!f)
			continue;
		inputs[n].data = malloc(SIZE_MAX_INPUT);
		if (!inputs[n].data)
			abort();
		inputs[n].size = fread(inputs[n].data, 1, SIZE_MAX_INPUT, f);
		fclose(f);
		n++;
	}
	closedir(d);
	return n;
}

/* Exactly sized, so that a read past the end is seen. */
static void run(const uint8_t *data, size_t size)
{
	uint8_t *copy = malloc(size ? size : 1);

	if (!copy)
		abort();
	memcpy(copy, data, size);
	LLVMFuzzerTestOneInput(copy, size);
	free(copy);
}

static void mutate_once(struct input *in, const struct input *other)
{
	size_t at = in->size ? next() % in->size : 0, n;

	switch (next() % 5) {
	case 0: /* another byte */
		if (in->size)
			in->data[at] = (uint8_t)next();
		break;
	case 1: /* one bit */
		if (in->size)
			in->data[at] ^= (uint8_t)(1u << (next() % 8));
		break;
	case 2: /* cut */
		in->size = at;
		break;
	case 3: /* repeat a piece */
		n = in->size ? next() % (in->size - at) : 0;
		if (in->size + n < SIZE_MAX_INPUT) {
			memmove(in->data + at + n, in->data + at, in->size - at);
			in->size += n;
		}
		break;
	default: /* the end of another input */
		n = other->size ? next() % other->size : 0;
		if (at + n < SIZE_MAX_INPUT) {
			memmove(in->data + at, other->data + other->size - n, n);
			in->size = at + n;
		}
	}
}

int main(int argc, char **argv)
{
	static struct input inputs[FILES_MAX];
	static uint8_t buffer[SIZE_MAX_INPUT];
	long count = argc > 2 ? atol(argv[2]) : 0;
	size_t n;

	if (argc < 2) {
		fprintf(stderr, "usage: %s CORPUS_DIR [COUNT [SEED]]\n", argv[0]);
		return 2;
	}
	state = argc > 3 ? strtoull(argv[3], NULL, 10) : 1;
	n = load(argv[1], inputs);
	for (size_t i = 0; i < n; i++)
		run(inputs[i].data, inputs[i].size);
	for (long k = 0; n > 0 && k < count; k++) {
		const struct input *base = &inputs[next() % n];
		struct input in = {buffer, base->size};
		memcpy(buffer, base->data, base->size);
		for (uint64_t times = 1 + next() % 4; times > 0; times--)
			mutate_once(&in, &inputs[next() % n]);
		run(in.data, in.size);
	}
	printf("%zu inputs, %ld mutations\n", n, count);
	for (size_t i = 0; i < n; i++)
		free(inputs[i].data);
	return n > 0 ? 0 : 1;
}
