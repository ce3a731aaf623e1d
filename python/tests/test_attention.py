"""attention() hands the library what its tensors say: a driver that records launches looks on.
The tensors are stand-ins, so neither PyTorch nor a GPU is needed."""

import ctypes
import gc
import os
import sys
import unittest
from unittest import mock

import support
from support import CPU, FAKE_CUDA, FAKE_NVRTC, Tensor

import fatune
from fatune import _autograd


class Gpu(ctypes.Structure):
    """What the driver is told of its GPU (struct fake_gpu)."""

    _fields_ = [("name", ctypes.c_char_p), ("sm", ctypes.c_int), ("sm_count", ctypes.c_int), ("count", ctypes.c_int),
                ("capturing", ctypes.c_int), ("current", ctypes.c_int)]


class Launch(ctypes.Structure):
    """What the recording driver tells of the last launch (struct fake_launch)."""

    _fields_ = [("count", ctypes.c_int), ("grid", ctypes.c_uint * 3), ("block", ctypes.c_uint * 3),
                ("smem", ctypes.c_uint), ("stream", ctypes.c_void_p),
                ("numbers", ctypes.c_uint64 * 512),
                ("order", ctypes.c_char * 16), ("grids", ctypes.c_uint * 3),
                ("threads", ctypes.c_uint * 3), ("tiled", ctypes.c_int)]

    @property
    def first(self):
        """Where a forward's argument begins: behind five tensor maps, if its kernel has them."""
        return 80 if self.tiled else 0

    @property
    def words(self):
        return self.numbers[self.first:]

    # The argument (generator/arguments.def) begins with its tensors: of each the address, then the
    # strides of batch, sequence and head. A backward's and a merge's have no tensor maps in front.
    def data(self, n):
        return self.words[4 * n]

    def strides(self, n):
        return list(self.words[4 * n + 1:4 * n + 4])

    def backward_data(self, n):
        return self.numbers[4 * n]

    def backward_strides(self, n):
        return list(self.numbers[4 * n + 1:4 * n + 4])


LSE, DROPOUT, LIST_STRIDES, DIAGONALS = 16, 17, 26, 32  # words of a forward
BACKWARD_LSE, BACKWARD_DLSE, BACKWARD_DROPOUT = 32, 33, 39


def bf16(*shape, **more):
    return Tensor(shape, "bfloat16", **more)


@unittest.skipUnless(FAKE_CUDA.exists() and FAKE_NVRTC.exists(), "the build has no stand-in driver")
class WithDriver(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        environment = {"FATUNE_LIBCUDA": str(FAKE_CUDA), "FATUNE_LIBNVRTC": str(FAKE_NVRTC),
                       "FATUNE_LIBNVML": "/nowhere"}
        cls.patches = [mock.patch.dict(os.environ, environment),
                       mock.patch.dict(sys.modules, {"torch": support.fake_torch()})]
        for patch in cls.patches:
            patch.start()
        _autograd.function.cache_clear()  # of PyTorch itself
        cls.driver = ctypes.CDLL(str(FAKE_CUDA))
        cls.driver.fake_cuda_last_launch.restype = ctypes.POINTER(Launch)
        cls.driver.fake_cuda_reset.argtypes = [ctypes.c_char_p]
        cls.driver.cuCtxPushCurrent_v2.argtypes = [ctypes.c_void_p]
        cls.driver.fake_cuda_reset(None)
        cls.session = fatune.Session(memory_only=True)
        cls.driver.cuCtxPushCurrent_v2(0x1000)

    @classmethod
    def tearDownClass(cls):
        for patch in cls.patches:
            patch.stop()
        _autograd.function.cache_clear()  # of the stand-in

    def launch(self, *tensors, launches=1, **options):
        """The last launch that a call makes, and its result."""
        before = self.driver.fake_cuda_last_launch().contents.count
        result = fatune.attention(*tensors, session=self.session, **options)
        launch = self.driver.fake_cuda_last_launch().contents
        self.assertEqual(launch.count, before + launches)
        self.assertEqual(launch.stream, 0x5717EA)
        return launch, result

    def wanting(self, *tensors, **options):
        """The outputs of a call that keeps what its backward needs."""
        tensors[0].requires_grad = True
        return fatune.attention(*tensors, session=self.session, return_lse=True, **options)

    def gradients(self, out, dout, dlse):
        with support.NoGrad():
            return out.function.backward(out.context, dout, dlse)

    def backward(self, out, dout, dlse=None):
        """The launch of the last of three kernels, and the gradients."""
        before = self.driver.fake_cuda_last_launch().contents.count
        gradients = self.gradients(out, dout, dlse)
        launch = self.driver.fake_cuda_last_launch().contents
        self.assertEqual(launch.count, before + 3)
        return launch, gradients


class Attention(WithDriver):
    def test_bhsd(self):
        q, k, v = bf16(2, 8, 100, 64), bf16(2, 2, 300, 64), bf16(2, 2, 300, 32)
        launch, out = self.launch(q, k, v)
        self.assertEqual(out.shape, (2, 8, 100, 32))
        self.assertEqual([launch.data(n) for n in range(4)],
                         [q.address, k.address, v.address, out.address])
        self.assertEqual(launch.words[LSE], 0)
        self.assertEqual([launch.strides(n) for n in range(4)], [
            [8 * 100 * 64, 64, 100 * 64], [2 * 300 * 64, 64, 300 * 64],
            [2 * 300 * 32, 32, 300 * 32], [8 * 100 * 32, 32, 100 * 32]])

    def test_bshd_and_lse(self):
        q, k = bf16(3, 50, 4, 128), bf16(3, 70, 4, 128)
        launch, (out, lse) = self.launch(q, k, k, layout="bshd", return_lse=True, causal="top-left")
        self.assertEqual((out.shape, lse.shape, lse.dtype), ((3, 50, 4, 128), (3, 4, 50), "float32"))
        self.assertEqual(launch.words[LSE], lse.address)
        self.assertEqual(launch.strides(0), [50 * 4 * 128, 4 * 128, 128])

    def test_merge(self):
        parts = [(bf16(3, 50, 4, 128), Tensor((3, 4, 50), "float32")) for _ in range(40)]
        before = self.driver.fake_cuda_last_launch().contents.count
        out, lse = fatune.merge(parts, layout="bshd", session=self.session)
        launch = self.driver.fake_cuda_last_launch().contents
        self.assertEqual(launch.count, before + 2)  # 32 parts, then what they gave and 8 more
        strides = [50 * 4 * 128, 4 * 128, 128]
        self.assertEqual((launch.backward_data(0), launch.backward_strides(0)), (out.address, strides))
        self.assertEqual(launch.numbers[4], lse.address)
        begin = 7  # of the parts, five words each: O, its strides, LSE
        for number, (of, sums) in enumerate([(out, lse), *parts[32:35]]):  # the driver keeps no more
            self.assertEqual(list(launch.numbers[begin + 5 * number:begin + 5 * number + 5]),
                             [of.address, *strides, sums.address])

    def test_bad_parts(self):
        out, lse = bf16(3, 4, 50, 128), Tensor((3, 4, 50), "float32")
        for parts, word in (([], "empty"), ([(out, lse), (bf16(3, 4, 49, 128), lse)], r"parts\[1\]\[0\]"),
                            ([(out, bf16(3, 4, 50))], r"parts\[0\]\[1\]"),
                            ([(out, Tensor((3, 50, 4), "float32"))], r"parts\[0\]\[1\]")):
            with self.assertRaisesRegex(ValueError, word):
                fatune.merge(parts, session=self.session)
        with self.assertRaisesRegex(TypeError, "float64; allowed"):
            fatune.merge([(Tensor((3, 4, 50, 128), "float64"), lse)], session=self.session)

    def test_broadcast_keys(self):
        q, k = bf16(2, 4, 64, 64), bf16(2, 4, 96, 64, strides=(0, 0, 64, 1))
        launch, _ = self.launch(q, k, k)
        self.assertEqual(launch.strides(1), [0, 64, 0])

    def test_seeds(self):
        q, seed = bf16(1, 2, 64, 64), Tensor((1,), "int64")
        launch, _ = self.launch(q, q, q, dropout=0.25, seed=-1, offset=5)
        self.assertEqual(list(launch.words[DROPOUT:DROPOUT + 4]), [2**64 - 1, 5, 0, 0])
        launch, _ = self.launch(q, q, q, dropout=0.25, seed=seed)
        self.assertEqual(launch.words[DROPOUT + 2], seed.address)

    def test_calls_of_one_form_are_checked_once(self):
        before = len(self.session.calls)
        for n in range(3):
            q, k, v = bf16(2, 8, 128, 64), bf16(2, 2, 300, 64), bf16(2, 2, 300, 32)
            launch, (out, lse) = self.launch(q, k, v, return_lse=n > 0, dropout=0.25, seed=n, offset=9) if n else (
                self.launch(q, k, v, dropout=0.25, seed=n, offset=9)[0], (None, None))
            self.assertEqual([launch.data(m) for m in range(3)], [q.address, k.address, v.address])
            self.assertEqual(list(launch.words[DROPOUT:DROPOUT + 2]), [n, 9])
            if n:
                self.assertEqual([launch.data(3), launch.words[LSE]], [out.address, lse.address])
        self.assertEqual(len(self.session.calls), before + 1)
        with self.assertRaisesRegex(fatune.Error, "16"):  # what the library checks, it checks every time
            q.address += 2
            fatune.attention(q, k, v, dropout=0.25, session=self.session)

    def test_seeds_are_drawn_where_none_is_given(self):
        q = bf16(1, 2, 64, 64)
        addresses = set()
        for _ in range(3):
            launch, _ = self.launch(q, q, q, dropout=0.25)
            addresses.add(launch.words[DROPOUT + 2])
        self.assertEqual(len(addresses - {0}), 3)

    def test_plans_are_kept_by_bucket(self):
        session = fatune.Session(memory_only=True)
        def plans_after(length, **options):
            fatune.attention(*[bf16(1, 2, length, 64)] * 3, session=session, **options)
            return len(session.plans)
        self.assertEqual([plans_after(1000), plans_after(1100), plans_after(4096)], [1, 1, 2])
        self.assertEqual(plans_after(1000, causal=True), 3)
        self.assertEqual([plans_after(1000, window=(left, 0)) for left in (250, 260, 60)], [4, 4, 5])

    def test_window(self):
        def diagonals(window, causal=False):
            q, k = bf16(1, 2, 64, 64), bf16(1, 2, 96, 64)
            launch, _ = self.launch(q, k, k, window=window, causal=causal)
            word = launch.words[DIAGONALS]
            return [ctypes.c_int32(half).value for half in (word & 0xFFFFFFFF, word >> 32)]
        self.assertEqual(diagonals((5, 3)), [32 - 5, 32 + 3])
        self.assertEqual(diagonals([5, 3], causal="top-left"), [-5, 0])
        self.assertEqual(diagonals((-1, 3)), [-64, 32 + 3])
        self.assertEqual(diagonals((0, -1)), [32, 96])
        self.assertEqual(diagonals((-1, -1), causal=True), diagonals(None, causal=True))

    def test_bad_windows_are_named(self):
        q = bf16(1, 2, 64, 64)
        for wrong in ((-2, 0), (3,), (1.5, 0), 7, (1, 2, 3)):
            with self.subTest(window=wrong), self.assertRaises(ValueError) as caught:
                fatune.attention(q, q, q, session=self.session, window=wrong)
            self.assertIn(f"window is {wrong!r}; allowed: None, or", str(caught.exception))
        with self.assertRaises(fatune.Error) as caught:
            fatune.attention(q, q, q, session=self.session, window=(2**31, 0))
        self.assertIn("window_left is 2147483648", str(caught.exception))

    def test_given_output(self):
        q, out = bf16(1, 2, 64, 64), bf16(1, 2, 64, 64)
        launch, result = self.launch(q, q, q, out=out)
        self.assertIs(result, out)
        self.assertEqual(launch.data(3), out.address)
        with self.assertRaisesRegex(ValueError, "out is"):
            fatune.attention(q, q, q, out=bf16(1, 2, 65, 64), session=self.session)

    def test_empty_is_nothing(self):
        before = self.driver.fake_cuda_last_launch().contents.count
        out = fatune.attention(bf16(1, 2, 0, 64), bf16(1, 2, 9, 64), bf16(1, 2, 9, 64),
                               session=self.session)
        self.assertEqual(out.shape, (1, 2, 0, 64))
        self.assertEqual(self.driver.fake_cuda_last_launch().contents.count, before)

    def test_block_mask(self):
        kept = (ctypes.c_uint8 * 6)(1, 0, 1, 0, 0, 1)  # 2 x 3 blocks
        blocks = Tensor((2, 3), "uint8", device=CPU)
        blocks.address = ctypes.addressof(kept)
        mask = fatune.BlockMask(blocks, 64, 128, 100, 300, session=self.session)
        self.assertEqual(mask.density, 0.5)
        self.assertEqual(mask.longest, {0: 1, 1: 2})  # 2 where the mean row has 1.5; 2 where the mean column has 1
        q, k = bf16(1, 2, 100, 64), bf16(1, 2, 300, 64)
        launch, _ = self.launch(q, k, k, mask=mask)
        self.assertEqual(list(launch.words[LIST_STRIDES:LIST_STRIDES + 2]),
                         [0, 0])  # the same for all batches and heads
        with self.assertRaisesRegex(fatune.Error, "mask"):
            fatune.attention(q, q, q, mask=mask, session=self.session)
        for rows, cols in ((0, 16), (16, -16)):
            with self.assertRaisesRegex(ValueError, f"rows, cols are {rows}, {cols}; allowed: multiples of 16"):
                fatune.BlockMask(Tensor((4, 4), "bool"), rows, cols, 64, 64, session=self.session)
        for name in ("seed", "offset"):
            with self.assertRaisesRegex(TypeError, f"{name} is str; allowed: an int, or an int64 tensor on cuda:0"):
                fatune.attention(*[bf16(1, 2, 64, 64)] * 3, session=self.session, dropout=0.5, **{"seed": 1, name: "x"})
        with self.assertRaisesRegex(ValueError, "blocks is"):
            fatune.BlockMask(blocks, 64, 64, 100, 300, session=self.session)

    def test_a_mask_with_a_long_row_has_a_plan_of_its_own(self):
        kept = (ctypes.c_uint8 * 64)(*([1] * 8 + [1, 0, 0, 0, 0, 0, 0, 0] * 7))  # a full row, and a full column
        blocks = Tensor((8, 8), "uint8", device=CPU)
        blocks.address = ctypes.addressof(kept)
        q = bf16(1, 2, 8 * 64, 64)
        requests = []
        plan = self.session.cached_plan
        self.session.cached_plan = lambda request: requests.append(request) or plan(request)
        try:
            mask = fatune.BlockMask(blocks, 64, 64, 512, 512, session=self.session)
            self.launch(q, q, q, mask=mask, launches=2)  # a second kernel merges the parts of the long row
        finally:
            del self.session.cached_plan
        self.assertEqual(mask.longest[0], 4)  # 8 of 1.875
        self.assertEqual([request.mask_longest for request in requests], [4])

    def test_refusals(self):
        q = bf16(1, 2, 64, 64)
        wrong = [
            (ValueError, "k is on cpu", (q, bf16(1, 2, 64, 64, device=CPU), q), {}),
            (TypeError, "v is float16", (q, q, Tensor((1, 2, 64, 64), "float16")), {}),
            (ValueError, "q has 3 dim", (bf16(2, 64, 64), q, q), {}),
            (ValueError, "stride 64 in its last", (q, bf16(1, 2, 64, 64, strides=(0, 0, 1, 64)), q), {}),
            (ValueError, "multiple of k's, 3", (q, bf16(1, 3, 64, 64), bf16(1, 3, 64, 64)), {}),
            (ValueError, "v has 65 keys", (q, q, bf16(1, 2, 65, 64)), {}),
            (ValueError, "head dim of k is 72", (q, bf16(1, 2, 64, 72), q), {}),
            (ValueError, "batches", (q, bf16(2, 2, 64, 64), q), {}),
            (ValueError, "layout", (q, q, q), {"layout": "sbhd"}),
            (ValueError, "causal", (q, q, q), {"causal": "left"}),
            (ValueError, "scale", (q, q, q), {"scale": 0.0}),
            (ValueError, "scale is 'x'; allowed: > 0", (q, q, q), {"scale": "x"}),
            (ValueError, "dropout is 1.5; allowed: 0 to 1", (q, q, q), {"dropout": 1.5}),
            (ValueError, "dropout is -0.5; allowed: 0 to 1", (q, q, q), {"dropout": -0.5}),
            (ValueError, "dropout is nan; allowed: 0 to 1", (q, q, q), {"dropout": float("nan")}),
            (ValueError, "seed is 18446744073709551616; allowed: -2", (q, q, q), {"dropout": 0.5, "seed": 2**64}),
            (TypeError, "offset is float; allowed: an int", (q, q, q), {"dropout": 0.5, "seed": 1, "offset": 1.5}),
            (TypeError, "sinks is list; allowed: torch.Tensor", (q, q, q), {"sinks": [1, 2]}),
            (TypeError, "out is int; allowed: torch.Tensor", (q, q, q), {"out": 5}),
            (TypeError, "seed is bfloat16", (q, q, q), {"dropout": 0.5, "seed": q}),
            (ValueError, "tf32 is given with bfloat16", (q, q, q), {"tf32": True}),
            (fatune.Error, "stride_seq is 66; allowed: a multiple of 4", (
                Tensor((1, 2, 64, 64), "float32", strides=(0, 64 * 66, 66, 1)), *(Tensor((1, 2, 64, 64), "float32"),) * 2), {}),
        ]
        for kind, message, tensors, options in wrong:
            with self.subTest(message), self.assertRaisesRegex(kind, message):
                fatune.attention(*tensors, session=self.session, **options)

    def test_what_is_no_session_mask_or_text_is_refused_by_name(self):
        q, blocks = bf16(1, 2, 64, 64), Tensor((1, 1), "bool")
        rectangle = (0, 64, 0, 64, False)
        wrong = [
            (TypeError, "session is int; allowed: a fatune.Session", lambda: fatune.attention(q, q, q, session=5)),
            (TypeError, "session is int; allowed: a fatune.Session", lambda: fatune.BlockMask(blocks, 64, 64, 64, 64, session=5)),
            (TypeError, "blocks is int; allowed: torch.Tensor", lambda: fatune.BlockMask(5, 64, 64, 64, 64)),
            (ValueError, "nq is 0; allowed: 1 or more", lambda: fatune.BlockMask(blocks, 64, 64, 0, 64)),
            (ValueError, "nk is None; allowed: 1 or more", lambda: fatune.BlockMask(blocks, 64, 64, 64, None)),
            (ValueError, "score and visible are None; allowed: one of them", lambda: fatune.VisibleMask(q, q, q)),
            (TypeError, "k is None", lambda: fatune.VisibleMask(q, None, q, score="alibi")),
            (ValueError, "layout is 'x'", lambda: fatune.RectangleMask(q, q, q, [rectangle], layout="x")),
            (ValueError, "v has 3 dimensions; allowed: 4", lambda: fatune.RectangleMask(q, q, bf16(2, 64, 64), [rectangle])),
            (TypeError, "rectangles is int; allowed: .first query", lambda: fatune.RectangleMask(q, q, q, 5)),
            (TypeError, "parts is int; allowed: pairs", lambda: fatune.merge(5)),
            (TypeError, "text is int; allowed: a str", lambda: fatune.parse_request(5)),
        ]
        for kind, message, call in wrong:
            with self.subTest(message), self.assertRaisesRegex(kind, message):
                call()

    def test_a_capture_compiles_nothing(self):
        q, seen, unseen = bf16(1, 2, 64, 64), fatune.Session(memory_only=True), fatune.Session(memory_only=True)
        fatune.attention(q, q, q, session=seen)
        gpu = Gpu(b"NVIDIA H200", 90, 132, 1, 1, 1)
        self.driver.fake_cuda_gpu(ctypes.byref(gpu))
        try:
            fatune.attention(q, q, q, session=seen)
            with self.assertRaisesRegex(fatune.Error, "call it once, with tensors of these shapes, before") as caught:
                fatune.attention(q, q, q, session=unseen)
            self.assertEqual(caught.exception.status, -11)
        finally:
            gpu.capturing = 0
            self.driver.fake_cuda_gpu(ctypes.byref(gpu))

    def test_no_gradients_wanted(self):
        q = bf16(1, 2, 64, 64)
        _, out = self.launch(q, q, q)
        self.assertIsNone(out.context)

    def test_backward(self):
        q, k, v = bf16(2, 8, 100, 64), bf16(2, 2, 300, 64), bf16(2, 2, 300, 32)
        out, lse = self.wanting(q, k, v, causal=True)
        dout, dlse = bf16(2, 8, 100, 32), Tensor((2, 8, 100), "float32")
        launch, (dq, dk, dv, *rest) = self.backward(out, dout, dlse)
        self.assertEqual(rest, [None])
        self.assertEqual([dq.shape, dk.shape, dv.shape], [q.shape, k.shape, v.shape])
        expected = [tensor.address for tensor in (q, k, v, out, dout, dq, dk, dv)]
        self.assertEqual([launch.backward_data(n) for n in range(8)], expected)
        self.assertEqual(launch.numbers[BACKWARD_LSE], lse.address)
        self.assertEqual(launch.numbers[BACKWARD_DLSE], dlse.address)
        of_q = [8 * 100 * 64, 64, 100 * 64]
        self.assertEqual([launch.backward_strides(n) for n in (0, 5)], [of_q, of_q])

    def test_captured_tensors_get_gradients(self):
        q, k, v = bf16(1, 8, 100, 64), bf16(1, 2, 300, 64), bf16(1, 2, 300, 64)
        slope = Tensor((8,), "float32")
        slope.requires_grad = True
        bias = Tensor((1, 8, 100, 300), "bfloat16", strides=(0, 30000, 300, 1))
        out, _ = self.wanting(q, k, v, score="alibi", captured={"slope": slope})
        _, gradients = self.backward(out, bf16(1, 8, 100, 64))
        self.assertEqual((gradients[4].shape, gradients[4].dtype), ((8,), "float32"))
        self.assertEqual(len(gradients), 5)
        bias.requires_grad = True
        out, _ = self.wanting(q, k, v, score="bias_bf16", captured={"bias": bias}, deterministic=True)
        _, gradients = self.backward(out, bf16(1, 8, 100, 64))
        self.assertEqual((gradients[4].shape, gradients[4].dtype), (bias.shape, "bfloat16"))
        document = Tensor((1, 300), "int32")
        document.requires_grad = True  # PyTorch would not let it
        with self.assertRaisesRegex(fatune.Error, "tensor 'document' has dtype int32; allowed for a gradient"):
            self.wanting(q, k, v, score="documents", captured={"document": document})

    def test_captured_tensors_of_another_dtype_are_refused(self):
        q = bf16(1, 2, 64, 64)
        for score, name, wrong, allowed in (("bias_fp16", "bias", "float32", "float16"), ("bias_fp32", "bias", "float16", "float32"),
                                            ("mask", "mask", "int32", "bool or uint8")):
            with self.assertRaisesRegex(TypeError, f"captured '{name}' is {wrong}; allowed: {allowed}, which"):
                fatune.attention(q, q, q, session=self.session, score=score, captured={name: Tensor((1, 2, 64, 64), wrong)})
        document = {"document": Tensor((1, 64), "int32")}
        mask = fatune.VisibleMask(q, q, q, session=self.session, score="documents", captured=document)
        mask.update({"document": Tensor((1, 64), "int32")})
        with self.assertRaisesRegex(TypeError, "captured 'document' is int64; allowed: int32"):
            mask.update({"document": Tensor((1, 64), "int64")})

    def test_backward_without_gradient_of_lse(self):
        q = bf16(1, 2, 64, 64)
        out, _ = self.wanting(q, q, q)
        launch, _ = self.backward(out, bf16(1, 2, 64, 64))
        self.assertEqual(launch.numbers[BACKWARD_DLSE], 0)

    def test_backward_of_lse_alone(self):
        q = bf16(1, 2, 64, 64)
        out, _ = self.wanting(q, q, q)
        dlse = Tensor((1, 2, 64), "float32")
        launch, (dq, *_) = self.backward(out, None, dlse)
        self.assertEqual(launch.numbers[BACKWARD_DLSE], dlse.address)
        self.assertNotEqual(launch.backward_data(4), 0)  # zeros
        self.assertEqual(self.gradients(out, None, None), (None,) * 4)

    def test_backward_copies_what_cannot_be_read(self):
        q = bf16(1, 2, 64, 64)
        out, _ = self.wanting(q, q, q)
        of_a_sum = bf16(1, 2, 64, 64, strides=(0, 0, 0, 0))
        launch, _ = self.backward(out, of_a_sum)
        self.assertNotEqual(launch.backward_data(4), of_a_sum.address)
        broadcast = bf16(1, 2, 64, 64, strides=(0, 0, 64, 1))
        launch, _ = self.backward(out, broadcast)
        self.assertEqual(launch.backward_data(4), broadcast.address)

    def test_backward_keeps_the_layout_of_its_inputs(self):
        q = bf16(1, 2, 64, 64, strides=(2 * 64 * 64, 64, 2 * 64, 1))
        k = bf16(1, 2, 64, 64, strides=(0, 0, 64, 1))
        out, _ = self.wanting(q, k, k)
        _, (dq, dk, _, *_) = self.backward(out, bf16(1, 2, 64, 64))
        self.assertEqual(dq.strides, q.strides)
        self.assertEqual(dk.strides, (2 * 64 * 64, 64 * 64, 64, 1))

    def test_backward_has_the_seeds_of_its_forward(self):
        q, seed = bf16(1, 2, 64, 64), Tensor((1,), "int64")
        out, _ = self.wanting(q, q, q, dropout=0.25, seed=seed, offset=5)
        self.assertIn(seed, out.context.saved_tensors)
        launch, _ = self.backward(out, bf16(1, 2, 64, 64))
        self.assertEqual(list(launch.numbers[BACKWARD_DROPOUT:BACKWARD_DROPOUT + 4]),
                         [0, 5, seed.address, 0])

    def test_deterministic_is_of_the_backward_alone(self):
        q = bf16(1, 2, 64, 64)
        session = fatune.Session(memory_only=True)
        q.requires_grad = True
        out = fatune.attention(q, q, q, session=session, deterministic=True)
        self.backward(out, bf16(1, 2, 64, 64))
        flags = [(plan.request.pass_, plan.request.deterministic)
                 for plan in session.plans.values()]
        self.assertEqual(flags, [(0, 0), (1, 1)])

    def test_a_session_in_a_cycle_is_closed_last(self):
        for _ in range(20):
            session = fatune.Session(memory_only=True)
            q = bf16(1, 2, 64, 64)
            q.requires_grad = True
            q.cycle = (session, q, fatune.attention(q, q, q, session=session))
            del session, q
            gc.collect()

    def test_backward_of_nothing(self):
        before = self.driver.fake_cuda_last_launch().contents.count
        q, k = bf16(1, 2, 0, 64), bf16(1, 2, 9, 64)
        out, _ = self.wanting(q, k, k)
        dq, dk, dv, *_ = self.gradients(out, bf16(1, 2, 0, 64), None)
        self.assertEqual([dq.shape, dk.shape, dv.shape], [q.shape, k.shape, k.shape])
        self.assertEqual(self.driver.fake_cuda_last_launch().contents.count, before)

    def test_given_output_has_no_gradients(self):
        q, out = bf16(1, 2, 64, 64), bf16(1, 2, 64, 64)
        q.requires_grad = True
        with self.assertRaisesRegex(ValueError, "out is given"):
            fatune.attention(q, q, q, out=out, session=self.session)


if __name__ == "__main__":
    unittest.main()
