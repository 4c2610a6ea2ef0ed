/*
 * hermes-docker: the executor of Docker and sandboxed local operations.
 *
 * Holds the group of the Docker socket, the approver's public key and its own ledger. Must never
 * hold the signing key, the bot token, the control secret or an SSH profile. Called by
 * hermes-broker; health also by hermes-admin and root.
 */
#include "broker/docker/docker.h"

int main(int argc, char **argv)
{
	return hb_process_main(&hb_docker_program, argc, argv);
}
