"""Calls of a kind seen of late (python/recent.c): what they launch is what Python would, and no other kind is taken for theirs.
A driver that records launches looks on; the tensors are stand-ins that speak DLPack's C exchange API."""

import contextlib
import ctypes
import gc
import inspect
import sys
import types
import unittest
import weakref
from unittest import mock

from support import CPU, Device, Exchange, Tensor
from test_attention import DROPOUT, bf16
from test_binding import Speaking

import fatune
from fatune import _attention, _devices, _prepared

SHAPES = (2, 8, 128, 64), (2, 2, 300, 64), (2, 2, 300, 64)


@contextlib.contextmanager
def watched():
    """A list that gets, for each call of attention(), whether it was made without Python."""
    made, exchange = [], _prepared.exchange_of(types.SimpleNamespace(emulates=True))
    real = exchange.again

    def again(*given):
        made.append("raised")
        result = real(*given)
        made[-1] = result is not None
        return result
    with mock.patch.object(_attention, "_again", again), mock.patch.object(type(exchange), "again", staticmethod(again)):
        yield made


def by_python():
    return mock.patch.object(_attention, "_again", None)


def described(tensor):
    return tensor.shape, tensor.strides, tensor.dtype, str(tensor.device)


def by_operator(*_, **__):
    raise ValueError("the operator is called")


class Recent(Speaking):
    def setUp(self):
        operators = mock.patch.dict(sys.modules, {"fatune._operators": types.SimpleNamespace(attention_operator=by_operator)})
        operators.start()
        self.addCleanup(operators.stop)
        self.session.forget_plans()
        self.q, self.k, self.v = self.given = [bf16(*shape) for shape in SHAPES]
        self.outcome(self.given, {})  # reads the session's key
        self.session.forget_plans()

    def outcome(self, given, options):
        """All that is seen of a call: its error, or what it launched and gave; new tensors by their place."""
        before = self.driver.fake_cuda_last_launch().contents.count
        try:
            result = fatune.attention(*given, **{"session": self.session, **options})
        except (TypeError, ValueError, AttributeError, fatune.Error) as error:
            return type(error).__name__, str(error)
        launch = self.driver.fake_cuda_last_launch().contents
        made = result if type(result) is tuple else (result,)
        places = {tensor.address: f"made {n}" for n, tensor in enumerate(made)}
        if options.get("return_lse"):
            self.assertIn(made[1].address, list(launch.words))
        words = [places.get(word, word) for word in launch.numbers]
        if not options.get("dropout"):  # then nobody reads the seed
            first = launch.first + DROPOUT
            words[first:first + 4] = [0] * 4
        return (launch.count - before, words, list(launch.grid),
                list(launch.block), launch.smem, launch.stream, [described(tensor) for tensor in made])

    def remember_base(self):
        """The second call of the kind of self.given is made without Python."""
        with watched() as made:
            first, second = self.outcome(self.given, {}), self.outcome(self.given, {})
        self.assertTrue(made[1])
        self.assertEqual(first, second)

    def check_other(self, name, given, options, is_same=False):
        """What is another kind than self.given's goes by Python, and does what it does without kinds in memory."""
        with self.subTest(name):
            self.remember_base()
            with watched() as made:
                first = self.outcome(given, options)
            self.assertEqual(made, [] if options.get("dropout") else [is_same])
            again = self.outcome(given, options)
            with by_python():
                self.session.forget_plans()
                wanted = [self.outcome(given, options) for _ in range(2)]
            if options.get("seed", 0) is None:  # drawn anew
                return
            self.assertEqual([first, again], wanted)

    def changed(self, **fields):
        """self.given with others in place of some, of as many fields: name -> a function of the tensor."""
        return [fields[name](tensor) if name in fields else tensor for name, tensor in zip("qkv", self.given)]

    @staticmethod
    def resized(dim, extent):
        return lambda tensor: bf16(*tensor.shape[:dim], extent, *tensor.shape[dim + 1:])

    @staticmethod
    def strided(dim, factor):
        def of(tensor):
            strides = [stride * (factor if n == dim else 1) for n, stride in enumerate(tensor.strides)]
            return Tensor(tensor.shape, tensor.dtype, tensor.device, strides)
        return of

    def test_sizes(self):
        for name in "qkv":
            for dim, extents in enumerate(((3, 1), (4, 1), (129, 301), (32, 128))):
                for extent in extents:
                    self.check_other((name, dim, extent), self.changed(**{name: self.resized(dim, extent)}), {})
        for names, dim, extent in (("qkv", 0, 3), ("kv", 1, 4), ("kv", 2, 301), ("qk", 3, 32), ("qkv", 3, 128)):
            given = self.changed(**{name: self.resized(dim, extent) for name in names})
            self.assertEqual(self.outcome(given, {})[0], 1, (names, dim))
            self.session.forget_plans()
            self.check_other((names, dim), given, {})

    def test_strides(self):
        for name in "qkv":
            for dim in range(4):
                for factor in (0, 2):
                    self.check_other((name, dim, factor), self.changed(**{name: self.strided(dim, factor)}), {})

    def test_dtypes_and_devices(self):
        places = [lambda t: Tensor(t.shape, "float16"), lambda t: Tensor(t.shape, "float32"), lambda t: Tensor(t.shape, "int64"),
                  lambda t: Tensor(t.shape, t.dtype, CPU), lambda t: Tensor(t.shape, t.dtype, Device("cuda", 1))]
        for names in ("q", "k", "v", "kv", "qkv"):
            for n, place in enumerate(places):
                self.check_other((names, n), self.changed(**{name: place for name in names}), {})
        self.check_other("no tensor", [self.q, 3, self.v], {})
        self.check_other("a subclass", [type("Other", (Tensor,), {})(*[self.q.shape, "bfloat16"]), self.k, self.v], {})

    def test_arguments(self):
        out, sinks = bf16(2, 8, 128, 64), Tensor((8,), "float32")
        kept, blocks = (ctypes.c_uint8 * 3)(1, 0, 1), Tensor((1, 3), "uint8", CPU)
        blocks.address = ctypes.addressof(kept)
        mask = fatune.BlockMask(blocks, 128, 128, 128, 300, session=self.session)
        others = {
            "causal": (True, "top-left", "bottom-right", 0, 1, None, "sideways"), "window": ((5, 3), (5, 4), [5, 3], (-1, -1), 7),
            "scale": (0.5, 0.25, 1, 0, -1.0, "1"), "dropout": (0.5, 0), "seed": (0, 5, Tensor((1,), "int64")),
            "offset": (5, False, Tensor((1,), "int64")), "mask": (False, mask), "layout": ("bshd", "sideways", 5),
            "out": (out, Tensor((2, 8, 128, 64), "float16")), "deterministic": (True, 0), "score": ("softcap", "no such"),
            "visible": (lambda b, h, i, j: i > j,), "captured": ({}, {"cap": 3.0}), "sinks": (sinks,),
            "descales": ((None, None, None), (sinks, None, None)), "tf32": (True, None), "out_dtype": ("bfloat16", "float16"),
            "descale_rows": (64, 63), "fast_exp": (True, 1)}
        parameters = inspect.signature(fatune.attention).parameters
        self.assertEqual(set(others), set(parameters) - {"q", "k", "v", "session", "return_lse"})
        for name, values in others.items():
            for value in values:
                is_base = not isinstance(value, Tensor) and value == parameters[name].default
                self.check_other((name, value), self.given, {name: value, **({"seed": 7} if name == "dropout" and value else {})},
                                 is_base)
        self.check_other("return_lse", self.given, {"return_lse": True}, is_same=True)
        self.check_other("layouts of other names", self.given, {"layout": "".join(["b", "hsd"]), "scale": None}, is_same=True)

    def test_equal_values_are_the_same_kind(self):
        def options():
            return {"scale": float("0.3"), "window": tuple([5, 300]), "causal": "".join(["top", "-left"])}
        with watched() as made:
            outcomes = [self.outcome(self.given, options()) for _ in range(3)]
        self.assertEqual(made, [False, True, True])
        self.assertEqual(outcomes[1:], outcomes[:1] * 2)
        for name, value in (("scale", 0.3000001), ("window", (5, 301)), ("causal", "bottom-right")):
            with watched() as made:
                self.outcome(self.given, {**options(), name: value})
            self.assertEqual(made, [False])

    def test_seeds_are_python_s(self):
        for options in ({"seed": 5}, {"offset": 5}, {"seed": Tensor((1,), "int64")}, {"dropout": 0.5, "seed": 5}, {"dropout": 0.5}):
            with watched() as made:
                self.outcome(self.given, options)
                self.outcome(self.given, options)
            self.assertNotIn(True, made)

    def test_gradients_are_made_by_python(self):
        for tensor in self.given:
            self.remember_base()
            tensor.requires_grad = True
            with watched() as made:
                out = fatune.attention(*self.given, session=self.session)
                self.assertIsNotNone(out.context)
                with sys.modules["torch"].no_grad():
                    self.assertIsNone(fatune.attention(*self.given, session=self.session).context)
            self.assertEqual(made, [False, True])
            tensor.requires_grad = False

    def test_addresses_streams_and_outputs_are_each_call_s(self):
        cases = [(SHAPES, {}), (SHAPES, {"return_lse": True}), (((3, 50, 4, 128), (3, 70, 2, 128), (3, 70, 2, 32)), {"layout": "bshd"}),
                 (((2, 8, 128, 64), (2, 2, 300, 64), (2, 2, 300, 32)), {"causal": True, "return_lse": True})]
        for turn in range(3):
            for shapes, options in cases:
                given = [bf16(*shape) for shape in shapes]
                with by_python():
                    wanted = self.outcome(given, options)
                with watched() as made, mock.patch.object(Exchange, "current", 0x1234 + turn):
                    got = self.outcome(given, options)
                self.assertEqual(made, [True])  # what Python makes is remembered
                self.assertEqual(got[5], 0x1234 + turn)
                self.assertEqual(got[:5] + got[6:], wanted[:5] + wanted[6:])

    def test_what_the_library_checks_it_checks_each_time(self):
        self.remember_base()
        for tensor in self.given:
            tensor.address += 2
            with watched() as made, self.assertRaises(fatune.Error) as caught:
                fatune.attention(*self.given, session=self.session)
            self.assertEqual(made, ["raised"])
            with by_python(), self.assertRaises(fatune.Error) as wanted:
                fatune.attention(*self.given, session=self.session)
            self.assertEqual(str(caught.exception), str(wanted.exception))
            tensor.address -= 2
        self.remember_base()

    def test_modes_and_functorch_are_python_s(self):
        torch = sys.modules["torch"]
        places = [(torch._C, "_len_torch_dispatch_stack"), (torch._C._functorch, "peek_interpreter_stack"),
                  (torch._C, "_is_torch_function_mode_enabled")]
        quiet, seen = (0, None, False), dict.fromkeys(range(3), False)
        tellers = [lambda n=n: seen[n] or quiet[n] for n in range(3)]
        with contextlib.ExitStack() as stack:
            for (of, name), tell in zip(places, tellers):
                stack.enter_context(mock.patch.object(of, name, tell))
            self.session.exchange, self.session.key = None, None  # which asks for them anew
            self.session.forget_plans()
            stack.callback(_attention._key_of_session, self.session)
            self.remember_base()
            for n in seen:
                seen[n] = True
                with watched() as made:
                    result = self.outcome(self.given, {})
                self.assertEqual(made, [False])
                if places[n][1] != "_is_torch_function_mode_enabled":  # which sees what Python calls
                    self.assertEqual(result, ("ValueError", "the operator is called"))
                seen[n] = False
            with mock.patch.object(torch.autograd.forward_ad, "_current_level", 0), watched() as made:
                result = self.outcome(self.given, {})
            self.assertEqual((made, result), ([False], ("ValueError", "the operator is called")))
        self.session.forget_plans()

    def by_device(self, session):
        return dict.fromkeys((self.q.device, _devices.number_of(self.q.device)), session)

    def test_sessions(self):
        self.remember_base()
        other = fatune.Session(memory_only=True)
        with watched() as made, mock.patch.dict(_devices.found, self.by_device(self.session)):
            fatune.attention(*self.given, session=other)
            self.assertEqual(len(other.plans), 1)
            fatune.attention(*self.given, session=other)
            fatune.attention(*self.given)
            _devices.found.update(self.by_device(fatune.Session(memory_only=True)))
            fatune.attention(*self.given)
        self.assertEqual(made, [False, True, True, False])

    def test_what_is_forgotten_is_freed(self):
        self.remember_base()
        plan = weakref.ref(next(iter(self.session.plans.values())))
        self.session.forget_plans()
        gc.collect()
        self.assertIsNone(plan())
        with watched() as made:
            self.outcome(self.given, {})
        self.assertEqual((made, len(self.session.plans)), ([False], 1))
        call = next(iter(self.session.calls.values()))
        asked = call.recent[0]
        self.session.forget_plans()  # while the call was under way
        fatune._recent.remember(call, tuple(self.given), asked)
        self.assertEqual(self.session.recent, ())

    def test_tensors_are_not_held(self):
        given = [bf16(*shape) for shape in SHAPES]
        gone = [weakref.ref(tensor) for tensor in given]
        for _ in range(2):
            gone += map(weakref.ref, fatune.attention(*given, session=self.session, return_lse=True))
        del given
        gc.collect()
        self.assertEqual([reference() for reference in gone], [None] * 7)

    def test_a_session_is_closed(self):
        session = fatune.Session(memory_only=True)
        for shapes, options in ((SHAPES, {}), ((*SHAPES[:2], (2, 2, 300, 32)), {"layout": "bhsd", "return_lse": True})):
            for _ in range(2):
                fatune.attention(*[bf16(*shape) for shape in shapes], session=session, **options)
        self.assertEqual(len(session.recent), 2)
        gone = [weakref.ref(session), weakref.ref(session.opened), *map(weakref.ref, session.plans.values())]
        del session
        gc.collect()
        self.assertEqual([reference() for reference in gone], [None] * len(gone))

    def test_a_full_memory_takes_some(self):
        scales = [float(f"0.{n}1") for n in range(1, 13)]
        counts = list(map(sys.getrefcount, scales))

        def in_turn(scales):
            with watched() as made:
                for scale in scales:
                    self.outcome(self.given, {"scale": scale})
            return made
        self.assertEqual(in_turn(scales[:8] * 2), [False] * 8 + [True] * 8)
        hits = sum(in_turn(scales * 20))
        self.assertEqual(len(self.session.recent), 8)
        self.assertGreater(hits, 12 * 20 / 4)  # were the oldest to go each time there would be none
        made = in_turn([scales[0]] * 5)
        self.assertTrue(made[-1])  # a new one is taken soon
        self.session.forget_plans()
        gc.collect()
        self.assertEqual(list(map(sys.getrefcount, scales)), counts)

    def test_references(self):
        scale, window = float("0.3"), tuple([50, 3])
        options = {"scale": scale, "window": window, "return_lse": True}
        self.outcome(self.given, options)
        call = next(iter(self.session.calls.values()))
        held = [*self.given, scale, window, self.session, self.session.recent, self.session.recent[0], call, call._lse,
                call._forward[0].__self__, self.session.exchange, Tensor, None, sys.modules["torch"].empty_like]

        def counts():
            gc.collect()
            return [sys.getrefcount(thing) for thing in held]

        def run():
            for _ in range(200):
                fatune.attention(*self.given, session=self.session, **options)
                self.k.address += 2
                with contextlib.suppress(fatune.Error):
                    fatune.attention(*self.given, session=self.session, **options)
                self.k.address -= 2
                fatune.attention(self.q, self.k, bf16(2, 2, 300, 72), session=self.session, **options)
        run()
        before = counts()
        run()
        self.assertLess(max(abs(a - b) for a, b in zip(counts(), before)), 100)

    def test_bad_input(self):
        self.remember_base()
        binding, asked, again = _prepared.binding(), (None, 0, False), self.session.exchange.again
        for wrong in ((), (1,) * 5, ([], None, False, *self.given)):
            with self.assertRaises(TypeError):
                again(*wrong)
        for session in (None, 3, mock.Mock(recent=(1, 2)), mock.Mock(recent=[]), mock.Mock(recent=())):
            self.assertIsNone(again({}, session, False, *self.given, *asked))
        self.assertIsNone(again({}, self.session, False, *self.given, *asked))  # fewer than the kinds were asked
        prepared = next(iter(self.session.calls.values()))._forward[0].__self__
        lse = Tensor((2, 8, 128), "float32")
        for wrong in ((None, tuple(self.given), asked, None, None, lse, None), (prepared, self.given, asked, None, None, lse, None),
                      (prepared, (self.q, self.k), asked, None, None, lse, None), (prepared, (self.q, self.k, 3), asked, None, None, lse, None),
                      (prepared, tuple(self.given), asked, None, None, lse, lse)):
            with self.assertRaises(TypeError):
                binding.Kind(*wrong)
        with self.assertRaises(ValueError):
            binding.Exchange(Tensor.__dlpack_c_exchange_api__, Tensor, None, None, (1, 2))


if __name__ == "__main__":
    unittest.main()
