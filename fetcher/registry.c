/* Which sites there are, from the configuration and the image's name; talking to one is in site.c.
 */
#include "fetcher/registry.h"

#include <fcntl.h>
#include <sodium.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "common/paths.h"
#include "fetcher/address.h"

static bool
is_listed_insecure(const struct hb_config *config, const char *hostport)
{
	const char **items;
	size_t n = hb_config_list(config, "fetcher.insecure_registries", &items);

	for (size_t i = 0; i < n; i++)
		if (strcasecmp(items[i], hostport) == 0)
			return true;
	return false;
}

static int
add_site(struct hb_registry *r, const struct hb_config *config, const char *url, bool mirror,
	 const char *credential_name, struct hb_error *err)
{
	struct hb_site *s = &r->sites[r->count];
	size_t n;

	if (r->count == HB_SITES_MAX)
		return hb_fail(err, "bad_mirror", "more than %d mirrors for one registry",
			       HB_SITES_MAX - 1);
	if (hb_url_parse(url, &s->base, err))
		return hb_fail_prefix(err, "%s",
				      mirror ? "fetcher.mirrors" : "the image's registry");
	if (strchr(s->base.text, '?') || strlen(s->base.text) >= sizeof(s->prefix))
		return hb_fail(err, "bad_mirror", "the mirror %s must be a plain URL",
			       s->base.hostport);
	s->rules.loopback = hb_host_is_loopback(s->base.host);
	s->rules.plain = s->base.http;
	s->mirror = mirror;
	if (s->base.http && !(is_listed_insecure(config, s->base.hostport) && s->rules.loopback))
		return hb_fail(err, "insecure_registry",
			       "%s would be asked over plain http, which is done only for "
			       "registries on loopback that are listed in "
			       "fetcher.insecure_registries",
			       s->base.hostport);
	strcpy(s->prefix, s->base.text); /* length checked above */
	n = strlen(s->prefix);
	while (n && s->prefix[n - 1] == '/')
		s->prefix[--n] = '\0';
	s->credential = hb_credentials_find(&r->credentials,
					    credential_name ? credential_name : s->base.hostport);
	pthread_mutex_init(&s->lock, NULL);
	r->count++;
	return 0;
}

static int
add_mirrors(struct hb_registry *r, const struct hb_config *config, const char *registry,
	    struct hb_error *err)
{
	const char **items;
	size_t n = hb_config_list(config, "fetcher.mirrors", &items), len = strlen(registry);

	for (size_t i = 0; i < n; i++) {
		const char *equal = strchr(items[i], '=');

		if (!equal || equal == items[i])
			return hb_fail(err, "bad_mirror",
				       "fetcher.mirrors: \"%.80s\" must read HOST=URL", items[i]);
		if ((size_t)(equal - items[i]) == len &&
		    strncasecmp(items[i], registry, len) == 0 &&
		    add_site(r, config, equal + 1, true, NULL, err))
			return -1;
	}
	return 0;
}

/* docker.io is a name, not a server; official images live below library/. */
static void
origin_of(const struct hb_config *config, const struct hb_image_ref *ref, char *url, size_t size,
	  char *repository, size_t repository_size)
{
	bool hub = strcmp(ref->registry, "docker.io") == 0;

	snprintf(url, size, "%s://%s", is_listed_insecure(config, ref->registry) ? "http" : "https",
		 hub ? "registry-1.docker.io" : ref->registry);
	snprintf(repository, repository_size, "%s%s",
		 hub && !strchr(ref->repository, '/') ? "library/" : "", ref->repository);
}

int
hb_registry_open(const struct hb_config *config, const struct hb_image_ref *ref, uid_t uid,
		 struct hb_registry *out, struct hb_error *err)
{
	char url[300];

	memset(out, 0, sizeof(*out));
	out->state_dir = AT_FDCWD;
	if (hb_credentials_load(out->state_dir, HB_PATH_FETCHER_CREDENTIALS, uid, &out->credentials,
				err))
		return -1;
	origin_of(config, ref, url, sizeof(url), out->repository, sizeof(out->repository));
	if (add_mirrors(out, config, ref->registry, err) ||
	    add_site(out, config, url, false, ref->registry, err)) {
		hb_registry_close(out);
		return -1;
	}
	return 0;
}

void
hb_registry_close(struct hb_registry *r)
{
	for (size_t i = 0; i < r->count; i++) {
		sodium_free(r->sites[i].authorization);
		pthread_mutex_destroy(&r->sites[i].lock);
	}
	r->count = 0;
	hb_credentials_free(&r->credentials);
}

void
hb_registry_note(const struct hb_registry *r, const char *fmt, ...)
{
	char text[HB_ERROR_MESSAGE_MAX];
	va_list ap;

	if (!r->note)
		return;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	r->note(text, r->note_arg);
}
