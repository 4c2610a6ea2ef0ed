#!/usr/bin/env python3
"""Make policy/unicode_tables.h from this Python's unicodedata: python3 make_unicode_tables.py > ../unicode_tables.h

The escape rule needs to know which characters may be shown as they are, and the warnings about names need to know
which script a letter belongs to and which letters can be taken for ASCII ones. Python has no script property, so
the script is the first word of a letter's character name, after compatibility mappings (a mathematical bold A is a
Latin letter that imitates A).
"""
import sys
import unicodedata

# Letters and marks that show nothing (Default_Ignorable_Code_Point, or blank by design): never shown as they are.
INVISIBLE = {0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x180B, 0x180C, 0x180D, 0x180F, 0x3164, 0xFFA0, 0x16FE4}
INVISIBLE |= set(range(0xFE00, 0xFE10)) | set(range(0xE0100, 0xE01F0)) | {0x13441, 0x13442}

# Letters whose usual glyph is that of an ASCII letter, where no compatibility mapping says so.
LOOKALIKES = (
    "аеорсухіјѕһӏԁԛԝ" "АВЕЗКМНОРСТУХІЈЅҺӀԌԚԜҮү"  # Cyrillic
    "αικνορυϳϲ" "ΑΒΕΖΗΙΚΜΝΟΡΤΥΧϹͿ"  # Greek
    "օոսզցհԼՕՍՏ"  # Armenian
    "ᎠᎡᎢᎪᎫᎬᎳᎷᎻᏀᏃᏆᏎᏒᏔᏕᏙᏚᏞᏟᏢᏦ"  # Cherokee
    "ıȷɑɡɩʋꞌƖɪʟʀꓐꓑꓒꓓꓔꓖꓗꓙꓚꓜꓝꓞꓟꓠꓡꓢꓣꓤꓥꓦꓧꓨꓩꓪꓫꓬꓮꓰꓲꓳꓴ"  # Latin, Lisu
    "οօסഠ๐໐〇"  # rounds taken for o or 0
)

SHOWN = {"Lu", "Ll", "Lt", "Lm", "Lo", "Nd"}
MARKS = {"Mn", "Mc"}
# Written together in ordinary text, so that mixing them says nothing.
EAST_ASIAN = {"CJK", "HIRAGANA", "KATAKANA", "HANGUL", "BOPOMOFO", "IDEOGRAPHIC", "HENTAIGANA"}
# First words of names that are not scripts.
COMMON = {"MODIFIER", "FEMININE", "MASCULINE", "DIGIT", "DOUBLE-STRUCK", "EULER", "ALEF", "BET", "GIMEL", "DALET",
          "SUPERSCRIPT", "SUBSCRIPT", "PLANCK", "SCRIPT", "BLACK-LETTER", "INFORMATION", "TURNED", "ANGSTROM",
          "KELVIN", "OHM", "VERTICAL", "MASU", "EXTENDED", "HALFWIDTH", "FULLWIDTH", "SQUARE", "CARON",
          "COMBINING", "VEDIC", "ROMAN"}


def ranges(points):
    out = []
    for key, value in points:
        if out and out[-1][1] == key - 1 and out[-1][2] == value:
            out[-1][1] = key
        else:
            out.append([key, key, value])
    return out


def plain(ch):
    """The letter that a compatibility letter stands for."""
    folded = unicodedata.normalize("NFKC", ch)
    return folded if len(folded) == 1 else ch


def script(ch):
    ch = plain(ch)
    if ord(ch) < 0x80:
        return "LATIN"
    name = unicodedata.name(ch, "")
    if not name and (0x17000 <= ord(ch) < 0x18D00):
        return "TANGUT"
    word = name.split(" ")[0].split("-")[0] if name else ""
    if word in EAST_ASIAN:
        return "EAST ASIAN"
    if word in COMMON or not word:
        return None
    return word


def main():
    shown, marks, scripts, rtl, look = [], [], [], [], []
    names = []
    for cp in range(0x80, 0x110000):
        ch = chr(cp)
        category = unicodedata.category(ch)
        if cp in INVISIBLE:
            continue
        if category in SHOWN:
            shown.append((cp, 0))
            if unicodedata.bidirectional(ch) in ("R", "AL", "AN"):
                rtl.append((cp, 0))
            ascii_twin = ord(plain(ch)) < 0x80
            if ascii_twin or ch in LOOKALIKES:
                look.append((cp, 0))
            name = script(ch) if category != "Nd" else None
            if name:
                if name not in names:
                    names.append(name)
                scripts.append((cp, names.index(name)))
        elif category in MARKS:
            marks.append((cp, 0))
    if "LATIN" not in names:
        sys.exit("no Latin letters found")

    print("/*")
    print(" * Made by policy/tools/make_unicode_tables.py from Unicode %s; change that script, not this file."
          % unicodedata.unidata_version)
    print(" * Inclusive ranges in ascending order, ASCII left out.")
    print(" */")
    print("#ifndef HB_POLICY_UNICODE_TABLES_H\n#define HB_POLICY_UNICODE_TABLES_H\n")
    print("#include <stdint.h>\n")
    print("struct hb_unicode_range {\n\tuint32_t first, last;\n};\n")
    print("struct hb_script_range {\n\tuint32_t first, last;\n\tuint8_t script;\n};\n")

    def table(name, points, note):
        print("/* %s */" % note)
        print("static const struct hb_unicode_range %s[] = {" % name)
        cells = ["{0x%04X, 0x%04X}" % (a, b) for a, b, _ in ranges(points)]
        emit(cells)

    def emit(cells):
        for i in range(0, len(cells), 4):
            print("\t" + ", ".join(cells[i:i + 4]) + ",")
        print("};\n")

    table("hb_unicode_shown", shown, "letters and decimal digits that are shown as they are")
    table("hb_unicode_marks", marks, "combining marks: shown behind a letter or digit only")
    table("hb_unicode_rtl", rtl, "letters and digits that run from right to left")
    table("hb_unicode_lookalikes", look, "letters and digits that can be taken for ASCII ones")
    print("/* the script of a letter, an index into hb_script_names */")
    print("static const struct hb_script_range hb_unicode_scripts[] = {")
    emit(["{0x%04X, 0x%04X, %d}" % (a, b, v) for a, b, v in ranges(scripts)])
    print("#define HB_SCRIPT_LATIN %d\n" % names.index("LATIN"))
    print("static const char *const hb_script_names[] = {")
    emit(['"%s"' % n.title() for n in names])
    print("#endif")


main()
