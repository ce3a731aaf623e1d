"""Arrays that are not PyTorch's: NumPy's on an emulated GPU, by their own interface and by DLPack. Skipped without NumPy or
a C++ compiler."""

import importlib.util
import shutil
import subprocess
import sys
import unittest
from unittest import mock

import support

import fatune
from fatune import _launch, arrays

HAS_CXX = any(map(shutil.which, ("g++", "clang++", "c++")))
if importlib.util.find_spec("numpy") is not None:
    import numpy


class Foreign:
    """An array of which only DLPack is known."""

    def __init__(self, array):
        self.array, self.shape, self.dtype = array, array.shape, array.dtype

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


@unittest.skipUnless(importlib.util.find_spec("numpy"), "NumPy is not installed")
@unittest.skipUnless(HAS_CXX, "there is no C++ compiler for the emulator")
class Arrays(unittest.TestCase):
    def setUp(self):
        self.session = fatune.Session(emulate="a100", memory_only=True)
        chance = numpy.random.default_rng(1)
        self.q, self.k, self.v = (chance.standard_normal((1, 2, 40, 32)).astype("float16") for _ in range(3))

    def test_example(self):
        ran = subprocess.run([sys.executable, str(support.PYTHON / "examples" / "numpy_attention.py")],
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.assertEqual(ran.returncode, 0, ran.stdout)
        self.assertEqual(ran.stdout.count("largest error"), 4)

    def test_by_dlpack(self):
        slope = numpy.array([0.5, 0.25], "float32")
        options = {"session": self.session, "score": "alibi"}
        ours = arrays.attention(self.q, self.k, self.v, captured={"slope": slope}, **options)
        i = numpy.arange(40)
        s = numpy.einsum("bhid,bhjd->bhij", *(a.astype("float64") for a in (self.q, self.k))) / 32**0.5
        p = numpy.exp(s - slope[:, None, None] * abs(i[:, None] - i))
        exact = p / p.sum(-1, keepdims=True) @ self.v
        self.assertLess(abs(ours - exact).max(), 4e-3)
        out = numpy.empty_like(self.q)
        given = arrays.attention(*map(Foreign, (self.q, self.k, self.v)), out=out, captured={"slope": Foreign(slope)},
                                 **options)
        self.assertIs(given, out)
        self.assertTrue((out == ours).all())

    def test_masks_that_a_function_makes(self):
        options = {"session": self.session, "score": "block_causal", "captured": {"block": 16}}
        plain = arrays.attention(self.q, self.k, self.v, **options)
        with mock.patch.object(_launch, "MASK_PAYS_FROM", 1):
            masked = arrays.attention(self.q, self.k, self.v, **options)
        self.assertLess(abs(plain - masked).max(), 4e-3)

    @unittest.skipUnless(importlib.util.find_spec("jax"), "JAX is not installed")
    def test_arrays_of_jax_are_read(self):
        import jax
        q, k, v = (jax.numpy.asarray(array, dtype="bfloat16") for array in (self.q, self.k, self.v))
        with self.assertRaisesRegex(TypeError, "JAX's arrays cannot be written; allowed: out"):
            arrays.attention(q, k, v, session=self.session)
        out = arrays.attention(q, k, v, out=numpy.empty(q.shape, q.dtype), causal=True, session=self.session)
        exact = jax.nn.dot_product_attention(*(a.swapaxes(1, 2).astype("float32") for a in (q, k, v)), is_causal=True)
        self.assertLess(abs(out.astype("float32") - exact.swapaxes(1, 2)).max(), 2e-2)

    def test_wrong_arrays_are_named(self):
        q = self.q
        wrong = [(TypeError, "q is list; allowed: an array", ([1], q, q), {}),
                 (ValueError, "q is on cpu; allowed: a CUDA device", (q, q, q), {"session": None}),
                 (TypeError, "k is float32", (q, q.astype("float32"), q), {}),
                 (ValueError, r"out is \(1, 2, 3, 32\) float16; allowed: \(1, 2, 40, 32\)", (q, q, q),
                  {"out": q[:, :, :3]}),
                 (ValueError, "lse is .* float16; allowed: dense", (q, q, q), {"lse": q[..., 0]}),
                 (TypeError, "mask is ndarray; allowed: None, False, a BlockMask", (q, q, q), {"mask": q}),
                 (TypeError, "unknown argument 'casual'; allowed: causal", (q, q, q), {"casual": True})]
        for kind, message, given, options in wrong:
            with self.subTest(message), self.assertRaisesRegex(kind, message):
                arrays.attention(*given, **{"session": self.session, **options})


if __name__ == "__main__":
    unittest.main()
