/*
 * hermes-ssh: the executor of SSH operations.
 *
 * Holds the SSH profiles, the secret their passwords are sealed with, the approver's public key and
 * its own ledger. Must never hold the signing key, the bot token, the control secret or the Docker
 * socket. Called by hermes-broker; health and profiles also by hermes-admin and root.
 *
 * It can neither exec nor open a connection itself: that is left to one worker, forked before it
 * confines itself (starter.c), which sees no profile, only the one key of each run.
 */
#include "broker/ssh/ssh.h"

int main(int argc, char **argv)
{
	return hb_process_main(&hb_ssh_program, argc, argv);
}
