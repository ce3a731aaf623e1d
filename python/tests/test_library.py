"""What needs neither a GPU nor PyTorch: loading, requests, emission, errors."""

import gc
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import support

import fatune
from fatune import _session, _structs


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
