"""Every word of a request (generator/request.def) can be said in Python."""

import pathlib
import re
import unittest

from support import ROOT

from fatune import _launch, _structs

WORDS = re.compile(r"^FIELD\((\w+), [\w ]+, (\w+), (\w+)", re.MULTILINE)


class Words(unittest.TestCase):
    def test_each_field_is_in_the_struct_and_set_by_a_call(self):
        fields = WORDS.findall(pathlib.Path(ROOT, "generator/request.def").read_text())
        members = {name.rstrip("_") for name, _ in _structs.Request._fields_} - {"size"}
        self.assertEqual(members, {name for _, name, _ in fields})
        call = pathlib.Path(_launch.__file__).read_text()
        for _, name, _ in fields:
            with self.subTest(field=name):
                self.assertRegex(call, rf'"{name}"(: |\]|,)|\b{name}_?=')


if __name__ == "__main__":
    unittest.main()
