/*
 * hermes-ssh: the executor of SSH operations.
 *
 * Holds SSH profiles, the secret that keeps them whole, the approver's public key and its own ledger. Must never
 * hold the signing key, the bot token, the control secret or the Docker socket. Called by hermes-broker; health
 * also by hermes-admin and root.
 */
#include "broker/ssh/ssh.h"

int
main(int argc, char **argv)
{
	return hb_process_main(&hb_ssh_program, argc, argv);
}
