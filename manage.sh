#!/usr/bin/env bash
# Hermes Broker's wrapper: the verbs people know, thin over hermesctl. Everything stands in main(), which is called on
# the last line: a half-read script does nothing.

main() {
	set -euo pipefail
	local root state build json=() verb
	root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
	state=$root/state
	build=${BUILD:-$root/build}
	verb=${1:-help}
	[ $# -eq 0 ] || shift

	# --state and --json may stand anywhere; the rest goes on as it is.
	local rest=()
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

	case $verb in
	quickstart) quickstart ;;
	build) install_packages build; compile ;;
	test-packages) install_packages build run test ;; # what make check calls
	up | down | status | doctor) ctl "$verb" "${rest[@]}" ;;
	health) ctl status "${rest[@]}" ;;
	help | --help | -h) usage ;;
	*) usage >&2; fail "no verb \"$verb\"" ;;
	esac
}

usage() {
	cat <<'TEXT'
usage: ./manage.sh VERB [OPTIONS]

  quickstart   install what is missing, build, set up, start, and install the service:
               --image REF  --registry-mirror URL  --insecure-registry HOST:PORT
               --approve  --set SECTION.KEY=VALUE  --no-input
  up           start everything
  down         stop the service and everything
  status       processes, policy and service at a glance
  health       the same, for scripts: exit 0 when all is well
  doctor       check what could be wrong and name the fix
  build        install build packages and compile

Every verb takes --state DIR (default: state/ beside this script) and --json.
For everything else there is build/admin/hermesctl --help.
TEXT
}

say() { printf '%s\n' "$*" >&2; }
fail() { say "manage.sh: $*"; exit 2; }

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
	[ -f "$build/build.ninja" ] || meson setup "$build" "$root" >&2
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

main "$@"
