// fatune: forward attention, sm_90a
// request  forward fp16 d64 dv40 causal dropout mask=128x128
// config   wgmma_forward block_m=64 block_n=128 stages=3 q_stages=1
// budget   107520 bytes of shared memory, 256 threads, about 148 of 232 registers
// parts    wgmma_forward.cu.in, parts/ptx_common.cu.in, parts/ptx_mbarrier.cu.in, parts/ptx_tma.cu.in, parts/ptx_barriers.cu.in, parts/ptx_stmatrix.cu.in, parts/ptx_registers.cu.in, parts/ptx_wgmma.cu.in, parts/ptx_wgmma_product.cu.in, parts/arguments.cu.in, parts/quad.cu.in, parts/philox.cu.in, parts/dropout.cu.in, parts/visible.cu.in, parts/keys.cu.in, parts/schedule_balanced.cu.in, parts/pipeline.cu.in, parts/producer.cu.in, parts/wgmma_softmax.cu.in, parts/consumer.cu.in, parts/epilogue_wgmma.cu.in, parts/consume_each.cu.in
// again    fatune emit 'forward fp16 d64 dv40 nq1 causal dropout mask=128x128' --gpu sm_90 --config 'wgmma_forward block_m=64 block_n=128 stages=3 q_stages=1'
//
// O = softmax(scale Q K^T) V by tiles (FlashAttention, arXiv 2205.14135 and 2307.08691) on Hopper. One block per
// multiprocessor works through tiles of BLOCK_M queries. Its first warpgroup moves data: one thread asks TMA for every
// Q, K and V tile, others store O. The others compute, 64 rows each, walking over the keys BLOCK_N at a time from the
// last to the first, so that tiles cut by the end of the keys or by the diagonal come first.

// ---- constants ---------------------------------------------------------------------------------
constexpr int BLOCK_M = 64;        // query rows of a tile
constexpr int BLOCK_N = 128;        // keys of a step
constexpr int CONSUMERS = BLOCK_M / 64;           // warpgroups that compute
constexpr int THREADS = 128 * (CONSUMERS + 1);
constexpr int STAGES = 3;          // K and V tiles in shared memory
constexpr int Q_STAGES = 1;      // Q tiles
constexpr int CLUSTER = 1;         // blocks that share each K and V tile
constexpr int PRODUCER_REGISTERS = 56, CONSUMER_REGISTERS = 232;

constexpr int HEAD_DIM = 64;     // of Q, K
constexpr int HEAD_DIM_V = 40; // of V, O
constexpr int D_PAD = 64;            // a multiple of 16, the rest zeros
constexpr int D_PANELS = 1, DV_PANELS = 1;  // of 64 columns in shared memory

constexpr int FIRST_TURN_BARRIER = 1;             // named barriers: a consumer's with the one before it
constexpr int FIRST_OWN_BARRIER = 1 + CONSUMERS;  // a consumer's own

constexpr int WARP_ROWS = 16, M_TILES = 1;        // of a warp, for what it shares with the mma kernels
constexpr int N_TILES = BLOCK_N / 8;              // columns of S by eight
constexpr int O_TILES = HEAD_DIM_V / 8;           // columns of O by eight
constexpr int K_STEPS = D_PAD / 16;               // depth of Q K^T
constexpr int MASK_ROWS = 128, MASK_COLS = 128;
constexpr int STEPS_PER_MASK_BLOCK = MASK_COLS / BLOCK_N;
static_assert(MASK_ROWS % BLOCK_M == 0 && MASK_COLS % BLOCK_N == 0, "a tile lies in one mask block");

// ---- PTX: one wrapper for each instruction. Here numbers and bits ---------------------------------------
typedef unsigned short element;  // fp16, moved and multiplied as 16-bit patterns
typedef unsigned long long u64;

__device__ __forceinline__ unsigned shared_address(const void *pointer) {
  return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}

// 2^x; 2^-inf = 0.
__device__ __forceinline__ float ex2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

__device__ __forceinline__ float lg2(float x) {
  float y;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// 1 / x to within an ulp.
__device__ __forceinline__ float rcp(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Two fp32 values as a pair of fp16, round to nearest even; `low` in the low half.
__device__ __forceinline__ unsigned pack(float low, float high) {
  unsigned pair;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

// A pair of fp16 as fp32.
__device__ __forceinline__ float low_half(unsigned pair) {
  float x;
  asm("{ .reg .b16 l, h; mov.b32 {l, h}, %1; cvt.f32.f16 %0, l; }" : "=f"(x) : "r"(pair));
  return x;
}

__device__ __forceinline__ float high_half(unsigned pair) {
  float x;
  asm("{ .reg .b16 l, h; mov.b32 {l, h}, %1; cvt.f32.f16 %0, h; }" : "=f"(x) : "r"(pair));
  return x;
}

// All ones in each 16-bit half where a >= b, both read as fp16.
__device__ __forceinline__ unsigned halves_ge(unsigned a, unsigned b) {
  unsigned mask;
  asm("set.ge.u32.f16x2 %0, %1, %2;" : "=r"(mask) : "r"(a), "r"(b));
  return mask;
}

// Bytes of a (0 to 3) and b (4 to 7), chosen by the digits of `choice`, the lowest first.
__device__ __forceinline__ unsigned prmt(unsigned a, unsigned b, unsigned choice) {
  unsigned r;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(choice));
  return r;
}

// A value that is the same in all lanes, said so to the compiler: it can then live in a uniform register.
__device__ __forceinline__ unsigned uniform(unsigned x) {
  unsigned y;
  asm("redux.sync.or.b32 %0, %1, 0xffffffff;" : "=r"(y) : "r"(x));
  return y;
}

// Keeps the computation of x at this place: the compiler would otherwise move it down to where x is used.
__device__ __forceinline__ void pin(unsigned &x) { asm volatile("" : "+r"(x)); }

// ---- PTX: mbarrier (sm_90) ----------------------------------------------------------------------------------
// mbarrier: eight bytes of shared memory that count arrivals and bytes. A phase completes when all have come;
// its parity is then no longer the one waited for.
__device__ __forceinline__ void mbarrier_init(unsigned barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(barrier), "r"(arrivals) : "memory");
}

// Makes the new barriers known to the copy engine.
__device__ __forceinline__ void mbarrier_init_fence() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void mbarrier_arrive(unsigned barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(barrier) : "memory");
}

// Arrives; the phase also waits for so many bytes.
__device__ __forceinline__ void mbarrier_arrive_expect(unsigned barrier, unsigned bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(barrier), "r"(bytes) : "memory");
}

__device__ __forceinline__ void mbarrier_wait(unsigned barrier, unsigned parity) {
  asm volatile("{\n.reg .pred done;\nagain:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
               "@!done bra again;\n}" :: "r"(barrier), "r"(parity) : "memory");
}

// Whether the phase is complete already.
__device__ __forceinline__ bool mbarrier_test(unsigned barrier, unsigned parity) {
  unsigned done;
  asm volatile("{\n.reg .pred p;\nmbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
               : "=r"(done) : "r"(barrier), "r"(parity) : "memory");
  return done != 0;
}

// ---- PTX: TMA (sm_90) ---------------------------------------------------------------------------------------
// A tensor of dimensions (column, row, head, batch) as the host described it: cuTensorMapEncodeTiled.
struct __align__(64) TensorMap {
  u64 opaque[16];
};

// A box of the tensor, 64 columns wide, to shared memory; zeros where it reaches beyond the tensor. Chunk c of 16
// bytes of row r lies at c ^ r % 8 of the row's 128 bytes. The barrier counts the bytes.
__device__ __forceinline__ void tma_load(unsigned to, const TensorMap &map, unsigned barrier, int column, int row,
                                         int head, int batch) {
  asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes "
               "[%0], [%1, {%3, %4, %5, %6}], [%2];"
               :: "r"(to), "l"(&map), "r"(barrier), "r"(column), "r"(row), "r"(head), "r"(batch) : "memory");
}

// The other way; what lies beyond the tensor is not stored.
__device__ __forceinline__ void tma_store(const TensorMap &map, unsigned from, int column, int row, int head,
                                          int batch) {
  asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%2, %3, %4, %5}], [%1];"
               :: "l"(&map), "r"(from), "r"(column), "r"(row), "r"(head), "r"(batch) : "memory");
}

__device__ __forceinline__ void tma_store_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }

// Until this thread's stores but the N youngest groups have read shared memory; have been done.
template <int N> __device__ __forceinline__ void tma_store_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" :: "n"(N) : "memory");
}

template <int N> __device__ __forceinline__ void tma_store_wait() {
  asm volatile("cp.async.bulk.wait_group %0;" :: "n"(N) : "memory");
}

// What this thread has written to shared memory can then be read by TMA and wgmma.
__device__ __forceinline__ void async_proxy_fence() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// ---- PTX: named barriers ----------------------------------------------------------------------------------
// Numbers 1 to 15; 0 is the barrier of the whole block. `threads` threads have to come to one. Those who arrive go on at
// once, those who sync wait for all.
__device__ __forceinline__ void barrier_sync(int id, int threads) {
  asm volatile("bar.sync %0, %1;" :: "r"(id), "r"(threads) : "memory");
}

__device__ __forceinline__ void barrier_arrive(int id, int threads) {
  asm volatile("bar.arrive %0, %1;" :: "r"(id), "r"(threads) : "memory");
}

// ---- PTX: stmatrix (sm_90) ----------------------------------------------------------------------------------
// Four 8x8 matrices of 16-bit elements; lane i gives the address of row i % 8 of matrix i / 8.
__device__ __forceinline__ void stmatrix_x4(unsigned address, const unsigned (&r)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
               :: "r"(address), "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3]) : "memory");
}

// ---- PTX: setmaxnreg (sm_90a) -------------------------------------------------------------------------------
// Registers of each thread of the warpgroup from here on.
template <int N> __device__ __forceinline__ void registers_release() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" :: "n"(N));
}

template <int N> __device__ __forceinline__ void registers_claim() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" :: "n"(N));
}

// ---- PTX: wgmma (sm_90a) ------------------------------------------------------------------------------------
// Before the first product, and whenever other code has touched the registers of one.
__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

// Closes a group of products; wgmma_wait<N> waits until at most the N youngest groups are under way.
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

template <int N> __device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(N) : "memory");
}

// The compiler must not look at registers of a product before the wait that this follows.
template <int N> __device__ __forceinline__ void hold(float (&r)[N][4]) {
  #pragma unroll
  for (int i = 0; i < N; ++i) asm volatile("" : "+f"(r[i][0]), "+f"(r[i][1]), "+f"(r[i][2]), "+f"(r[i][3]) :: "memory");
}

// c = A B or, to accumulate, c += A B, 64 x 128 x 16. A from shared memory, the depth along its rows; B from shared memory, the depth along its rows.
__device__ __forceinline__ void wgmma_ss(float (&c)[16][4], u64 a, u64 b, bool accumulate = true) {
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"
               "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
               "%64, %65, p, 1, 1, 0, 0;\n}" :
               "+f"(c[0][0]), "+f"(c[0][1]), "+f"(c[0][2]), "+f"(c[0][3]),
               "+f"(c[1][0]), "+f"(c[1][1]), "+f"(c[1][2]), "+f"(c[1][3]),
               "+f"(c[2][0]), "+f"(c[2][1]), "+f"(c[2][2]), "+f"(c[2][3]),
               "+f"(c[3][0]), "+f"(c[3][1]), "+f"(c[3][2]), "+f"(c[3][3]),
               "+f"(c[4][0]), "+f"(c[4][1]), "+f"(c[4][2]), "+f"(c[4][3]),
               "+f"(c[5][0]), "+f"(c[5][1]), "+f"(c[5][2]), "+f"(c[5][3]),
               "+f"(c[6][0]), "+f"(c[6][1]), "+f"(c[6][2]), "+f"(c[6][3]),
               "+f"(c[7][0]), "+f"(c[7][1]), "+f"(c[7][2]), "+f"(c[7][3]),
               "+f"(c[8][0]), "+f"(c[8][1]), "+f"(c[8][2]), "+f"(c[8][3]),
               "+f"(c[9][0]), "+f"(c[9][1]), "+f"(c[9][2]), "+f"(c[9][3]),
               "+f"(c[10][0]), "+f"(c[10][1]), "+f"(c[10][2]), "+f"(c[10][3]),
               "+f"(c[11][0]), "+f"(c[11][1]), "+f"(c[11][2]), "+f"(c[11][3]),
               "+f"(c[12][0]), "+f"(c[12][1]), "+f"(c[12][2]), "+f"(c[12][3]),
               "+f"(c[13][0]), "+f"(c[13][1]), "+f"(c[13][2]), "+f"(c[13][3]),
               "+f"(c[14][0]), "+f"(c[14][1]), "+f"(c[14][2]), "+f"(c[14][3]),
               "+f"(c[15][0]), "+f"(c[15][1]), "+f"(c[15][2]), "+f"(c[15][3]) :
               "l"(a), "l"(b), "r"(int(accumulate)));
}

// c = A B or, to accumulate, c += A B, 64 x 40 x 16. A from registers, for each warp's 16 rows the fragments of
// mma.m16n8k16; B from shared memory, the depth across its rows.
__device__ __forceinline__ void wgmma_rs_across(float (&c)[5][4], const unsigned (&a)[4], u64 b,
                                        bool accumulate = true) {
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %25, 0;\n"
               "wgmma.mma_async.sync.aligned.m64n40k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19}, "
               "{%20, %21, %22, %23}, %24, p, 1, 1, 1;\n}" :
               "+f"(c[0][0]), "+f"(c[0][1]), "+f"(c[0][2]), "+f"(c[0][3]),
               "+f"(c[1][0]), "+f"(c[1][1]), "+f"(c[1][2]), "+f"(c[1][3]),
               "+f"(c[2][0]), "+f"(c[2][1]), "+f"(c[2][2]), "+f"(c[2][3]),
               "+f"(c[3][0]), "+f"(c[3][1]), "+f"(c[3][2]), "+f"(c[3][3]),
               "+f"(c[4][0]), "+f"(c[4][1]), "+f"(c[4][2]), "+f"(c[4][3]) :
               "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(int(accumulate)));
}

// ---- the argument ------------------------------------------------------------------------------
// The host fills it: generator/arguments.def. Strides are in elements.
// From one batch entry, row, head to the next, in elements.
struct Stride {
  long long batch;
  long long row;
  long long head;
};
static_assert(sizeof(Stride) == 24, "the host fills 24 bytes");

// A tensor [batch, rows, heads, head dim]; its rows are 16-byte aligned.
struct Tensor {
  element *data;
  Stride stride;
};
static_assert(sizeof(Tensor) == 32, "the host fills 32 bytes");

// The dropout mask.
struct Dropout {
  u64 seed;                          // read where seed_address is null
  u64 offset;                        // read where offset_address is null
  const u64 *seed_address;           // or null
  const u64 *offset_address;         // or null
  unsigned threshold;                // of 2^14: an element is dropped when its 14 bits are below
  float rescale;                     // 1 / (1 - threshold / 2^14); 0 when everything is dropped
};
static_assert(sizeof(Dropout) == 40, "the host fills 40 bytes");

// The kept blocks of one row or column of mask blocks.
struct __align__(16) MaskList {
  int block;                         // number of that row or column
  int count;                         // kept blocks
  long long start;                   // of the list in MaskLists::blocks
};
static_assert(sizeof(MaskList) == 16, "the host fills 16 bytes");

// The kept blocks of a block mask, one list for each row or column of blocks.
struct MaskLists {
  const MaskList *lists;             // of rows: the longest list of a head first; of columns: in their order
  const int *blocks;                 // ascending within a list
  long long batch_lists;             // lists from one batch entry to the next; 0: broadcast
  long long head_lists;              // lists from one query head to the next; 0: broadcast
};
static_assert(sizeof(MaskLists) == 32, "the host fills 32 bytes");

// Which keys a query sees.
struct Visibility {
  MaskLists rows;                    // for each row of mask blocks its kept columns
  MaskLists columns;                 // for each column of mask blocks its kept rows; backward only
  int first_diagonal;                // query i sees keys from i + first_diagonal on,
  int last_diagonal;                 // up to i + last_diagonal
};
static_assert(sizeof(Visibility) == 72, "the host fills 72 bytes");

// How many rows there are. With packed heads nq, heads_q and group count packed rows and heads.
struct Sequence {
  int nq;                            // queries of a batch entry
  int nk;                            // keys of a batch entry
  int heads_q;
  int group;                         // query heads per kv head
  int heads_kv;
  int pack_bits;                     // 2^pack_bits query heads are packed into one; 0: none are
  int batch;                         // batch entries
};
static_assert(sizeof(Sequence) == 28, "the host fills 28 bytes");

// Work tiles of a head, and the order in which heads are taken.
struct Schedule {
  int q_tiles;                       // query tiles; under a block mask as many as fill its rows of blocks
  int k_tiles;                       // key tiles, likewise; backward only
  int l2_section_heads;              // batch_heads whose K and V stay in L2 together (backward: whose Q and dO do)
  int remainder_heads;               // the last batch_heads, whose work tiles even the shares out (schedule_balanced)
};
static_assert(sizeof(Schedule) == 16, "the host fills 16 bytes");

// The factor of the scores.
struct Softmax {
  float scale;                       // > 0
  float scale_log2;                  // scale * log2(e)
};
static_assert(sizeof(Softmax) == 8, "the host fills 8 bytes");

// The argument of a forward kernel.
struct ForwardParams {
  Tensor q;
  Tensor k;
  Tensor v;
  Tensor o;                          // written
  float *lse;                        // [batch, heads_q, nq], written, or null
  Dropout dropout;
  Visibility visibility;
  Sequence sequence;
  Schedule schedule;
  Softmax softmax;
};
static_assert(sizeof(ForwardParams) == 304, "the host fills 304 bytes");

// The argument of a forward kernel with its tensors as TMA wants them.
struct TiledForwardParams {
  TensorMap q;                       // in boxes of BLOCK_M rows
  TensorMap k;                       // in boxes of BLOCK_N rows
  TensorMap v;                       // in boxes of BLOCK_N rows
  TensorMap o;                       // in boxes of 64 rows
  ForwardParams rest;
};
static_assert(sizeof(TiledForwardParams) == 832, "the host fills 832 bytes");


// ---- rows over the quad of lanes that share them -----------------------------------------------------
#define MINUS_INFINITY __int_as_float(0xff800000)

__device__ __forceinline__ float quad_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}

__device__ __forceinline__ float quad_sum(float x) {
  x += __shfl_xor_sync(0xffffffffu, x, 1);
  return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

// A row that has seen no key yet has maximum -inf; 0 stands in for it, so that 2^(-inf - 0) = 0, not NaN.
__device__ __forceinline__ float finite_max(float x) { return x == MINUS_INFINITY ? 0.f : x; }

// O and the sums are rescaled to new maxima only when a maximum of the warp has moved by more than this: until then
// p may exceed 1, up to 2^RESCALE_LIMIT, which costs no precision in either type.
constexpr float RESCALE_LIMIT = 8.f;

// ---- dropout -----------------------------------------------------------------------------------
// The mask is a pure function of (seed, offset, batch, head, i, j), whatever the tiles: Philox4x32-10
// (Salmon et al., SC'11). One draw of four words r[0..3] serves the 64 elements of a 32x64 block that one lane
// holds as eight mma fragments, rows i, i + 8 and columns j, j + 1, j + 8, j + 9 of each 16x16 tile of it:
//   counter  = { offset.low, (j / 64) * 4 + j % 8 / 2, batch * heads_q + head, (i / 32) * 8 + i % 8 }
//   key      = { seed.low, seed.high ^ offset.high }
//   w        = (i / 8) % 2 + 2 * ((j / 8) % 2), the element's register in its fragment
//   fragment = (j / 16) % 4 + 4 * ((i / 16) % 2)
//   word     = r[w]                                                              in fragment 0,
//              r[w] ^ ror(r[(w + fragment) % 4], 8)                              in fragments 1, 2, 3,
//              r[w] ^ ror(r[(w + 1) % 4], 8) ^ ror(r[(w + 2) % 4], 20)           in fragment 4,
//              r[w] ^ ror(r[(w + fragment) % 4], 20)                             in fragments 5, 6, 7
//   half     = the low half of the word for even j, the high half for odd j
// An element is dropped when the low 14 bits of its half are below the threshold round(p 2^14). Any two elements
// of a draw are independent: the 28 bits that decide about them are linearly independent functions of the 128
// drawn (tests/test_dropout.c counts the ranks).
// What varies along the keys enters the first round by XOR alone, so that most of the first three rounds is
// the same for all keys or for all rows of a warp.
struct Seed {
  unsigned key[2], offset;
  unsigned threshold_pair;                   // the threshold in both halves
};

__device__ __forceinline__ Seed find_seed(const ForwardParams &params) {
  const unsigned long long seed = params.dropout.seed_address ? *params.dropout.seed_address : params.dropout.seed;
  const unsigned long long offset = params.dropout.offset_address ? *params.dropout.offset_address : params.dropout.offset;
  return {{uniform(static_cast<unsigned>(seed)),
           uniform(static_cast<unsigned>(seed >> 32) ^ static_cast<unsigned>(offset >> 32))},
          uniform(static_cast<unsigned>(offset)), params.dropout.threshold * 0x00010001u};
}

__device__ __forceinline__ void philox(unsigned (&r)[4], unsigned key0, unsigned key1) {
  #pragma unroll
  for (int round = 0; round < 10; ++round) {
    const unsigned long long a = 0xD2511F53ull * r[0];
    const unsigned long long b = 0xCD9E8D57ull * r[2];
    r[0] = static_cast<unsigned>(b >> 32) ^ r[1] ^ key0;
    r[1] = static_cast<unsigned>(b);
    r[2] = static_cast<unsigned>(a >> 32) ^ r[3] ^ key1;
    r[3] = static_cast<unsigned>(a);
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
}

__device__ __forceinline__ unsigned ror(unsigned x, int bits) { return __funnelshift_r(x, x, bits); }

// ---- dropout of P: lanes hold rows of queries -------------------------------------------------------------
constexpr int KEYS_PER_DRAW = BLOCK_N % 64 == 0 ? 64 : BLOCK_N % 32 == 0 ? 32 : 16;
constexpr int DRAWS_HELD = 1;                        // drawn beside P V, as they are needed

// Draws down the rows of a warp: one for two m tiles where those lie in one block of 32 rows.
constexpr int ROW_DRAWS = WARP_ROWS % 32 == 0 ? M_TILES / 2 : M_TILES;

struct DropoutState {
  Seed seed;
  unsigned batch_head;                       // counter word
  unsigned lane_row, lane_column;            // this lane's share of the other two
  int row_block;                             // this warp's first row / 16
  int key_block;                             // this step's first key / 16
  unsigned random[DRAWS_HELD][ROW_DRAWS][4];
};

__device__ __forceinline__ DropoutState dropout_setup(const ForwardParams &params, int batch_head, int first_row,
                                                 int lane) {
  DropoutState dropout;
  dropout.seed = find_seed(params);
  dropout.batch_head = uniform(batch_head);
  dropout.lane_row = lane / 4;
  dropout.lane_column = lane % 4;
  dropout.row_block = first_row / 16;
  dropout.key_block = 0;
  return dropout;
}

// The draws that serve the keys from 16 `block` of this step on, for all rows of the warp.
__device__ __forceinline__ void draw(DropoutState &dropout, int block) {
  #pragma unroll
  for (int d = 0; d < ROW_DRAWS; ++d) {
    unsigned (&random)[4] = dropout.random[block * 16 / KEYS_PER_DRAW % DRAWS_HELD][d];
    random[0] = dropout.seed.offset;
    random[1] = (dropout.key_block + block) / 4 * 4 + dropout.lane_column;
    random[2] = dropout.batch_head;
    random[3] = (dropout.row_block + d * M_TILES / ROW_DRAWS) / 2 * 8 + dropout.lane_row;
    philox(random, dropout.seed.key[0], dropout.seed.key[1]);
  }
}

// Zeroes the dropped elements of a fragment of P, number COLUMN + 4 row. 14-bit integers compare like the fp16
// numbers of the same bits.
template <int COLUMN>
__device__ __forceinline__ void drop_fragment(unsigned (&rP)[4], const unsigned (&random)[4], int row,
                                              unsigned threshold_pair) {
  #pragma unroll
  for (int w = 0; w < 4; ++w) {
    unsigned word = random[w];
    if (COLUMN == 0) {
      word ^= (ror(random[(w + 1) % 4], 8) ^ ror(random[(w + 2) % 4], 20)) & (row == 0 ? 0u : ~0u);
    } else {
      word ^= ror(random[(w + COLUMN) % 4], row == 0 ? 8 : 20);
    }
    rP[w] &= halves_ge(word & 0x3FFF3FFFu, threshold_pair);
  }
}

// The 16 keys from 16 `block` of this step on. The compiler knows row and column where tiles are whole blocks of
// 32 rows and 64 keys.
__device__ __forceinline__ void drop(unsigned (&rP)[M_TILES][4], const DropoutState &dropout, int block) {
  const int column = BLOCK_N % 64 == 0 ? block % 4 : (dropout.key_block + block) % 4;
  #pragma unroll
  for (int m = 0; m < M_TILES; ++m) {
    const int row = WARP_ROWS % 32 == 0 ? m % 2 : (dropout.row_block + m) % 2;
    const unsigned (&random)[4] =
        dropout.random[block * 16 / KEYS_PER_DRAW % DRAWS_HELD][m * ROW_DRAWS / M_TILES];
    switch (column) {
      case 0: drop_fragment<0>(rP[m], random, row, dropout.seed.threshold_pair); break;
      case 1: drop_fragment<1>(rP[m], random, row, dropout.seed.threshold_pair); break;
      case 2: drop_fragment<2>(rP[m], random, row, dropout.seed.threshold_pair); break;
      default: drop_fragment<3>(rP[m], random, row, dropout.seed.threshold_pair); break;
    }
  }
}

// ---- which keys a query sees -----------------------------------------------------------------------
// Keys [0, limit) are visible to row i.
__device__ __forceinline__ int visible_keys(const ForwardParams &params, int i) {
  return min(params.sequence.nk, i + params.visibility.last_diagonal + 1);
}

// Whether a warp's rows see no key of the step at all, and whether they see all of them.
__device__ __forceinline__ bool sees_nothing(const ForwardParams &params, int first_row, int key) {
  return key >= visible_keys(params, first_row + WARP_ROWS - 1);
}

__device__ __forceinline__ bool sees_all(const ForwardParams &params, int first_row, int key) {
  return key + BLOCK_N <= visible_keys(params, first_row);
}

// S = -inf where the row does not see the key. Lane (g, t) holds rows g, g + 8 and keys 2 t, 2 t + 1 of each
// 16x8 tile, so one limit a row, relative to this lane's first key, decides by constants.
__device__ __forceinline__ void mask_scores(float (&rS)[M_TILES][N_TILES][4], const ForwardParams &params,
                                            int first_row, int key, int lane) {
  #pragma unroll
  for (int m = 0; m < M_TILES; ++m) {
    #pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = first_row + m * 16 + h * 8 + lane / 4;
      const int limit = visible_keys(params, row) - key - lane % 4 * 2;
      #pragma unroll
      for (int n = 0; n < N_TILES; ++n) {
        if (n * 8 >= limit) rS[m][n][2 * h] = MINUS_INFINITY;
        if (n * 8 + 1 >= limit) rS[m][n][2 * h + 1] = MINUS_INFINITY;
      }
    }
  }
}

// ---- work tiles, and the keys they walk over --------------------------------------------------------
// A block of query rows of one head.
struct WorkTile {
  int batch, head, kv_head;
  int q0;                    // first query row
  MaskList list;             // kept mask blocks of its row block
};

// A work tile by its rank among those of its batch_head. Rank 0 has the most keys.
__device__ __forceinline__ WorkTile work_tile_of_rank(const ForwardParams &params, unsigned batch_head, int rank) {
  WorkTile tile;
  tile.batch = batch_head / params.sequence.heads_q;
  tile.head = batch_head % params.sequence.heads_q;
  tile.kv_head = tile.head / params.sequence.group;
  constexpr int TILES = MASK_ROWS / BLOCK_M;  // of a row block
  tile.list = params.visibility.rows.lists[tile.batch * params.visibility.rows.batch_lists + tile.head * params.visibility.rows.head_lists +
                                rank / TILES];
  tile.q0 = tile.list.block * MASK_ROWS + rank % TILES * BLOCK_M;
  return tile;
}

// The steps of a tile: the kept mask blocks of its row block, each BLOCK_N keys at a time.
struct Keys {
  const int *blocks;         // this row block's list
  int steps;
};

__device__ __forceinline__ Keys find_keys(const ForwardParams &params, const WorkTile &tile) {
  Keys keys = {params.visibility.rows.blocks + tile.list.start, 0};
  int count = tile.list.count;
  const int limit = visible_keys(params, min(tile.q0 + BLOCK_M, params.sequence.nq) - 1);
  // Binary search for the number of blocks that begin before the limit.
  int low = 0;
  while (low < count) {
    const int middle = (low + count) / 2;
    if (limit > 0 && keys.blocks[middle] <= (limit - 1) / MASK_COLS) low = middle + 1; else count = middle;
  }
  if (count > 0) {
    const int seen = limit - keys.blocks[count - 1] * MASK_COLS;  // keys of the last block before the limit
    const int unseen = seen < MASK_COLS ? STEPS_PER_MASK_BLOCK - (seen + BLOCK_N - 1) / BLOCK_N : 0;
    keys.steps = count * STEPS_PER_MASK_BLOCK - unseen;
  }
  return keys;
}

// First key of a step.
__device__ __forceinline__ int key_of(const Keys &keys, int step) {
  return keys.blocks[step / STEPS_PER_MASK_BLOCK] * MASK_COLS + step % STEPS_PER_MASK_BLOCK * BLOCK_N;
}

// ---- the tile scheduler: balanced pairs, then an evening remainder ----------------------------------------
// The blocks are persistent and take work tiles in rounds. First come the batch_heads whose work tiles are paired by rank:
// the longest with the shortest, the second longest with the second shortest. All such balanced pairs are about equally
// long, and neighbouring blocks work on the same K and V at the same time, so that L2 serves them. In the last round of
// pairs some blocks get none. The last remainder_heads batch_heads make up for it: their work tiles are dealt one by one,
// rank after rank. The first of these rounds completes the last round of pairs. In the next ones the order of the blocks
// alternates, from the last block to the first and back, so that the block with the longest work tile of one round
// has the shortest of the next. The host chooses remainder_heads (generator/schedule.c).
struct TileCursor {
  unsigned round;
  int half;                  // of a balanced pair, 0: its longer work tile, 1: its shorter one
};

__device__ __forceinline__ unsigned pairs_of_a_head(const ForwardParams &params) { return (params.schedule.q_tiles + 1) / 2; }

__device__ __forceinline__ unsigned paired_heads(const ForwardParams &params) {
  return params.sequence.batch * params.sequence.heads_q - params.schedule.remainder_heads;
}

// This block's place in the order of all balanced pairs and, after them, of the remainder's work tiles.
__device__ __forceinline__ unsigned place_of(const ForwardParams &params, const TileCursor &cursor) {
  const unsigned pairs = pairs_of_a_head(params) * paired_heads(params);
  const unsigned pair_rounds = (pairs + gridDim.x - 1) / gridDim.x;
  const bool reversed = cursor.round >= pair_rounds && (cursor.round - pair_rounds) % 2 == 0;
  return cursor.round * gridDim.x + (reversed ? gridDim.x - 1 - blockIdx.x : blockIdx.x);
}

__device__ __forceinline__ TileCursor first_work(const ForwardParams &) { return {0, 0}; }

// Where q_tiles is odd, the work tile of the middle rank has no partner.
__device__ __forceinline__ TileCursor next_work(const ForwardParams &params, const TileCursor &cursor) {
  const unsigned place = place_of(params, cursor);
  const bool in_pair = place < pairs_of_a_head(params) * paired_heads(params);
  const bool alone = 2 * int(place % pairs_of_a_head(params)) + 1 == params.schedule.q_tiles;
  return in_pair && cursor.half == 0 && !alone ? TileCursor{cursor.round, 1} : TileCursor{cursor.round + 1, 0};
}

__device__ __forceinline__ bool is_done(const ForwardParams &params, const TileCursor &cursor) {
  return place_of(params, cursor) >= pairs_of_a_head(params) * paired_heads(params) +
                                         unsigned(params.schedule.q_tiles) * params.schedule.remainder_heads;
}

__device__ __forceinline__ WorkTile work_tile_at(const ForwardParams &params, const TileCursor &cursor) {
  const unsigned place = place_of(params, cursor), pairs = pairs_of_a_head(params) * paired_heads(params);
  if (place >= pairs) {
    const unsigned number = place - pairs;
    return work_tile_of_rank(params, paired_heads(params) + number % params.schedule.remainder_heads,
                             number / params.schedule.remainder_heads);
  }
  const int pair = place % pairs_of_a_head(params);
  return work_tile_of_rank(params, place / pairs_of_a_head(params),
                           cursor.half == 0 ? pair : params.schedule.q_tiles - 1 - pair);
}

// ---- tiles in shared memory, and who may touch them ---------------------------------------------------
// TMA fills a tile in panels of 64 columns: rows of 128 bytes, swizzled. Each tile has two barriers: `full` completes
// when its bytes have landed, `empty` when every consumer is done with them. The k-th use of a stage waits for the
// k-th phase of `full`, and a refill for the one before of `empty`; phases are told apart by their parity. V is one
// stage behind K: what is multiplied at the same time, the K of a step and the V of the one before, has the same stage.
constexpr int Q_TILE = D_PANELS * BLOCK_M * 128, K_TILE = D_PANELS * BLOCK_N * 128, V_TILE = DV_PANELS * BLOCK_N * 128;
constexpr int O_TILE = DV_PANELS * BLOCK_M * 128;           // staged where its Q was
constexpr int Q_STAGE = Q_TILE > O_TILE ? Q_TILE : O_TILE;
constexpr int SMEM_Q = 1024;                                // behind the barriers
constexpr int SMEM_K = SMEM_Q + Q_STAGES * Q_STAGE;
constexpr int SMEM_V = SMEM_K + STAGES * K_TILE;
static_assert(SMEM_V + STAGES * V_TILE <= 107520, "shared memory as budgeted");

static_assert(8 * ((2 + CONSUMERS) * Q_STAGES + 4 * STAGES) <= 512, "the barriers end before the notes");

// What the producer has found out about a tile, for those who work on it; complete when its Q is.
struct __align__(16) Note {
  int q0, head, batch;
  int steps;                 // at least one; 0: there are no more tiles
  int unmasked;              // steps, the last ones taken, of which all rows see all keys
};

extern __shared__ __align__(1024) unsigned char shared[];
__device__ __forceinline__ Note *notes() { return reinterpret_cast<Note *>(shared + 512); }  // one for each Q stage
__device__ __forceinline__ int *step_keys() { return reinterpret_cast<int *>(shared + 768); }  // of each K stage

// Shared addresses of the barriers; those of a stage are 8 bytes apart.
struct Barriers {
  unsigned q_full, q_empty, o_full, k_full, k_empty, v_full, v_empty;
};

__device__ __forceinline__ Barriers find_barriers(unsigned smem) {
  Barriers barriers;
  barriers.q_full = smem;
  barriers.q_empty = barriers.q_full + 8 * Q_STAGES;
  barriers.o_full = barriers.q_empty + 8 * Q_STAGES;
  barriers.k_full = barriers.o_full + 8 * CONSUMERS * Q_STAGES;
  barriers.k_empty = barriers.k_full + 8 * STAGES;
  barriers.v_full = barriers.k_empty + 8 * STAGES;
  barriers.v_empty = barriers.v_full + 8 * STAGES;
  return barriers;
}

// By one thread, before all others touch a barrier. An O tile is handed over once by each consumer warpgroup; each place
// for one has a barrier of its own, since the next may be there before the thread that stores has looked at this one.
__device__ __forceinline__ void init_barriers(const Barriers &barriers) {
  for (int i = 0; i < Q_STAGES; ++i) {
    mbarrier_init(barriers.q_full + 8 * i, 1);
    mbarrier_init(barriers.q_empty + 8 * i, CONSUMERS);
  }
  for (int i = 0; i < CONSUMERS * Q_STAGES; ++i) mbarrier_init(barriers.o_full + 8 * i, 1);
  for (int i = 0; i < STAGES; ++i) {
    mbarrier_init(barriers.k_full + 8 * i, 1);
    mbarrier_init(barriers.k_empty + 8 * i, 4 * CONSUMERS);
    mbarrier_init(barriers.v_full + 8 * i, 1);
    mbarrier_init(barriers.v_empty + 8 * i, CLUSTER * CONSUMERS);
  }
  // Before the first K there was no V: it has come and is done with. Somebody must wait for every phase.
  mbarrier_arrive(barriers.v_full);
  mbarrier_wait(barriers.v_full, 0);
  for (int i = 0; i < CLUSTER * CONSUMERS; ++i) mbarrier_arrive(barriers.v_empty);
  mbarrier_init_fence();
}

// A place in a ring of COUNT stages, and the parity of the phase its use waits for.
template <int COUNT> struct Ring {
  int stage;
  unsigned parity;
};

template <int COUNT> __device__ __forceinline__ Ring<COUNT> next(const Ring<COUNT> &ring) {
  const unsigned place = ring.stage + 1;
  if ((COUNT & (COUNT - 1)) == 0) return {int(place % COUNT), ring.parity ^ place / COUNT};  // no comparisons
  return place == COUNT ? Ring<COUNT>{0, ring.parity ^ 1} : Ring<COUNT>{int(place), ring.parity};
}

// Descriptors of wgmma operands in panels of 128-byte rows, swizzled: bits 0-13 address / 16, 16-29 and 32-45 byte
// offsets / 16, 62-63 the swizzle. Of a ring of tiles, the one of this stage; groups of eight rows are 1024 bytes apart.
__device__ __forceinline__ u64 tile_of_ring(unsigned ring, int stage, int tile, unsigned offset) {
  return u64(1 << 30 | 1024 >> 4) << 32 | (((ring & 0x3FFFF) >> 4 | offset >> 4 << 16) + stage * (tile >> 4));
}

// The depth along the rows: the other offset is not looked at.
__device__ __forceinline__ u64 depth_along_rows(unsigned ring, int stage = 0, int tile = 0) {
  return tile_of_ring(ring, stage, tile, 16);
}

// Across: the next 64 columns are a panel further.
__device__ __forceinline__ u64 depth_across_rows(unsigned ring, int stage, int tile, unsigned panel) {
  return tile_of_ring(ring, stage, tile, panel);
}

// What to add to a descriptor to move it by so many bytes.
constexpr __device__ __forceinline__ u64 moved(int bytes) { return u64(bytes >> 4); }

// ---- the producer: one thread that asks TMA for every tile -------------------------------------------------
__device__ __forceinline__ void load_panels(const TensorMap &map, unsigned to, unsigned barrier, int panels, int rows,
                                            int row, int head, int batch) {
  for (int p = 0; p < panels; ++p) tma_load(to + p * rows * 128, map, barrier, p * 64, row, head, batch);
}

// K or V of a step. Each block of a cluster loads its share of the rows for all.
__device__ __forceinline__ void load_keys(const TensorMap &map, unsigned to, unsigned barrier, int panels, int key,
                                          int head, int batch) {
  load_panels(map, to, barrier, panels, BLOCK_N, key, head, batch);
}

// A tile and its steps; none when there are no more tiles. One that sees no key takes a step all the same, beyond the
// last key.
struct Job {
  WorkTile tile;
  Keys keys;
  int steps;
};

__device__ __forceinline__ Job find_job(const ForwardParams &params, const TileCursor &cursor) {
  Job job = {};
  if (is_done(params, cursor)) return job;
  job.tile = work_tile_at(params, cursor);
  job.keys = find_keys(params, job.tile);
  job.steps = max(job.keys.steps, 1);
  return job;
}

__device__ __forceinline__ int key_of(const ForwardParams &params, const Job &job, int step) {
  return job.keys.steps > 0 ? key_of(job.keys, step) : params.sequence.nk;
}

// Loads Q and leaves the note.
__device__ __forceinline__ void announce(const TiledForwardParams &params, unsigned smem, const Barriers &barriers,
                                         const Job &job, Ring<Q_STAGES> &q_ring) {
  const unsigned full = barriers.q_full + 8 * q_ring.stage;
  Note &note = notes()[q_ring.stage];
  mbarrier_wait(barriers.q_empty + 8 * q_ring.stage, q_ring.parity ^ 1);
  note.q0 = job.tile.q0;
  note.head = job.tile.head;
  note.batch = job.tile.batch;
  note.steps = job.steps;
  note.unmasked = job.steps;
  while (note.unmasked > 0 && !sees_all(params.rest, job.tile.q0, key_of(params.rest, job, note.unmasked - 1))) {
    --note.unmasked;
  }
  if (job.steps == 0) {
    mbarrier_arrive(full);
    return;
  }
  mbarrier_arrive_expect(full, Q_TILE);
  const unsigned sQ = smem + SMEM_Q + q_ring.stage * Q_STAGE;
  load_panels(params.q, sQ, full, D_PANELS, BLOCK_M, job.tile.q0, job.tile.head, job.tile.batch);
  q_ring = next(q_ring);
}

// The V of a step that has its K.
struct LateV {
  int key, head, batch;            // no step yet: head < 0
};

__device__ __forceinline__ void load_v(const TiledForwardParams &params, unsigned smem, const Barriers &barriers,
                                       const Ring<STAGES> &ring, const LateV &v) {
  if (v.head < 0) return;
  const unsigned full = barriers.v_full + 8 * ring.stage;
  mbarrier_wait(barriers.v_empty + 8 * ring.stage, ring.parity ^ 1);
  mbarrier_arrive_expect(full, V_TILE);
  load_keys(params.v, smem + SMEM_V + ring.stage * V_TILE, full, DV_PANELS, v.key, v.head, v.batch);
}

__device__ __forceinline__ void produce(const TiledForwardParams &params, unsigned smem, const Barriers &barriers) {
  Ring<STAGES> ring = {0, 0};      // of K, and of V a step later; the first round finds every stage empty
  LateV late = {0, -1, 0};
  Ring<Q_STAGES> q_ring = {0, 0};
  TileCursor cursor = first_work(params.rest);
  Job job = find_job(params.rest, cursor);
  while (job.steps > 0) {
    cursor = next_work(params.rest, cursor);
    Job ahead;
    for (int left = job.steps - 1; left >= 0; --left) {
      const int key = key_of(params.rest, job, left);
      const unsigned k_full = barriers.k_full + 8 * ring.stage;
      load_v(params, smem, barriers, ring, late);
      mbarrier_wait(barriers.k_empty + 8 * ring.stage, ring.parity ^ 1);
      step_keys()[ring.stage] = key;
      mbarrier_arrive_expect(k_full, K_TILE);
      load_keys(params.k, smem + SMEM_K + ring.stage * K_TILE, k_full, D_PANELS, key, job.tile.kv_head, job.tile.batch);
      if (left == job.steps - 1) announce(params, smem, barriers, job, q_ring);
      late = {key, job.tile.kv_head, job.tile.batch};
      if (left == job.steps - 1) ahead = find_job(params.rest, cursor);  // early: it may have lists to fetch
      ring = next(ring);
    }
    job = ahead;
  }
  load_v(params, smem, barriers, ring, late);
  announce(params, smem, barriers, job, q_ring);
}

// One thread for each consumer warpgroup stores the O tiles that it has staged, and gives the place back to Q.
__device__ __forceinline__ void store_tiles(const TiledForwardParams &params, unsigned smem, const Barriers &barriers,
                                            int consumer) {
  Ring<Q_STAGES> q_ring = {0, 0};
  for (;;) {
    mbarrier_wait(barriers.q_full + 8 * q_ring.stage, q_ring.parity);
    const Note &note = notes()[q_ring.stage];
    if (note.steps == 0) break;
    mbarrier_wait(barriers.o_full + 8 * (consumer * Q_STAGES + q_ring.stage), q_ring.parity);
    const unsigned sO = smem + SMEM_Q + q_ring.stage * Q_STAGE + consumer * 64 * 128;
    for (int p = 0; p < DV_PANELS; ++p) {
      tma_store(params.o, sO + p * BLOCK_M * 128, p * 64, note.q0 + consumer * 64, note.head, note.batch);
    }
    tma_store_commit();
    tma_store_wait_read<0>();
    mbarrier_arrive(barriers.q_empty + 8 * q_ring.stage);
    q_ring = next(q_ring);
  }
  tma_store_wait<0>();
}

// ---- the steps of a consumer warpgroup ---------------------------------------------------------------------
// A warp of it owns 16 of its 64 rows; a lane rows g, g + 8 and columns 2 t, 2 t + 1 of every eight, as in
// mma.m16n8k16. P V of one step runs while the numerators of the next are computed, so what it reads (P) and writes
// (O) is left alone until it has been waited for: O is rescaled afterwards.

// The largest of this lane's scores of each of its rows.
__device__ __forceinline__ void largest(float (&own)[2], const float (&rS)[N_TILES][4]) {
  #pragma unroll
  for (int h = 0; h < 2; ++h) {
    float even = fmaxf(rS[0][2 * h], rS[0][2 * h + 1]);  // two chains, half as long
    float odd = fmaxf(rS[1][2 * h], rS[1][2 * h + 1]);
    #pragma unroll
    for (int n = 2; n < N_TILES; n += 2) {
      even = fmaxf(even, fmaxf(rS[n][2 * h], rS[n][2 * h + 1]));
      odd = fmaxf(odd, fmaxf(rS[n + 1][2 * h], rS[n + 1][2 * h + 1]));
    }
    own[h] = fmaxf(even, odd);
  }
}

// New maxima, and by how much O and the sums shrink.
// MASKED: a row may have seen no key yet.
template <bool MASKED>
__device__ __forceinline__ int move_maxima(float (&shrink)[2], float (&row_max)[2], float (&row_sum)[2],
                                           const float (&rS)[N_TILES][4], float scale_log2) {
  float own[2];
  largest(own, rS);
  #pragma unroll
  for (int h = 0; h < 2; ++h) {
    const float new_max = fmaxf(row_max[h], quad_max(own[h]) * scale_log2);
    shrink[h] = ex2(row_max[h] - (MASKED ? finite_max(new_max) : new_max));
    row_max[h] = new_max;
    row_sum[h] *= shrink[h];
  }
  return 1;
}

// S -> numerators, in place; adds to the sums.
template <bool MASKED, int FROM, int TO>
__device__ __forceinline__ void numerators(float (&rS)[N_TILES][4], float (&row_sum)[2], const float (&row_max)[2],
                                           float scale_log2) {
  float known_max[2] = {MASKED ? finite_max(row_max[0]) : row_max[0],
                        MASKED ? finite_max(row_max[1]) : row_max[1]};
  float sums[2][2];  // of even and of odd n
  #pragma unroll
  for (int n = FROM; n < TO; ++n) {
    #pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float x = rS[n][i] * scale_log2 - known_max[i / 2];
      rS[n][i] = ex2(x);
    }
    #pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float sum = rS[n][2 * h] + rS[n][2 * h + 1];
      sums[h][n % 2] = n < FROM + 2 ? sum : sums[h][n % 2] + sum;
    }
  }
  row_sum[0] += sums[0][0] + sums[0][1];
  row_sum[1] += sums[1][0] + sums[1][1];
}

// Numerators of 16 keys -> A fragment of the second product.
__device__ __forceinline__ void pack_numerators(unsigned (&rP)[4], const float (&rS)[N_TILES][4], int k) {
  #pragma unroll
  for (int i = 0; i < 4; ++i) {  // fragment register i: rows g + 8 (i % 2), keys 8 (i / 2) + 2 t
    rP[i] = pack(rS[2 * k + i / 2][2 * (i % 2)], rS[2 * k + i / 2][2 * (i % 2) + 1]);
  }
}

__device__ __forceinline__ void rescale(float (&rO)[O_TILES][4], const float (&shrink)[2]) {
  #pragma unroll
  for (int n = 0; n < O_TILES; ++n) {
    #pragma unroll
    for (int i = 0; i < 4; ++i) rO[n][i] *= shrink[i / 2];
  }
}

// One consumer warpgroup: 64 rows of each tile of its block.
struct Consumer {
  int number, warp, lane;        // warpgroup, and place in it
  unsigned smem;
  Barriers barriers;
  Ring<STAGES> ring;             // the next K, and the V of the step before it
  Ring<Q_STAGES> q_ring;
  float rS[1][N_TILES][4];       // scores, then numerators
  float rO[O_TILES][4];
  unsigned rP[BLOCK_N / 16][1][4];
  float row_max[2], row_sum[2];  // maximum times scale_log2; this lane's part of the sum
  bool k_ready;                  // whether the K of the next step has been seen to be there
  DropoutState dropout;
};

// What a consumer needs to know of a tile.
struct Work {
  int head, batch;
  int first_row;                 // of this warpgroup
  int steps;                     // 0: there are no more tiles
  int unmasked;                  // steps, the last ones taken, of which all rows see all keys
};

// Of the tile whose Q is next in the ring, once it is there.
__device__ __forceinline__ Work find_work(const Consumer &consumer, const ForwardParams &params,
                                          const Ring<Q_STAGES> &q_ring) {
  mbarrier_wait(consumer.barriers.q_full + 8 * q_ring.stage, q_ring.parity);
  const Note &note = notes()[q_ring.stage];
  Work work;
  work.head = note.head;
  work.batch = note.batch;
  work.first_row = note.q0 + consumer.number * 64;
  work.steps = note.steps;
  work.unmasked = note.unmasked;
  return work;
}

// First key of the step whose K is next, of a tile with so many to go after it.
__device__ __forceinline__ int key_of(const Consumer &consumer, const Work &work, int left) {
  return step_keys()[consumer.ring.stage];
}

// One thread speaks for the warpgroup, which has converged in the wait before.
__device__ __forceinline__ void release(const Consumer &consumer, unsigned barrier) {
  if (consumer.warp == 0 && consumer.lane == 0) mbarrier_arrive(barrier);
}

// To all blocks that load a share of it.
__device__ __forceinline__ void release_share(const Consumer &consumer, unsigned barrier) {
  release(consumer, barrier);
}

// The next K, the V of this stage can be replaced.
__device__ __forceinline__ void release_k(const Consumer &consumer) {
  const unsigned empty = consumer.barriers.k_empty + 8 * consumer.ring.stage;
  __syncwarp();  // each lane has read where the keys are
  if (consumer.lane == 0) mbarrier_arrive(empty);
}

__device__ __forceinline__ void release_v(const Consumer &consumer, const Ring<STAGES> &ring) {
  release_share(consumer, consumer.barriers.v_empty + 8 * ring.stage);
}

__device__ __forceinline__ void begin_rows(Consumer &consumer, const ForwardParams &params, const Work &work) {
  consumer.row_max[0] = consumer.row_max[1] = MINUS_INFINITY;
  consumer.row_sum[0] = consumer.row_sum[1] = 0.f;
  consumer.dropout = dropout_setup(params, work.batch * params.sequence.heads_q + work.head,
                                   work.first_row + consumer.warp * 16, consumer.lane);
}

__device__ __forceinline__ void clear_o(Consumer &consumer) {
  #pragma unroll
  for (int n = 0; n < O_TILES; ++n) consumer.rO[n][0] = consumer.rO[n][1] = consumer.rO[n][2] = consumer.rO[n][3] = 0.f;
}

// S = Q K^T, begun.
__device__ __forceinline__ void begin_qk(Consumer &consumer, const Ring<Q_STAGES> &q_ring) {
  const u64 q = depth_along_rows(consumer.smem + SMEM_Q + consumer.number * 64 * 128, q_ring.stage, Q_STAGE);
  const u64 k = depth_along_rows(consumer.smem + SMEM_K, consumer.ring.stage, K_TILE);
  wgmma_fence();
  #pragma unroll
  for (int i = 0; i < K_STEPS; ++i) {  // 16 columns are 32 bytes, four times to a panel
    wgmma_ss(consumer.rS[0], q + moved(i / 4 * BLOCK_M * 128 + i % 4 * 32), k + moved(i / 4 * BLOCK_N * 128 + i % 4 * 32), i > 0);
  }
  wgmma_commit();
}

// O += P V, begun: the V of this stage.
__device__ __forceinline__ void begin_pv(Consumer &consumer, const Ring<STAGES> &ring) {
  const u64 v = depth_across_rows(consumer.smem + SMEM_V, ring.stage, V_TILE, BLOCK_N * 128);
  wgmma_fence();
  #pragma unroll
  for (int k = 0; k < BLOCK_N / 16; ++k) {
    wgmma_rs_across(consumer.rO, consumer.rP[k][0], v + moved(k * 16 * 128));
  }
  wgmma_commit();
}

// Waits for K, whose barrier was looked at a softmax ago: asking takes time, and it is nearly always there.
__device__ __forceinline__ void wait_for_k(const Consumer &consumer) {
  if (!consumer.k_ready) mbarrier_wait(consumer.barriers.k_full + 8 * consumer.ring.stage, consumer.ring.parity);
}

// The softmax of a step whose K has been multiplied. MASKED: some row may not see all of its keys. Returns 1 where O must
// shrink (as a bool it would be a byte, put together and taken apart).
template <bool MASKED>
__device__ __forceinline__ int softmax(Consumer &consumer, float (&shrink)[2], const ForwardParams &params,
                                       const Work &work, int key) {
  const Ring<STAGES> ahead = next(consumer.ring);
  if (MASKED && !sees_all(params, work.first_row, key)) {
    mask_scores(consumer.rS, params, work.first_row + consumer.warp * 16, key, consumer.lane);
  }
  const int moved = move_maxima<MASKED>(shrink, consumer.row_max, consumer.row_sum, consumer.rS[0], params.softmax.scale_log2);
  consumer.k_ready = mbarrier_test(consumer.barriers.k_full + 8 * ahead.stage, ahead.parity);
  numerators<MASKED, 0, N_TILES>(consumer.rS[0], consumer.row_sum, consumer.row_max, params.softmax.scale_log2);
  return moved;
}

__device__ __forceinline__ void drop_keys(Consumer &consumer, unsigned (&rP)[1][4], int k) {
  if (k * 16 % KEYS_PER_DRAW == 0) draw(consumer.dropout, k);
  drop(rP, consumer.dropout, k);
}

// Numerators -> P, for the next P V: the last one has been waited for.
__device__ __forceinline__ void pack_p(Consumer &consumer, int key) {
  consumer.dropout.key_block = key / 16;
  #pragma unroll
  for (int k = 0; k < BLOCK_N / 16; ++k) {
    pack_numerators(consumer.rP[k][0], consumer.rS[0], k);
  }
  #pragma unroll
  for (int k = 0; k < BLOCK_N / 16; ++k) drop_keys(consumer, consumer.rP[k], k);
}

// The first step of a tile, but for its P V.
__device__ __forceinline__ void take_first_step(Consumer &consumer, const ForwardParams &params, const Work &work) {
  begin_rows(consumer, params, work);
  clear_o(consumer);
  wait_for_k(consumer);
  const int key = key_of(consumer, work, work.steps - 1);
  begin_qk(consumer, consumer.q_ring);
  wgmma_wait<0>();
  hold(consumer.rS[0]);
  release_k(consumer);
  float shrink[2];
  softmax<true>(consumer, shrink, params, work, key);
  pack_p(consumer, key);
  consumer.ring = next(consumer.ring);
}

// Q K^T beside P V of the step before, whose V is in this stage: begun.
__device__ __forceinline__ void begin_both(Consumer &consumer, const Ring<Q_STAGES> &q_ring, const Ring<STAGES> &ring) {
  const unsigned v_full = consumer.barriers.v_full + 8 * ring.stage;
  const bool v_ready = mbarrier_test(v_full, ring.parity);
  begin_qk(consumer, q_ring);
  if (!v_ready) mbarrier_wait(v_full, ring.parity);
  begin_pv(consumer, ring);
}

// One step: Q K^T of this one beside P V of the one before, then the softmax of this one beside that P V.
template <bool MASKED>
__device__ __forceinline__ void take_step(Consumer &consumer, const ForwardParams &params, const Work &work, int left) {
  wait_for_k(consumer);
  const int key = key_of(consumer, work, left);
  begin_both(consumer, consumer.q_ring, consumer.ring);
  wgmma_wait<1>();
  hold(consumer.rS[0]);
  release_k(consumer);
  float shrink[2];
  const int moved = softmax<MASKED>(consumer, shrink, params, work, key);
  wgmma_wait<0>();
  hold(consumer.rO);
  release_v(consumer, consumer.ring);
  pack_p(consumer, key);
  if (moved) rescale(consumer.rO, shrink);
  consumer.ring = next(consumer.ring);
}

// The steps after a tile's first, from the last keys to the first: those with hidden scores come first.
__device__ __forceinline__ void take_steps(Consumer &consumer, const ForwardParams &params, const Work &work) {
  int left = work.steps - 2;
  #pragma unroll 1
  for (; left >= work.unmasked; --left) take_step<true>(consumer, params, work, left);
  #pragma unroll 1
  for (; left >= 0; --left) take_step<false>(consumer, params, work, left);
}

// P V of a tile's last step, whose V is in this stage.
__device__ __forceinline__ void take_last_product(Consumer &consumer, const Ring<STAGES> &ring) {
  mbarrier_wait(consumer.barriers.v_full + 8 * ring.stage, ring.parity);
  begin_pv(consumer, ring);
  wgmma_wait<0>();
  hold(consumer.rO);
  release_v(consumer, ring);
}

// O = O / l, LSE = ln l + max, for rows of this warpgroup. Rows that saw no key have l = 0: O = 0, LSE = -inf.
__device__ __forceinline__ void normalise(Consumer &consumer, const ForwardParams &params, const Work &work,
                                          const float (&row_max)[2], const float (&row_sum)[2]) {
  #pragma unroll
  for (int h = 0; h < 2; ++h) {
    const float l = quad_sum(row_sum[h]);
    float normaliser = l > 0.f ? rcp(l) : 0.f;
    normaliser *= params.dropout.rescale;
    const int i = work.first_row + consumer.warp * 16 + h * 8 + consumer.lane / 4;
    const int place = i;
    if (params.lse && consumer.lane % 4 == 0 && i < params.sequence.nq) {
      const float lse = l > 0.f ? (row_max[h] + lg2(l)) * 0.69314718f : MINUS_INFINITY;
      params.lse[(long long)(work.batch * params.sequence.heads_q + work.head) * params.sequence.nq + place] = lse;
    }
    #pragma unroll
    for (int n = 0; n < O_TILES; ++n) {
      consumer.rO[n][2 * h] *= normaliser;
      consumer.rO[n][2 * h + 1] *= normaliser;
    }
  }
}

// Column tiles are stored by twos. An odd last one is there twice: beyond the columns nothing is stored.
constexpr __device__ __forceinline__ int second_of_two(int n) { return n + 1 < O_TILES ? n + 1 : n; }

// O is staged where its Q was and handed to the thread that stores it.
__device__ __forceinline__ void store_o(const Consumer &consumer, const ForwardParams &, const Work &) {
  const unsigned sO = consumer.smem + SMEM_Q + consumer.q_ring.stage * Q_STAGE + consumer.number * 64 * 128;
  const int row = consumer.warp * 16 + consumer.lane % 16;
  #pragma unroll
  for (int n = 0; n < O_TILES; n += 2) {  // 16 columns: chunks n, n + 1 of the row, by lanes below and above 16
    const int chunk = n % 8 + consumer.lane / 16, other = second_of_two(n);
    const unsigned r[4] = {
        pack(consumer.rO[n][0], consumer.rO[n][1]), pack(consumer.rO[n][2], consumer.rO[n][3]),
        pack(consumer.rO[other][0], consumer.rO[other][1]), pack(consumer.rO[other][2], consumer.rO[other][3])};
    stmatrix_x4(sO + n / 8 * BLOCK_M * 128 + row * 128 + (chunk ^ row % 8) * 16, r);
  }
  async_proxy_fence();
  barrier_sync(FIRST_OWN_BARRIER + consumer.number, 128);
  release(consumer, consumer.barriers.o_full + 8 * (consumer.number * Q_STAGES + consumer.q_ring.stage));
}

__device__ __forceinline__ void finish(Consumer &consumer, const ForwardParams &params, const Work &work,
                                       const float (&row_max)[2], const float (&row_sum)[2]) {
  normalise(consumer, params, work, row_max, row_sum);
  store_o(consumer, params, work);
}

// Tile after tile.
__device__ __forceinline__ void consume(Consumer &consumer, const ForwardParams &params) {
  #pragma unroll 1
  for (;;) {
    const Work work = find_work(consumer, params, consumer.q_ring);
    if (work.steps == 0) break;
    take_first_step(consumer, params, work);
    take_steps(consumer, params, work);
    take_last_product(consumer, consumer.ring);
    finish(consumer, params, work, consumer.row_max, consumer.row_sum);
    consumer.q_ring = next(consumer.q_ring);
  }
}

// ---- the kernel ----------------------------------------------------------------------------------
extern "C" __global__ void __launch_bounds__(THREADS, 1)
fatune_kernel(const __grid_constant__ TiledForwardParams params) {
  const unsigned smem = shared_address(shared);
  const Barriers barriers = find_barriers(smem);
  if (threadIdx.x == 0) init_barriers(barriers);
  __syncthreads();

  const int warpgroup = threadIdx.x / 128, warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
  if (warpgroup == 0) {
    registers_release<PRODUCER_REGISTERS>();
    if (lane == 0 && warp == 0) produce(params, smem, barriers);
    const int stores_for = warp - 1 + 3 * lane;  // one thread of the other warps for each consumer
    if (warp > 0 && stores_for < CONSUMERS) store_tiles(params, smem, barriers, stores_for);
  } else {
    registers_claim<CONSUMER_REGISTERS>();
    Consumer consumer;
    consumer.number = uniform(warpgroup - 1);
    consumer.warp = warp;
    consumer.lane = lane;
    consumer.smem = smem;
    consumer.barriers = barriers;
    consumer.ring = {0, 0};
    consumer.q_ring = {0, 0};
    consumer.k_ready = false;
    consume(consumer, params.rest);
  }
}
