#!/usr/bin/env python3
"""embed.py OUTPUT FILE...: the page's files as C arrays (admin/page_files.h)."""
import os
import sys

TYPES = {".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8",
         ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}


def main(output, files):
    lines = ['/* Made by admin/page/embed.py. */', '#include "admin/page_files.h"', ""]
    table = []
    for n, path in enumerate(files):
        with open(path, "rb") as f:
            data = f.read()
        name = os.path.basename(path)
        lines.append(f"static const unsigned char file_{n}[] = {{")
        lines += ["\t" + "".join(f"{b}," for b in data[i:i + 24]) for i in range(0, len(data), 24)]
        lines.append("};")
        table.append(f'\t{{"/{name}", "{TYPES[os.path.splitext(name)[1]]}", file_{n}, sizeof file_{n}}},')
    lines += ["const struct admin_page_file admin_page_files[] = {", *table, "};",
              "const size_t admin_page_file_count = sizeof admin_page_files / sizeof admin_page_files[0];"]
    with open(output, "w", encoding="ascii") as f:
        f.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
