#!/usr/bin/env bash
# Hermes Broker's wrapper: the verbs people know, thin over hermesctl. Everything stands between two braces, which the
# shell reads whole before it runs anything: a script that was cut off does nothing.
{

main() {
	set -euo pipefail
	root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
	state=$root/state
	build=${BUILD:-$root/build}
	json=()
	rest=()
	local verb=${1:-help}
	[ $# -eq 0 ] || shift

	# --state and --json may stand anywhere; the rest goes on as it is.
	while [ $# -gt 0 ]; do
		case $1 in
		--state) [ $# -ge 2 ] || fail "--state wants a directory"; state=$2; shift ;;
		--state=*) state=${1#--state=} ;;
		--json) json=(--json) ;;
		*) rest+=("$1") ;;
		esac
		shift
	done
	case $state in /*) ;; *) state=$PWD/$state ;; esac
	run "$verb"
}

run() {
	case $1 in quickstart | build) if wants_help; then verb_help "$1"; return; fi ;; esac
	case $1 in
	quickstart) quickstart ;;
	build) install_packages build; compile ;;
	test-packages) install_packages build run test ;; # what make check calls
	bench-packages) install_packages build run test bench ;; # what make bench calls
	up | down | status | doctor) ctl "$1" "${rest[@]}" ;;
	health) health ;;

	execution) arguments 0 0; menu ;;
	execution-status) arguments 0 0; ctl status ;;
	set-execution-approval-bot-token) arguments 0 0 "the token is asked for, never an argument"; ctl bot token set ;;
	clear-execution-approval-bot-token) arguments 0 0; ctl bot token clear ;;
	set-execution-users) split_commas; ctl users set "${rest[@]}" ;;
	add-execution-user) arguments 1 64 "USER_ID"; ctl users add "${rest[@]}" ;;
	remove-execution-user) arguments 1 64 "USER_ID"; ctl users remove "${rest[@]}" ;;
	enable-execution) arguments 1 4 "sandbox|docker|ssh|all"; ctl features enable "${rest[@]}" ;;
	disable-execution) arguments 1 4 "sandbox|docker|ssh|all"; ctl features disable "${rest[@]}" ;;

	enable-execution-admin) arguments 0 0; ctl admin enable ;;
	disable-execution-admin) arguments 0 0; ctl admin disable ;;
	execution-admin-status) arguments 0 0; ctl admin status ;;
	configure-execution-admin-browser) arguments 1 2 "ORIGIN [PRIVATE_IP]"; ctl admin browser "${rest[@]}" ;;
	show-execution-admin-key) arguments 0 0; ctl admin key show ;;
	rotate-execution-admin-key) arguments 0 0; ctl admin key rotate ;;
	rotate-execution-broker-secret) arguments 0 0; ctl secrets rotate control ;;

	add-ssh-profile) ctl ssh profile add "${rest[@]}" ;;
	verify-ssh-profile) ctl ssh profile verify "${rest[@]}" ;;
	set-ssh-profile-password) arguments 1 1 "NAME; the password is asked for"; ctl ssh profile set-password "${rest[@]}" ;;
	remove-ssh-profile) ctl ssh profile remove "${rest[@]}" ;;
	purge-execution) arguments 0 0; ctl purge ;;

	backup) ctl runtime backup "${rest[@]}" ;;
	backup-list) ctl backup list "${rest[@]}" ;;
	restore) arguments 1 8 "FILE"; ctl runtime restore "${rest[@]}" ;;
	update) ctl runtime upgrade "${rest[@]}" ;;
	rollback) ctl runtime rollback "${rest[@]}" ;;
	lock-images) arguments 0 0; ctl images lock ;;
	verify-images) arguments 0 0; ctl images verify ;;

	help | --help | -h) usage ;;
	*) usage >&2; fail "no verb \"$1\"" ;;
	esac
}

usage() {
	cat <<'TEXT'
usage: ./manage.sh VERB [OPTIONS]

Everyday
  quickstart   install what is missing, build, set up, start, and install the service:
               --image REF  --registry-mirror URL  --insecure-registry HOST:PORT
               --approve  --set SECTION.KEY=VALUE  --no-input
  up, down     start everything; stop the service and everything
  status       processes, policy and service at a glance
  health       the same, for scripts: exit 0 when all is well; --wait SECONDS
  doctor       check what could be wrong and name the fix
  build        install build packages and compile

The service
  update [--plan]              to the configured image; --plan: only show what would change
  rollback                     back to the release before
  backup, backup-list, restore FILE
  lock-images, verify-images   write down the digests of what is installed; compare

Who may approve what
  execution                    a menu of all of these
  execution-status
  set-execution-approval-bot-token, clear-execution-approval-bot-token
  set-execution-users ID,...   add-execution-user ID   remove-execution-user ID
  enable-execution, disable-execution   sandbox|docker|ssh|all

The page and its endpoint
  enable-execution-admin, disable-execution-admin, execution-admin-status
  configure-execution-admin-browser ORIGIN [PRIVATE_IP]
  show-execution-admin-key, rotate-execution-admin-key, rotate-execution-broker-secret

Hosts
  add-ssh-profile, verify-ssh-profile, set-ssh-profile-password, remove-ssh-profile   NAME ...

The end
  purge-execution              stop and remove everything but the service's data (asks)

Every verb takes --state DIR (default: state/ beside this script) and --json.
For everything else there is build/admin/hermesctl --help.
TEXT
}

say() { printf '%s\n' "$*" >&2; }
fail() { say "manage.sh: $*"; exit 2; }

wants_help() {
	local word
	for word in "${rest[@]}"; do
		case $word in --help | -h) return 0 ;; esac
	done
	return 1
}

# Asking what it would do installs nothing, builds nothing and needs no root.
verb_help() {
	if [ "$1" = quickstart ] && [ -x "$build/admin/hermesctl" ]; then
		"$build/admin/hermesctl" quickstart --help
	else
		usage
	fi
}

# So many arguments, else say which.
arguments() {
	if [ ${#rest[@]} -lt "$1" ] || [ ${#rest[@]} -gt "$2" ]; then
		fail "wrong arguments; wanted: ${3:-none}"
	fi
}

# "1,2 3" is three users.
split_commas() {
	local words=()
	IFS=', ' read -r -a words <<<"${rest[*]}"
	rest=("${words[@]}")
}

as_root() {
	if [ "$(id -u)" -eq 0 ]; then
		"$@"
	elif command -v sudo >/dev/null; then
		sudo -- "$@"
	else
		fail "this needs root: run it as root or install sudo"
	fi
}

# The packages of the given sections of deploy/packages.debian that are not there yet.
missing_packages() {
	local sections=" $* " section='' package word command
	while read -r package word command _; do
		case $package in
		'' | '#'*) continue ;;
		'['*) section=${package//[\[\]]/}; continue ;;
		esac
		case $sections in *" $section "*) ;; *) continue ;; esac
		if [ "$word" = unless ] && command -v "$command" >/dev/null; then
			continue
		fi
		dpkg-query -W -f '${Status}\n' "$package" 2>/dev/null | grep -q '^install ok installed$' ||
			printf '%s\n' "$package"
	done <"$root/deploy/packages.debian"
}

install_packages() {
	local list
	list=$(missing_packages "$@")
	[ -n "$list" ] || return 0
	command -v apt-get >/dev/null ||
		fail "these packages are missing and there is no apt-get to install them: ${list//$'\n'/ }"
	say "Installing: ${list//$'\n'/ }"
	as_root apt-get update -q >&2
	# shellcheck disable=SC2086 # one word a package
	as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $list >&2
}

compile() {
	[ -f "$build/build.ninja" ] || meson setup -Dtests=false "$build" "$root" >&2
	ninja -C "$build" >&2
}

ctl() {
	local program=$build/admin/hermesctl
	[ -x "$program" ] || fail "not built yet: run ./manage.sh quickstart (or ./manage.sh build)"
	as_root "$program" --state "$state" "${json[@]}" "$@"
}

quickstart() {
	install_packages build run
	say "Building"
	compile
	ctl quickstart "${rest[@]}"
}

# With --wait, until all is well or the time is over; the last answer is what is printed.
health() {
	local wait=0 answer code
	if [ ${#rest[@]} -eq 2 ] && [ "${rest[0]}" = --wait ]; then
		wait=${rest[1]}
	elif [ ${#rest[@]} -eq 1 ] && [[ ${rest[0]} == --wait=* ]]; then
		wait=${rest[0]#--wait=}
	elif [ ${#rest[@]} -ne 0 ]; then
		fail "health takes --wait SECONDS"
	fi
	[[ $wait =~ ^[0-9]{1,5}$ ]] || fail "--wait wants a number of seconds"
	SECONDS=0
	while code=0; answer=$(ctl status) || code=$?; [ "$code" -ne 0 ] && [ "$SECONDS" -lt "$wait" ]; do
		sleep 1
	done
	printf '%s\n' "$answer"
	return "$code"
}

# One question in the terminal; the answer is in $reply.
ask() {
	printf '%s ' "$1" >/dev/tty
	IFS= read -r reply </dev/tty || reply=
}

# A choice that fails says why and comes back here.
choice() {
	local code=0
	ctl "$@" || code=$?
	[ "$code" -eq 0 ] || say "(exit $code)"
}

menu() {
	local reply word
	{ [ -t 0 ] && [ -t 1 ]; } || fail "the menu needs a terminal; every choice in it is a verb of its own (see help)"
	while :; do
		cat <<'TEXT'

Execution and approvals
  1  status                         7  show the admin key
  2  set the bot token              8  new admin key
  3  add an approver                9  new control secret
  4  remove an approver            10  let a page's origin use the endpoint
  5  enable a feature              11  add an SSH profile
  6  disable a feature             12  doctor
  q  leave
TEXT
		ask "Choice:"
		case $reply in
		1) choice status ;;
		2) choice bot token set ;;
		3) ask "User id:"; choice users add "$reply" ;;
		4) ask "User id:"; choice users remove "$reply" ;;
		5) ask "sandbox, docker, ssh or all:"; choice features enable "$reply" ;;
		6) ask "sandbox, docker, ssh or all:"; choice features disable "$reply" ;;
		7) choice admin key show ;;
		8) choice admin key rotate ;;
		9) choice secrets rotate control ;;
		10) ask "Origin (http://host:port):"; choice admin browser "$reply" ;;
		11) ask "Name:"; word=$reply; choice ssh profile add "$word" ;;
		12) choice doctor ;;
		q | Q | '') return 0 ;;
		*) say "1 to 12, or q" ;;
		esac
	done
}

main "$@"
exit
}
