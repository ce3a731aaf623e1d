"""What needs neither a GPU nor PyTorch: loading, requests, emission, errors."""

import gc
import inspect
import math
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import types
import unittest

import support

import fatune
from fatune import _captured, _session, _structs, score


class Requests(unittest.TestCase):
    def test_parse(self):
        request = fatune.parse_request("forward bf16 d128 hq32 hkv8 b2 nq4096 causal mask=128x64@0.5")
        self.assertEqual((request.dtype, request.head_dim, request.head_dim_v), (1, 128, 128))
        self.assertEqual((request.heads_q, request.heads_kv, request.batch), (32, 8, 2))
        self.assertEqual((request.seqlen_q, request.seqlen_k), (4096, 4096))
        self.assertEqual(request.causal, _structs.CAUSAL_BOTTOM_RIGHT)
        self.assertEqual((request.mask_rows, request.mask_cols), (128, 64))
        self.assertEqual(request.mask_density, 0.5)

    def test_error_names_the_word(self):
        with self.assertRaises(fatune.Error) as caught:
            fatune.parse_request("forward bf16 d128 nq4096 sideways")
        self.assertEqual(caught.exception.status, -1)
        self.assertIn("sideways", caught.exception.detail)

    def test_bucket(self):
        def bucket(text):
            return _session.bucket_of(fatune.parse_request(text))
        self.assertEqual(bucket("d128 hq8 nq4096"), bucket("d128 hq8 nq5000"))
        self.assertNotEqual(bucket("d128 hq8 nq4096"), bucket("d128 hq8 nq8192"))
        self.assertNotEqual(bucket("d128 hq8 nq4096"), bucket("d128 hq8 nq4096 dropout"))
        self.assertNotEqual(bucket("d128 hq8 nq4096"), bucket("fp16 d128 hq8 nq4096"))
        self.assertEqual(bucket("d128 hq8 b2 nq4096"), bucket("d128 hq16 nq4096"))


class Documents(unittest.TestCase):
    def test_names_in_examples_exist(self):
        for file in (support.ROOT / "README.md", support.PYTHON / "README.md"):
            blocks = re.findall(r"```python\n(.*?)```", file.read_text(), re.S)
            names = set(re.findall(r"\bfatune\.(\w+)", "\n".join(blocks)))
            self.assertGreater(len(names), 2)
            for block in blocks:
                compile(block, str(file), "exec")
            for name in names:
                self.assertIn(name, fatune.__all__, f"{file.name} uses fatune.{name}")

    def test_every_public_name_is_documented(self):
        for name in fatune.__all__:
            thing = getattr(fatune, name)
            self.assertTrue(thing.__doc__ and len(thing.__doc__) > 20, f"fatune.{name} has no docstring")

    def test_every_public_function_says_its_types(self):
        functions = [(name, getattr(fatune, name)) for name in fatune.__all__ if not isinstance(
            getattr(fatune, name), types.ModuleType)]
        functions += [(name, getattr(fatune.arrays, name)) for name in ("attention", "attention_backward")]
        functions += [(name, getattr(fatune.Session, name)) for name in ("plan", "emit", "tune", "forget_plans")]
        for name, function in functions:
            if isinstance(function, type):
                function = vars(function).get("__init__")  # an exception and a struct are made by the library
            if function is None or name in ("Error", "Plan"):
                continue
            parameters = dict(inspect.signature(function).parameters)
            parameters.pop("self", None)
            unsaid = [one for one, parameter in parameters.items() if parameter.annotation is parameter.empty]
            self.assertEqual(unsaid, [], name)
            self.assertIn("return", function.__annotations__, name)


class Sessions(unittest.TestCase):
    def test_emit(self):
        session = fatune.Session(memory_only=True)
        text = session.emit("forward fp16 d64 nq1024 causal", gpu="a100")
        self.assertIn("forward fp16 d64 causal", text.splitlines()[1])
        self.assertIn("fatune_kernel", text)
        self.assertNotEqual(text, session.emit("forward fp16 d64 nq1024", gpu="a100"))
        with self.assertRaises(fatune.Error) as caught:
            session.emit("forward fp16 d64 nq1024", gpu="abacus")
        self.assertEqual(caught.exception.status, -10)

    def test_score_functions_have_numbers(self):
        session = fatune.Session(memory_only=True)
        number = session.add_score("alibi")
        self.assertEqual(session.add_score("alibi"), number)
        mine = session.add_score("mine", "score = s + i - j")
        self.assertNotIn(mine, (0, number))
        request = fatune.parse_request("d64 nq64")
        request.score = mine
        self.assertIn("score_of(", session.emit(request, gpu="a100"))
        with self.assertRaisesRegex(fatune.Error, "mine:1: unknown name 'x'"):
            session.add_score("mine", "score = s + x")
        with self.assertRaisesRegex(fatune.Error, "score 'alibbi' is unknown"):
            session.add_score("alibbi")

    def test_captured_is_an_array_of_structs(self):
        tensor = types.SimpleNamespace(data_ptr=lambda: 4096, dim=lambda: 2, shape=(3, 5),
                                       stride=lambda: (0, 1), device="cuda:0")
        array = _captured.captured_array({"cap": 2.5, "bias": tensor}, "cuda:0")
        self.assertEqual([(entry.name, entry.value, entry.data) for entry in array],
                         [(b"cap", 2.5, None), (b"bias", 0.0, 4096)])
        self.assertEqual(list(array[1].extents), [3, 5, 0, 0])
        self.assertEqual(list(array[1].strides), [0, 1, 0, 0])
        with self.assertRaisesRegex(ValueError, "captured 'bias' has 2 dimensions on cuda:0"):
            _captured.captured_array({"bias": tensor}, "cuda:1")

    def test_python_functions_become_lua(self):
        tensor = types.SimpleNamespace(data_ptr=lambda: 4096, dim=lambda: 1, dtype="torch.float32")

        def alibi(s, b, h, i, j, slope, cap):
            capped = cap * score.tanh(s / cap)
            return score.where(i < j, capped - slope[h] * abs(i + score.nk - score.nq - j), -math.inf)

        def seen(b, h, i, j):
            return (j <= i) & ~(j % 7 == 3) | (i > 2.5)

        captured = {"slope": tensor, "cap": 30.0}
        text = score.trace(alibi, seen, captured)
        session = fatune.Session(memory_only=True)
        same = ('local slope = tensor("slope", "fp32", 1) local cap = scalar("cap")\n'
                "score = where(i < j, cap * tanh(s / cap) - slope(h) * abs(i + nk - nq - j), -inf)\n"
                "visible = j <= i and not (j % 7 == 3) or i > 2.5")
        self.assertEqual(session.add_score("traced", text), session.add_score("written", same))
        with self.assertRaisesRegex(TypeError, "where"):
            score.trace(lambda s, b, h, i, j: s if i < j else 0)
        with self.assertRaisesRegex(ValueError, "score captures 'bias'; captured has nothing"):
            score.trace(lambda s, b, h, i, j, bias: s + bias[i])
        with self.assertRaisesRegex(IndexError, "slope has 1 dimension; 2 indices are given"):
            score.trace(lambda s, b, h, i, j, slope: s + slope[h, i], None, captured)
        with self.assertRaisesRegex(TypeError, "computes with str"):
            score.trace(lambda s, b, h, i, j: s + "x")

    def test_python_functions_that_cannot_become_lua(self):
        """Errors name what is wrong and what is allowed."""
        kept = []

        def keeps(s, b, h, i, j):
            kept.append(abs(i - j))
            return s - kept[0]
        self.assertIn("abs", score.trace(keeps))
        for text, function, captured in (
                ("symbol of another call", keeps, None),
                ("symbol of another call", lambda s, b, h, i, j: kept[0], None),
                ("functions of fatune.score in place of math", lambda s, b, h, i, j: math.exp(s), None),
                ("captured tensors in place of lists", lambda s, b, h, i, j: s * [1, 2][h], None),
                ("not known", lambda s, b, h, i, j: sum(s for _ in range(i)), None),
                ("score returns NoneType; allowed: a number", lambda s, b, h, i, j: None, None),
                ("score has 2 parameters; allowed: s, b, h, i, j", lambda s, b: s, None),
                ("score captures 'cap'", lambda s, b, h, i, j, *, cap: s * cap, None),
                ("score is 3; allowed: a Python function", 3, None),
                ("captured 'x' is list; allowed: a number, or a tensor", lambda s, b, h, i, j, x: s, {"x": [1]}),
                ("name 'a b'; allowed: letters", lambda s, b, h, i, j: s, {"a b": 1})):
            with self.subTest(text=text), self.assertRaisesRegex((TypeError, ValueError), text):
                score.trace(function, None, captured)

    def test_names_and_defaults_of_python_functions(self):
        """What is captured may have any name that is none of the language's; what has a default need not be captured."""
        session = fatune.Session(memory_only=True)

        def scaled(s, b, h, i, j, v=2.0, *, _=3):
            return s * v
        for captured, same in (({}, "score = s * 2"), ({"v": 4.0}, "local v = scalar('v') score = s * v")):
            self.assertEqual(session.add_score("traced", score.trace(scaled, None, captured)), session.add_score("same", same))
        for name in ("end", "nq", "exp"):
            with self.assertRaisesRegex(fatune.Error, f"scalar '{name}' is a word of the language"):
                session.add_score("score", score.trace(scaled, None, {name: 1.0}))

    def test_errors_of_python_functions_have_their_lines(self):
        session = fatune.Session(memory_only=True)

        def wrong(s, b, h, i, j):
            slope = abs(i - j) * 0.5
            return s - slope // 2
        line = wrong.__code__.co_firstlineno + 2
        with self.assertRaisesRegex(fatune.Error, rf"test_library.py:{line}: operand 1 of '//' is float; allowed: integers"):
            session.add_score("score", score.traced(wrong))
        number = session.add_score("score", score.traced(lambda s, b, h, i, j, t: s + score.floor(t), None, {"t": 1.0}))
        with self.assertRaisesRegex(fatune.Error, r"test_library.py:\d+: score is not differentiable by 't': floor"):
            session.score_gradient(number, "t")
        for name, text in (("x", "score = s\0 + 1"), ("ali\0bi", None)):
            with self.assertRaisesRegex(ValueError, "NUL character"):
                session.add_score(name, text)

    def test_captured_is_a_dict_of_numbers_and_tensors(self):
        for captured, text in (([1], "captured is list"), ({3: 1.0}, "captured has the name 3"), ({"a\0": 1.0}, "name 'a")):
            with self.assertRaisesRegex(TypeError, text):
                _captured.add_score("alibi", None, captured, None)
        with self.assertRaisesRegex(TypeError, "score is bytes; allowed: the name"):
            _captured.add_score(b"alibi", None, None, None)
        with self.assertRaisesRegex(TypeError, "captured 'cap' is str; allowed: a number, or a tensor"):
            _captured.captured_array({"cap": "2"}, "cuda:0")

    def test_wrong_size_is_refused(self):
        options = _structs.SessionOptions(memory_only=1)
        options.size -= 8
        with self.assertRaises(fatune.Error) as caught:
            _session._OpenSession(options)
        self.assertIn("options.size", caught.exception.detail)

    def test_log(self):
        lines = []
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "tuning.db").write_text("no database")
            session = fatune.Session(cache_dir=folder, log=lines.append)
            session.emit("forward bf16 d64 nq1024", gpu="h200")
            del session
            gc.collect()
            self.assertTrue(lines, "a broken cache gives a warning")
            with self.assertLogs("fatune", "WARNING") as logged:
                fatune.Session(cache_dir=folder).emit("forward bf16 d64 nq1024", gpu="h200")
            self.assertEqual([record.getMessage() for record in logged.records], lines)

    def test_examples_are_python(self):
        examples = sorted((support.PYTHON / "examples").glob("*.py"))
        self.assertTrue(examples)
        for example in examples:
            compile(example.read_text(), str(example), "exec")

    def test_import_needs_no_torch(self):
        code = "import sys, fatune; fatune.parse_request('d64 nq1'); sys.exit('torch' in sys.modules)"
        environment = dict(os.environ, PYTHONPATH=str(support.PYTHON))
        self.assertEqual(subprocess.run([sys.executable, "-c", code], env=environment).returncode, 0)

    def test_missing_library_is_explained(self):
        environment = dict(os.environ, PYTHONPATH=str(support.PYTHON), FATUNE_LIBRARY="/nowhere.so")
        told = subprocess.run([sys.executable, "-c", "import fatune"], env=environment,
                              capture_output=True, text=True)
        self.assertNotEqual(told.returncode, 0)
        self.assertIn("/nowhere.so", told.stderr)


if __name__ == "__main__":
    unittest.main()
