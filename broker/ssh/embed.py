#!/usr/bin/env python3
"""embed.py OUTPUT NAME=FILE ...: files as byte arrays hb_embedded_NAME of a C source."""
import sys


def main():
    out, items = sys.argv[1], [arg.split("=", 1) for arg in sys.argv[2:]]
    with open(out, "w", encoding="ascii") as f:
        f.write("/* Made by embed.py. */\n#include \"broker/ssh/embedded.h\"\n")
        for name, path in items:
            with open(path, "rb") as source:
                data = source.read()
            f.write(f"\nconst unsigned char hb_embedded_{name}[] = {{\n")
            for at in range(0, len(data), 20):
                f.write("".join(f"{byte}," for byte in data[at:at + 20]) + "\n")
            f.write(f"}};\nconst size_t hb_embedded_{name}_len = {len(data)};\n")


main()
