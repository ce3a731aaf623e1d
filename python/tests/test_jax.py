"""The example of JAX by its foreign function interface, on an emulated GPU where JAX sees none. Skipped without JAX or a C
compiler."""

import importlib.util
import shutil
import subprocess
import sys
import unittest

import support


@unittest.skipUnless(importlib.util.find_spec("jax"), "JAX is not installed")
@unittest.skipUnless(shutil.which("cc") and any(map(shutil.which, ("g++", "clang++", "c++"))), "there is no compiler")
class Example(unittest.TestCase):
    def test_it_runs(self):
        path = f"import sys; sys.path.insert(0, {str(support.PYTHON)!r}); sys.argv[:] = ['example', 'a100']"
        example = support.PYTHON / "examples" / "jax_attention.py"
        ran = subprocess.run([sys.executable, "-c", f"{path}; import runpy; runpy.run_path({str(example)!r}, "
                              "run_name='__main__')"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.assertEqual(ran.returncode, 0, ran.stdout)
        self.assertEqual((ran.stdout.count("worst difference"), ran.stdout.count("the same as jax.numpy, a100")), (2, 1),
                         ran.stdout)


if __name__ == "__main__":
    unittest.main()
