// Backward attention on sm_90a, d 256, clusters of two that exchange dS: each sums half the columns of dQ over 128 keys. 64 keys a block, warpgroups by role. 0: producer; 1 (A): S, P, dV; 2 (B): dP, dS, dK; 3 (C): dQ.
#define HEAD_DIM 256
#include "common.cuh"
#include "aux.cuh"
#ifndef QST
#define QST 2
#endif
#ifndef OST
#define OST 2
#endif
#ifndef PST
#define PST 2
#endif
#ifndef DSST
#define DSST 1
#endif
#ifndef BULK
#define BULK 0
#endif
#ifndef DVFIRST
#define DVFIRST 0
#endif
#ifndef SLOTS
#define SLOTS 1      // staged pieces of 64 columns of dQ
#endif
#ifndef DQN
#define DQN 128
#endif
#ifndef R_PROD
#define R_PROD 24
#endif
#ifndef R_A
#define R_A 200
#endif
#ifndef R_B
#define R_B 192
#endif
#ifndef R_C
#define R_C 96
#endif
static_assert(BM == 64 && R_PROD + R_A + R_B + R_C <= 512, "");
constexpr int BN = 64, PANELS = HEAD_DIM / 64, THREADS = 512, ST = BM / 8, DT = HEAD_DIM / 8;
constexpr int KV_TILE = BN * HEAD_DIM * 2, Q_TILE = BM * HEAD_DIM * 2, DS_TILE = BN * 128, STAT = BM * 4, PIECE = 16 * 64 * 4;
constexpr int SMEM_STATS = 512;
constexpr int SMEM_K = (SMEM_STATS + (QST + OST) * STAT + 1023) / 1024 * 1024;
constexpr int SMEM_V = SMEM_K + KV_TILE, SMEM_KX = SMEM_V + KV_TILE, SMEM_Q = SMEM_KX + KV_TILE / 2, SMEM_O = SMEM_Q + QST * Q_TILE, SMEM_DS = SMEM_O + OST * Q_TILE;   // P, then dS
constexpr int SMEM_X = SMEM_DS + DSST * DS_TILE, SMEM_DQ = SMEM_X + DSST * DS_TILE;   // X: the other's dS
constexpr int SMEM = SMEM_DQ + (BULK ? 4 * PIECE * SLOTS : 0);
static_assert(SMEM <= 232448, "shared memory");
constexpr int B_K = 0, B_V = 8, B_QF = 16, B_QE = B_QF + 8 * QST, B_OF = B_QE + 8 * QST, B_OE = B_OF + 8 * OST, B_PF = B_OE + 8 * OST,
              B_X = B_PF + 8 * DSST, B_DSF = B_X + 8 * DSST, B_DSE = B_DSF + 8 * DSST, B_DONE = B_DSE + 8 * DSST;
static_assert(B_DONE + 8 <= 512, "barriers");
extern __shared__ __align__(1024) unsigned char shared[];

struct Work { int bh, key_tile, steps, first, tiles; };
__device__ __forceinline__ Work find_work(const Params &params) {
  Work w;
  const int pairs = params.n / (2 * BN), per = params.sections * pairs, id = blockIdx.x / 2, r = id % per, pair = r / params.sections;
  w.bh = id / per * params.sections + r % params.sections;
  w.key_tile = 2 * pair + blockIdx.x % 2;
  w.tiles = params.n / BM;
  w.first = CAUSAL ? 2 * pair * BN / BM : (2 * pair * params.shift) % w.tiles;
  w.steps = CAUSAL ? w.tiles - w.first : w.tiles;
  return w;
}
__device__ __forceinline__ unsigned peer_address(unsigned address) {
  unsigned to;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(to) : "r"(address), "r"((blockIdx.x & 1) ^ 1));
  return to;
}
__device__ __forceinline__ void arrive_peer(unsigned b) { asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" :: "r"(b) : "memory"); }
__device__ __forceinline__ void copy_to_peer(unsigned to, unsigned from, unsigned bytes, unsigned b) {
  asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" :: "r"(to), "r"(from), "r"(bytes), "r"(b) : "memory");
}
__device__ __forceinline__ void cluster_sync() {
  asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}
template <int COUNT> struct Ring {
  int stage; unsigned parity;
  __device__ __forceinline__ void next() { if (++stage == COUNT) { stage = 0; parity ^= 1; } }
};
__device__ __forceinline__ void load_tile(const TensorMap &map, unsigned to, unsigned b, int rows, int row) {
  for (int p = 0; p < PANELS; ++p) tma_load(to + p * rows * 128, map, b, p * 64, row);
}
__device__ __forceinline__ int tile_row(const Params &params, const Work &w, int i) {
  int tile = w.first + i;
  if (tile >= w.tiles) tile -= w.tiles;
  return w.bh * params.n + tile * BM;
}
__device__ __forceinline__ void produce(const Params &params, unsigned smem) {
  const Work w = find_work(params);
  Ring<QST> q = {0, 1};
  Ring<OST> o = {0, 1};
  for (int i = 0; i < w.steps; ++i) {
    const int row = tile_row(params, w, i), keys = w.bh * params.n + w.key_tile * BN;
    if (i == 0) {
      mbarrier_arrive_expect(smem + B_K, KV_TILE + KV_TILE / 2);
      load_tile(params.k, smem + SMEM_K, smem + B_K, BN, keys);
      const int half = blockIdx.x & 1, others = w.bh * params.n + (w.key_tile ^ 1) * BN;
      for (int p = 0; p < 2; ++p) tma_load(smem + SMEM_KX + p * BN * 128, params.k, smem + B_K, half * 128 + p * 64, others);
    }
    if (i == 0) grid_wait();
    mbarrier_wait(smem + B_QE + 8 * q.stage, q.parity);
    mbarrier_arrive_expect(smem + B_QF + 8 * q.stage, Q_TILE + STAT);
    load_tile(params.q, smem + SMEM_Q + q.stage * Q_TILE, smem + B_QF + 8 * q.stage, BM, row);
    bulk_load(smem + SMEM_STATS + q.stage * STAT, params.stats + (long long)row * 2, STAT, smem + B_QF + 8 * q.stage);
    if (i == 0) {
      mbarrier_arrive_expect(smem + B_V, KV_TILE);
      load_tile(params.v, smem + SMEM_V, smem + B_V, BN, keys);
    }
    mbarrier_wait(smem + B_OE + 8 * o.stage, o.parity);
    mbarrier_arrive_expect(smem + B_OF + 8 * o.stage, Q_TILE + STAT);
    load_tile(params.dout, smem + SMEM_O + o.stage * Q_TILE, smem + B_OF + 8 * o.stage, BM, row);
    bulk_load(smem + SMEM_STATS + (QST + o.stage) * STAT, params.stats + (long long)row * 2 + BM, STAT, smem + B_OF + 8 * o.stage);
    q.next();
    o.next();
  }
}
__device__ __forceinline__ void arrive(unsigned b, int lane) {
  __syncwarp();
  if (lane == 0) mbarrier_arrive(b);
}
__device__ __forceinline__ void store_sums(const TensorMap &map, float (&rr)[2][DT / 2][4], float scale, unsigned tile, int barrier, int warp, int lane, int row) {
  const int at = warp * 16 + lane % 16;
  #pragma unroll
  for (int k = 0; k < HEAD_DIM / 16; ++k) {
    float (&r)[DT / 2][4] = rr[k / 8];
    const unsigned a[4] = {pack(r[2 * (k % 8)][0] * scale, r[2 * (k % 8)][1] * scale), pack(r[2 * (k % 8)][2] * scale, r[2 * (k % 8)][3] * scale),
                           pack(r[2 * (k % 8) + 1][0] * scale, r[2 * (k % 8) + 1][1] * scale), pack(r[2 * (k % 8) + 1][2] * scale, r[2 * (k % 8) + 1][3] * scale)};
    stmatrix_x4(tile + k / 4 * BN * 128 + at * 128 + ((k % 4 * 2 + lane / 16) ^ at % 8) * 16, a);
  }
  async_proxy_fence();
  barrier_sync(barrier, 128);
  if (warp == 0 && lane == 0) {
    for (int p = 0; p < PANELS; ++p) tma_store(map, tile + p * BN * 128, p * 64, row);
    bulk_commit();
    bulk_wait<0>();
  }
}
__device__ __forceinline__ void sum_values(const Params &params, unsigned smem, int warp, int lane) {   // A
  const Work w = find_work(params);
  float rV[2][DT / 2][4], rS[ST][4], rL[BM / 16][4];
  #pragma unroll
  for (int j = 0; j < DT; ++j) rV[j / 16][j % 16][0] = rV[j / 16][j % 16][1] = rV[j / 16][j % 16][2] = rV[j / 16][j % 16][3] = 0.f;
  Ring<QST> q = {0, 0};
  Ring<OST> o = {0, 0};
  Ring<DSST> p = {0, 1};
  const float scale_log2 = params.scale_log2;
  const int steps = w.steps, gap = w.first * BM - w.key_tile * BN;
  mbarrier_wait(smem + B_K, 0);
  #pragma unroll 1
  for (int i = 0; i < steps; ++i) {
    asm volatile("" : "+r"(lane));
    mbarrier_wait(smem + B_QF + 8 * q.stage, q.parity);
    wgmma_fence();
    {
      const u64 a = along(smem + SMEM_K), b = along(smem + SMEM_Q + q.stage * Q_TILE);
      #pragma unroll
      for (int k = 0; k < HEAD_DIM / 16; ++k)
        wg_ss<0, 0>(rS, a + moved(k / 4 * BN * 128 + k % 4 * 32), b + moved(k / 4 * BM * 128 + k % 4 * 32), k > 0);
    }
    wgmma_commit();
    #pragma unroll
    for (int k = 0; k < BM / 16; ++k) lds4(rL[k], smem + SMEM_STATS + q.stage * STAT + lane % 4 * 16 + k * 64);
    mbarrier_wait(smem + B_OF + 8 * o.stage, o.parity);
    wgmma_wait<0>();
    hold(rS);
    hold(rL);            // read before Q's stage is given back
    arrive(smem + B_QE + 8 * q.stage, lane);
#if CAUSAL
    if (gap + i * BM < 63) {
      const int d = gap + i * BM + lane % 4 * 2 - warp * 16 - lane / 4;
      #pragma unroll
      for (int j = 0; j < ST; ++j) {
        #pragma unroll
        for (int e = 0; e < 4; ++e) if (d + j * 8 + e % 2 - e / 2 * 8 < 0) rS[j][e] = __int_as_float(0xff800000);
      }
    }
#endif
    unsigned aP[BM / 16][4];
    auto issue_dv = [&]() {
    wgmma_fence();
    {
      const u64 b = across(smem + SMEM_O + o.stage * Q_TILE, BM * 128);
      #pragma unroll
      for (int k = 0; k < 2 * (BM / 16); ++k) wg_rs<1>(rV[k / 4], aP[k % 4], b + moved(k % 4 * 16 * 128 + k / 4 * 2 * BM * 128), true);
    }
    wgmma_commit();
    };
    const int row = warp * 16 + lane % 16;
    #pragma unroll
    for (int k = 0; k < BM / 16; ++k) {
      #pragma unroll
      for (int h = 0; h < 2; ++h) {
        #pragma unroll
        for (int e = 0; e < 4; ++e) rS[2 * k + h][e] = ex2(fmaf(rS[2 * k + h][e], scale_log2, -rL[k][h * 2 + e % 2]));
        aP[k][2 * h] = pack(rS[2 * k + h][0], rS[2 * k + h][1]);
        aP[k][2 * h + 1] = pack(rS[2 * k + h][2], rS[2 * k + h][3]);
      }
    }
#if DVFIRST
    issue_dv();
#endif
    mbarrier_wait(smem + B_DSE + 8 * p.stage, p.parity);   // both are done with the last dS
    #pragma unroll
    for (int k = 0; k < BM / 16; ++k) stmatrix_x4(smem + SMEM_DS + p.stage * DS_TILE + row * 128 + ((k * 2 + lane / 16) ^ row % 8) * 16, aP[k]);
    arrive(smem + B_PF + 8 * p.stage, lane);
#if !DVFIRST
    issue_dv();
#endif
    wgmma_wait<0>();
    arrive(smem + B_OE + 8 * o.stage, lane);
    q.next();
    o.next();
    p.next();
  }
  hold(rV[0]);
  hold(rV[1]);
  arrive(smem + B_DONE, lane);
  mbarrier_wait(smem + B_DONE, 0);       // B is done with V, C with K
  const Work again = find_work(params);
  store_sums(params.dv, rV, 1.f, smem + SMEM_V, 2, warp, lane, again.bh * params.n + again.key_tile * BN);
}
__device__ __forceinline__ void sum_keys(const Params &params, unsigned smem, int warp, int lane) {   // B
  const Work w = find_work(params);
  float rK[2][DT / 2][4], rS[ST][4];
  #pragma unroll
  for (int j = 0; j < DT; ++j) rK[j / 16][j % 16][0] = rK[j / 16][j % 16][1] = rK[j / 16][j % 16][2] = rK[j / 16][j % 16][3] = 0.f;
  Ring<QST> q = {0, 0};
  Ring<OST> o = {0, 0};
  Ring<DSST> p = {0, 0};
  const int steps = w.steps;
  mbarrier_wait(smem + B_V, 0);
  #pragma unroll 1
  for (int i = 0; i < steps; ++i) {
    asm volatile("" : "+r"(lane));
    mbarrier_wait(smem + B_OF + 8 * o.stage, o.parity);
    #pragma unroll
    for (int j = 0; j < ST; ++j) {
      lds2(rS[j][0], rS[j][1], smem + SMEM_STATS + (QST + o.stage) * STAT + lane % 4 * 8 + j * 32);
      rS[j][2] = rS[j][0];
      rS[j][3] = rS[j][1];
    }
    hold(rS);
    wgmma_fence();
    {
      const u64 a = along(smem + SMEM_V), b = along(smem + SMEM_O + o.stage * Q_TILE);
      #pragma unroll
      for (int k = 0; k < HEAD_DIM / 16; ++k)
        wg_ss<0, 0>(rS, a + moved(k / 4 * BN * 128 + k % 4 * 32), b + moved(k / 4 * BM * 128 + k % 4 * 32), true);
    }
    wgmma_commit();
    mbarrier_wait(smem + B_PF + 8 * p.stage, p.parity);
    unsigned aP[BM / 16][4];
    const int row = warp * 16 + lane % 16;
    #pragma unroll
    for (int k = 0; k < BM / 16; ++k) ldmatrix_x4(aP[k], smem + SMEM_DS + p.stage * DS_TILE + row * 128 + ((k * 2 + lane / 16) ^ row % 8) * 16);
    mbarrier_wait(smem + B_QF + 8 * q.stage, q.parity);
    wgmma_wait<0>();
    hold(rS);
    arrive(smem + B_OE + 8 * o.stage, lane);
    unsigned aS[BM / 16][4];
    #pragma unroll
    for (int k = 0; k < BM / 16; ++k) {
      #pragma unroll
      for (int e = 0; e < 4; ++e)
        aS[k][e] = pack(low_half(aP[k][e]) * rS[2 * k + e / 2][e % 2 * 2], high_half(aP[k][e]) * rS[2 * k + e / 2][e % 2 * 2 + 1]);
    }
    wgmma_fence();
    {
      const u64 b = across(smem + SMEM_Q + q.stage * Q_TILE, BM * 128);
      #pragma unroll
      for (int k = 0; k < 2 * (BM / 16); ++k) wg_rs<1>(rK[k / 4], aS[k % 4], b + moved(k % 4 * 16 * 128 + k / 4 * 2 * BM * 128), true);
    }
    wgmma_commit();
    #pragma unroll
    for (int k = 0; k < BM / 16; ++k) stmatrix_x4(smem + SMEM_DS + p.stage * DS_TILE + row * 128 + ((k * 2 + lane / 16) ^ row % 8) * 16, aS[k]);
    async_proxy_fence();
    __syncwarp();
    if (lane == 0) {
      copy_to_peer(peer_address(smem + SMEM_X + p.stage * DS_TILE + warp * 2048), smem + SMEM_DS + p.stage * DS_TILE + warp * 2048, 2048,
                   peer_address(smem + B_X + 8 * p.stage));
      mbarrier_arrive(smem + B_DSF + 8 * p.stage);
    }
    wgmma_wait<0>();
    arrive(smem + B_QE + 8 * q.stage, lane);
    q.next();
    o.next();
    p.next();
  }
  hold(rK[0]);
  hold(rK[1]);
  arrive(smem + B_DONE, lane);
  mbarrier_wait(smem + B_DONE, 0);
  const Work again = find_work(params);
  store_sums(params.dk, rK, params.scale, smem + SMEM_K, 3, warp, lane, again.bh * params.n + again.key_tile * BN);
}
__device__ __forceinline__ void sum_queries(const Params &params, unsigned smem, int warp, int lane) {   // C
  const Work w = find_work(params);
  Ring<DSST> ds = {0, 0};
  grid_wait();
  mbarrier_wait(smem + B_K, 0);
  const int half = blockIdx.x & 1;
  const unsigned peer_empty = peer_address(smem + B_DSE);
  for (int i = 0; i < w.steps; ++i) {
    float *gTo = params.dq_sum + (long long)tile_row(params, w, i) * HEAD_DIM + (warp * DT + half * 16) * 128;
    if (warp == 0 && lane == 0) mbarrier_arrive_expect(smem + B_X + 8 * ds.stage, DS_TILE);
    __syncwarp();
    float rDQ[16][4];
    const u64 a = across(smem + SMEM_DS + ds.stage * DS_TILE, BN * 128), b = across(smem + SMEM_K + half * 2 * BN * 128, BN * 128);
    const u64 ax = across(smem + SMEM_X + ds.stage * DS_TILE, BN * 128), bx = across(smem + SMEM_KX, BN * 128);
    mbarrier_wait(smem + B_DSF + 8 * ds.stage, ds.parity);
    wgmma_fence();
    #pragma unroll
    for (int k = 0; k < 4; ++k) wg_ss<1, 1>(rDQ, a + moved(k * 16 * 128), b + moved(k * 16 * 128), k > 0);
    wgmma_commit();
    mbarrier_wait(smem + B_X + 8 * ds.stage, ds.parity);
    wgmma_fence();
    #pragma unroll
    for (int k = 0; k < 4; ++k) wg_ss<1, 1>(rDQ, ax + moved(k * 16 * 128), bx + moved(k * 16 * 128), true);
    wgmma_commit();
    wgmma_wait<0>();
    hold(rDQ);
    __syncwarp();
    if (lane == 0) {
      mbarrier_arrive(smem + B_DSE + 8 * ds.stage);
      arrive_peer(peer_empty + 8 * ds.stage);
    }
#if BULK
    #pragma unroll
    for (int piece = 0; piece < 2; ++piece) {
      const unsigned sTo = smem + SMEM_DQ + (piece % SLOTS * 4 + warp) * PIECE;
      if (lane == 0) bulk_wait_read<SLOTS - 1>();
      __syncwarp();
      #pragma unroll
      for (int j = 0; j < 8; ++j) sts4(sTo + j * 512 + lane * 16, rDQ[piece * 8 + j]);
      async_proxy_fence();
      __syncwarp();
      if (lane == 0) {
        bulk_reduce(gTo + piece * 8 * 128, sTo, PIECE);
        bulk_commit();
      }
    }
#else
    #pragma unroll
    for (int j = 0; j < 16; ++j) red_add_4(gTo + j * 128 + lane * 4, rDQ[j]);
#endif
    ds.next();
  }
  arrive(smem + B_DONE, lane);
#if BULK
  if (lane == 0) bulk_wait<0>();
#endif
}
extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(THREADS, 1) backward(const __grid_constant__ Params params) {
  const unsigned smem = shared_address(shared);
  grid_launch();
  if (threadIdx.x == 0) {
    mbarrier_init(smem + B_K, 1);
    mbarrier_init(smem + B_V, 1);
    mbarrier_init(smem + B_DONE, 12);
    for (int i = 0; i < QST; ++i) { mbarrier_init(smem + B_QF + 8 * i, 1); mbarrier_init(smem + B_QE + 8 * i, 8); }
    for (int i = 0; i < OST; ++i) { mbarrier_init(smem + B_OF + 8 * i, 1); mbarrier_init(smem + B_OE + 8 * i, 8); }
    for (int i = 0; i < DSST; ++i) {
      mbarrier_init(smem + B_PF + 8 * i, 4);
      mbarrier_init(smem + B_DSF + 8 * i, 4);
      mbarrier_init(smem + B_DSE + 8 * i, 8);   // four warps here, four there
      mbarrier_init(smem + B_X + 8 * i, 1);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  cluster_sync();      // the other's barriers, too, are ready
  const int group = uniform(threadIdx.x / 128), warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
  if (group == 0) {
    registers_release<R_PROD>();
    if (warp == 0 && lane == 0) produce(params, smem);
  } else if (group == 1) {
    registers_claim<R_A>();
    sum_values(params, smem, warp, lane);
  } else if (group == 2) {
    registers_claim<R_B>();
    sum_keys(params, smem, warp, lane);
  } else {
    registers_release<R_C>();
    sum_queries(params, smem, warp, lane);
  }
  __syncwarp();
  cluster_sync();      // the other may still send to this block
}
extern "C" __device__ const int info[8] = {THREADS, SMEM, BM, BN, HEAD_DIM, CAUSAL, 0, 0};
