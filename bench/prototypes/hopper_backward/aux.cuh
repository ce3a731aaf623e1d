#pragma once
// ---- prepare: D = rowsum(dO o O), LSE log2(e), zeros -------------------------------------------------------
constexpr int DQ_TILE = BM * HEAD_DIM;
extern "C" __global__ void __launch_bounds__(256) prepare(const __grid_constant__ Params params) {
  grid_launch();
  constexpr int LANES = HEAD_DIM / 8, ROWS = 256 / LANES, PASSES = BM / ROWS;
  const long long row0 = (long long)blockIdx.x * BM;
  float4 *gSum = reinterpret_cast<float4 *>(params.dq_sum + row0 * HEAD_DIM);
  const int r = threadIdx.x / LANES, chunk = threadIdx.x % LANES;
  uint4 o[PASSES], d[PASSES];
  #pragma unroll
  for (int p = 0; p < PASSES; ++p) {
    const long long at = (row0 + p * ROWS + r) * HEAD_DIM + chunk * 8;
    o[p] = __ldg(reinterpret_cast<const uint4 *>(params.o + at));
    d[p] = __ldg(reinterpret_cast<const uint4 *>(params.dout_p + at));
  }
  #pragma unroll 8
  for (int i = threadIdx.x; i < DQ_TILE / 4; i += 256) gSum[i] = make_float4(0.f, 0.f, 0.f, 0.f);
  #pragma unroll
  for (int p = 0; p < PASSES; ++p) {
    float dot = 0.f;
    const unsigned a[4] = {o[p].x, o[p].y, o[p].z, o[p].w}, b[4] = {d[p].x, d[p].y, d[p].z, d[p].w};
    #pragma unroll
    for (int w = 0; w < 4; ++w) dot += low_half(a[w]) * low_half(b[w]) + high_half(a[w]) * high_half(b[w]);
    #pragma unroll
    for (int l = LANES / 2; l > 0; l /= 2) dot += __shfl_xor_sync(~0u, dot, l);
    if (chunk == 0) {
      const int q = p * ROWS + r;                        // 16g + 8h + 2t + e -> 16g + 4t + 2h + e
      const int to = q / 16 * 16 + q % 8 / 2 * 4 + q / 8 % 2 * 2 + q % 2;
      float *const stats = params.stats + row0 * 2;
      stats[to] = params.lse[row0 + q] * 1.44269504f;
      stats[BM + q] = -dot;
    }
  }
}

// ---- convert: dQ sums -> bf16. A tile lies as [64-row block][warp][n8 block][lane][4] ----------------------------
extern "C" __global__ void __launch_bounds__(128) convert(const __grid_constant__ Params params) {
  constexpr int STRIDE = HEAD_DIM * 2 + 16;
  grid_wait();
  __shared__ __align__(16) unsigned char staged[4][16 * STRIDE];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const float4 *from = reinterpret_cast<const float4 *>(params.dq_sum + ((long long)blockIdx.x * 64 + warp * 16) * HEAD_DIM) + lane;
  #pragma unroll
  for (int j = 0; j < HEAD_DIM / 8; ++j) {
    const float4 x = __ldcs(from + j * 32);
    *reinterpret_cast<unsigned *>(&staged[warp][lane / 4 * STRIDE + j * 16 + lane % 4 * 4]) = pack(x.x * params.scale, x.y * params.scale);
    *reinterpret_cast<unsigned *>(&staged[warp][(lane / 4 + 8) * STRIDE + j * 16 + lane % 4 * 4]) = pack(x.z * params.scale, x.w * params.scale);
  }
  __syncwarp();
  element *to = params.dq + ((long long)blockIdx.x * 64 + warp * 16) * HEAD_DIM;
  constexpr int CHUNKS = HEAD_DIM / 8;
  #pragma unroll
  for (int i = 0; i < 16 * CHUNKS / 32; ++i) {
    const int c = i * 32 + lane, row = c / CHUNKS, chunk = c % CHUNKS;
    *reinterpret_cast<uint4 *>(to + row * HEAD_DIM + chunk * 8) = *reinterpret_cast<const uint4 *>(&staged[warp][row * STRIDE + chunk * 16]);
  }
}
