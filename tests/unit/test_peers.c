/* The graph of who may talk to whom, spelled out a second time: a line that is added to it must be
 * added here too. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "common/peers.h"

#define BASE 61000

START_TEST(test_uids_follow_the_base)
{
	hb_peers_init(BASE);
	ck_assert_uint_eq(hb_peer_uid(HB_PEER_BROKER), BASE);
	ck_assert_uint_eq(hb_peer_uid(HB_PEER_FETCHER), BASE + 1);
	ck_assert_uint_eq(hb_peer_uid(HB_PEER_UNPACK), BASE + 2);
	ck_assert_uint_eq(hb_peer_uid(HB_PEER_PROBE), BASE + 3);
	ck_assert_uint_eq(hb_peer_uid(HB_PEER_DOCKER), BASE + 4);
	ck_assert_uint_eq(hb_peer_uid(HB_PEER_SSH), BASE + 5);
	ck_assert_uint_eq(hb_peer_uid(HB_PEER_APPROVER), BASE + 6);
	ck_assert_uint_eq(hb_peer_uid(HB_PEER_ADMIN), BASE + 7);
	ck_assert_uint_eq(hb_peer_uid(HB_PEER_RUNTIME), BASE + 8);
	ck_assert_uint_eq(hb_peer_uid(HB_PEER_INSTALLER), 0);
	ck_assert_uint_eq(hb_peer_uid(HB_PEER_CLIENT), (uid_t)-1);
}
END_TEST

START_TEST(test_callers_groups_are_nobodys_primary_group)
{
	hb_peers_init(BASE);
	for (int server = 0; server < HB_PEER_COUNT; server++) {
		if (hb_peer_socket(server) == NULL)
			continue;
		for (int p = 0; p < HB_PEER_COUNT; p++) {
			ck_assert_uint_ne(hb_peer_callers_gid(server), hb_peer_gid(p));
			if (p != server && hb_peer_socket(p) != NULL)
				ck_assert_uint_ne(hb_peer_callers_gid(server),
						  hb_peer_callers_gid(p));
		}
	}
}
END_TEST

START_TEST(test_edges_are_exactly_these)
{
	static const struct {
		enum hb_peer from;
		unsigned to;
	} expected[] = {
		{HB_PEER_CLIENT, HB_PEER_BIT(HB_PEER_BROKER)},
		{HB_PEER_CONSOLE, HB_PEER_BIT(HB_PEER_APPROVER)},
		{HB_PEER_OPERATOR, HB_PEER_BIT(HB_PEER_BROKER) | HB_PEER_BIT(HB_PEER_ADMIN) |
					   HB_PEER_BIT(HB_PEER_APPROVER) |
					   HB_PEER_BIT(HB_PEER_INSTALLER)},
		{HB_PEER_BROKER, HB_PEER_BIT(HB_PEER_INSTALLER) | HB_PEER_BIT(HB_PEER_DOCKER) |
					 HB_PEER_BIT(HB_PEER_SSH) | HB_PEER_BIT(HB_PEER_APPROVER) |
					 HB_PEER_BIT(HB_PEER_ADMIN)},
		{HB_PEER_APPROVER, HB_PEER_BIT(HB_PEER_BROKER)},
		{HB_PEER_INSTALLER, HB_PEER_BIT(HB_PEER_FETCHER)},
		{HB_PEER_ADMIN, HB_PEER_BIT(HB_PEER_BROKER) | HB_PEER_BIT(HB_PEER_FETCHER) |
					HB_PEER_BIT(HB_PEER_INSTALLER) |
					HB_PEER_BIT(HB_PEER_DOCKER) | HB_PEER_BIT(HB_PEER_SSH) |
					HB_PEER_BIT(HB_PEER_APPROVER)},
		{HB_PEER_LAUNCHER, HB_PEER_BIT(HB_PEER_BROKER) | HB_PEER_BIT(HB_PEER_FETCHER) |
					   HB_PEER_BIT(HB_PEER_INSTALLER) |
					   HB_PEER_BIT(HB_PEER_DOCKER) | HB_PEER_BIT(HB_PEER_SSH) |
					   HB_PEER_BIT(HB_PEER_APPROVER) |
					   HB_PEER_BIT(HB_PEER_ADMIN)},
	};
	unsigned want[HB_PEER_COUNT] = {0};
	size_t edges = 0;

	for (size_t i = 0; i < sizeof(expected) / sizeof(expected[0]); i++)
		want[expected[i].from] = expected[i].to;
	for (int from = 0; from < HB_PEER_COUNT; from++) {
		for (int to = 0; to < HB_PEER_COUNT; to++) {
			bool wanted = (want[from] & HB_PEER_BIT(to)) != 0;

			edges += wanted;
			ck_assert_msg(hb_edge_exists(from, to) == wanted, "%s -> %s",
				      hb_peer_name(from), hb_peer_name(to));
		}
	}
	ck_assert_uint_eq(edges, hb_edge_count);
}
END_TEST

START_TEST(test_groups_are_those_of_the_servers_called)
{
	gid_t groups[16];

	hb_peers_init(BASE);
	ck_assert_uint_eq(hb_peer_groups(HB_PEER_APPROVER, groups, 16), 1);
	ck_assert_uint_eq(groups[0], BASE + 100);
	ck_assert_uint_eq(hb_peer_groups(HB_PEER_FETCHER, groups, 16), 0);
	ck_assert_uint_eq(hb_peer_groups(HB_PEER_RUNTIME, groups, 16), 0);
	ck_assert_uint_eq(hb_peer_groups(HB_PEER_UNPACK, groups, 16), 0);
	ck_assert_uint_eq(hb_peer_groups(HB_PEER_BROKER, groups, 16), 5);
	ck_assert_uint_eq(hb_peer_groups(HB_PEER_BROKER, groups, 2), 2);
}
END_TEST

START_TEST(test_roles_of_a_uid)
{
	static const uid_t clients[] = {1000, 0}, console[] = {1000};

	hb_peers_init(BASE);
	ck_assert_uint_eq(hb_peer_roles(0), HB_PEER_BIT(HB_PEER_INSTALLER) |
						    HB_PEER_BIT(HB_PEER_LAUNCHER) |
						    HB_PEER_BIT(HB_PEER_OPERATOR));
	ck_assert_uint_eq(hb_peer_roles(BASE + 6), HB_PEER_BIT(HB_PEER_APPROVER));
	ck_assert_uint_eq(hb_peer_roles(1000), 0);
	ck_assert_uint_eq(hb_peer_roles((uid_t)-1), 0);
	hb_peers_allow(HB_PEER_CLIENT, clients, 2);
	hb_peers_allow(HB_PEER_CONSOLE, console, 1);
	ck_assert_uint_eq(hb_peer_roles(1000),
			  HB_PEER_BIT(HB_PEER_CLIENT) | HB_PEER_BIT(HB_PEER_CONSOLE));
	ck_assert(hb_peer_roles(0) & HB_PEER_BIT(HB_PEER_CLIENT));
	hb_peers_init(BASE); /* forgets them */
	ck_assert_uint_eq(hb_peer_roles(1000), 0);
}
END_TEST

START_TEST(test_sockets_and_directories)
{
	ck_assert_str_eq(hb_peer_socket(HB_PEER_BROKER), "run/broker/sock");
	ck_assert_str_eq(hb_peer_dir(HB_PEER_INSTALLER), "installer");
	ck_assert_str_eq(hb_peer_name(HB_PEER_DOCKER), "hermes-docker");
	ck_assert_ptr_null(hb_peer_socket(HB_PEER_RUNTIME));
	ck_assert_ptr_null(hb_peer_socket(HB_PEER_UNPACK));
	ck_assert_ptr_null(hb_peer_socket(HB_PEER_CLIENT));
}
END_TEST

int
main(void)
{
	Suite *s = suite_create("peers");
	TCase *tc = tcase_create("peers");
	SRunner *r;
	int failed;

	suite_add_tcase(s, tc);
	tcase_add_test(tc, test_uids_follow_the_base);
	tcase_add_test(tc, test_callers_groups_are_nobodys_primary_group);
	tcase_add_test(tc, test_edges_are_exactly_these);
	tcase_add_test(tc, test_groups_are_those_of_the_servers_called);
	tcase_add_test(tc, test_roles_of_a_uid);
	tcase_add_test(tc, test_sockets_and_directories);
	r = srunner_create(s);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
