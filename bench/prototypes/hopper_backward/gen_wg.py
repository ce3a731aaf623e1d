# writes wg.cuh: wgmma wrappers, overloaded by the accumulator's size
out=["#pragma once"]
def ops(f,c): return ", ".join(f"%{i}" for i in range(f,f+c))
for n in (32,64,80,96,128,192,256):
    acc=", ".join(f'"+f"(c[{i}][0]), "+f"(c[{i}][1]), "+f"(c[{i}][2]), "+f"(c[{i}][3])' for i in range(n//8))
    out.append(f'''template <int TA, int TB> __device__ __forceinline__ void wg_ss(float (&c)[{n//8}][4], u64 a, u64 b, bool accumulate) {{
  asm volatile("{{\\n.reg .pred p;\\nsetp.ne.b32 p, %{n//2+2}, 0;\\n"
    "wgmma.mma_async.sync.aligned.m64n{n}k16.f32.bf16.bf16 {{{ops(0,n//2)}}}, %{n//2}, %{n//2+1}, p, 1, 1, %{n//2+3}, %{n//2+4};\\n}}" :
    {acc} : "l"(a), "l"(b), "r"(int(accumulate)), "n"(TA), "n"(TB));
}}
template <int TB> __device__ __forceinline__ void wg_rs(float (&c)[{n//8}][4], const unsigned (&a)[4], u64 b, bool accumulate) {{
  asm volatile("{{\\n.reg .pred p;\\nsetp.ne.b32 p, %{n//2+5}, 0;\\n"
    "wgmma.mma_async.sync.aligned.m64n{n}k16.f32.bf16.bf16 {{{ops(0,n//2)}}}, {{{ops(n//2,4)}}}, %{n//2+4}, p, 1, 1, %{n//2+6};\\n}}" :
    {acc} : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(int(accumulate)), "n"(TB));
}}''')
open("wg.cuh","w").write("\n".join(out)+"\n")
