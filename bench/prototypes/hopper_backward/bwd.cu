// Backward attention on sm_90a, keys split over warpgroups (d64, d128). Warpgroup 0: producer. 1..MAIN: 64 keys each, S, dP, dV, dK.
// The last: dQ alone.
#include "common.cuh"
#include "aux.cuh"
#ifndef MAIN
#define MAIN 2
#endif
#ifndef QST
#define QST 2
#endif
#ifndef OST
#define OST 2
#endif
#ifndef DSST
#define DSST 2
#endif
#ifndef BULK
#define BULK 0       // dQ: 0 red from registers, 1 bulk reduce-add
#endif
#ifndef DQN
#define DQN 64       // columns of dQ at a time
#endif
#ifndef KREG
#define KREG 0
#endif
#ifndef VREG
#define VREG 0
#endif
#ifndef KEEP
#define KEEP 0       // P for dS: 0 unpacked from bf16, 1 kept in fp32, 2 bf16 multiplication
#endif
#ifndef SEPARATE
#define SEPARATE 0   // dK waited for apart from S: S, then dK
#endif
#ifndef R_PROD
#define R_PROD 24
#endif
#ifndef R_MAIN
#define R_MAIN 208
#endif
#ifndef R_DQ
#define R_DQ 72
#endif
#ifndef DQREG
#define DQREG 0      // depth steps whose dS is loaded into registers once, not read by each product
#endif
#ifndef EARLYS
#define EARLYS 0     // dP and dV waited for together; the next S issued beside dK
#endif
#ifndef DKFIRST
#define DKFIRST 1
#endif
#ifndef STAGGER
#define STAGGER 0    // a warpgroup begins when the one before it is in its first step: 1 before its exponentials, 2 after its dS
#endif
#ifndef TURN
#define TURN 0       // 1: one warpgroup at a time computes exponentials
#endif
#ifndef EMBED
#define EMBED 0      // the dQ warpgroup loads, too
#endif
#define SAME (QST == OST && QST == DSST)
constexpr int BN = 64 * MAIN, PANELS = HEAD_DIM / 64, THREADS = 128 * (MAIN + 2 - EMBED);
constexpr int ST = BM / 8, DT = HEAD_DIM / 8;
constexpr int KV_TILE = BN * HEAD_DIM * 2, Q_TILE = BM * HEAD_DIM * 2, DS_PANELS = (BM + 63) / 64, DS_TILE = DS_PANELS * BN * 128;
constexpr int STAT = BM * 4;
constexpr int CHUNKS = BM / 64 * (HEAD_DIM / DQN);
constexpr int CHUNK = 16 * DQN * 4;          // of a warp
constexpr int SMEM_STATS = 512;              // LSE [QST], D [OST]
constexpr int SMEM_K = (SMEM_STATS + (QST + OST) * STAT + 1023) / 1024 * 1024;
constexpr int SMEM_V = SMEM_K + KV_TILE, SMEM_Q = SMEM_V + KV_TILE, SMEM_O = SMEM_Q + QST * Q_TILE, SMEM_DS = SMEM_O + OST * Q_TILE;
constexpr int SMEM_DQ = SMEM_DS + DSST * DS_TILE;
constexpr int SMEM = SMEM_DQ + (BULK ? 4 * CHUNK * CHUNKS : 0);
static_assert(SMEM <= 232448, "shared memory");
#ifndef NOCHECK
static_assert((EMBED ? 0 : R_PROD) + MAIN * R_MAIN + R_DQ <= 65536 / THREADS / 8 * 8 * (MAIN + 2 - EMBED), "registers");
#endif

constexpr int B_K = 0, B_V = 8, B_DONE = 16, B_QF = 24, B_QE = B_QF + 8 * QST, B_OF = B_QE + 8 * QST, B_OE = B_OF + 8 * OST,
              B_DSF = B_OE + 8 * OST, B_DSE = B_DSF + 8 * DSST * MAIN;
static_assert(B_DSE + 8 * DSST <= 512, "barriers");
extern __shared__ __align__(1024) unsigned char shared[];

struct Work { int bh, key_tile, steps, first, tiles; };
__device__ __forceinline__ Work find_work(const Params &params) {
  Work w;
  const int key_tiles = params.n / BN, per = params.sections * key_tiles, r = blockIdx.x % per;
  w.bh = blockIdx.x / per * params.sections + r % params.sections;
  w.key_tile = r / params.sections;
  w.tiles = params.n / BM;
  w.first = CAUSAL ? w.key_tile * BN / BM : w.key_tile * params.shift % w.tiles;
  w.steps = CAUSAL ? w.tiles - w.first : w.tiles;
  return w;
}
template <int COUNT> struct Ring {
  int stage; unsigned parity;
  __device__ __forceinline__ void next() { if (++stage == COUNT) { stage = 0; parity ^= 1; } }
};

__device__ __forceinline__ void load_tile(const TensorMap &map, unsigned to, unsigned b, int rows_box, int rows, int row) {
  for (int p = 0; p < PANELS; ++p)
    for (int r = 0; r < rows; r += rows_box) tma_load(to + p * rows * 128 + r * 128, map, b, p * 64, row + r);
}

__device__ __forceinline__ void load_q(const Params &params, unsigned smem, int row, int stage) {
  mbarrier_arrive_expect(smem + B_QF + 8 * stage, Q_TILE + STAT);
  load_tile(params.q, smem + SMEM_Q + stage * Q_TILE, smem + B_QF + 8 * stage, BM, BM, row);
  bulk_load(smem + SMEM_STATS + stage * STAT, params.stats + (long long)row * 2, STAT, smem + B_QF + 8 * stage);
}
__device__ __forceinline__ void load_do(const Params &params, unsigned smem, int row, int stage) {
  mbarrier_arrive_expect(smem + B_OF + 8 * stage, Q_TILE + STAT);
  load_tile(params.dout, smem + SMEM_O + stage * Q_TILE, smem + B_OF + 8 * stage, BM, BM, row);
  bulk_load(smem + SMEM_STATS + (QST + stage) * STAT, params.stats + (long long)row * 2 + BM, STAT, smem + B_OF + 8 * stage);
}
__device__ __forceinline__ int tile_row(const Params &params, const Work &w, int i) {
  int tile = w.first + i;
  if (tile >= w.tiles) tile -= w.tiles;
  return w.bh * params.n + tile * BM;
}
__device__ __forceinline__ void load_keys(const Params &params, unsigned smem, const Work &w, const TensorMap &map, unsigned to, unsigned b) {
  mbarrier_arrive_expect(smem + b, KV_TILE);
  load_tile(map, smem + to, smem + b, 64, BN, w.bh * params.n + w.key_tile * BN);
}
__device__ __forceinline__ void produce(const Params &params, unsigned smem) {
  const Work w = find_work(params);
  Ring<QST> q = {0, 1};
  Ring<OST> o = {0, 1};
  for (int i = 0; i < w.steps; ++i) {
    const int row = tile_row(params, w, i);
    if (i == 0) {
      load_keys(params, smem, w, params.k, SMEM_K, B_K);
      load_keys(params, smem, w, params.v, SMEM_V, B_V);
      grid_wait();
    }
    mbarrier_wait(smem + B_QE + 8 * q.stage, q.parity);
    load_q(params, smem, row, q.stage);
    mbarrier_wait(smem + B_OE + 8 * o.stage, o.parity);
    load_do(params, smem, row, o.stage);
    q.next();
    o.next();
  }
}

__device__ __forceinline__ void sum_queries(const Params &params, unsigned smem, int warp, int lane) {
  const Work w = find_work(params);
  Ring<DSST> ds = {0, 0};
  grid_wait();
#if EMBED
  static_assert(QST == OST, "one ring");
  const bool loads = warp == 0 && lane == 0;
  if (loads) {
    load_keys(params, smem, w, params.k, SMEM_K, B_K);
    load_keys(params, smem, w, params.v, SMEM_V, B_V);
    grid_wait();
    load_q(params, smem, tile_row(params, w, 0), 0);
    load_do(params, smem, tile_row(params, w, 0), 0);
    for (int i = 1; i < QST && i < w.steps; ++i) {
      load_q(params, smem, tile_row(params, w, i), i);
      load_do(params, smem, tile_row(params, w, i), i);
    }
  }
  int stage = QST - 1;           // of step i - 1
#endif
  for (int i = 0; i < w.steps; ++i) {
    int tile = w.first + i;
    if (tile >= w.tiles) tile -= w.tiles;
    float *to = params.dq_sum + ((long long)w.bh * params.n + tile * BM) * HEAD_DIM;
    #pragma unroll
    for (int mb = 0; mb < BM / 64; ++mb) {
#if DQREG
      unsigned aD[DQREG][4];
#endif
      #pragma unroll
      for (int nh = 0; nh < HEAD_DIM / DQN; ++nh) {
        float rDQ[DQN / 8][4];
        const u64 a = across(smem + SMEM_DS + ds.stage * DS_TILE + mb * BN * 128, BN * 128);
        const u64 b = across(smem + SMEM_K + nh * (DQN / 64) * BN * 128, BN * 128);
        #pragma unroll
        for (int g = 0; g < MAIN; ++g) {
          if (mb == 0 && nh == 0) mbarrier_wait(smem + B_DSF + 8 * (ds.stage * MAIN + g), ds.parity);
#if DQREG
          if (nh == 0) {
            const int l = lane, key = l / 16 * 8 + l % 8, chunk = 2 * warp + l / 8 % 2;
            #pragma unroll
            for (int k = 0; k < 4; ++k) if (g * 4 + k < DQREG)
              ldmatrix_trans_x4(aD[g * 4 + k], smem + SMEM_DS + ds.stage * DS_TILE + mb * BN * 128 + ((g * 4 + k) * 16 + key) * 128 + (chunk ^ key % 8) * 16);
          }
          wgmma_fence();
          #pragma unroll
          for (int k = 0; k < 4; ++k) {
            if (g * 4 + k < DQREG) wg_rs<1>(rDQ, aD[g * 4 + k], b + moved((g * 4 + k) * 16 * 128), g + k > 0);
            else wg_ss<1, 1>(rDQ, a + moved((g * 4 + k) * 16 * 128), b + moved((g * 4 + k) * 16 * 128), g + k > 0);
          }
#else
          wgmma_fence();
          #pragma unroll
          for (int k = 0; k < 4; ++k) wg_ss<1, 1>(rDQ, a + moved((g * 4 + k) * 16 * 128), b + moved((g * 4 + k) * 16 * 128), g + k > 0);
#endif
        }
        wgmma_commit();
#if EMBED
        // All have stored dS of step i, so they are done with Q and dO of step i - 1.
        if (mb == 0 && nh == 0) {
          if (loads && i > 0 && i - 1 + QST < w.steps) {
            const int row = tile_row(params, w, i - 1 + QST);
            load_q(params, smem, row, stage);
            load_do(params, smem, row, stage);
          }
          if (++stage == QST) stage = 0;
          __syncwarp();
        }
#endif
        wgmma_wait<0>();
        hold(rDQ);
        if (mb == BM / 64 - 1 && nh == HEAD_DIM / DQN - 1) {
          __syncwarp();
          if (lane == 0) mbarrier_arrive(smem + B_DSE + 8 * ds.stage);
        }
        float *gTo = to + ((mb * 4 + warp) * DT + nh * DQN / 8) * 128;
#if BULK
        const unsigned sTo = smem + SMEM_DQ + ((mb * (HEAD_DIM / DQN) + nh) * 4 + warp) * CHUNK;
        if (lane == 0) bulk_wait_read<CHUNKS - 1>();
        __syncwarp();
        #pragma unroll
        for (int j = 0; j < DQN / 8; ++j) sts4(sTo + j * 512 + lane * 16, rDQ[j]);
        async_proxy_fence();
        __syncwarp();
        if (lane == 0) {
          bulk_reduce(gTo, sTo, CHUNK);
          bulk_commit();
        }
#else
        #pragma unroll
        for (int j = 0; j < DQN / 8; ++j) red_add_4(gTo + j * 128 + lane * 4, rDQ[j]);
#endif
      }
    }
    ds.next();
  }
  __syncwarp();
  if (lane == 0) mbarrier_arrive(smem + B_DONE);
#if BULK
  if (lane == 0) bulk_wait<0>();
#endif
}

// 64 x D accumulators as bf16 to the warpgroup's rows of a tile, from there by TMA.
__device__ __forceinline__ void store_sums(const TensorMap &map, float (&r)[DT][4], float scale, unsigned tile, int wg, int warp, int lane, int row) {
  const int at = wg * 64 + warp * 16 + lane % 16;
  #pragma unroll
  for (int k = 0; k < HEAD_DIM / 16; ++k) {
    const unsigned a[4] = {pack(r[2 * k][0] * scale, r[2 * k][1] * scale), pack(r[2 * k][2] * scale, r[2 * k][3] * scale),
                           pack(r[2 * k + 1][0] * scale, r[2 * k + 1][1] * scale), pack(r[2 * k + 1][2] * scale, r[2 * k + 1][3] * scale)};
    const int chunk = k % 4 * 2 + lane / 16;
    stmatrix_x4(tile + k / 4 * BN * 128 + at * 128 + (chunk ^ at % 8) * 16, a);
  }
  async_proxy_fence();
  barrier_sync(1 + wg, 128);
  if (warp == 0 && lane == 0) {
    for (int p = 0; p < PANELS; ++p) tma_store(map, tile + p * BN * 128 + wg * 64 * 128, p * 64, row);
    bulk_commit();
  }
}

__device__ __forceinline__ void consume(const Params &params, unsigned smem, int wg, int warp, int lane) {
  const Work w = find_work(params);
  Ring<QST> q = {0, 0};
  Ring<OST> o = {0, 0};
  Ring<DSST> ds = {0, 1};
  float rK[DT][4], rV[DT][4], rS[ST][4];
  #pragma unroll
  for (int j = 0; j < DT; ++j) {
    #pragma unroll
    for (int e = 0; e < 4; ++e) rK[j][e] = rV[j][e] = 0.f;
  }
  const float scale_log2 = params.scale_log2;
  const u64 dK = along(smem + SMEM_K + wg * 64 * 128), dV = along(smem + SMEM_V + wg * 64 * 128);
  // Descriptors of a stage: along and across have the same low bits but the offset, which `along` does not look at.
  const int frag = warp * 16 + lane % 16;
  mbarrier_wait(smem + B_K, 0);
#if KREG
  unsigned aK[HEAD_DIM / 16][4];
  #pragma unroll
  for (int k = 0; k < HEAD_DIM / 16; ++k) ldmatrix_x4(aK[k], smem + SMEM_K + k / 4 * BN * 128 + (wg * 64 + frag) * 128 + ((k % 4 * 2 + lane / 16) ^ frag % 8) * 16);
#endif
#if VREG
  unsigned aV[HEAD_DIM / 16][4];
  mbarrier_wait(smem + B_V, 0);
  #pragma unroll
  for (int k = 0; k < HEAD_DIM / 16; ++k) ldmatrix_x4(aV[k], smem + SMEM_V + k / 4 * BN * 128 + (wg * 64 + frag) * 128 + ((k % 4 * 2 + lane / 16) ^ frag % 8) * 16);
#endif

#if KREG
#define SCORES(QS) { const u64 b = along(smem + SMEM_Q + (QS) * Q_TILE); _Pragma("unroll") for (int k = 0; k < HEAD_DIM / 16; ++k) \
    wg_rs<0>(rS, aK[k], b + moved(k / 4 * BM * 128 + k % 4 * 32), k > 0); }
#else
#define SCORES(QS) { const u64 b = along(smem + SMEM_Q + (QS) * Q_TILE); _Pragma("unroll") for (int k = 0; k < HEAD_DIM / 16; ++k) \
    wg_ss<0, 0>(rS, dK + moved(k / 4 * BN * 128 + k % 4 * 32), b + moved(k / 4 * BM * 128 + k % 4 * 32), k > 0); }
#endif

  float rL[BM / 16][4];
  auto load_lse = [&](int stage) {
    const unsigned sL = smem + SMEM_STATS + stage * STAT + lane % 4 * 16;
    #pragma unroll
    for (int k = 0; k < BM / 16; ++k) lds4(rL[k], sL + k * 64);
  };
#if STAGGER
  if (wg > 0) barrier_sync(8 + wg, 256);
#endif
#if TURN
  if (wg == MAIN - 1) barrier_arrive(8 + MAIN, 256);
#endif
  mbarrier_wait(smem + B_QF + 8 * q.stage, q.parity);
  wgmma_fence();
  SCORES(q.stage)
  wgmma_commit();
  load_lse(0);
#if !VREG
  mbarrier_wait(smem + B_V, 0);
#endif
  mbarrier_wait(smem + B_OF, 0);
  wgmma_wait<0>();
  hold(rS);
  const int steps = w.steps;
  const int gap = w.first * BM - (w.key_tile * BN + wg * 64);
  #pragma unroll 1
  for (int i = 0; i < steps; ++i) {
    asm volatile("" : "+r"(lane));     // what depends on it is computed anew, not kept
#if SAME
    q.stage = o.stage = ds.stage = i % QST;
    q.parity = o.parity = i / QST % 2;
    ds.parity = q.parity ^ 1;
#endif
    const int frag = warp * 16 + lane % 16;
    // ---- pieces of a step
    const unsigned sO = smem + SMEM_O + o.stage * Q_TILE, sQ = smem + SMEM_Q + q.stage * Q_TILE;
    const unsigned sD = smem + SMEM_STATS + (QST + o.stage) * STAT + lane % 4 * 8;
    unsigned aP[BM / 16][4];
    auto issue_dp = [&]() {
      wgmma_fence();
      const u64 b = along(sO);
      #pragma unroll
      for (int k = 0; k < HEAD_DIM / 16; ++k) {
#if VREG
        wg_rs<0>(rS, aV[k], b + moved(k / 4 * BM * 128 + k % 4 * 32), true);
#else
        wg_ss<0, 0>(rS, dV + moved(k / 4 * BN * 128 + k % 4 * 32), b + moved(k / 4 * BM * 128 + k % 4 * 32), true);
#endif
      }
      wgmma_commit();
    };
    auto mask = [&]() {
#if CAUSAL
      const int ahead = gap + i * BM;                  // first query - first key
      if (ahead < 63) {
        const int d = ahead + lane % 4 * 2 - warp * 16 - lane / 4;
        #pragma unroll
        for (int j = 0; j < ST; ++j) {
          #pragma unroll
          for (int e = 0; e < 4; ++e) if (d + j * 8 + e % 2 - e / 2 * 8 < 0) rS[j][e] = __int_as_float(0xff800000);
        }
      }
#endif
    };
    auto exponentials = [&]() {          // S, LSE -> P; in the place of S then -D, to which the product adds dP
      #pragma unroll
      for (int k = 0; k < BM / 16; ++k) {
        #pragma unroll
        for (int h = 0; h < 2; ++h) {
          #pragma unroll
          for (int e = 0; e < 4; ++e) rS[2 * k + h][e] = ex2(fmaf(rS[2 * k + h][e], scale_log2, -rL[k][h * 2 + e % 2]));
          aP[k][2 * h] = pack(rS[2 * k + h][0], rS[2 * k + h][1]);
          aP[k][2 * h + 1] = pack(rS[2 * k + h][2], rS[2 * k + h][3]);
        }
        #pragma unroll
        for (int h = 0; h < 2; ++h) {
          float (&quad)[4] = rS[2 * k + h];
          lds2(quad[0], quad[1], sD + (2 * k + h) * 32);
          quad[2] = quad[0];
          quad[3] = quad[1];
        }
      }
    };
    auto issue_dv = [&]() {
      wgmma_fence();
      const u64 b = across(sO, BM * 128);
      #pragma unroll
      for (int k = 0; k < BM / 16; ++k) wg_rs<1>(rV, aP[k], b + moved(k * 16 * 128), true);
      wgmma_commit();
    };
    unsigned aS[BM / 16][4];
    auto differences = [&]() {
      #pragma unroll
      for (int k = 0; k < BM / 16; ++k) {
        #pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float x = rS[2 * k + i / 2][i % 2 * 2], y = rS[2 * k + i / 2][i % 2 * 2 + 1];
          aS[k][i] = pack(low_half(aP[k][i]) * x, high_half(aP[k][i]) * y);
        }
      }
    };
    auto wait_ds = [&]() { mbarrier_wait(smem + B_DSE + 8 * ds.stage, ds.parity); };
    auto store_ds = [&]() {
      const int row = wg * 64 + frag;
      #pragma unroll
      for (int k = 0; k < BM / 16; ++k)
        stmatrix_x4(smem + SMEM_DS + ds.stage * DS_TILE + k / 4 * BN * 128 + row * 128 + ((k % 4 * 2 + lane / 16) ^ row % 8) * 16, aS[k]);
      async_proxy_fence();
      __syncwarp();
      if (lane == 0) mbarrier_arrive(smem + B_DSF + 8 * (ds.stage * MAIN + wg));
    };
    auto issue_dk = [&]() {
      wgmma_fence();
      const u64 b = across(sQ, BM * 128);
      #pragma unroll
      for (int k = 0; k < BM / 16; ++k) wg_rs<1>(rK, aS[k], b + moved(k * 16 * 128), true);
      wgmma_commit();
    };
    const int q_stage = q.stage;
    auto next_q = [&]() {       // the next S: once more at the end, for nothing
#if SAME
      q.stage = (i + 1) % QST;
      q.parity = (i + 1) / QST % 2;
#else
      q.next();
#endif
      if (i + 1 < steps) mbarrier_wait(smem + B_QF + 8 * q.stage, q.parity);
    };
    auto issue_s = [&]() {
      wgmma_fence();
      SCORES(q.stage)
      wgmma_commit();
    };
    auto free_do = [&]() { if (!EMBED && lane == 0) mbarrier_arrive(smem + B_OE + 8 * o.stage); };
    auto free_q = [&]() { if (!EMBED && lane == 0) mbarrier_arrive(smem + B_QE + 8 * q_stage); };
#if STAGGER
    auto stagger = [&](int at) { if (at == STAGGER && i == 0 && wg + 1 < MAIN) barrier_arrive(8 + wg + 1, 256); };
#else
    auto stagger = [&](int) {};
#endif
#if TURN
    auto my_turn = [&]() { barrier_sync(8 + MAIN + wg, 256); hold(rS); };
    auto give_turn = [&]() { barrier_arrive(8 + MAIN + (wg + 1) % MAIN, 256); };
#else
    auto my_turn = [&]() {};
    auto give_turn = [&]() {};
#endif
    stagger(1);
#if SAME
#define NEXT_O ((i + 1) % OST)
#define NEXT_OP ((i + 1) / OST % 2)
#else
    Ring<OST> o_next = o;
    o_next.next();
#define NEXT_O o_next.stage
#define NEXT_OP o_next.parity
#endif
    mask();
    my_turn();
    exponentials();
    give_turn();
    hold(rS);
    issue_dp();
    issue_dv();
    wait_ds();
    stagger(2);
#if EARLYS
    wgmma_wait<0>();     // dP and dV: dS takes P's place, and the next S that of dP
    hold(rS);
    free_do();
    differences();
    next_q();
    issue_dk();
    issue_s();
    store_ds();          // its fence takes hundreds of cycles
    wgmma_wait<1>();     // dK
    free_q();
    load_lse(q.stage);
    if (i + 1 < steps) mbarrier_wait(smem + B_OF + 8 * NEXT_O, NEXT_OP);
    wgmma_wait<0>();
    hold(rS);
#else
    wgmma_wait<1>();     // dP
    hold(rS);
    differences();
#if DKFIRST
    issue_dk();          // beside it dS is stored: the fence takes hundreds of cycles
    store_ds();
#else
    store_ds();
    issue_dk();
#endif
    next_q();
    wgmma_wait<1>();     // dV
    free_do();
    wgmma_wait<0>();     // dK
    free_q();
    issue_s();
    load_lse(q.stage);
    if (i + 1 < steps) mbarrier_wait(smem + B_OF + 8 * NEXT_O, NEXT_OP);
    wgmma_wait<0>();
    hold(rS);
#endif
#if !SAME
    o = o_next;
    ds.next();
#endif
  }
  wgmma_wait<0>();
  hold(rK);
  hold(rV);
  const Work again = find_work(params);
  const int row = again.bh * params.n + again.key_tile * BN + wg * 64;
  store_sums(params.dv, rV, 1.f, smem + SMEM_V, wg, warp, lane, row);
  mbarrier_wait(smem + B_DONE, 0);
  store_sums(params.dk, rK, params.scale, smem + SMEM_K, wg, warp, lane, row);
  if (warp == 0 && lane == 0) bulk_wait<0>();
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) backward(const __grid_constant__ Params params) {
  const unsigned smem = shared_address(shared);
  grid_launch();
  if (threadIdx.x == 0) {
    mbarrier_init(smem + B_K, 1);
    mbarrier_init(smem + B_V, 1);
    mbarrier_init(smem + B_DONE, 4);
    for (int i = 0; i < QST; ++i) { mbarrier_init(smem + B_QF + 8 * i, 1); mbarrier_init(smem + B_QE + 8 * i, 4 * MAIN); }
    for (int i = 0; i < OST; ++i) { mbarrier_init(smem + B_OF + 8 * i, 1); mbarrier_init(smem + B_OE + 8 * i, 4 * MAIN); }
    for (int i = 0; i < DSST; ++i) {
      mbarrier_init(smem + B_DSE + 8 * i, 4);
      for (int g = 0; g < MAIN; ++g) mbarrier_init(smem + B_DSF + 8 * (i * MAIN + g), 4);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  const int group = uniform(threadIdx.x / 128), warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
  if (!EMBED && group == 0) {
    registers_release<R_PROD>();
    if (warp == 0 && lane == 0) produce(params, smem);
  } else if (group == MAIN + 1 - EMBED) {
    if constexpr (R_DQ < 65536 / THREADS) registers_release<R_DQ>(); else registers_claim<R_DQ>();
    sum_queries(params, smem, warp, lane);
  } else {
    registers_claim<R_MAIN>();
    consume(params, smem, group - 1 + EMBED, warp, lane);
  }
}
// What the host reads: threads, shared memory, BM, BN, queries a convert block
extern "C" __device__ const int info[8] = {THREADS, SMEM, BM, BN, HEAD_DIM, CAUSAL, 0, 0};
