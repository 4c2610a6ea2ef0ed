#!/usr/bin/env python3
"""embed.py OUTPUT FILE...: the shipped guardrails as C arrays (onboarding/guardrail.h)."""
import os
import sys


def main(output, files):
    lines = ["/* Made by policy/guardrails/embed.py. */", '#include "onboarding/guardrail.h"', ""]
    table = []
    for n, path in enumerate(sorted(files)):
        with open(path, "rb") as f:
            data = f.read()
        lines.append(f"static const unsigned char file_{n}[] = {{")
        lines += ["\t" + "".join(f"{b}," for b in data[i:i + 24]) for i in range(0, len(data), 24)]
        lines.append("};")
        table.append(f'\t{{"{os.path.basename(path).removesuffix(".ini")}", file_{n}, sizeof file_{n}}},')
    lines += ["const struct hb_shipped_file hb_shipped_guardrails[] = {", *table, "};",
              "const size_t hb_shipped_guardrail_count = sizeof hb_shipped_guardrails / sizeof hb_shipped_guardrails[0];"]
    with open(output, "w", encoding="ascii") as f:
        f.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
