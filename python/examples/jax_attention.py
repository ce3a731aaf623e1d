"""jax_attention.py: fatune in JAX, by XLA's foreign function interface: jitted, differentiated, on the stream of the computation.

    python3 jax_attention.py [GPU]     # GPU: what to emulate where JAX has none, "h200"

A C compiler builds the handler jax_call.c against the header that comes with JAX. What it runs was made before: a plan, and
its arguments without addresses, which are part of the traced computation; XLA gives the addresses. Without a GPU XLA's CPU
platform runs the kernels on fatune's emulated GPU. Compared with the same in jax.numpy, float32.
"""

import ctypes
import math
import os
import pathlib
import subprocess
import sys
import tempfile

import jax
import jax.numpy as jnp
import jaxlib
import numpy as np

import fatune
from fatune import _prepared, _structs

FOLDER = pathlib.Path(__file__).resolve().parent
ON_GPU = jax.default_backend() == "gpu"
SESSION = fatune.default_session(0) if ON_GPU else fatune.Session(emulate=(sys.argv[1:] or ["h200"])[0], memory_only=True)
DTYPES = {"float16": _structs.FP16, "bfloat16": _structs.BF16}


def build_handler():
    """Compiles jax_call.c and tells XLA of it."""
    with tempfile.TemporaryDirectory() as folder:
        header = FOLDER.parent.parent / "runtime"  # of an installed fatune: /usr/include
        library = pathlib.Path(folder) / "jax_call.so"
        command = [os.environ.get("CC", "cc"), "-std=c11", "-O2", "-shared", "-fPIC", f"-I{header}",
                   f"-I{jax.ffi.include_dir()}", str(FOLDER / "jax_call.c"), "-o", str(library)]
        compiled = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if compiled.returncode:
            sys.exit(f"jax_attention: the handler cannot be compiled for jaxlib {jaxlib.__version__}\n"
                     f"{' '.join(command)}\n{compiled.stdout}")
        handler = ctypes.CDLL(str(library)).fatune_jax_call
    jax.ffi.register_ffi_target("fatune", jax.ffi.pycapsule(handler), platform="CUDA" if ON_GPU else "cpu")


def _address(function):
    return ctypes.cast(function, ctypes.c_void_p).value


def _call(pass_, inputs, outputs, causal):
    """Runs a plan; inputs: arrays, outputs: shapes, both by the name of their argument. [batch, seq, heads, dim]."""
    q, k = inputs["q"], inputs["k"]
    (batch, nq, heads, dim), nk, heads_kv = q.shape, k.shape[1], k.shape[2]
    sizes = {"batch": batch, "heads_q": heads, "heads_kv": heads_kv, "seqlen_q": nq, "seqlen_k": nk}
    plan = SESSION.cached_plan(_structs.Request(
        pass_=pass_, dtype=DTYPES[q.dtype.name], head_dim=dim, head_dim_v=inputs["v"].shape[3],
        causal=_structs.CAUSAL_BOTTOM_RIGHT if causal else _structs.CAUSAL_NONE, **sizes))
    arguments = _structs.Arguments(scale=1 / math.sqrt(dim), **sizes)
    for name, array in {**inputs, **outputs}.items():
        if len(array.shape) == 4:
            _, rows, heads, columns = array.shape
            setattr(arguments, name, _structs.Tensor(None, rows * heads * columns, heads * columns, columns))
    places = [_prepared.place(name) for name in (*inputs, *outputs)]
    workspace = plan.workspace_for(arguments)
    made = list(outputs.values())
    if workspace:
        arguments.workspace_size = workspace
        places.append(~_prepared.place("workspace"))
        made.append(jax.ShapeDtypeStruct((workspace + _prepared.ALIGNMENT,), jnp.uint8))
    library = fatune._library.library()
    call = np.array([_address(library.fatune_plan_run), _address(library.fatune_detail), plan.handle.value, ON_GPU, len(places),
                     *places, *np.frombuffer(bytes(arguments), np.int64)], np.int64)
    results = jax.ffi.ffi_call("fatune", made)(*inputs.values(), call=call)
    return results[:len(outputs)]


def _forward(q, k, v, causal):
    out = jax.ShapeDtypeStruct((*q.shape[:3], v.shape[3]), q.dtype)
    lse = jax.ShapeDtypeStruct((q.shape[0], q.shape[2], q.shape[1]), jnp.float32)
    out, lse = _call(_structs.FORWARD, {"q": q, "k": k, "v": v}, {"o": out, "lse": lse}, causal)
    return out, (q, k, v, out, lse)


def _backward(causal, kept, dout):
    names = ("q", "k", "v", "o", "lse", "dout")
    like = {name: jax.ShapeDtypeStruct(array.shape, array.dtype) for name, array in zip(("dq", "dk", "dv"), kept)}
    return tuple(_call(_structs.BACKWARD, dict(zip(names, (*kept, dout))), like, causal))


attention = jax.custom_vjp(lambda q, k, v, causal: _forward(q, k, v, causal)[0], nondiff_argnums=(3,))
attention.defvjp(_forward, _backward)


def plain(q, k, v, causal):
    """The same in jax.numpy."""
    group = q.shape[2] // k.shape[2]
    k, v = jnp.repeat(k, group, 2), jnp.repeat(v, group, 2)
    scores = jnp.einsum("bihd,bjhd->bhij", q, k) / math.sqrt(q.shape[3])
    seen = jnp.arange(k.shape[1]) <= jnp.arange(q.shape[1])[:, None] + k.shape[1] - q.shape[1]
    weights = jax.nn.softmax(jnp.where(seen, scores, -jnp.inf) if causal else scores)
    return jnp.einsum("bhij,bjhd->bihd", weights, v)


def main():
    build_handler()
    keys = jax.random.split(jax.random.key(1), 4)
    shapes = ((2, 100, 4, 32), (2, 130, 2, 32), (2, 130, 2, 32), (2, 100, 4, 32))
    q, k, v, dout = (jax.random.normal(key, shape).astype(jnp.float16) for key, shape in zip(keys, shapes))

    def loss(attend, *tensors):
        return (attend(*tensors, True).astype(jnp.float32) * dout).sum()
    ours = jax.jit(jax.value_and_grad(lambda *t: loss(attention, *t), (0, 1, 2)))
    theirs = jax.jit(jax.value_and_grad(lambda *t: loss(plain, *t), (0, 1, 2)))
    exact = theirs(*(tensor.astype(jnp.float32) for tensor in (q, k, v)))
    for _ in range(2):  # the second time by what XLA has compiled
        got = ours(q, k, v)
        worst = [float(jnp.abs(a.astype(jnp.float32) - b).max()) for a, b in zip(got[1], exact[1])]
        print("loss", float(got[0]), "of", float(exact[0]), "worst difference of dq, dk, dv", worst)
        if not (abs(got[0] - exact[0]) < 1 and max(worst) < 2e-2):
            sys.exit("jax_attention: the results differ")
    print(f"the same as jax.numpy, {SESSION.emulates or 'on a GPU'}")


if __name__ == "__main__":
    main()
