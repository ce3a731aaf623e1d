"""Every word of a request (generator/request.def) can be said in Python, and those who ask in attention()'s place ask for all of it."""

import ast
import pathlib
import re
import unittest

from support import ROOT

from fatune import _attention, _drop_in, _launch, _structs, _ways

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

    def test_what_is_asked_has_the_same_length_everywhere(self):
        """A shorter one is a call that fails, or one that is never made the short way (python/recent.c): neither needs PyTorch to be seen."""
        def lengths(module):
            for node in ast.walk(ast.parse(pathlib.Path(module.__file__).read_text())):
                if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", None) == "asked" and isinstance(node.value, ast.Tuple):
                    yield len(node.value.elts)
                if isinstance(node, ast.Call) and "_again" in (getattr(node.func, "id", None), getattr(node.func, "attr", None)):
                    yield len(node.args) - len(("found", "session", "return_lse", "q", "k", "v"))
        found = {module.__name__: set(lengths(module)) for module in (_attention, _drop_in, _ways)}
        self.assertEqual(len(found["fatune._attention"]), 1, found)
        self.assertEqual(set(map(frozenset, found.values())), {frozenset(found["fatune._attention"])}, found)


if __name__ == "__main__":
    unittest.main()
