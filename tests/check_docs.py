#!/usr/bin/env python3
"""check_docs.py [BUILD]: the documents against what they describe.

Every source file is listed (docs/ARCHITECTURE.md, below tests/ docs/TESTING.md) and every listed one exists; the tables
of processes, of callers and of includes are those of the code; hermes.conf(5) and bounds.conf(5) have exactly the keys,
defaults and limits of the tables that read them; hermesctl(1) has exactly its commands, and with a BUILD their options;
commands, links and paths in any document exist; every page is installed."""
import importlib.util
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CODE = ("common", "policy", "onboarding", "broker", "fetcher", "approver", "admin", "launcher", "tests")
SUFFIXES = (".c", ".h", ".py", ".js", ".css", ".html")
FOREIGN = ("tests/unit/golden/", "tests/fuzz/corpus/")
MARKDOWN = ("README.md", "SECURITY.md", "CONTRIBUTING.md", "CHANGELOG.md")

# Keys that are accepted and that nothing acts on yet, with the files that only show them; their pages say so.
IDLE_KEYS = {"runtime.platform": ()}
IDLE = "Not acted on by this release."

problems = []


def wrong(where, what):
    problems.append(f"{where}: {what}")


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as f:
        return f.read()


def pages():
    directory = os.path.join(ROOT, "docs/man")
    return sorted(n for n in os.listdir(directory) if re.search(r"\.[1-8]$", n))


def documents():
    """name -> text of every document, pages without their macros."""
    texts = {name: read(name) for name in MARKDOWN}
    for name in sorted(os.listdir(os.path.join(ROOT, "docs"))):
        if name.endswith(".md"):
            texts["docs/" + name] = read("docs/" + name)
    return texts


# --- source files ---

def sources():
    found = set()
    for top in CODE:
        for directory, inner, files in os.walk(os.path.join(ROOT, top)):
            inner[:] = [d for d in inner if d != "__pycache__"]
            for name in files:
                path = os.path.relpath(os.path.join(directory, name), ROOT)
                if name.endswith(SUFFIXES) and not path.startswith(FOREIGN):
                    found.add(path)
    return found


def listed(document):
    """Paths in the first cells of the tables below headings that name a directory (### common/)."""
    paths, home = [], None
    for line in read(document).splitlines():
        heading = re.match(r"#+ `?([a-z0-9_/]+)/`?$", line)
        if line.startswith("#"):
            home = heading.group(1) if heading else None
        elif home and line.startswith("|"):
            paths += [f"{home}/{name}" for name in re.findall(r"`([^`]+)`", line.split("|")[1])]
    return paths


def check_sources():
    real = sources()
    for document, inside in (("docs/ARCHITECTURE.md", False), ("docs/TESTING.md", True)):
        names = listed(document)
        want = {p for p in real if p.startswith("tests/") == inside}
        for path in sorted(want - set(names)):
            wrong(document, f"{path} is not listed")
        for path in sorted(set(names)):
            if not os.path.exists(os.path.join(ROOT, path)):
                wrong(document, f"{path} is listed and does not exist")
            if names.count(path) > 1:
                wrong(document, f"{path} is listed twice")


# --- tables of docs/ARCHITECTURE.md ---

def table_after(document, heading):
    """Rows (lists of cells) of the first table below a heading."""
    rows = []
    part = re.split(r"^#+ " + re.escape(heading) + r"$", read(document), maxsplit=1, flags=re.M)
    if len(part) != 2:
        wrong(document, f'no heading "{heading}"')
        return rows
    for line in part[1].splitlines():
        if line.startswith("|"):
            rows.append([c.strip().strip("`") for c in line.strip("|").split("|")])
        elif rows or line.startswith("#"):
            break
    return rows[2:]


def check_processes():
    document = "docs/ARCHITECTURE.md"
    text = read("common/peers.c")
    base = int(re.search(r"uid_t base = (\d+)", text).group(1))
    real = {name: base + int(offset) for name, offset in
            re.findall(r'= \{"(hermes-\w+)", "\w+", (?:NULL|"[^"]*"), (\d+)\}', text)}
    shown = {}
    for row in table_after(document, "What each process may hold"):
        found = re.match(r"(hermes-\w+) \((\d+)\)", row[1].replace("`", ""))
        if found:
            shown[found.group(1)] = int(found.group(2))
    for name, uid in real.items():
        if shown.get(name) != uid:
            wrong(document, f"the table of processes has {name} as {shown.get(name)}, common/peers.c as {uid}")


def check_edges():
    document = "docs/ARCHITECTURE.md"
    real = {(a.lower(), b.lower()) for a, b in
            re.findall(r"\{HB_PEER_(\w+), HB_PEER_(\w+), \"", read("common/peers.c"))}
    shown = set()
    for row in table_after(document, "Who may talk to whom"):
        for to in row[1].split(","):
            shown.add((row[0], to.strip()))
    for a, b in sorted(real - shown):
        wrong(document, f"{a} may call {b} (common/peers.c) and the table does not say so")
    for a, b in sorted(shown - real):
        wrong(document, f"the table lets {a} call {b}, common/peers.c does not")


def check_includes():
    document = "docs/ARCHITECTURE.md"
    spec = importlib.util.spec_from_file_location("check_includes", os.path.join(ROOT, "tests/check_includes.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    shown = {row[0].rstrip("/"): {w.strip().strip("`").rstrip("/") for w in row[1].split(",")} | {row[0].rstrip("/")}
             for row in table_after(document, "Who may include whom")}
    if shown != module.ALLOWED:
        different = [k for k in set(shown) | set(module.ALLOWED) if shown.get(k) != module.ALLOWED.get(k)]
        wrong(document, f"the table of includes and tests/check_includes.py differ: {', '.join(sorted(different))}")


# --- configuration ---

def c_strings(text):
    """Adjacent C string literals as one string."""
    out = "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', text))
    return out.replace('\\"', '"').replace("\\\\", "\\")


def c_arguments(text):
    parts, depth, quoted, at, start = [], 0, False, 0, 0
    while at < len(text):
        c = text[at]
        if quoted:
            if c == "\\":
                at += 1
            elif c == '"':
                quoted = False
        elif c == '"':
            quoted = True
        elif c in "({":
            depth += 1
        elif c in ")}":
            depth -= 1
        elif c == "," and depth == 0:
            parts.append(text[start:at].strip())
            start = at + 1
        at += 1
    return parts + [text[start:].strip()]


def config_keys():
    """name -> (default, least, most, words) from common/config_keys.c."""
    text = read("common/config_keys.c")
    text = text[text.index("hb_config_keys[] = {"):]
    keys = {}
    for kind, inside in re.findall(r"^\t(TEXT|INT|BOOL|WORD|LIST|SIZE)\((.*?)\),\n(?=\t|\n|\})", text, re.M | re.S):
        a = c_arguments(inside)
        keys[c_strings(a[0])] = (c_strings(a[1]), a[2] if kind == "INT" else "", a[3] if kind == "INT" else "",
                                 c_strings(a[2]) if kind == "WORD" else "")
    return keys


def plain(mdoc):
    """One macro line as the text it prints, near enough for comparison."""
    text = re.sub(r"\\&|\\\||^\.\S+ ?", "", mdoc)
    text = re.sub(r"\b(Ns|No|Ar|Cm|Ql|Li|Pa|Sy|Em|Va|Dv|Ic|Fl|Ad) ", "", text)
    return text.replace("\\-", "-").replace("\\(dq", '"').replace("\\e", "\\").replace(" ,", ",").strip()


def page_keys(page):
    """section.key -> lines of its entry, from .Ss [section] and .It Cm key."""
    keys, section, key = {}, None, None
    for line in read("docs/man/" + page).splitlines():
        if line.startswith((".Sh", ".Ss")):
            found = re.match(r'\.Ss "?\[(\w+)\]', line)
            section, key = found.group(1) if found else None, None
        elif section and line.startswith(".It Cm "):
            key = f"{section}.{line.split()[2]}"
            if key in keys:
                wrong(page, f"{key} stands there twice")
            keys[key] = []
        elif key:
            keys[key].append(line)
    return keys


def check_config():
    page = "hermes.conf.5"
    real, shown = config_keys(), page_keys(page)
    if len(real) < 50:
        wrong("common/config_keys.c", "its table is not read any more by tests/check_docs.py")
    for name in sorted(set(real) - set(shown)):
        wrong(page, f"{name} is not described")
    for name in sorted(set(shown) - set(real)):
        wrong(page, f"{name} is described and common/config_keys.c does not have it")
    for name in sorted(set(real) & set(shown)):
        default, least, most, words = real[name]
        text = " ".join(plain(line) for line in shown[name])
        if default and f"Default: {default}" not in text:
            wrong(page, f'{name}: no "Default: {default}"')
        if not default and "Default: empty" not in text:
            wrong(page, f'{name}: no "Default: empty"')
        if least and f"{least} to {most.rstrip('L')}" not in text:
            wrong(page, f'{name}: no "{least} to {most.rstrip("L")}"')
        for word in words.split():
            if not re.search(r"\b" + word + r"\b", text):
                wrong(page, f'{name}: the word "{word}" is not there')


def check_read():
    """Every key of the table is read by some program, or its page says that it isn't."""
    text = {p: read(p) for p in sources() if p.endswith(".c") and not p.startswith("tests/")
            and p != "common/config_keys.c"}
    entries = page_keys("hermes.conf.5")
    for name in config_keys():
        quoted = '"' + name.replace("env.*", "env.") + ("" if "*" in name else '"')
        readers = {p for p, t in text.items() if quoted in t} - set(IDLE_KEYS.get(name, ()))
        said = IDLE in "\n".join(entries.get(name, []))
        if name in IDLE_KEYS and readers:
            wrong("tests/check_docs.py", f"{name} is read by {', '.join(sorted(readers))}: take it out of IDLE_KEYS")
        elif not readers and not said:
            wrong("hermes.conf.5", f'{name} is read by no program and the page does not say "{IDLE}"')
        elif readers and said:
            wrong("hermes.conf.5", f'{name} is read by {sorted(readers)[0]}, and the page says "{IDLE}"')


def check_bounds():
    page = "bounds.conf.5"
    text = read("policy/bounds.c")
    real = {f"{s}.{k}" for s, k in re.findall(r'\{"(\w+)", "(\w+)", [A-Z_]+, good_', text)}
    fields = re.search(r"docker_fields\[\] = \{(.*?)\}", text, re.S).group(1)
    real |= {"docker." + name for name in re.findall(r'"(\w+)"', fields)}
    features = re.search(r"features\[\] = \{(.*?)\}", text, re.S).group(1)
    real |= {"quorum." + name for name in re.findall(r'"(\w+)"', features)}
    shown = set(page_keys(page))
    for name in sorted(real - shown):
        wrong(page, f"{name} is not described")
    for name in sorted(shown - real):
        wrong(page, f"{name} is described and policy/bounds.c does not know it")


# --- hermesctl ---

def commands():
    text = read("admin/ctl/main.c")
    text = text[text.index("ctl_commands[] = {"):]
    text = text[:text.index("\n};")]
    return re.findall(r'\{\s*"([a-z -]+)",', text)


def page_commands():
    """command -> text of its entry in hermesctl(1)."""
    found, name = {}, None
    for line in read("docs/man/hermesctl.1").splitlines():
        item = re.match(r"\.It (?:Xo )?Ic ([a-z -]+?)(?: (?:Op|Ar|Xo|Fl|Cm|Oo|No)\b.*)?$", line)
        if item:
            name = item.group(1)
            if name in found:
                wrong("hermesctl.1", f'"{name}" stands there twice')
            found[name] = line
        elif line.startswith(".Sh"):
            name = None
        elif name:
            found[name] += "\n" + line
    return found


def help_options(program, command):
    out = subprocess.run([program, *command.split(), "--help"], capture_output=True, text=True, timeout=20,
                         stdin=subprocess.DEVNULL).stdout
    return set(re.findall(r"^  --([a-z0-9-]+)", out, re.M))


def check_hermesctl(build):
    page, real, shown = "hermesctl.1", commands(), page_commands()
    for name in real:
        if name not in shown:
            wrong(page, f'"{name}" is not described')
    for name in shown:
        if name not in real:
            wrong(page, f'"{name}" is described and hermesctl does not have it')
    program = os.path.join(build, "admin/hermesctl") if build else ""
    if not os.access(program, os.X_OK):
        return
    for name in real:
        options = help_options(program, name)
        described = set(re.findall(r"Fl -([a-z0-9-]+)", shown.get(name, "")))
        for option in sorted(options - described):
            wrong(page, f'"{name}": --{option} is not described')
        for option in sorted(described - options - {"json", "no-input", "state", "socket"}):
            wrong(page, f'"{name}": --{option} is described and not taken')


# --- what documents mention ---

def verbs():
    text = read("manage.sh")
    text = text[text.index("\nrun() {"):]
    names = set()
    for line in re.findall(r"^\t([a-z0-9 |*-]+)\)", text[:text.index("\tesac")], re.M):
        names |= {w.strip() for w in line.split("|")}
    return names


def check_mentions():
    real, known = commands(), verbs()
    targets = set(re.findall(r"^([a-z-]+):", read("Makefile"), re.M))
    for name, text in documents().items():
        base = os.path.dirname(name)
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
            if not os.path.exists(os.path.join(ROOT, base, target)):
                wrong(name, f"the link to {target} leads nowhere")
        code = code_of(text)
        for path in re.findall(r"(?<![\w/.-])((?:common|policy|onboarding|broker|fetcher|approver|admin|launcher|tests|docs|deploy)/"
                               r"[A-Za-z0-9_./-]+\.(?:c|h|py|md|sh|js|conf|[1-8]))\b", code):
            if not os.path.exists(os.path.join(ROOT, path)) and not re.search(r"[A-Z]{3}", path.replace(".md", "")):
                wrong(name, f"{path} does not exist")
        for verb in re.findall(r"\./manage\.sh ([a-z-]+)", code):
            if verb not in known:
                wrong(name, f"manage.sh has no verb {verb}")
        for target in re.findall(r"^ *make ([a-z-]+)", code, re.M):
            if target not in targets:
                wrong(name, f"the Makefile has no target {target}")
        for words in re.findall(r"hermesctl(?: --\w+(?: [A-Z]+)?)* ([a-z]+(?: [a-z-]+)*)", code):
            if not any(words == c or words.startswith(c + " ") or c.startswith(words + " ") for c in real):
                wrong(name, f"hermesctl has no command {words}")


def code_of(text):
    """The parts of a document that are commands and names: code spans and indented or fenced lines."""
    parts, fenced = [], False
    for line in text.splitlines():
        if line.startswith("```"):
            fenced = not fenced
        elif fenced or line.startswith("    "):
            parts.append(line.split(" # ")[0])
        else:
            parts += line.split("`")[1::2]
    return "\n".join(parts)


def check_pages():
    build = read("docs/meson.build")
    programs = [m for m in re.findall(r"hermes-\w+", " ".join(re.findall(r"executable\('(hermes[-\w]*)'", "".join(
        read(os.path.join(d, "meson.build")) for d in
        ("broker", "broker/installer", "broker/docker", "broker/ssh", "fetcher", "approver", "admin", "launcher")))))]
    names = pages()
    for program in programs:
        if program + ".8" not in names and program != "hermes-askpass":
            wrong("docs/man", f"there is no page {program}.8")
    for name in names:
        if f"'man/{name}'" not in build:
            wrong("docs/meson.build", f"{name} is not installed")
        for other, section in re.findall(r"^\.Xr (\S+) (\d)", read("docs/man/" + name), re.M):
            if re.match(r"hermes|bounds", other) and f"{other}.{section}" not in names:
                wrong(name, f"refers to {other}({section}), which does not exist")


def main():
    check_sources()
    check_processes()
    check_edges()
    check_includes()
    check_config()
    check_read()
    check_bounds()
    check_hermesctl(sys.argv[1] if len(sys.argv) > 1 else None)
    check_mentions()
    check_pages()
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
