"""run.py: checks and times the variants of a plan, cubins by name. worker: python3 run.py worker PLAN OUT SKIP; parent: python3 run.py PLAN OUT"""
import ctypes, json, os, random, statistics, subprocess, sys, time, math
HERE = os.path.dirname(os.path.abspath(__file__))

class Params(ctypes.Structure):
    _fields_ = [("maps", ctypes.c_uint64 * 96)] + [(n, ctypes.c_uint64) for n in ("o", "dout", "lse", "dq_sum", "stats", "dq")] + \
               [(n, ctypes.c_int) for n in ("n", "bh", "sections", "shift")] + [("scale", ctypes.c_float), ("scale_log2", ctypes.c_float)] + [("pad", ctypes.c_uint64 * 7)]

cu = None
class Attribute(ctypes.Structure):
    _fields_ = [("id", ctypes.c_int), ("pad", ctypes.c_int), ("value", ctypes.c_int * 16)]
class Config(ctypes.Structure):
    _fields_ = [(n, ctypes.c_uint) for n in ("gx", "gy", "gz", "bx", "by", "bz", "smem")] + [("stream", ctypes.c_void_p), ("attrs", ctypes.c_void_p), ("count", ctypes.c_uint)]
def ok(r, what=""):
    if r: raise RuntimeError(f"cuda error {r} {what}")

def tensor_map(t, d, rows, box_rows):
    raw = ctypes.create_string_buffer(192); base = ctypes.addressof(raw); at = (base + 63) // 64 * 64
    dims = (ctypes.c_uint64 * 2)(d, rows); strides = (ctypes.c_uint64 * 1)(d * 2); box = (ctypes.c_uint32 * 2)(64, box_rows); es = (ctypes.c_uint32 * 2)(1, 1)
    ok(cu.cuTensorMapEncodeTiled(ctypes.c_void_p(at), 9, 2, ctypes.c_void_p(t.data_ptr()), dims, strides, box, es, 0, 3, 2, 0), "map")
    return list((ctypes.c_uint64 * 16).from_address(at))

class Kernel:
    def __init__(self, path):
        self.module = ctypes.c_void_p()
        data = open(path, "rb").read()
        ok(cu.cuModuleLoadData(ctypes.byref(self.module), data), "load")
        p, size = ctypes.c_uint64(), ctypes.c_size_t()
        ok(cu.cuModuleGetGlobal_v2(ctypes.byref(p), ctypes.byref(size), self.module, b"info"), "info")
        info = (ctypes.c_int * 8)()
        ok(cu.cuMemcpyDtoH_v2(info, p, 32))
        self.threads, self.smem, self.bm, self.bn, self.d, self.causal = info[:6]
        self.f = {}
        for n in ("prepare", "backward", "convert"):
            f = ctypes.c_void_p(); ok(cu.cuModuleGetFunction(ctypes.byref(f), self.module, n.encode()), n); self.f[n] = f
        ok(cu.cuFuncSetAttribute(self.f["backward"], 8, self.smem), "smem")

    def bind(self, q, k, v, o, do, lse, dq, dk, dv, sections=0, spread=1, pdl=0, scratch=None):
        b, h, n, d = q.shape
        assert d == self.d and n % self.bn == 0 and n % self.bm == 0
        import torch
        p = Params(); m = []
        rows = b * h * n
        for t, r in ((q, self.bm), (do, self.bm), (k, 64), (v, 64), (dk, 64), (dv, 64)): m += tensor_map(t, d, rows, r)
        for i, x in enumerate(m): p.maps[i] = x
        sums, stats = scratch
        p.o, p.dout, p.lse, p.dq_sum, p.stats, p.dq = (t.data_ptr() for t in (o, do, lse, sums, stats, dq))
        p.n, p.bh = n, b * h
        if sections == 0: sections = (max(1, min(b * h, int(32e6 / (n * d * 8)))) if self.causal else 1)
        while b * h % sections: sections -= 1
        p.sections, p.shift = sections, (n // self.bm // (n // self.bn) if spread else 0)
        p.scale = d ** -0.5; p.scale_log2 = p.scale * 1.44269504
        stream = torch.cuda.current_stream().cuda_stream
        arg = (ctypes.c_void_p * 1)(ctypes.addressof(p))
        grids = {"prepare": (rows // self.bm, 256, 0), "backward": (rows // self.bn, self.threads, self.smem), "convert": (rows // 64, 128, 0)}
        attr = Attribute(6); attr.value[0] = 1
        configs = {w: Config(g, 1, 1, t, 1, 1, s, stream, ctypes.addressof(attr), 0 if w == "prepare" else 1) for w, (g, t, s) in grids.items()}
        keep = (attr, p, q, k, v, o, do, lse, dq, dk, dv, sums, stats)
        def run(which=("prepare", "backward", "convert")):
            keep
            for w in which:
                g, t, s = grids[w]
                if pdl: ok(cu.cuLaunchKernelEx(ctypes.byref(configs[w]), self.f[w], arg, None), w); continue
                ok(cu.cuLaunchKernel(self.f[w], g, 1, 1, t, 1, 1, s, ctypes.c_void_p(stream), arg, None), w)
        return run

def worker(plan, out, skip):
    global cu
    import torch, torch.nn.functional as F
    from torch.nn.attention import sdpa_kernel, SDPBackend as B
    cu = ctypes.CDLL("libcuda.so.1")
    torch.cuda.init(); torch.zeros(1, device="cuda")
    torch.backends.cuda.matmul.allow_tf32 = False
    log = open(out, "a")
    def put(**k):
        log.write(json.dumps(k) + "\n"); log.flush(); print(json.dumps(k) if k.get("kind") != "time" else "", flush=True) if k.get("kind") not in ("start", "time", "checked") else None
    def inputs(b, h, n, d, seed):
        torch.manual_seed(seed)
        return [torch.randn(b, h, n, d, device="cuda", dtype=torch.bfloat16) for _ in range(4)]
    def forward_lse(q, k, v, causal):
        r = torch.ops.aten._scaled_dot_product_flash_attention(q, k, v, 0.0, causal, False)
        return r[0].contiguous(), r[1].contiguous().float()
    def rel(a, b): return ((a.double() - b.double()).norm() / b.double().norm()).item()
    good = {}
    for v in plan["variants"]:
        name = v["name"]
        if name in skip: continue
        put(kind="start", name=name)
        try:
            kern = Kernel(f"{HERE}/{v.get('cubin', name)}.cubin")
            worst = {}
            for b, h, n in plan.get("check", [(1, 2, 768), (2, 3, 1536)]):
                if n % kern.bn: n = n // kern.bn * kern.bn
                d = kern.d
                q, k, vv, do = inputs(b, h, n, d, random.randrange(1 << 30))
                q32, k32, v32 = (t.float().requires_grad_() for t in (q, k, vv))
                s = (q32 @ k32.transpose(-1, -2)) * d ** -0.5
                if kern.causal: s = s.masked_fill(torch.ones(n, n, device="cuda", dtype=torch.bool).triu(1), float("-inf"))
                ref = torch.autograd.grad(torch.softmax(s, -1) @ v32, (q32, k32, v32), do.float())
                qq, kk, v2 = (t.detach().requires_grad_() for t in (q, k, vv))
                with sdpa_kernel(B.FLASH_ATTENTION): of = F.scaled_dot_product_attention(qq, kk, v2, is_causal=bool(kern.causal))
                fa = torch.autograd.grad(of, (qq, kk, v2), do)
                o, lse = forward_lse(q, k, vv, bool(kern.causal))
                g = [torch.full_like(q, float("nan")) for _ in range(3)]
                sc = (torch.full((b * h * n * d,), float("nan"), device="cuda"), torch.full((b * h * n * 3,), float("nan"), device="cuda"))
                run = kern.bind(q, k, vv, o, do, lse, *g, scratch=sc, **v.get("options", {}))
                for _ in range(3): run()
                torch.cuda.synchronize()
                for nm, a, r, f in zip(("dq", "dk", "dv"), g, ref, fa):
                    e = rel(a, r) if torch.isfinite(a).all() else float("inf")
                    if nm not in worst or e / rel(f, r) > worst[nm][0] / worst[nm][1]: worst[nm] = (e, rel(f, r))
                del s, ref
            passed = all(e < 1.35 * f for e, f in worst.values())
            put(kind="check", name=name, ok=passed, **{k: f"{e:.5f}/{f:.5f}" for k, (e, f) in worst.items()})
            if passed: good[name] = (kern, v)
        except RuntimeError as e:
            put(kind="check", name=name, ok=False, error=str(e)[:150])
            torch.cuda.synchronize()   # dies here where the context is dead: the parent goes on behind it
    put(kind="checked")
    order = random.Random(1)
    def smi():
        try: return subprocess.run(["nvidia-smi", "--query-gpu=clocks.sm,power.draw,temperature.gpu", "--format=csv,noheader,nounits"], capture_output=True, text=True, timeout=10).stdout.strip()
        except Exception as e: return str(e)
    for shape in plan["shapes"]:
        d, n, causal = shape["d"], shape["n"], shape["causal"]
        b, h = max(1, 16384 // n), 2048 // d
        q, k, v, do = inputs(b, h, n, d, 5)
        o, lse = forward_lse(q, k, v, causal)
        sc = (torch.empty(b * h * n * d, device="cuda"), torch.empty(b * h * n * 3, device="cuda"))
        g = [torch.empty_like(q) for _ in range(3)]
        flops = 10 * b * h * n * n * d * (0.5 if causal else 1)
        runs = {}
        qq, kk, vv = (t.detach().requires_grad_() for t in (q, k, v))
        outs = {}
        if plan.get("peers", True):
            for nm, be in (("cudnn", B.CUDNN_ATTENTION), ("fa2", B.FLASH_ATTENTION)):
                if nm in shape.get("nopeers", []): continue
                with sdpa_kernel(be): outs[nm] = F.scaled_dot_product_attention(qq, kk, vv, is_causal=causal)
                runs[nm] = (lambda nm=nm: torch.autograd.grad(outs[nm], (qq, kk, vv), do, retain_graph=True))
        for name, (kern, var) in good.items():
            if kern.d != d or bool(kern.causal) != causal or n % kern.bn or n % kern.bm: continue
            if "only" in var and n not in var["only"]: continue
            runs[name] = kern.bind(q, k, v, o, do, lse, *g, scratch=sc, **var.get("options", {}))
        samples = {nm: [] for nm in runs}; reps = {}
        def sample(nm):
            f = runs[nm]; a, z = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            f(); a.record()
            for _ in range(reps.get(nm, 1)): f()
            z.record(); z.synchronize()
            return a.elapsed_time(z) / reps.get(nm, 1)
        for nm in runs:
            sample(nm); reps[nm] = max(1, math.ceil(5.0 / sample(nm)))
        for nm in runs: sample(nm)
        for _ in range(plan.get("rounds", 7)):
            for nm in order.sample(list(runs), len(runs)): samples[nm].append(sample(nm))
        clocks = smi()
        res = {nm: flops / statistics.median(x) / 1e9 for nm, x in samples.items()}
        print(f"d{d} n{n} {'causal' if causal else 'full'} [{clocks}]", flush=True)
        # alone, as do_bench does: a cool card, 10 ms of warm-up, 60 ms of runs
        alone = {}
        if plan.get("alone"):
            best = [x for x in sorted(res, key=lambda x: -res[x]) if x not in ("cudnn", "fa2")][:plan["alone"]]
            for nm in ["cudnn"] * ("cudnn" in runs) + best:
                time.sleep(0.2)
                ms = res[nm] and flops / res[nm] / 1e9
                for _ in range(max(1, int(10 / ms))): runs[nm]()
                evs = [torch.cuda.Event(enable_timing=True) for _ in range(max(3, int(60 / ms)) + 1)]
                evs[0].record()
                for ev in evs[1:]: runs[nm](); ev.record()
                evs[-1].synchronize()
                alone[nm] = round(flops / statistics.median(a.elapsed_time(z) for a, z in zip(evs, evs[1:])) / 1e9)
            print("   alone:", alone, flush=True)
        # the main kernel alone, and agreement with FA2 at this size
        parts, agree = {}, {}
        for nm in runs:
            if nm in ("cudnn", "fa2"): continue
            for t in g: t.fill_(float("nan"))
            runs[nm]()
            if "fa2" in outs:
                fa = runs["fa2"]()
                agree[nm] = [round(rel(x, y), 5) for x, y in zip(g, fa)]
            ts = []
            for _ in range(3):
                ev = [torch.cuda.Event(enable_timing=True) for _ in range(4)]
                runs[nm](); ev[0].record()
                for i, w in enumerate(("prepare", "backward", "convert")): runs[nm]((w,)); ev[i + 1].record()
                ev[3].synchronize(); ts.append([ev[i].elapsed_time(ev[i + 1]) for i in range(3)])
            parts[nm] = [round(statistics.median(c), 4) for c in zip(*ts)]
        put(kind="time", d=d, n=n, causal=causal, tflops=res, ms={k: statistics.median(x) for k, x in samples.items()}, parts=parts, alone=alone, agree=agree, clocks=clocks,
            spread={k: (max(x) - min(x)) / statistics.median(x) for k, x in samples.items()})
        for nm in sorted(res, key=lambda x: -res[x]):
            m = parts.get(nm); print(f"   {nm:28s} {res[nm]:6.0f}" + (f"  main alone {flops / m[1] / 1e9:5.0f}  prep {m[0]*1e3:4.0f} conv {m[2]*1e3:4.0f} us  vs fa2 {agree.get(nm)}" if m else ""), flush=True)
        q = k = v = do = o = sc = g = runs = outs = None; torch.cuda.empty_cache()
    put(kind="end")

def parent(plan_path, out):
    skip, began, plan = [], time.time(), json.load(open(plan_path))
    limit = plan.get("limit", 400)
    open(out, "w").close()
    while time.time() - began < limit:
        p = subprocess.Popen([sys.executable, os.path.abspath(__file__), "worker", plan_path, out, json.dumps(skip)])
        last, size = time.time(), 0
        while p.poll() is None:
            time.sleep(0.5)
            s = os.path.getsize(out)
            if s != size: last, size = time.time(), s
            if time.time() - last > plan.get("stall", 40) or time.time() - began > limit: p.kill(); p.wait(); break
        rows = [json.loads(l) for l in open(out)]
        if rows and rows[-1]["kind"] == "end": break
        started = [r["name"] for r in rows if r["kind"] == "start"]
        checked = {r["name"]: r["ok"] for r in rows if r["kind"] == "check"}
        if any(r["kind"] == "checked" for r in rows[-len(plan["shapes"]) - 2:]) and p.returncode != 0: print("timing died", p.returncode); break
        bad = [s for s in started if not checked.get(s, False)]
        print("worker died", p.returncode, "at", started[-1:] , flush=True)
        if not started: break
        skip = sorted(set(skip + bad))
    print(f"{time.time() - began:.0f} s", flush=True)

if sys.argv[1] == "worker": worker(json.load(open(sys.argv[2])), sys.argv[3], json.loads(sys.argv[4]))
else: parent(sys.argv[1], sys.argv[2])
