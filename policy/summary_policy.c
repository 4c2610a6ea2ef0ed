/* What a person is shown of a widening of live policy: all of it, and then what is new. */
#include <stdlib.h>
#include <string.h>

#include "policy/draw.h"

static bool holds(const json_t *list, const json_t *item)
{
	const json_t *other;
	size_t i;

	json_array_foreach(list, i, other)
		if (json_equal(other, item))
			return true;
	return false;
}

/* Each item of `list` that is not in `other`. */
static void difference(struct hb_page *p, const json_t *list, const json_t *other, const char *code, const char *text)
{
	const json_t *item;
	size_t i;

	json_array_foreach(list, i, item)
	{
		char *name = hb_escaped(json_string_value(item));

		if (!holds(other, item) && code)
			hb_draw_warning(p, code, "%s %s", name, text);
		else if (!holds(other, item))
			hb_draw_note(p, "%s %s", name, text);
		free(name);
	}
}

void hb_summary_policy(struct hb_page *p, const json_t *request)
{
	const json_t *features = json_object_get(request, "features"), *users = json_object_get(request, "users");
	const json_t *old_features = json_object_get(request, "present_features");
	const json_t *old_users = json_object_get(request, "present_users");
	const json_t *generation = json_object_get(request, "present_generation");

	hb_draw_list(p, "features", features);
	hb_draw_list(p, "users", users);
	if (json_is_integer(generation))
		hb_draw_int(p, "present_generation", json_integer_value(generation), "");
	else
		hb_draw_sealed(p, "present_generation", NULL);
	hb_draw_list(p, "present_features", old_features);
	hb_draw_list(p, "present_users", old_users);

	hb_draw_note(p, "live policy is replaced; grants and requests from before end");
	if (!old_features || !old_users)
		return;
	difference(p, features, old_features, "widens_features", "operations may be asked for from then on");
	difference(p, users, old_users, "widens_users", "may approve operations from then on");
	difference(p, old_features, features, NULL, "operations are refused from then on");
	difference(p, old_users, users, NULL, "may no longer approve");
}
