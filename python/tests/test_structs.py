"""The structs of the package have the layout that a C compiler gives those of runtime/fatune.h."""

import ctypes
import pathlib
import shutil
import subprocess
import tempfile
import unittest

from support import ROOT

from fatune import _structs

COMPILER = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")


def constants():
    return [name for name in vars(_structs) if name.isupper() and name != "ALL"]


def c_program():
    lines = ['#include <stdio.h>', '#include "runtime/fatune.h"', "int main(void) {"]
    for struct in _structs.ALL:
        name = struct.c_name
        lines.append(f'  printf("{name} %zu\\n", sizeof({name}));')
        for field, *_ in struct._fields_:
            member = field.rstrip("_")
            lines.append(f'  printf("{name}.{member} %zu %zu\\n", offsetof({name}, {member}),'
                         f" sizeof((({name} *)0)->{member}));")
    for name in constants():
        lines.append(f'  printf("{name} %d\\n", (int)FATUNE_{name});')
    return "\n".join(lines + ["  return 0;", "}", ""])


def python_layout():
    lines = []
    for struct in _structs.ALL:
        lines.append(f"{struct.c_name} {ctypes.sizeof(struct)}")
        for field, *_ in struct._fields_:
            place = getattr(struct, field)
            lines.append(f"{struct.c_name}.{field.rstrip('_')} {place.offset} {place.size}")
    for name in constants():
        lines.append(f"{name} {getattr(_structs, name)}")
    return lines


class Structs(unittest.TestCase):
    @unittest.skipUnless(COMPILER, "no C compiler")
    def test_layout_is_that_of_c(self):
        with tempfile.TemporaryDirectory() as folder:
            source, program = pathlib.Path(folder, "layout.c"), pathlib.Path(folder, "layout")
            source.write_text(c_program())
            subprocess.run([COMPILER, "-I", str(ROOT), str(source), "-o", str(program)], check=True)
            told = subprocess.run([str(program)], check=True, capture_output=True, text=True).stdout
        self.assertEqual(python_layout(), told.splitlines())

    def test_size_is_set(self):
        for struct in _structs.ALL:
            if issubclass(struct, _structs.Sized):
                self.assertEqual(struct().size, ctypes.sizeof(struct))


if __name__ == "__main__":
    unittest.main()
