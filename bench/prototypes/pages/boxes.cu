// boxes.cu: blocks that only bring K and V out of L2 into shared memory, by boxes of TMA or by cp.async.
// in -> out: nothing -> clocks a box, bytes a clock, clocks for 64 KB, by rows of a box, warps that ask, tiles on their way.
#include <cuda.h>
#include <cuda_runtime.h>
#include <cuda_bf16.h>
#include <cstdio>
#include <cstdlib>
#include <vector>
#include <algorithm>
typedef unsigned long long u64;
__device__ __forceinline__ unsigned sa(const void *p) {
  return (unsigned)__cvta_generic_to_shared(p);
}
__device__ __forceinline__ void mb_init(unsigned b, int n) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(b), "r"(n) : "memory");
}
__device__ __forceinline__ void mb_expect(unsigned b, int n) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(b), "r"(n)
               : "memory");
}
__device__ __forceinline__ void mb_wait(unsigned b, unsigned par) {
  asm volatile("{\n.reg .pred p;\nL:\nmbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n@!p "
               "bra L;\n}" ::"r"(b),
               "r"(par)
               : "memory");
}
__device__ __forceinline__ bool elect() {
  unsigned e;
  asm volatile("{\n.reg .pred p;\nelect.sync _|p, 0xffffffff;\nselp.b32 %0, 1, 0, p;\n}" : "=r"(e));
  return e;
}
__device__ __forceinline__ void tma4(unsigned to, const CUtensorMap *m, unsigned b, int c, int r,
                                     int h, int n) {
  asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], "
               "[%1, {%3, %4, %5, %6}], [%2];" ::"r"(to),
               "l"(m), "r"(b), "r"(c), "r"(r), "r"(h), "r"(n)
               : "memory");
}
__device__ __forceinline__ void tma5(unsigned to, const CUtensorMap *m, unsigned b, int c, int r,
                                     int h, int n, int k) {
  asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], "
               "[%1, {%3, %4, %5, %6, %7}], [%2];" ::"r"(to),
               "l"(m), "r"(b), "r"(c), "r"(r), "r"(h), "r"(n), "r"(k)
               : "memory");
}
__device__ __forceinline__ void cp16(unsigned to, const void *f) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(f) : "memory");
}
extern __shared__ __align__(1024) unsigned char sm[];
constexpr int BEYOND = 1 << 30;
// KIND 0: 5D beyond, ROWS x 64 box; 1: 4D; 2: cp.async rows of 256 B (ROWS of a page)
template <int KIND, int ROWS, int W, int D>
__global__ void k(const __grid_constant__ CUtensorMap map, const unsigned char *data,
                  const int *table, int pages, int tiles, u64 *clk, int heads) {
  constexpr int TILE = 32768 / (W >= 2 ? W / 2 : 1); // bytes per tile of a warp
  constexpr int BOX = ROWS * 128, PG = TILE / (2 * BOX);
  unsigned base = (sa(sm) + 1023) / 1024 * 1024 + 1024, bar = (sa(sm) + 1023) / 1024 * 1024;
  int w = threadIdx.x / 32;
  if (threadIdx.x == 0)
    for (int i = 0; i < W * D; i++) mb_init(bar + 8 * i, 1);
  __syncthreads();
  u64 t0 = clock64();
  int head = blockIdx.x % heads;
  unsigned seed = (blockIdx.x / heads) * 977 + w * 131;
  int number = 0;
  for (int t = 0; t < tiles + D; t++) {
    int s = t % D;
    unsigned b = bar + 8 * (w * D + s);
    if (KIND != 2) {
      if (t >= D) mb_wait(b, (t / D - 1) & 1);
    } else {
      if (t >= D) asm volatile("cp.async.wait_group %0;" ::"n"(D - 1) : "memory");
      if (t >= tiles) asm volatile("cp.async.commit_group;");
    }
    if (t >= tiles) continue;
    unsigned to = base + (w * D + s) * TILE;
    number = table[(seed + t * 32 + threadIdx.x % 32) % pages];
    int pg[PG];
#pragma unroll
    for (int n = 0; n < PG; n++) pg[n] = __shfl_sync(~0u, number, n);
    if (KIND == 2) {
      int lane = threadIdx.x % 32;
      const unsigned char *f0 = data + head * 256 + (lane / 16) * (heads * 256ll) + lane % 16 * 16;
      unsigned lt = to + lane % 16 / 8 * (TILE / 2) + lane / 16 * 128,
               sw = (lane % 8 ^ lane / 16) * 16;
#pragma unroll
      for (int n = 0; n < PG; n++) {
        const unsigned char *f = f0 + (long long)pg[n] * ROWS * heads * 256;
#pragma unroll
        for (int j = 0; j < ROWS / 2; j++) {
          cp16(lt + (n * ROWS + 2 * j) * 128 + (sw ^ 2 * j % 8 * 16), f);
          f += 2 * heads * 256ll;
        }
      }
      asm volatile("cp.async.commit_group;");
    } else if (elect()) {
      mb_expect(b, TILE);
#pragma unroll
      for (int n = 0; n < PG; n++)
#pragma unroll
        for (int p = 0; p < 2; p++) {
          unsigned d = to + p * (TILE / 2) + n * BOX;
          if (KIND == 0)
            tma5(d, &map, b, p * 64, BEYOND - ROWS, pg[n] * ROWS * heads + head, ROWS, BEYOND);
          else
            tma4(d, &map, b, p * 64, 0, head, pg[n]);
        }
    }
    __syncwarp();
  }
  if (threadIdx.x % 32 == 0 && w == 0) clk[blockIdx.x] = clock64() - t0;
}
typedef CUresult (*Enc)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *, const cuuint64_t *,
                        const cuuint64_t *, const cuuint32_t *, const cuuint32_t *,
                        CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion,
                        CUtensorMapFloatOOBfill);
Enc enc;
unsigned char *data;
int *table;
u64 *clk;
int SMS;
template <int KIND, int ROWS, int W, int D> void run(const char *name, bool alone = false) {
  const int heads = 8;
  const long bytes = 32l << 20;
  const int pages = bytes / (ROWS * heads * 256l);
  CUtensorMap m;
  cuuint32_t one[5] = {1, 1, 1, 1, 1};
  if (KIND == 1) {
    cuuint64_t dims[4] = {128, ROWS, heads, (cuuint64_t)pages},
               str[3] = {heads * 256, 256, (cuuint64_t)ROWS * heads * 256};
    cuuint32_t box[4] = {64, ROWS, 1, 1};
    CUresult r = enc(&m, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 4, data, dims, str, box, one,
                     CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                     CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (r) printf("enc %d\n", r);
  } else {
    cuuint64_t d5[5] = {128, BEYOND, (cuuint64_t)pages * ROWS * heads, 0x7fffffff, 0x7fffffff};
    cuuint64_t str[4] = {heads * 256, 256, heads * 256, (1ull << 34) - heads * 256};
    cuuint32_t box[5] = {64, ROWS, 1, 1, 1};
    CUresult r = enc(&m, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 5, data, d5, str, box, one,
                     CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                     CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (r) printf("enc5 %d\n", r);
  }
  auto f = k<KIND, ROWS, W, D>;
  int smem = 200 * 1024 + 3072;
  cudaFuncSetAttribute(f, cudaFuncAttributeMaxDynamicSharedMemorySize, smem);
  int tiles = 300;
  std::vector<int> h(pages);
  for (int i = 0; i < pages; i++) h[i] = i;
  srand(1);
  std::random_shuffle(h.begin(), h.end());
  cudaMemcpy(table, h.data(), pages * 4, cudaMemcpyHostToDevice);
  int grid = alone ? 1 : SMS;
  std::vector<double> v;
  for (int i = 0; i < 5; i++) {
    f<<<grid, 32 * W, smem>>>(m, data, table, pages, tiles, clk, heads);
    std::vector<u64> c(grid);
    cudaMemcpy(c.data(), clk, grid * 8, cudaMemcpyDeviceToHost);
    double s = 0;
    for (auto x : c) s += x;
    v.push_back(s / grid);
  }
  cudaError_t e = cudaGetLastError();
  std::sort(v.begin(), v.end());
  double tile = 32768.0 / (W >= 2 ? W / 2 : 1), total = tile * W * tiles;
  double boxes = total / (KIND == 2 ? 512 : ROWS * 128);
  printf(
      "%-28s rows %3d warps %d depth %d%s: %7.1f clk a %s, %6.1f B/clk, %7.0f clk for 64 KB %s\n",
      name, ROWS, W, D, alone ? " alone" : "", v[2] / boxes, KIND == 2 ? "copy" : "box",
      total / v[2], v[2] / total * 65536, e ? cudaGetErrorString(e) : "");
  fflush(stdout);
}
int main() {
  cudaSetDevice(0);
  cudaDeviceProp p;
  cudaGetDeviceProperties(&p, 0);
  SMS = p.multiProcessorCount;
  printf("%s\n", p.name);
  void *fn;
  cudaDriverEntryPointQueryResult q;
  cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &fn, cudaEnableDefault, &q);
  enc = (Enc)fn;
  cudaMalloc(&data, 256 << 20);
  cudaMemset(data, 0, 256 << 20);
  cudaMalloc(&table, 1 << 22);
  cudaMalloc(&clk, 8 * 256);
#define ALL(K, R, N)                                                                               \
  run<K, R, 1, 1>(N, true);                                                                        \
  run<K, R, 1, 1>(N);                                                                              \
  run<K, R, 1, 6>(N);                                                                              \
  run<K, R, 2, 1>(N);                                                                              \
  run<K, R, 2, 2>(N);                                                                              \
  run<K, R, 2, 3>(N);                                                                              \
  run<K, R, 4, 2>(N);                                                                              \
  run<K, R, 4, 3>(N);
  ALL(1, 16, "4D")
  ALL(0, 16, "5D, end of the keys") ALL(1, 64, "4D") ALL(0, 64, "5D, end of the keys")
      run<1, 128, 2, 1>("4D");
  run<1, 128, 2, 3>("4D");
  run<1, 32, 2, 1>("4D");
  run<1, 32, 2, 3>("4D");
  run<2, 16, 1, 1>("cp.async", true);
  run<2, 16, 1, 1>("cp.async");
  run<2, 16, 2, 1>("cp.async");
  run<2, 16, 2, 2>("cp.async");
  run<2, 16, 2, 3>("cp.async");
  run<2, 16, 4, 1>("cp.async");
  run<2, 16, 4, 2>("cp.async");
  run<2, 16, 4, 3>("cp.async");
}
