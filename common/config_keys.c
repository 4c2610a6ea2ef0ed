/*
 * Every key of hermes.conf: name, type, default, range or words, and the line of help that stands
 * above it in a freshly written file.
 */
#include "common/config.h"

#define KIB 1024LL
#define GIB (KIB * KIB * KIB)

#define TEXT(name, fallback, help)                                                                 \
	{                                                                                          \
		name, HB_CONFIG_TEXT, fallback, 0, 0, NULL, help                                   \
	}
#define INT(name, fallback, min, max, help)                                                        \
	{                                                                                          \
		name, HB_CONFIG_INT, fallback, min, max, NULL, help                                \
	}
#define BOOL(name, fallback, help)                                                                 \
	{                                                                                          \
		name, HB_CONFIG_BOOL, fallback, 0, 0, NULL, help                                   \
	}
#define WORD(name, fallback, words, help)                                                          \
	{                                                                                          \
		name, HB_CONFIG_WORD, fallback, 0, 0, words, help                                  \
	}
#define LIST(name, fallback, help)                                                                 \
	{                                                                                          \
		name, HB_CONFIG_LIST, fallback, 0, 0, NULL, help                                   \
	}
#define SIZE(name, fallback, min, max, help)                                                       \
	{                                                                                          \
		name, HB_CONFIG_SIZE, fallback, min, max, NULL, help                               \
	}

const struct hb_config_key hb_config_keys[] = {
	LIST("broker.listen_tcp", "",
	     "Loopback addresses for clients that know no Unix socket, e.g. 127.0.0.1:8750, "
	     "127.0.0.1:8751. "
	     "Empty: none."),
	BOOL("broker.listen_tcp_private", "no",
	     "Also allow private, non-loopback addresses in listen_tcp (container networks)."),
	LIST("broker.client_uids", "", "Numeric uids that may call the broker besides root."),
	INT("broker.pending_life", "300", 10, 86400,
	    "Seconds an operation waits for a person before it expires."),
	INT("broker.grant_life", "120", 5, 3600, "Seconds a grant is usable after the approval."),
	INT("broker.queue_max", "16", 1, 256, "Approved operations that may wait for their turn."),
	INT("broker.approver_silence", "60", 0, 86400,
	    "Seconds without a word from the approver after which nothing is prepared or begun. 0: no limit."),
	BOOL("broker.coalesce", "yes",
	     "Whether the same request, asked again by the same user and session while it waits for a decision, is "
	     "the same operation."),

	BOOL("runtime.enabled", "yes", "Whether the runtime is managed at all."),
	TEXT("runtime.image",
	     "ghcr.io/rhyssullivan/executor-selfhost:v1.5.12@sha256:"
	     "e40b2179c005b3124e794e9a8505341db46d0a9a1631e7f3fdcd023462ecf70b",
	     "The image, always with its index digest: repository[:tag]@sha256:HEX or "
	     "oci:DIR@sha256:HEX."),
	TEXT("runtime.platform", "", "linux/amd64 or linux/arm64. Empty: that of this host."),
	LIST("runtime.platform_digest",
	     "linux/arm64=sha256:c089ee8bffdbd81c854c3aee47a788484398694149597bc9d8863491b07e262f",
	     "Further pins, PLATFORM=sha256:HEX each: the platform manifests of exactly the image "
	     "above. "
	     "Choosing another image by --set clears them."),
	TEXT("runtime.storage", "/storage/executor-runtime",
	     "Blobs and releases. Disposable: can be fetched again, kept out of backups."),
	TEXT("runtime.data", "/workspace/executor/data",
	     "The runtime's own data. This is what backups hold."),
	TEXT("runtime.data_mount", "/data", "Where the runtime sees its data."),
	INT("runtime.port", "4788", 1, 65535,
	    "Loopback port of the runtime; also its PORT variable."),
	TEXT("runtime.env.*", "EXECUTOR_HOST=127.0.0.1 EXECUTOR_ALLOW_LOCAL_NETWORK=false",
	     "Environment of the runtime, one env.NAME = value a line."),
	TEXT("runtime.command", "",
	     "What is run instead of the image's entrypoint and command: a JSON array of strings. "
	     "Empty: the image's."),
	TEXT("runtime.working_dir", "", "Working directory. Empty: the image's."),
	WORD("runtime.isolation", "auto", "auto namespaces chroot direct",
	     "How the runtime is kept apart; auto takes the strongest that works here."),
	WORD("runtime.supervisor", "embedded", "embedded supervisord",
	     "Who starts and stops it: hermes-installer itself, or supervisord through an entry of its own."),
	TEXT("runtime.supervisord_socket", "/var/run/supervisor.sock",
	     "With supervisord: the socket of its [unix_http_server]."),
	TEXT("runtime.supervisord_conf", "/etc/supervisor/conf.d/hermes-runtime.conf",
	     "With supervisord: the file that the entry is written to. Its [include] must name it."),
	TEXT("runtime.health_path", "/api/health", "Health check: path on the runtime's port."),
	INT("runtime.health_status", "200", 100, 599, "Health check: status wanted."),
	TEXT("runtime.health_body", "\"status\":\"ok\"",
	     "Health check: text the body must hold. Empty: any body."),
	TEXT("runtime.health_token_file", "",
	     "Health check: file with the token that is sent. Empty: none."),
	INT("runtime.health_interval", "30", 1, 3600, "Seconds between health checks."),
	INT("runtime.health_sustain", "5", 0, 600,
	    "Seconds it must stay healthy before a new release counts as good."),
	INT("runtime.start_timeout", "60", 1, 1800, "Seconds it may take to become healthy."),
	TEXT("runtime.mcp_path", "/mcp", "Path of the MCP endpoint. Empty: not checked."),
	LIST("runtime.mcp_tools", "execute, resume",
	     "Exactly the tools the MCP endpoint must offer."),
	TEXT("runtime.mcp_key_file", "",
	     "File with the MCP API key for the authenticated check. Empty: only the challenge is "
	     "checked."),
	TEXT("runtime.mcp_key", "",
	     "Name of a key of `hermesctl runtime key` for the same check, instead of a file. Empty: mcp_key_file."),
	INT("runtime.stop_timeout", "20", 1, 600,
	    "Seconds from SIGTERM to the end of the whole process tree."),
	INT("runtime.restart_budget", "5", 1, 1000, "Restarts allowed within restart_window."),
	INT("runtime.restart_window", "300", 1, 86400, "Seconds over which restarts are counted."),
	TEXT("runtime.backup_dir", "",
	     "Where backups go: root's, 0700, outside data and storage. Empty: installer/backups in "
	     "the state directory."),
	INT("runtime.backup_keep", "5", 1, 1000, "Backups kept; the newest verified one always."),
	INT("runtime.backup_max_age", "0", 0, 36500,
	    "Days after which a backup is removed when a new one is made. 0: never."),
	LIST("runtime.age_recipients", "",
	     "age recipients that backups are encrypted to. Empty: not encrypted."),
	INT("runtime.keep_releases", "2", 2, 20, "Releases kept, the current one included."),

	LIST("fetcher.mirrors", "", "Registry mirrors, HOST=URL each."),
	LIST("fetcher.insecure_registries", "", "HOST:PORT of registries spoken to without TLS."),
	TEXT("fetcher.ca_file", "", "Certificates to trust for registries. Empty: the system's."),
	INT("fetcher.parallel", "4", 1, 32, "Blobs fetched at once."),
	INT("fetcher.retries", "5", 0, 100, "Tries after a transfer failed."),
	INT("fetcher.connect_timeout", "15", 1, 600, "Seconds to connect."),
	INT("fetcher.stall_timeout", "30", 1, 3600,
	    "Seconds without a byte before a transfer is given up."),
	SIZE("fetcher.max_image_size", "8G", KIB, 1024 * GIB, "Largest image, all blobs together."),
	SIZE("fetcher.max_blob_size", "6G", KIB, 1024 * GIB, "Largest single blob."),

	TEXT("approver.api_base", "https://api.telegram.org",
	     "Base address of the Telegram Bot API."),
	INT("approver.pending_per_user", "32", 1, 65536,
	    "Requests that may wait for one user at once; more are refused."),
	INT("approver.denial_cooldown", "60", 0, 86400,
	    "Seconds during which an operation that was denied can't be asked for again unchanged."),
	LIST("approver.console_approvers", "0=0",
	     "Unix users that may decide in a terminal and who each one is: UID=USER_ID."),
	INT("approver.poll_timeout", "25", 1, 50, "Seconds of one long poll."),
	TEXT("approver.agent_bot_sha256_file", "",
	     "File with the SHA-256 (64 hex digits a line) of the agents' own bot tokens, which are refused here. "
	     "Empty: not compared."),
	TEXT("approver.ca_file", "", "Certificates to trust for the Bot API. Empty: the system's."),

	BOOL("admin.enabled", "yes", "Whether the admin endpoint is served."),
	TEXT("admin.listen", "127.0.0.1:8752", "Its address."),
	TEXT("admin.listen_private", "",
	     "A second, private address for a browser on another machine or in a container, ADDRESS:PORT. Empty: none."),
	BOOL("admin.widening_needs_grant", "no",
	     "Whether a change that widens live policy waits for an approver's signed grant."),
	LIST("admin.allowed_origins", "http://127.0.0.1:8787, http://localhost:8787",
	     "Exact origins of pages that may use it."),

	TEXT("onboarding.infrastructure_admin", "admin",
	     "Who looks after this host and the runtime, as the inventory and the keys name them."),
	TEXT("onboarding.connections_owner", "owner",
	     "Whose accounts are connected to the runtime, as the inventory and the keys name them."),

	INT("identities.base_uid", "10110", 1000, 4294900000LL,
	    "First of the numeric uids of our processes (docs/ARCHITECTURE.md)."),
	WORD("sandbox.mode", "required", "required degraded",
	     "required: refuse to start without Landlock. degraded: start, and say so in every "
	     "status."),
	TEXT("docker.socket", "/var/run/docker.sock", "Socket of the Docker engine."),
	LIST("docker.protected_containers", "",
	     "Containers, by name or id, that no operation may touch, besides our own."),
	LIST("docker.protected_networks", "", "Networks, by name or id, that no container may be put on."),
	WORD("local.backend", "docker", "docker bubblewrap",
	     "Who keeps local commands apart: the Docker engine, or bubblewrap on a host without one."),
	TEXT("local.image", "",
	     "Image of local commands, pinned: repository@sha256:HEX or sha256:HEX of an image the engine has; with "
	     "bubblewrap sha256:HEX of the release's manifest.mtree. Empty: local commands are off."),
	TEXT("local.release", "",
	     "With bubblewrap: directory of the unpacked release, with rootfs/ and manifest.mtree in it."),
	TEXT("local.workspace", "", "Directory of this host that local commands see as /workspace and may write."),
	INT("local.memory_mb", "512", 16, 32768, "Memory of a local command, in MiB."),
	INT("local.cpus", "1", 1, 32, "Processors a local command may use."),
	INT("local.pids_limit", "256", 16, 8192, "Processes a local command may have."),
	TEXT("local.cgroup", "",
	     "With bubblewrap: a cgroup v2 directory delegated to hermes-docker, for the limits above. Empty: limits "
	     "of each process instead."),
	INT("launcher.restart_delay_max", "30", 1, 3600,
	    "Longest pause between restarts of a process, in seconds."),
	WORD("log.level", "info", "error warn info debug",
	     "Least important messages that are logged."),
};

const size_t hb_config_key_count = sizeof(hb_config_keys) / sizeof(hb_config_keys[0]);
