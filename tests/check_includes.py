#!/usr/bin/env python3
"""Who may include whom: common nothing of ours but itself, policy only common, each process common, policy and
itself; no process includes another."""
import os
import re
import subprocess
import sys

ALLOWED = {
    "common": {"common"},
    "policy": {"common", "policy"},
    "onboarding": {"common", "policy", "onboarding"},
    "broker": {"common", "policy", "broker"},
    "broker/installer": {"common", "policy", "onboarding", "broker/installer"},
    "broker/docker": {"common", "policy", "broker/docker"},
    "broker/ssh": {"common", "policy", "broker/ssh"},
    "fetcher": {"common", "policy", "fetcher"},
    "approver": {"common", "policy", "onboarding", "approver"},
    "admin": {"common", "policy", "onboarding", "admin"},
    "admin/ctl": {"common", "policy", "onboarding", "admin/ctl"},
    "launcher": {"common", "policy", "launcher"},
}


def main():
    files = subprocess.run(["git", "ls-files", "*.c", "*.h"], capture_output=True, text=True, check=True).stdout.split()
    bad = 0
    for path in files:
        home = os.path.dirname(path)
        if home.split("/")[0] == "tests":
            continue
        if home not in ALLOWED:
            print(f"{path}: its directory is not in the table of {sys.argv[0]}")
            bad += 1
            continue
        with open(path, encoding="utf-8") as f:
            for number, line in enumerate(f, 1):
                m = re.match(r'\s*#\s*include\s+"([^"]+)"', line)
                if m and os.path.dirname(m.group(1)) not in ALLOWED[home]:
                    print(f"{path}:{number}: {home} may not include {m.group(1)}")
                    bad += 1
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
