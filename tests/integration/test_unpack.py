"""The unpack worker against hostile and odd layers: links, whiteouts, opaque directories, replacement, names.

Everything runs in a private mount namespace with the host read-only (tests/fixtures/confine.py). "Outside" is a directory
of the scratch space that anybody may write: an escape would succeed there and be seen.
"""
import itertools
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "fixtures"))
import confine  # noqa: E402
from layers import (BLOCK, CHAR, FIFO, LINK, MTIME, Box, Layer, directory, entry, hardlink, header,  # noqa: E402
                    names, padded, symlink)


class Case(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp(dir=confine.SCRATCH)
        os.chmod(self.dir, 0o755)
        self.addCleanup(shutil.rmtree, self.dir)
        self.count = 0
        self.probe = os.path.join(self.dir, "probe")
        os.mkdir(self.probe)
        os.chmod(self.probe, 0o777)
        self.victim = os.path.join(self.probe, "victim")
        with open(self.victim, "w", encoding="ascii") as out:
            out.write("secret")
        os.chmod(self.victim, 0o666)
        self.before = self.outside()

    def outside(self):
        st = os.stat(self.victim)
        return (sorted(os.listdir(self.probe)), st.st_mode, st.st_nlink, st.st_mtime_ns, st.st_ctime_ns)

    def box(self, **how):
        self.count += 1
        return Box(os.path.join(self.dir, f"box{self.count}"), **how)

    def unpack(self, *layers, **how):
        """The tree, after everything that must always hold was checked."""
        box = self.box(**how)
        answer = box.unpack(*layers)
        self.assertEqual(self.outside(), self.before, "something outside the image was touched")
        self.assertTrue(answer["ok"], answer)
        self.assertTrue(box.verify(answer["tree_digest"])["same"])
        self.answer, self.root = answer, box.root
        return box.tree()

    def refuse(self, code, *layers, **how):
        answer = self.box(**how).unpack(*layers)
        self.assertEqual(self.outside(), self.before, "something outside the image was touched")
        self.assertFalse(answer["ok"], "was unpacked")
        self.assertEqual(answer["code"], code, answer["message"])
        return answer["message"]


class Links(Case):
    def planted(self):
        """Ways to lead d out of the image."""
        up = "../" * 20 + self.probe.lstrip("/")
        yield "absolute", [symlink("d", self.probe)]
        yield "climbing", [symlink("d", up)]
        yield "chain", [symlink("d", "b"), symlink("b", self.probe)]
        yield "proc", [symlink("d", "/proc/self/root" + self.probe)]

    def test_h09_write_through_planted_link(self):
        for name, plant in self.planted():
            for split in (False, True):
                with self.subTest(name, split=split):
                    attack = [entry("d/x", data="owned"), entry("d/victim", data="owned"), directory("d/new")]
                    layers = [Layer(*plant), Layer(*attack)] if split else [Layer(*plant, *attack)]
                    self.refuse("unsafe_path", *layers)

    def test_h09_links_resolve_inside_the_image(self):
        # The same path exists in the image: that is where the entry goes, as for a process inside it.
        tree = self.unpack(Layer(directory(self.probe.lstrip("/")), symlink("d", self.probe)),
                           Layer(entry("d/x", data="in")))
        self.assertEqual(tree[self.probe.lstrip("/") + "/x"][2], b"in")
        tree = self.unpack(Layer(directory("usr/lib"), symlink("lib", "usr/lib"), symlink("lib64", "../../usr/lib")),
                           Layer(entry("lib/a", data="a"), entry("lib64/b", data="b")))
        self.assertEqual((tree["usr/lib/a"][2], tree["usr/lib/b"][2]), (b"a", b"b"))
        self.assertEqual(tree["lib"][0], "link")

    def test_h09_root_must_be_a_directory(self):
        for name in (".", "./", "././"):
            with self.subTest(name):
                self.refuse("unsafe_path", Layer(symlink(name, self.probe), entry("x")))
                self.refuse("unsafe_path", Layer(entry("f"), hardlink(name, "f")))
        tree = self.unpack(Layer(directory("./", mode=0o750, mtime=7), entry("./x")))
        self.assertEqual(names(tree), ["x"])
        st = os.stat(self.root)
        self.assertEqual((st.st_mode & 0o7777, st.st_mtime), (0o750, 7))

    def test_h09_names_that_climb_or_are_absolute(self):
        for name in ("../x", "a/../../x", "a/..", "..", "/etc/x", "//x", self.victim, "a/../b"):
            with self.subTest(name):
                self.refuse("unsafe_path", Layer(entry(name, data="owned")))
                self.refuse("unsafe_path", Layer(directory(name)))

    def test_h09_cached_parent_is_not_used_after_replacement(self):
        for plant in (symlink("d", self.probe), symlink("d", "e")):
            layer = Layer(directory("e"), directory("d"), entry("d/a"), plant, entry("d/b", data="owned"))
            if plant == symlink("d", "e"):
                self.assertEqual(names(self.unpack(layer)), ["d", "e", "e/b"])
            else:
                self.refuse("unsafe_path", layer)
        # A link that is replaced by another link.
        tree = self.unpack(Layer(directory("e"), directory("f"), symlink("d", "e"), entry("d/a"), symlink("d", "f"),
                                 entry("d/b")))
        self.assertEqual(names(tree), ["d", "e", "e/a", "f", "f/b"])

    def test_h09_landlock_alone_keeps_the_worker_inside(self):
        # A worker built without a single check of paths: now only the kernel's sandbox is in the way.
        unchecked = {"program": "unpack_driver_unchecked"}
        up = "../" * 40 + self.probe.lstrip("/")
        for plant in (symlink("d", self.probe), symlink("d", up)):
            for attack in (entry("d/x", data="owned"), entry("d/victim", data="owned"), directory("d/new"),
                           hardlink("copy", "d/victim"), entry("d/.wh.victim"), entry("d/.wh..wh..opq")):
                with self.subTest(plant=plant[157:200], attack=attack[:20]):
                    self.denied(self.refuse("io_failed", Layer(plant, attack), **unchecked))
        self.denied(self.refuse("io_failed", Layer(entry(up + "/x", data="owned")), **unchecked))

    def denied(self, message):
        """Landlock says EACCES, and EXDEV for a hard link that would leave its domain."""
        self.assertRegex(message.lower(), "permission denied|invalid cross-device link")

    def test_h10_whiteout_through_link(self):
        for name, plant in self.planted():
            with self.subTest(name):
                self.unpack(Layer(*plant), Layer(entry("d/.wh.victim")))
                self.unpack(Layer(*plant), Layer(entry("d/.wh..wh..opq")))
                self.unpack(Layer(*plant), Layer(entry("d/.wh..wh..opq"), entry(".wh.d")))

    def test_h10_whiteout_resolves_inside_the_image(self):
        inside = self.probe.lstrip("/")
        base = Layer(directory(inside), entry(inside + "/victim"), symlink("d", self.probe))
        self.assertNotIn(inside + "/victim", self.unpack(base, Layer(entry("d/.wh.victim"))))

    def test_h11_hard_link_out_of_the_image(self):
        up = "../" * 20 + self.victim.lstrip("/")
        for target, plant in ((self.victim, ()), (up, ()), ("d/victim", (symlink("d", self.probe),)),
                              ("/d/victim", (symlink("d", self.probe),)), ("./x/../" + up, ())):
            for mode in (0o644, 0o777, 0o4777):
                with self.subTest(target=target, mode=oct(mode)):
                    code = "unsafe_path" if ".." in target else "bad_archive"
                    self.refuse(code, Layer(*plant, hardlink("copy", target, mode=mode)))

    def test_h11_hard_link_to_link_links_the_link(self):
        tree = self.unpack(Layer(symlink("l", self.victim), hardlink("copy", "l", mode=0o777)))
        self.assertEqual(tree["copy"], ("link", None, self.victim))
        self.assertEqual(os.lstat(self.root + "/copy").st_ino, os.lstat(self.root + "/l").st_ino)

    def test_h11_hard_link_inside(self):
        # Absolute targets start at the image's root; the header's mode and time do not reach the inode.
        tree = self.unpack(Layer(entry("a/f", data="x", mode=0o640)),
                           Layer(hardlink("b/g", "/a/f", mode=0o777, mtime=1), hardlink("h", "./a//f")))
        self.assertEqual(tree["b/g"], ("file", 0o640, b"x"))
        self.assertEqual(len({os.stat(self.root + p).st_ino for p in ("/a/f", "/b/g", "/h")}), 1)
        self.assertEqual(os.stat(self.root + "/h").st_mtime, MTIME)

    def test_h11_hard_link_with_content(self):
        for how in ({}, {"pax": {"comment": "x"}}):
            self.refuse("bad_archive", Layer(entry("f", data="old"), hardlink("g", "f", data=b"new" * 400, **how),
                                             entry("z")))

    def test_h11_hard_link_to_nothing_or_directory(self):
        self.refuse("bad_archive", Layer(hardlink("g", "f"), entry("f")))
        self.refuse("bad_archive", Layer(directory("d"), hardlink("g", "d")))
        self.refuse("unsafe_path", Layer(hardlink("g", ".")))

    def test_h20_links_are_created_whatever_they_say(self):
        links = {"libx.so.1": "libx.so.1.2", "bin/sh": "/bin/busybox", "dangling": "nowhere/at/all", "loop": "loop",
                 "out": "../../../../etc/passwd", "proc": "/proc/self/fd/3", "t": "a" * 1000, "nl": "a\nb"}
        tree = self.unpack(Layer(*(symlink(k, v, mtime=5) for k, v in links.items())))
        self.assertEqual({k: tree[k][2] for k in links}, links)
        self.assertEqual(os.lstat(self.root + "/loop").st_mtime, 5)

    def test_h20_parent_that_is_a_loop_or_dangling(self):
        self.refuse("unsafe_path", Layer(symlink("loop", "loop"), entry("loop/x")))
        self.refuse("unsafe_path", Layer(symlink("gone", "nowhere"), entry("gone/x")))
        self.refuse("unsafe_path", Layer(entry("f"), entry("f/x")))


class Whiteouts(Case):
    BASE = (directory("etc"), entry("etc/a", data="a"), directory("etc/sub"), entry("etc/sub/b", data="b"), entry("top"))

    def test_h12_bare_and_dot_whiteouts(self):
        for name in (".wh.", "etc/.wh.", "etc/.wh..", "etc/.wh...", ".wh..", ".wh...", "etc/.wh./"):
            with self.subTest(name):
                self.refuse("unsafe_path", Layer(*self.BASE), Layer(entry(name)))

    def test_h12_aufs_names_never_appear_and_never_delete(self):
        before = self.unpack(Layer(*self.BASE))
        for extra in ([directory(".wh..wh.plnk"), entry(".wh..wh.plnk/1.2", data="x")], [entry(".wh..wh.aufs")],
                      [hardlink(".wh..wh.orph", "nothing")], [entry("etc/.wh..wh.a", data="xx")],
                      [directory("etc/.wh..wh.plnk"), directory("etc/.wh..wh.plnk/d")]):
            self.assertEqual(self.unpack(Layer(*self.BASE), Layer(*extra)), before)

    def test_h12_root_opaque_empties_the_image(self):
        tree = self.unpack(Layer(*self.BASE), Layer(entry("new"), entry(".wh..wh..opq"), entry("new2")))
        self.assertEqual(names(tree), ["new", "new2"])

    def test_h12_missing_target_is_nothing(self):
        before = self.unpack(Layer(*self.BASE))
        for name in (".wh.nothing", "etc/.wh.nothing", "no/such/.wh.dir", "top/.wh.x", "no/.wh..wh..opq"):
            self.assertEqual(self.unpack(Layer(*self.BASE), Layer(entry(name))), before)

    def test_h12_whiteout_of_other_types(self):
        for odd in (directory("etc/.wh.a"), symlink("etc/.wh.a", "x"), entry("etc/.wh.a", CHAR),
                    directory("etc/.wh..wh..opq")):
            self.refuse("bad_archive", Layer(*self.BASE), Layer(odd))
        self.refuse("unsafe_path", Layer(*self.BASE), Layer(entry("etc/.wh.a/x")))
        # With content, or a hard link as AUFS wrote them: the name counts, the content does not.
        for fine in (entry("etc/.wh.a", data="content"), hardlink("etc/.wh.a", ".wh..wh.aufs")):
            tree = self.unpack(Layer(*self.BASE), Layer(fine, entry("last")))
            self.assertEqual(names(tree), ["etc", "etc/sub", "etc/sub/b", "last", "top"])

    def test_whiteout_hides_lower_layers_only(self):
        for order in itertools.permutations([entry(".wh.etc"), directory("etc", mode=0o700), entry("etc/new")]):
            tree = self.unpack(Layer(*self.BASE), Layer(*order))
            self.assertEqual(names(tree), ["etc", "etc/new", "top"])
            self.assertEqual(tree["etc"][1], 0o700)
        self.assertEqual(names(self.unpack(Layer(entry("f", data="1"), entry(".wh.f")))), ["f"])
        tree = self.unpack(Layer(*self.BASE), Layer(entry(".wh.top")), Layer(entry("top", data="again")))
        self.assertEqual(tree["top"][2], b"again")

    def test_h13_opaque_keeps_what_its_layer_adds(self):
        kinds = {
            "file": ([entry("d/new", data="n")], ["d", "d/new", "k"]),
            "link": ([symlink("d/new", "old1")], ["d", "d/new", "k"]),
            "link over old": ([symlink("d/old1", "elsewhere")], ["d", "d/old1", "k"]),
            "directory": ([directory("d/new"), entry("d/new/x")], ["d", "d/new", "d/new/x", "k"]),
            "hard link": ([hardlink("d/new", "k")], ["d", "d/new", "k"]),
            "merged directory": ([directory("d/sub"), entry("d/sub/new")], ["d", "d/sub", "d/sub/new", "k"]),
            "unlisted directory": ([entry("d/sub/new")], ["d", "d/sub", "d/sub/new", "k"]),
            "same name": ([entry("d/old1", data="n")], ["d", "d/old1", "k"]),
            "nothing": ([], ["d", "k"]),
        }
        base = Layer(directory("d"), entry("d/old1", data="o"), entry("d/old2"), directory("d/sub", mode=0o711),
                     entry("d/sub/old"), entry("k", data="k"))
        marker = entry("d/.wh..wh..opq")
        for kind, (added, want) in kinds.items():
            results = []
            for at in range(len(added) + 1):
                for listed in (True, False):
                    with self.subTest(kind, at=at, listed=listed):
                        layer = added[:at] + [marker] + added[at:]
                        if listed:
                            layer.insert(0, directory("d"))
                        tree = self.unpack(base, Layer(*layer))
                        self.assertEqual(names(tree), want)
                        results.append(tree)
            self.assertTrue(all(t == results[0] for t in results), kind)

    def test_h13_hard_link_to_hidden_file_survives_only_before_the_marker(self):
        base = Layer(entry("d/old", data="o"))
        tree = self.unpack(base, Layer(hardlink("d/new", "d/old"), entry("d/.wh..wh..opq")))
        self.assertEqual(tree["d/new"][2], b"o")
        self.assertEqual(names(tree), ["d", "d/new"])
        self.refuse("bad_archive", base, Layer(entry("d/.wh..wh..opq"), hardlink("d/new", "d/old")))

    def test_h16_whiteout_of_a_link(self):
        base = Layer(entry("usr/share/zoneinfo/Etc/UTC", data="tz"),
                     symlink("etc/localtime", "/usr/share/zoneinfo/Etc/UTC"), symlink("etc/dangling", "nowhere"),
                     symlink("etc/dir", "/usr/share"))
        tree = self.unpack(base, Layer(entry("etc/.wh.localtime"), entry("etc/.wh.dangling"), entry("etc/.wh.dir")))
        self.assertEqual([n for n in names(tree) if n.startswith("etc")], ["etc"])
        self.assertEqual(tree["usr/share/zoneinfo/Etc/UTC"][2], b"tz")


class Replacement(Case):
    """H14: every type over every type, in one layer and across two."""

    OTHER = (directory("other"), entry("other/x", data="x"), entry("other/f", data="f"))
    MAKE = {
        "file": lambda tag: [entry("p", data=tag)],
        "directory": lambda tag: [directory("p", mode=0o751), entry("p/" + tag, data=tag)],
        "link to directory": lambda tag: [symlink("p", "other")],
        "dangling link": lambda tag: [symlink("p", "nowhere")],
        "hard link": lambda tag: [hardlink("p", "other/f")],
        "fifo": lambda tag: [entry("p", FIFO)],
        "device": lambda tag: [entry("p", CHAR)],
    }
    SHOW = {
        "file": lambda tag: {"p": ("file", 0o644, tag.encode())},
        "directory": lambda tag: {"p": ("dir", 0o751, None), "p/" + tag: ("file", 0o644, tag.encode())},
        "link to directory": lambda tag: {"p": ("link", None, "other")},
        "dangling link": lambda tag: {"p": ("link", None, "nowhere")},
        "hard link": lambda tag: {"p": ("file", 0o644, b"f")},
        "fifo": lambda tag: {},
        "device": lambda tag: {},
    }

    def test_h14_matrix(self):
        for old, new, split in itertools.product(self.MAKE, self.MAKE, (False, True)):
            with self.subTest(old=old, new=new, split=split):
                first, second = self.MAKE[old]("old"), self.MAKE[new]("new")
                layers = [Layer(*self.OTHER, *first), Layer(*second)] if split else \
                    [Layer(*self.OTHER, *first, *second)]
                tree = self.unpack(*layers)
                want = self.SHOW[new]("new")
                if old == new == "directory":
                    want = {**self.SHOW[old]("old"), **want}
                self.assertEqual({k: v for k, v in tree.items() if not k.startswith("other")}, want)
                self.assertEqual(tree["other/x"][2], b"x")
                self.assertEqual(tree["other/f"][2], b"f")

    def test_h14_hard_link_over_itself_and_over_its_own_directory(self):
        tree = self.unpack(Layer(entry("p/x", data="kept")), Layer(hardlink("p", "p/x")))
        self.assertEqual(tree, {"p": ("file", 0o644, b"kept")})
        self.assertEqual(self.unpack(Layer(entry("p", data="1"), hardlink("p", "p"))), {"p": ("file", 0o644, b"1")})

    def test_h14_replacing_one_name_leaves_the_other(self):
        tree = self.unpack(Layer(entry("a", data="1"), hardlink("b", "a")), Layer(entry("a", data="22")))
        self.assertEqual((tree["a"][2], tree["b"][2]), (b"22", b"1"))

    def test_h14_directory_over_directory_updates_metadata(self):
        tree = self.unpack(Layer(directory("d", mode=0o700), entry("d/x")), Layer(directory("d", mode=0o555, mtime=9)))
        self.assertEqual(tree["d"][1], 0o555)
        self.assertEqual(os.stat(self.root + "/d").st_mtime, 9)
        self.assertIn("d/x", tree)

    def test_deep_tree_is_replaced(self):
        deep = "/".join(["d"] * 1500)
        tree = self.unpack(Layer(entry(deep, data="x")), Layer(entry("d", data="flat")))
        self.assertEqual(tree, {"d": ("file", 0o644, b"flat")})


class Metadata(Case):
    def test_h17_setuid_is_stripped_from_every_entry_and_counted(self):
        modes = {"u": 0o4755, "g": 0o2755, "ug": 0o6755, "t": 0o1777}
        for who in ((0, 0), (1234, 99)):
            tree = self.unpack(Layer(*(entry(n, mode=m, uid=who[0], gid=who[1]) for n, m in modes.items()),
                                     *(directory("d" + n, mode=m, uid=who[0]) for n, m in modes.items())))
            self.assertEqual([tree[n][1] for n in modes], [0o755, 0o755, 0o755, 0o1777])
            self.assertEqual([tree["d" + n][1] for n in modes], [0o755, 0o755, 0o755, 0o1777])
            self.assertEqual(self.answer["setuid_stripped"], 6)
            self.assertEqual({os.lstat(self.root + "/" + n).st_uid for n in modes}, {10112})

    def test_devices_are_left_out_and_counted(self):
        tree = self.unpack(Layer(directory("dev"), entry("dev/null", CHAR), entry("dev/sda", BLOCK),
                                 entry("dev/pipe", FIFO), entry("dev/x")))
        self.assertEqual(names(tree), ["dev", "dev/x"])
        self.assertEqual(self.answer["devices_skipped"], 3)

    def test_xattrs_are_dropped_and_counted(self):
        self.unpack(Layer(entry("ping", pax={"SCHILY.xattr.security.capability": b"\1\0\0\2" + bytes(16)}),
                          entry("x", pax={"SCHILY.xattr.user.a": "b", "SCHILY.xattr.user.c": "d"})))
        self.assertEqual(os.listxattr(self.root + "/ping"), [])
        self.assertEqual(self.answer["xattrs_dropped"], 2)

    def test_h18_parents_that_are_not_listed(self):
        for umask in (0o022, 0o077):
            old = os.umask(umask)
            try:
                tree = self.unpack(Layer(entry("a/b/c/file"), entry("f", data="x"), hardlink("h/i/link", "f")))
            finally:
                os.umask(old)
            self.assertEqual({tree[d][1] for d in ("a", "a/b", "a/b/c", "h", "h/i")}, {0o755})
        # No header, so no time: a fixed one, or the tree digest would differ from run to run.
        self.assertEqual(os.stat(self.root + "/a/b").st_mtime, 0)

    def test_h18_parent_listed_after_its_child(self):
        tree = self.unpack(Layer(entry("a/b/file"), directory("a/b", mode=0o700, mtime=3), directory("a", mode=0o500)))
        self.assertEqual((tree["a"][1], tree["a/b"][1]), (0o500, 0o700))
        self.assertEqual(os.stat(self.root + "/a/b").st_mtime, 3)

    def test_directories_nobody_may_write_are_filled(self):
        tree = self.unpack(Layer(directory("ro", mode=0o555), entry("ro/x"), directory("no", mode=0), entry("no/y"),
                                 entry("wo", data="w", mode=0o200), entry("none", data="n", mode=0)),
                           Layer(entry("ro/z"), entry("no/.wh.y")))
        self.assertEqual(names(tree), ["no", "none", "ro", "ro/x", "ro/z", "wo"])
        self.assertEqual((tree["ro"][1], tree["no"][1], tree["none"][1]), (0o555, 0, 0))

    def test_times(self):
        self.unpack(Layer(directory("d", mtime=11), entry("d/f", mtime=12), symlink("d/l", "f", mtime=13),
                          entry("p", pax={"mtime": "14.250000000"}), entry("old", pax={"mtime": "-5"})),
                    Layer(entry("d/later", mtime=99)))
        times = {n: os.lstat(self.root + "/" + n).st_mtime for n in ("d", "d/f", "d/l", "p", "old")}
        self.assertEqual(times, {"d": 11, "d/f": 12, "d/l": 13, "p": 14.25, "old": -5})

    def test_tree_digest_is_the_same_everywhere(self):
        layers = [Layer(directory("d"), entry("d/f", data="1"), hardlink("g", "d/f"), entry("implied/x")),
                  Layer(entry("d/z", data="2" * 5000), entry(".wh.implied"))]
        digests = set()
        for compression in ("gzip", "zstd", "none"):
            again = [Layer(layer.tar, end=b"", compression=compression) for layer in layers]
            self.unpack(*again)
            digests.add(self.answer["tree_digest"])
        self.assertEqual(len(digests), 1)


class Names(Case):
    def test_h19_bytes_survive_in_every_locale(self):
        odd = [b"\xff\xfe", b"new\nline", b'quo"te', b"back\\slash", b"-rf", b"n" * 255, "gr\u00fc\u00df".encode(),
               "e\u0301".encode(), "\u00e9".encode(), b"\xe9", b"sp ace ", b"*?[a]", b"tab\t", b"#x=y", b"\x01"]
        long_path = b"/".join([b"p" * 199] * 20)[:4000]
        entries = [entry(n, data=b"c") for n in odd]                                  # ustar, raw
        entries += [entry(b"x", data=b"c", pax={"path": b"pax/" + n}) for n in odd]  # PAX, UTF-8 or not
        entries += [entry(b"x", pax={"path": b"bin/" + n, "hdrcharset": "BINARY"}) for n in odd]
        entries += [symlink(b"l%d" % i, n) for i, n in enumerate(odd)]
        entries += [entry(b"x", LINK, pax={"path": b"pl%d" % i, "linkpath": n}) for i, n in enumerate(odd)]
        entries += [entry(b"x", pax={"path": long_path}),
                    header("././@LongLink", b"L", 301, magic=b"ustar  \0") + padded(b"g" * 150 + b"/" + b"h" * 149 + b"\0")
                    + header("cut", magic=b"ustar  \0")]
        layer = Layer(*entries)
        digests = set()
        for locale in ("C", "C.UTF-8", "de_DE@euro", "POSIX"):
            tree = self.unpack(layer, env={"LC_ALL": locale, "LANG": locale})
            digests.add(self.answer["tree_digest"])
            found = {os.fsencode(n) for n in tree}
            want = set(odd) | {b"pax/" + n for n in odd} | {b"bin/" + n for n in odd} | {long_path,
                                                                                        b"g" * 150 + b"/" + b"h" * 149}
            self.assertEqual(want - found, set())
            for i, n in enumerate(odd):
                self.assertEqual(os.readlink(os.fsencode(self.root) + b"/l%d" % i), n)
                self.assertEqual(os.readlink(os.fsencode(self.root) + b"/pl%d" % i), n)
        self.assertEqual(len(digests), 1)

    def test_h19_messages_show_names_escaped(self):
        message = self.refuse("unsafe_path", Layer(entry(b"../\x1b[31m\n\xff", data="x")))
        self.assertTrue(message.isascii() and message.isprintable(), message)
        self.assertIn("../\\033\\13331m\\012\\377", message)

    def test_h19_names_that_no_file_can_have(self):
        self.refuse("limit_exceeded", Layer(entry(b"n" * 256)))
        self.refuse("limit_exceeded", Layer(entry("a/" * 2100 + "f")))
        self.refuse("unsafe_path", Layer(entry(b"", data="x")))
        # Links must not add up to a path that nobody can open.
        deep = "/".join(["d" * 200] * 15)
        self.refuse("limit_exceeded", Layer(directory(deep), symlink("s", deep), entry("s/" + deep + "/f")))

    def test_names_are_normalised(self):
        tree = self.unpack(Layer(directory("./a/"), entry("a//b"), entry("./a/./c"), entry("old/"), entry("pax/", pax={
            "path": "d\u00e9/"})))
        self.assertEqual(names(tree), ["a", "a/b", "a/c", "d\u00e9".encode(), "old"])
        self.assertEqual(tree["old"][0], "dir")
        self.assertEqual(tree["d\u00e9".encode()][0], "dir")


class Verification(Case):
    def test_every_change_is_found(self):
        base = Layer(directory("d"), entry("d/f", data="abc"), symlink("l", "d/f"), hardlink("g", "d/f"),
                     entry("zz", data="end"), directory("e"), entry("a b\n", data="odd"))

        def replace(root, name, data):
            st = os.stat(root + name)
            with open(root + name, "wb") as out:
                out.write(data)
            os.utime(root + name, ns=(st.st_mtime_ns, st.st_mtime_ns))

        def same_time(path, change):
            st = os.stat(path)
            change()
            os.utime(path, ns=(st.st_mtime_ns, st.st_mtime_ns))

        changes = {
            "content": lambda r: replace(r, "/zz", b"END"),
            "size": lambda r: replace(r, "/zz", b"longer"),
            "mode": lambda r: os.chmod(r + "/zz", 0o600),
            "owner": lambda r: os.chown(r + "/zz", 0, 0),
            "time": lambda r: os.utime(r + "/zz", (1, 1)),
            "missing": lambda r: same_time(r, lambda: os.unlink(r + "/zz")),
            "extra": lambda r: same_time(r, lambda: os.mkdir(r + "/new")),
            "type": lambda r: same_time(r, lambda: (os.unlink(r + "/zz"), os.mkdir(r + "/zz"))),
            "target": lambda r: same_time(r, lambda: (os.unlink(r + "/l"), os.symlink("d/g", r + "/l"))),
            "names": lambda r: same_time(r + "/d", lambda: os.link(r + "/zz", r + "/d/copy")),
        }
        for what, change in changes.items():
            with self.subTest(what):
                box = self.box()
                answer = box.unpack(base)
                self.assertTrue(box.verify(answer["tree_digest"])["same"])
                change(box.root)
                found = box.verify(answer["tree_digest"])
                self.assertFalse(found["same"])
                self.assertIn(what, {d["what"] for d in found["differences"]})

    def test_manifest_that_was_changed(self):
        box = self.box()
        answer = box.unpack(Layer(entry("f", data="x")))
        path = box.staging + "/manifest.mtree"
        with open(path, "a", encoding="ascii") as out:
            out.write("./g type=file mode=0644 size=0 time=0.000000000 sha256digest=" + "0" * 64 + "\n")
        found = box.verify(answer["tree_digest"])
        self.assertEqual({(d["what"], d["path"]) for d in found["differences"]},
                         {("digest", "manifest.mtree"), ("missing", "./g")})
        with open(path, "a", encoding="ascii") as out:
            out.write("nonsense\n")
        self.assertEqual(box.verify()["code"], "bad_manifest")

    def test_manifest_is_readable_by_others(self):
        box = self.box()
        box.unpack(Layer(directory("d"), entry(b"d/\xff a\\b", data="abc"), symlink("l", "d")))
        seen = subprocess.run(["bsdtar", "-tf", box.staging + "/manifest.mtree"], stdout=subprocess.PIPE, check=True,
                              env={"LC_ALL": "C", "PATH": os.environ["PATH"]}).stdout.splitlines()
        self.assertEqual(len(seen), 4)


if __name__ == "__main__":
    confine.main()
