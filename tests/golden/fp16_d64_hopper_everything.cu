// fatune: forward attention, sm_90a
// request  forward fp16 d64 dv40 causal dropout mask=128x128
// config   wgmma_forward block_m=64 block_n=128 stages=3 q_stages=1
// budget   107520 bytes of shared memory, 256 threads, about 148 of 232 registers
// parts    wgmma_forward.cu.in, parts/ptx_common.cu.in, parts/ptx_memory.cu.in, parts/ptx_mbarrier.cu.in, parts/ptx_tma.cu.in, parts/ptx_tma_5d.cu.in, parts/ptx_barriers.cu.in, parts/ptx_stmatrix.cu.in, parts/ptx_registers.cu.in, parts/ptx_unset.cu.in, parts/ptx_wgmma.cu.in, parts/ptx_wgmma_product.cu.in, parts/pairs.cu.in, parts/score_function_none.cu.in, parts/arguments.cu.in, parts/sinks_none.cu.in, parts/sequence.cu.in, parts/sequence_rows.cu.in, parts/rows_of_heads.cu.in, parts/outputs.cu.in, parts/quad.cu.in, parts/e4m3_scale_none.cu.in, parts/p_range.cu.in, parts/wgmma_softmax.cu.in, parts/visibility.cu.in, parts/key_walk_blocks.cu.in, parts/key_parts_none.cu.in, parts/work_tile.cu.in, parts/walk_order.cu.in, parts/schedule_balanced.cu.in, parts/score_none.cu.in, parts/dropout.cu.in, parts/dropout_rows.cu.in, parts/announce_blocks.cu.in, parts/pipeline.cu.in, parts/ring.cu.in, parts/descriptors.cu.in, parts/block_alone.cu.in, parts/rows_of_sequences_none.cu.in, parts/rows_dense.cu.in, parts/rows_of_keys.cu.in, parts/producer.cu.in, parts/load_tile.cu.in, parts/load_values.cu.in, parts/produce.cu.in, parts/score_tile_none.cu.in, parts/score_keys_none.cu.in, parts/consumer.cu.in, parts/p_in_registers.cu.in, parts/wgmma_exponents_none.cu.in, parts/consumer_steps.cu.in, parts/store_o_staged.cu.in, parts/epilogue_wgmma.cu.in, parts/consume_each.cu.in, parts/work_list_none.cu.in
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
constexpr int SKIPPED_STEPS = 0;              // most steps of a work tile of which a warpgroup's rows see no key

// What can be done in several ways is done so (the config's knobs):
constexpr bool ASCENDING = 0;         // the walk is from the first keys to the last
constexpr bool PINGPONG_PRODUCTS = 0, PINGPONG_SOFTMAX = 0;  // warpgroups take turns
constexpr bool INTEGER_MAX = 0;       // maxima of scores are compared as integers
constexpr bool EXP2_POLY = 0;         // an eighth of the powers of 2 are polynomials
constexpr bool LAZY_RESCALE = 0;      // O is corrected only when a maximum has moved far
constexpr bool P_IN_SMEM = 0;         // P goes to P V by way of shared memory
constexpr bool DIRECT_STORE = 0;      // O is stored from registers
constexpr bool V_IN_COLUMNS = false;  // products take V by columns
constexpr bool TRANSPOSES_V = false;  // warps of the producer's warpgroup transpose V
constexpr bool SPREAD_EXP2 = 0;       // powers of 2 are spread over the step; else random bits fill their pauses
constexpr int MASK_ROWS = 128, MASK_COLS = 128;  // of a block of the block mask; 0: none
constexpr int PAGE = 0;                 // rows of a page of K and V; 0: there are no pages

// ---- PTX: one wrapper for each instruction. Here numbers and bits ---------------------------------------
typedef unsigned short element;  // fp16, moved and multiplied as 16-bit patterns
typedef unsigned long long u64;
constexpr int CHUNK = 16 / sizeof(element);  // elements of 16 bytes

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

// Bytes of a (0 to 3) and b (4 to 7), chosen by the digits of `choice`, the lowest first; with 8 added to a digit, eight times the
// highest bit of the byte.
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

// The same of an address in global memory.
template <class T> __device__ __forceinline__ void pin(const T *&x) {
  asm volatile("" : "+l"(x));
  __builtin_assume(__isGlobal(x));
}

// ---- PTX: loads and stores, so that neither is merged, split or moved ------------------------------------
__device__ __forceinline__ void store_shared_4(unsigned to, unsigned value) {
  asm volatile("st.shared.u32 [%0], %1;" :: "r"(to), "r"(value) : "memory");
}

__device__ __forceinline__ float load_shared_float(unsigned from) {
  float x;
  asm volatile("ld.shared.f32 %0, [%1];" : "=f"(x) : "r"(from) : "memory");
  return x;
}

__device__ __forceinline__ void load_shared_8(float (&r)[2], unsigned from) {
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(r[0]), "=f"(r[1]) : "r"(from) : "memory");
}

__device__ __forceinline__ void store_shared_8(unsigned to, const float (&r)[2]) {
  asm volatile("st.shared.v2.f32 [%0], {%1, %2};" :: "r"(to), "f"(r[0]), "f"(r[1]) : "memory");
}

__device__ __forceinline__ void load_shared_16(unsigned (&r)[4], unsigned from) {
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(from) : "memory");
}

__device__ __forceinline__ void load_global_16(unsigned (&r)[4], const element *from) {
  asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "l"(from) : "memory");
}

__device__ __forceinline__ void store_global_16(element *to, const unsigned (&r)[4]) {
  asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};"
               :: "l"(to), "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3]) : "memory");
}

__device__ __forceinline__ void store_shared_16(unsigned to, const float (&r)[4]) {
  asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};"
               :: "r"(to), "f"(r[0]), "f"(r[1]), "f"(r[2]), "f"(r[3]) : "memory");
}

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

// ---- sm_90: TMA in tensors of five dimensions (column, head in a pack, row, pack of heads, batch) --------
__device__ __forceinline__ void tma_load_5d(unsigned to, const TensorMap &map, unsigned barrier, int column, int member,
                                         int row, int pack, int batch) {
  asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes "
               "[%0], [%1, {%3, %4, %5, %6, %7}], [%2];"
               :: "r"(to), "l"(&map), "r"(barrier), "r"(column), "r"(member), "r"(row), "r"(pack), "r"(batch) : "memory");
}

__device__ __forceinline__ void tma_store_5d(const TensorMap &map, unsigned from, int column, int member, int row,
                                          int pack, int batch) {
  asm volatile("cp.async.bulk.tensor.5d.global.shared::cta.bulk_group [%0, {%2, %3, %4, %5, %6}], [%1];"
               :: "l"(&map), "r"(from), "r"(column), "r"(member), "r"(row), "r"(pack), "r"(batch) : "memory");
}

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

// ---- no PTX: variables without a value ---------------------------------------------------------------------
// On some paths these variables have no value. There they are copied, and the copies are not used. The compiler for a GPU need not
// be told so. The emulator has another function of this name: it takes a copy of what was never written for an error.
template <class... Any> __device__ __forceinline__ void may_be_unset(Any &...) {}

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

// ---- a fragment: 16 x 16 elements in the registers of a warp --------------------------------------------------------------
// A lane has four pairs of neighbouring columns: pair i is of row g + 8 (i % 2), columns 8 (i / 2) + 2 t and one more,
// where g = lane / 4 and t = lane % 4. Accumulators have the same pairs.
constexpr int FRAGMENT = 4;  // registers; each is a pair

__device__ __forceinline__ void set_pair(unsigned (&r)[FRAGMENT], int i, float first, float second) {
  r[i] = pack(first, second);
}

__device__ __forceinline__ float first_of(const unsigned (&r)[FRAGMENT], int i) { return low_half(r[i]); }
__device__ __forceinline__ float second_of(const unsigned (&r)[FRAGMENT], int i) { return high_half(r[i]); }

// kept: all ones in the low half where the first of the pair is kept, in the high half for the second. Others become 0.
__device__ __forceinline__ void keep_pair(unsigned (&r)[FRAGMENT], int i, unsigned kept) { r[i] &= kept; }

// Of a fragment that was all ones.
__device__ __forceinline__ bool first_kept(const unsigned (&r)[FRAGMENT], int i) { return r[i] & 1; }
__device__ __forceinline__ bool second_kept(const unsigned (&r)[FRAGMENT], int i) { return r[i] >> 31; }

// The pair with a sign where it is not kept.
__device__ __forceinline__ void mark_pair(unsigned (&marked)[FRAGMENT], const unsigned (&r)[FRAGMENT], int i, unsigned kept) {
  marked[i] = r[i] | (~kept & 0x80008000u);
}

// Zeroes what has a sign.
__device__ __forceinline__ void drop_marked(unsigned (&r)[FRAGMENT]) {
  #pragma unroll
  for (int i = 0; i < FRAGMENT; ++i) r[i] &= ~((r[i] >> 15 & 0x00010001u) * 0xFFFFu);
}

// The sum of the products of the elements of two chunks.
__device__ __forceinline__ float dot_chunks(const unsigned (&a)[4], const unsigned (&b)[4]) {
  float sum = 0.f;
  #pragma unroll
  for (int w = 0; w < 4; ++w) sum += low_half(a[w]) * low_half(b[w]) + high_half(a[w]) * high_half(b[w]);
  return sum;
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
  int heads;                         // query heads of a batch entry of the whole problem, of which this may be a part
  int first_head;                    // heads of it over all batch entries before this part's first
  int first_query;                   // its queries before this part's first, a multiple of 64
  int first_key;                     // likewise of keys
};
static_assert(sizeof(Dropout) == 56, "the host fills 56 bytes");

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
  const int *blocks;                 // ascending within a list; negative: the score function hides nothing of the block, whose number is in the other bits
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
  int pack_code;                     // of packed heads, as ft_pack_code has it: a query has 2^(pack_code % 256) rows, the last pack_code / 256 of them of no head; 0: none are packed
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

// Walks that are divided into parts, each with an O and an LSE of its own, in the workspace.
struct KeyParts {
  float *o;                          // [most, rows, HEAD_DIM_V]
  float *lse;                        // [most, rows], natural logarithms
  long long rows;                    // query rows of all batch_heads; of the divided tiles (schedule_longest); of the parts of a block (schedule_stream)
  int steps;                         // of a part, about
  int most;                          // parts of a walk; 1: none is divided; blocks, of which each may have a part of a walk (schedule_stream)
};
static_assert(sizeof(KeyParts) == 32, "the host fills 32 bytes");

// A work tile of a ragged batch, the same of every head.
struct __align__(16) WorkEntry {
  int batch;                         // number of the sequence
  int row;                           // its first row: of queries, or of keys where it is a key tile
  int nq;                            // queries of the sequence; keys
  int nk;
  int first_q;                       // rows of Q of all sequences before it; of K
  int first_k;
  int first_diagonal;                // as in Visibility, of this sequence
  int last_diagonal;
};
static_assert(sizeof(WorkEntry) == 32, "the host fills 32 bytes");

// Diagonals that are seen: query i lies on diagonal 0 with key i.
struct Diagonals {
  int first;
  int last;
};
static_assert(sizeof(Diagonals) == 8, "the host fills 8 bytes");

// Sequences of different lengths, one behind the other in the rows of all tensors; addresses are null where there are none.
struct Ragged {
  const int *starts_q;               // [sequences + 1]: rows of Q before each sequence; the last: of all
  const int *starts_k;               // of K and V, likewise; null where they are in pages
  const int *used_q;                 // [sequences]: how many of its rows of Q a sequence uses; null: all
  const int *used_k;                 // of K and V, likewise
  WorkEntry *list;                   // [numbers], written by fatune_work_list; of the backward key tiles
  int *entries;                      // how many the list has, likewise
  int sequences;
  int numbers;                       // that those tiles may have
  int numbers_q;                     // that query tiles may have
  int rows_q;                        // of all sequences
  Diagonals top_left;                // that a query sees, where they are also of bottom_right
  Diagonals bottom_right;            // nk - nq less than they are in each sequence
};
static_assert(sizeof(Ragged) == 80, "the host fills 80 bytes");

// Pages and heads of a tensor as one dimension, whose stride divides both of theirs.
struct Slots {
  int page;                          // from one page to the next
  int head;
};
static_assert(sizeof(Slots) == 8, "the host fills 8 bytes");

// K and V in pages, which their batch entries then are; all null where they are not.
struct Pages {
  const int *table;                  // of a batch entry, the page of its rows i * PAGE to i * PAGE + PAGE - 1 in column i
  const int *lengths;                // [batch]: keys of each batch entry
  long long batch;                   // from one batch entry to the next in the table, in numbers
  long long column;                  // from one column to the next, likewise
  Slots k;                           // for TMA
  Slots v;                           // likewise
  int columns;                       // of the table: for the emulator, likewise below
  int count;                         // pages that there are
};
static_assert(sizeof(Pages) == 56, "the host fills 56 bytes");

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
  KeyParts parts;
  const float *sinks;                // [heads_q], of unpacked heads; null without sinks
  Ragged ragged;
  Pages pages;
};
static_assert(sizeof(ForwardParams) == 496, "the host fills 496 bytes");

// The argument of a forward kernel with its tensors as TMA wants them.
struct TiledForwardParams {
  TensorMap q;                       // in boxes of BLOCK_M rows
  TensorMap k;                       // in boxes of BLOCK_N rows
  TensorMap v;                       // in boxes of BLOCK_N rows
  TensorMap o;                       // in boxes of 64 rows
  TensorMap of_score;                // in boxes of 16 rows, with score_in_smem=2
  ForwardParams rest;
};
static_assert(sizeof(TiledForwardParams) == 1152, "the host fills 1152 bytes");


// ---- sinks: there are none -----------------------------------------------------------------------------------------------
template <class Params> __device__ __forceinline__ float add_sink(float &, const Params &, int) { return 1.f; }

// ---- rows of a tile: queries and heads ----------------------------------------------------------------------------------
// Row i is query i of its head.
__device__ __forceinline__ int pack_bits_of(const Sequence &) { return 0; }
__device__ __forceinline__ bool is_of_head(const Sequence &, int) { return true; }
__device__ __forceinline__ int query_of(const Sequence &, int i) { return i; }
__device__ __forceinline__ int head_of(const Sequence &, int head, int) { return head; }

// ---- rows of a batch entry: queries, heads, their places ----------------------------------------------------------------
__device__ __forceinline__ int queries_of_pack(const Sequence &sequence) { return sequence.nq; }
__device__ __forceinline__ int place_in_heads(const Sequence &, int i) { return i; }

// The number of a head over all batch entries.
__device__ __forceinline__ int batch_head_of(const Sequence &sequence, int batch, int head) {
  return batch * sequence.heads_q + head;
}

// Where the LSE of row i lies.
template <class Params>
__device__ __forceinline__ long long lse_index(const Params &params, int batch, int head, int i) {
  const Sequence &sequence = params.sequence;
  return (long long)batch_head_of(sequence, batch, head) * queries_of_pack(sequence) + place_in_heads(sequence, i);
}

__device__ __forceinline__ element *row_of(const Tensor &tensor, int batch, int head, int row) {
  return tensor.data + batch * tensor.stride.batch + head * tensor.stride.head + row * tensor.stride.row;
}

// ---- sequence: where the rows of a batch entry lie ------------------------------------------------------------------
// Batch entries are alike: nothing is to be known of the one that a tile belongs to.
struct SequencePlace {};

// The arguments as a work tile of that entry is to see them.
template <class Params> __device__ __forceinline__ const Params &at_place(const Params &params, const SequencePlace &) {
  return params;
}

// What is to be known of a batch entry.
template <class Params> __device__ __forceinline__ SequencePlace batch_place(const Params &, int) { return {}; }

// ---- what a kernel stores: O, or dQ, dK and dV ---------------------------------------------------------------------------
typedef element output;
constexpr int OUTPUT_ELEMENTS = 1;  // of memory

__device__ __forceinline__ output *output_row(const Tensor &tensor, int batch, int head, int row) {
  return row_of(tensor, batch, head, row);
}

__device__ __forceinline__ void store_two(output *to, float first, float second) {
  *reinterpret_cast<unsigned *>(to) = pack(first, second);
}

__device__ __forceinline__ void store_four(output *to, const float (&x)[4]) {
  const unsigned low = pack(x[0], x[1]), high = pack(x[2], x[3]);
  *reinterpret_cast<u64 *>(to) = u64(high) << 32 | low;
}

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

// ---- the scales of Q, K, V and P: numbers are as they are --------------------------------------------------------
// P of a row's maximum is 2^P_OFFSET, and until a maximum is followed P may be up to 2^P_LIMIT.
constexpr float P_OFFSET = 0.f, P_LIMIT = RESCALE_LIMIT;

struct Scales {};

__device__ __forceinline__ const TiledForwardParams &tiled_of(const TiledForwardParams &all) { return all; }
__device__ __forceinline__ Scales scales_of(const TiledForwardParams &) { return {}; }
__device__ __forceinline__ void begin_scales(Scales &, const ForwardParams &, int, int, int) {}
__device__ __forceinline__ float scale_of(const Scales &, const ForwardParams &params) { return params.softmax.scale; }
__device__ __forceinline__ float scale_log2_of(const Scales &, const ForwardParams &params) {
  return params.softmax.scale_log2;
}
__device__ __forceinline__ float descale_of_v(const Scales &, const ForwardParams &, int, int) { return 1.f; }

// Of a step nothing is its own.
__device__ __forceinline__ void begin_step(Scales &, const ForwardParams &, int) {}
__device__ __forceinline__ void scale_scores(float (&)[N_TILES][4], const Scales &) {}
__device__ __forceinline__ float biased(float x, const Scales &) { return x; }
__device__ __forceinline__ float weighed(float sum, const Scales &) { return sum; }

// ---- online softmax of a consumer warp's rows (arXiv 1805.02867), in base 2 -----------------------------------
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

// The same with half the instructions, but 0 where all scores are negative: floats from 0 on compare like the integers of
// the same bits, and three integers are compared at once.
__device__ __forceinline__ void largest_or_0(float (&own)[2], const float (&rS)[N_TILES][4]) {
  #pragma unroll
  for (int h = 0; h < 2; ++h) {
    int even = 0, odd = 0;
    #pragma unroll
    for (int n = 0; n < N_TILES; n += 2) {
      even = max(max(even, __float_as_int(rS[n][2 * h])), __float_as_int(rS[n][2 * h + 1]));
      odd = max(max(odd, __float_as_int(rS[n + 1][2 * h])), __float_as_int(rS[n + 1][2 * h + 1]));
    }
    own[h] = __int_as_float(max(even, odd));
  }
}

// Whether some maximum of this warp's rows moves far enough to be followed. LAZY_RESCALE: beyond P_LIMIT. The lane
// that holds such a score finds it: nobody need know the maximum of a whole row for that.
__device__ __forceinline__ bool any_beyond(const float (&own)[2], const float (&row_max)[2], float scale_log2) {
  return !LAZY_RESCALE || __any_sync(0xffffffffu, own[0] * scale_log2 - row_max[0] > P_LIMIT ||
                                                  own[1] * scale_log2 - row_max[1] > P_LIMIT);
}

// The factor by which O shrinks when a row's maximum has grown.
struct Correction {
  int due;                   // 0: no maximum of the warp has grown (a bool would be put together from bytes)
  float upper, lower;        // of rows g and g + 8; not set if not due
};

// New maxima, sums corrected to them, and what corrects O. MASKED: a row may have seen no key yet.
template <bool MASKED>
__device__ __forceinline__ int move_maxima(float (&factor)[2], float (&row_max)[2], float (&row_sum)[2],
                                           const float (&rS)[N_TILES][4], float scale_log2) {
  float own[2];
  if (INTEGER_MAX) largest_or_0(own, rS); else largest(own, rS);
  if (!any_beyond(own, row_max, scale_log2)) return 0;
  if (INTEGER_MAX && __any_sync(0xffffffffu, own[0] == 0.f || own[1] == 0.f)) {
    largest(own, rS);
    if (!any_beyond(own, row_max, scale_log2)) return 0;
  }
  #pragma unroll
  for (int h = 0; h < 2; ++h) {
    const float new_max = fmaxf(row_max[h], quad_max(own[h]) * scale_log2 - P_OFFSET);
    factor[h] = ex2(row_max[h] - (MASKED ? finite_max(new_max) : new_max));
    row_max[h] = new_max;
    row_sum[h] *= factor[h];
  }
  return 1;
}

__device__ __forceinline__ void correct(float (&rO)[O_TILES][4], const Correction &correction) {
  if (!correction.due) return;
  #pragma unroll
  for (int n = 0; n < O_TILES; ++n) {
    rO[n][0] *= correction.upper;
    rO[n][1] *= correction.upper;
    rO[n][2] *= correction.lower;
    rO[n][3] *= correction.lower;
  }
}

// 2^x by additions and multiplications, x <= 126, to within 2^-18. x = i + f with |f| <= 1/2: adding 1.5 2^23 rounds to
// the integer i and leaves it in the low bits. 2^f is a polynomial of least relative error (Remez), and i is added to
// its exponent. Below -126 the result is 2^-126, which is nothing beside the largest P of a row.
__device__ __forceinline__ float ex2_polynomial(float x) {
  const float bounded = fmaxf(x, -126.f), shifted = bounded + 12582912.f, f = bounded - (shifted - 12582912.f);
  float y = 0.0095701022f;
  y = y * f + 0.055917859f;
  y = y * f + 0.24024744f;
  y = y * f + 0.69312179f;
  y = y * f + 0.99999928f;
  return __uint_as_float(__float_as_uint(y) + (__float_as_uint(shifted) << 23));
}

// x, for the schedule of instructions: it looks as if x needed `first`, which is finite, so that what is computed from x
// comes after what `first` is computed from.
__device__ __forceinline__ float scheduled_after(float x, float first) { return first * 0.f + x; }

// 0, not known before both sums are. A barrier whose number it is added to comes after the exponentials of the sums: else
// the compiler moves the barrier, and the wait for P V behind it, ahead of nearly all of them.
__device__ __forceinline__ int zero_after(const float (&row_sum)[2]) { return row_sum[0] + row_sum[1] < 0.f; }

// Columns FROM to TO - 1, in eights: S becomes P = exp(S - max), unnormalised, in place; the sums grow. ptxas would put
// the FFMA of all columns before the first ex2, and MUFU would have nothing to do meanwhile: so those of later columns are
// scheduled after a sum of earlier ones. (Dropout's random bits fill that time without this.)
template <bool MASKED, int FROM, int TO>
__device__ __forceinline__ void exponentiate(float (&rS)[N_TILES][4], float (&row_sum)[2], const float (&row_max)[2],
                                             float scale_log2) {
  float known_max[2] = {MASKED ? finite_max(row_max[0]) : row_max[0],
                        MASKED ? finite_max(row_max[1]) : row_max[1]};
  float sums[2][2];  // of even and of odd n
  #pragma unroll
  for (int n = FROM; n < TO; ++n) {
    #pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float x = rS[n][i] * scale_log2 - known_max[i / 2];
      rS[n][i] = EXP2_POLY && !MASKED && i == 3 && n % 2 == 0 ? ex2_polynomial(x) : ex2(x);
    }
    #pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float sum = rS[n][2 * h] + rS[n][2 * h + 1];
      sums[h][n % 2] = n < FROM + 2 ? sum : sums[h][n % 2] + sum;
      if (SPREAD_EXP2 && n % 4 == 3) known_max[h] = scheduled_after(known_max[h], sum);
    }
  }
  row_sum[0] += sums[0][0] + sums[0][1];
  row_sum[1] += sums[1][0] + sums[1][1];
}

// P of 16 keys -> an A fragment of the second product.
__device__ __forceinline__ void pack_fragment(unsigned (&rP)[4], const float (&rS)[N_TILES][4], int k) {
  #pragma unroll
  for (int i = 0; i < 4; ++i) {  // fragment register i: rows g + 8 (i % 2), keys 8 (i / 2) + 2 t
    rP[i] = pack(rS[2 * k + i / 2][2 * (i % 2)], rS[2 * k + i / 2][2 * (i % 2) + 1]);
  }
}

// ---- visibility: which keys a query sees -----------------------------------------------------------------------------
// This is the one place on the device that says so; generator/visibility.c is its twin on the host. The keys that a query
// sees are an interval, and so are the queries that see a key. Neither end of either decreases from one row to the next.
constexpr bool HIDES_FIRST_KEYS = false;  // there are keys before the interval,
constexpr bool HIDES_LAST_KEYS = true;   // after it

struct Interval {
  int begin, end;            // end - 1 is the last; begin may be below 0 and, where there is none, beyond end
};

// An entry of MaskLists::blocks: the number of a block, and whether the score function is known to hide nothing of it.
__device__ __forceinline__ int block_of(int entry) { return entry & 0x7fffffff; }
__device__ __forceinline__ bool is_seen_whole(int entry) { return entry < 0; }

// The keys that row i sees.
__device__ __forceinline__ Interval keys_seen(const Sequence &sequence, const Visibility &visibility, int i) {
  const int query = query_of(sequence, i);
  return {HIDES_FIRST_KEYS ? query + visibility.first_diagonal : 0,
          HIDES_LAST_KEYS ? min(sequence.nk, query + visibility.last_diagonal + 1) : sequence.nk};
}

// The queries that see key j, where heads are not packed.
__device__ __forceinline__ Interval queries_seeing(const Sequence &sequence, const Visibility &visibility, int j) {
  return {HIDES_LAST_KEYS ? j - visibility.last_diagonal : 0,
          HIDES_FIRST_KEYS ? min(sequence.nq, j - visibility.first_diagonal + 1) : sequence.nq};
}

// Of `count` keys from `key` on: whether rows first to last see none of them, and whether they see all.
__device__ __forceinline__ bool is_hidden(const Sequence &sequence, const Visibility &visibility, int first, int last,
                                          int key, int count) {
  return (HIDES_LAST_KEYS && key >= keys_seen(sequence, visibility, last).end) ||
         (HIDES_FIRST_KEYS && key + count <= keys_seen(sequence, visibility, first).begin);
}

__device__ __forceinline__ bool is_full(const Sequence &sequence, const Visibility &visibility, int first, int last,
                                        int key, int count) {
  return key + count <= keys_seen(sequence, visibility, first).end &&
         (!HIDES_FIRST_KEYS || key >= keys_seen(sequence, visibility, last).begin);
}

// Tiles of BLOCK_N keys of which rows first to last see some key.
template <int BLOCK_N>
__device__ __forceinline__ Interval key_tiles_seen(const Sequence &sequence, const Visibility &visibility, int first,
                                                   int last) {
  const int begin = HIDES_FIRST_KEYS ? max(0, keys_seen(sequence, visibility, first).begin) : 0;
  const int end = keys_seen(sequence, visibility, last).end;
  return {begin / BLOCK_N, end > begin ? (end + BLOCK_N - 1) / BLOCK_N : begin / BLOCK_N};
}

// Tiles of BLOCK_N keys of which they see all: full tiles. There are none where begin is not below end.
template <int BLOCK_N>
__device__ __forceinline__ Interval key_tiles_full(const Sequence &sequence, const Visibility &visibility, int first,
                                                   int last) {
  const int begin = HIDES_FIRST_KEYS ? (max(0, keys_seen(sequence, visibility, last).begin) + BLOCK_N - 1) / BLOCK_N : 0;
  return {begin, max(keys_seen(sequence, visibility, first).end, 0) / BLOCK_N};
}

// First key of one of these tiles: they lie side by side.
template <int BLOCK_N> __device__ __forceinline__ int key_of_tile(int tile) { return tile * BLOCK_N; }

// Tiles of BLOCK_M queries of which some see a key from first to last. `last` may lie beyond the last key.
template <int BLOCK_M>
__device__ __forceinline__ Interval query_tiles_seeing(const Sequence &sequence, const Visibility &visibility, int first,
                                                       int last) {
  const int begin = max(0, queries_seeing(sequence, visibility, first).begin);
  const int end = queries_seeing(sequence, visibility, min(last, sequence.nk - 1)).end;
  return {begin / BLOCK_M, end > begin ? (end + BLOCK_M - 1) / BLOCK_M : begin / BLOCK_M};
}

// S = -inf where the row does not see the key. Lane (g, t) holds rows g, g + 8 and keys 2 t, 2 t + 1 of each 16x8 tile,
// so the ends of a row's interval, relative to this lane's first key, decide by constants.
template <int M, int N>
__device__ __forceinline__ void hide_scores(float (&rS)[M][N][4], const Sequence &sequence,
                                            const Visibility &visibility, int first_row, int first_key, int lane) {
  #pragma unroll
  for (int m = 0; m < M; ++m) {
    #pragma unroll
    for (int h = 0; h < 2; ++h) {
      const Interval seen = keys_seen(sequence, visibility, first_row + m * 16 + h * 8 + lane / 4);
      const int begin = seen.begin - first_key - lane % 4 * 2, end = seen.end - first_key - lane % 4 * 2;
      #pragma unroll
      for (int n = 0; n < N; ++n) {
        if (n * 8 >= end || (HIDES_FIRST_KEYS && n * 8 < begin)) rS[m][n][2 * h] = MINUS_INFINITY;
        if (n * 8 + 1 >= end || (HIDES_FIRST_KEYS && n * 8 + 1 < begin)) rS[m][n][2 * h + 1] = MINUS_INFINITY;
      }
    }
  }
}

// The same of S^T: lane (g, t) holds keys g, g + 8 and queries 2 t, 2 t + 1. Queries beyond the last are not looked at.
template <int M, int N>
__device__ __forceinline__ void hide_transposed(float (&rS)[M][N][4], const Sequence &sequence,
                                                const Visibility &visibility, int first_key, int first_query, int lane) {
  #pragma unroll
  for (int m = 0; m < M; ++m) {
    #pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int key = first_key + m * 16 + h * 8 + lane / 4;
      const Interval seen = queries_seeing(sequence, visibility, key);
      const int of_key = HIDES_LAST_KEYS ? seen.begin - first_query - lane % 4 * 2 : 0;
      const int begin = key < sequence.nk ? of_key : 8 * N, end = seen.end - first_query - lane % 4 * 2;
      #pragma unroll
      for (int n = 0; n < N; ++n) {
        if (n * 8 < begin || (HIDES_FIRST_KEYS && n * 8 >= end)) rS[m][n][2 * h] = MINUS_INFINITY;
        if (n * 8 + 1 < begin || (HIDES_FIRST_KEYS && n * 8 + 1 >= end)) rS[m][n][2 * h + 1] = MINUS_INFINITY;
      }
    }
  }
}

// The walk of a query tile over the keys: the kept blocks of its row of mask blocks, BLOCK_N keys at a time, as far as
// the rows see a key of them.
struct Keys {
  int steps;
  const int *blocks;
  int first_step;            // of the first block
};

constexpr bool DIVIDED = false;            // a walk may be a part of one
constexpr bool BEGINS_LATE = HIDES_FIRST_KEYS || DIVIDED;  // a walk need not begin with the first keys

typedef MaskList KeptBlocks;   // of a row of mask blocks

// Query tiles by their rank: the longest lists come first. Heads are packed where all have the same lists.
template <int BLOCK_M>
__device__ __forceinline__ int row_of_rank(KeptBlocks &kept, const Visibility &visibility, const Schedule &, int batch,
                                           int head, int rank, int pack_bits = 0) {
  static_assert(MASK_ROWS % BLOCK_M == 0, "a tile lies in one row of mask blocks");
  const int tiles = MASK_ROWS / BLOCK_M << pack_bits;  // of a row of mask blocks
  const MaskLists &rows = visibility.rows;
  kept = rows.lists[batch * rows.batch_lists + head * rows.head_lists + rank / tiles];
  return (kept.block * tiles + rank % tiles) * BLOCK_M;
}

// How many of `count` ascending blocks begin before this key, by halves.
__device__ __forceinline__ int count_before(const int *blocks, int count, int key) {
  int low = 0;
  while (low < count) {
    const int middle = (low + count) / 2;
    if (key > 0 && block_of(blocks[middle]) <= (key - 1) / MASK_COLS) low = middle + 1; else count = middle;
  }
  return low;
}

template <int BLOCK_N>
__device__ __forceinline__ Keys find_keys(const Sequence &sequence, const Visibility &visibility, const KeptBlocks &kept,
                                          int first_row, int last_row) {
  constexpr int STEPS = MASK_COLS / BLOCK_N;  // of a block
  static_assert(MASK_COLS % BLOCK_N == 0, "a step lies in one column of mask blocks");
  Keys keys = {0, visibility.rows.blocks + kept.start, 0};
  const int end = keys_seen(sequence, visibility, last_row).end;
  int count = HIDES_LAST_KEYS ? count_before(keys.blocks, kept.count, end) : kept.count;
  if (HIDES_FIRST_KEYS) {
    // Blocks that end before the first key: those before the block in which it lies.
    const int begin = max(0, keys_seen(sequence, visibility, first_row).begin) / MASK_COLS * MASK_COLS;
    const int before = count_before(keys.blocks, count, begin);
    keys.blocks += before;
    count -= before;
  }
  if (count > 0) {
    const int seen = end - block_of(keys.blocks[count - 1]) * MASK_COLS;  // keys of the last block before the end
    const int unseen = seen < MASK_COLS ? STEPS - (seen + BLOCK_N - 1) / BLOCK_N : 0;
    keys.steps = count * STEPS - unseen;
    if (HIDES_FIRST_KEYS) {
      const int hidden = keys_seen(sequence, visibility, first_row).begin - block_of(keys.blocks[0]) * MASK_COLS;
      keys.first_step = hidden > 0 ? hidden / BLOCK_N : 0;
      keys.steps = max(0, keys.steps - keys.first_step);
    }
  }
  return keys;
}

// Its steps from begin to end - 1.
__device__ __forceinline__ Keys part_of(const Keys &keys, int begin, int end) {
  return {end - begin, keys.blocks, keys.first_step + begin};
}

// The number of a step among those of all blocks: 0 is the first block's first, where the walk need not begin.
__device__ __forceinline__ int from_first(const Keys &keys, int step) {
  return BEGINS_LATE ? keys.first_step + step : step;
}

// First key of a step.
template <int BLOCK_N> __device__ __forceinline__ int key_of(const Keys &keys, int step) {
  constexpr int STEPS = MASK_COLS / BLOCK_N;
  const int place = from_first(keys, step);
  return block_of(keys.blocks[place / STEPS]) * MASK_COLS + place % STEPS * BLOCK_N;
}

// Whether the score function is known to hide nothing of it.
template <int BLOCK_N> __device__ __forceinline__ bool sees_whole(const Keys &keys, int step) {
  constexpr int STEPS = MASK_COLS / BLOCK_N;
  return is_seen_whole(keys.blocks[from_first(keys, step) / STEPS]);
}

// ---- key parts: a work tile has all keys of its walk -------------------------------------------------------------------
struct KeyPart {};

__device__ __forceinline__ void merge_may_begin() {}
__device__ __forceinline__ bool is_missing(const KeyPart &) { return false; }
__device__ __forceinline__ bool is_whole(const KeyPart &) { return true; }
__device__ __forceinline__ Keys take_part(KeyPart &, const ForwardParams &, const Keys &keys) { return keys; }
__device__ __forceinline__ void store_lse(const ForwardParams &params, const KeyPart &, long long row, float lse) {
  if (params.lse) params.lse[row] = lse;
}

__device__ __forceinline__ long long row_of_part(const ForwardParams &params, const KeyPart &, int batch, int head, int i) {
  return lse_index(params, batch, head, i);
}
__device__ __forceinline__ void wait_for_room() {}
template <class Tile> __device__ __forceinline__ void put_together(const ForwardParams &, const Tile &, unsigned, int) {}
__device__ __forceinline__ void store_partial(const ForwardParams &, const KeyPart &, long long, int, float, float) {}


// ---- work tiles ------------------------------------------------------------------------------------------------------
// A block of query rows of one head.
struct WorkTile {
  int q0;                    // first query row
  int head, batch, kv_head;
  SequencePlace place;               // of its batch entry
  KeyPart part;              // of its walk
  KeptBlocks kept;           // of the keys
};

// A work tile by its rank among those of its batch_head. Rank 0 has the most keys.
__device__ __forceinline__ WorkTile work_tile_of_rank(const ForwardParams &params, unsigned batch_head, int rank) {
  WorkTile tile;
  tile.batch = batch_head / params.sequence.heads_q;
  tile.place = batch_place(params, tile.batch);
  tile.head = batch_head % params.sequence.heads_q;
  tile.kv_head = tile.head / params.sequence.group;
  tile.q0 = row_of_rank<BLOCK_M>(tile.kept, params.visibility, params.schedule, tile.batch, tile.head, rank,
                                 pack_bits_of(params.sequence));
  return tile;
}

// Its last row that is a query.
__device__ __forceinline__ int last_row_of(const ForwardParams &params, const WorkTile &tile) {
  return min(tile.q0 + BLOCK_M, params.sequence.nq) - 1;
}

// Its walk, with the arguments at its place.
__device__ __forceinline__ Keys whole_walk(const ForwardParams &params, const WorkTile &tile) {
  return find_keys<BLOCK_N>(params.sequence, params.visibility, tile.kept, tile.q0, last_row_of(params, tile));
}

// Its part of the walk, likewise.
__device__ __forceinline__ Keys find_keys(const ForwardParams &params, WorkTile &tile) {
  return take_part(tile.part, params, whole_walk(params, tile));
}

// ---- the order of a walk's steps -------------------------------------------------------------------------------------
// A score that falls or grows with |query - key| is largest near the query, or far from it. Where every query sees all keys,
// its walk begins with those of the tile's last query, goes down to the first keys, and after them from the last keys on down.
// So ALiBi has its largest scores first, and O is seldom rescaled. Blocks that share K and V keep one order: their tiles have
// other queries.
constexpr bool BEGINS_AT_QUERY = false && !HIDES_FIRST_KEYS && !HIDES_LAST_KEYS && !DIVIDED &&
                                 CLUSTER == 1 && MASK_ROWS == 0 && PAGE == 0 && !ASCENDING;

// The number of a tile's first step, from the first keys on.
__device__ __forceinline__ int own_step(const Sequence &sequence, int q0, int steps) {
  if (!BEGINS_AT_QUERY) return ASCENDING ? 0 : steps - 1;
  return max(min(query_of(sequence, q0 + BLOCK_M - 1) / BLOCK_N, steps - 1), 0);
}

// The number of the step with `left` steps to go after it.
__device__ __forceinline__ int step_with_left(int left, int steps, int own) {
  if (ASCENDING) return steps - 1 - left;
  if (!BEGINS_AT_QUERY) return left;
  const int step = left + own + 1 - steps;
  return step < 0 ? step + steps : step;
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

// ---- score: s -> s', before visibility and softmax ------------------------------------------------------------
// No score function: all is the identity.
constexpr bool SCORES_HIDE = false;

template <int M> struct ScoredRows {};

template <int M, class Params>
__device__ __forceinline__ ScoredRows<M> begin_score(const Params &, int, int, int, int, float) { return {}; }

template <int M, int N, class Params>
__device__ __forceinline__ void apply_score(float (&)[M][N][4], const ScoredRows<M> &, const Params &, int, bool,
                                            int) {}

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

__device__ __forceinline__ u64 seed_of(const Dropout &arguments) {
  return arguments.seed_address ? *arguments.seed_address : arguments.seed;
}

__device__ __forceinline__ u64 offset_of(const Dropout &arguments) {
  return arguments.offset_address ? *arguments.offset_address : arguments.offset;
}

__device__ __forceinline__ Seed find_seed(const Dropout &arguments) {
  const u64 seed = seed_of(arguments), offset = offset_of(arguments);
  return {{uniform(static_cast<unsigned>(seed)),
           uniform(static_cast<unsigned>(seed >> 32) ^ static_cast<unsigned>(offset >> 32))},
          uniform(static_cast<unsigned>(offset)), arguments.threshold * 0x00010001u};
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

// The word of Philox's counter that stands for batch entry and head.
__device__ __forceinline__ unsigned counter_head(const Dropout &arguments, int batch, int head) {
  return batch * arguments.heads + head + arguments.first_head;
}

// What remains of P is divided by the probability to be kept.
__device__ __forceinline__ float dropout_rescale(const Dropout &arguments) { return arguments.rescale; }

// ---- dropout of P: lanes hold rows of queries -------------------------------------------------------------
constexpr int KEYS_PER_DRAW = BLOCK_N % 64 == 0 ? 64 : BLOCK_N % 32 == 0 ? 32 : 16;
constexpr bool DRAWS_EARLY = false;  // beside Q K^T, those of a whole step; else beside P V, as needed
constexpr int DRAWS_HELD = DRAWS_EARLY ? BLOCK_N / KEYS_PER_DRAW : 1;

// Draws down the rows of a warp: one for two m tiles where those lie in one block of 32 rows.
constexpr int ROW_DRAWS = WARP_ROWS % 32 == 0 ? M_TILES / 2 : M_TILES;

struct DropoutRows {
  Seed seed;
  unsigned batch_head;                       // counter word
  unsigned lane_row, lane_column;            // what this lane and the run's origin add to the other two
  int row_block;                             // this warp's first row / 16
  int key_block;                             // this step's first key / 16
  unsigned random[DRAWS_HELD][ROW_DRAWS][4];
};

__device__ __forceinline__ DropoutRows begin_dropout(const Dropout &arguments, const Sequence &, int batch, int head,
                                                     int first_row, int lane) {
  DropoutRows dropout;
  dropout.seed = find_seed(arguments);
  dropout.batch_head = uniform(counter_head(arguments, batch, head));
  dropout.lane_row = arguments.first_query / 4 + lane / 4;
  dropout.lane_column = arguments.first_key / 16 + lane % 4;
  dropout.row_block = first_row / 16;
  dropout.key_block = 0;
  return dropout;
}

// Before the first draw of a step.
__device__ __forceinline__ void begin_step(DropoutRows &dropout, int first_key) { dropout.key_block = first_key / 16; }

// The draws that serve the keys from 16 `block` of this step on, for all rows of the warp.
__device__ __forceinline__ void draw(DropoutRows &dropout, int block) {
  #pragma unroll
  for (int d = 0; d < ROW_DRAWS; ++d) {
    unsigned (&random)[4] = dropout.random[block * 16 / KEYS_PER_DRAW % DRAWS_HELD][d];
    random[0] = dropout.seed.offset;
    random[1] = (dropout.key_block + block) / 4 * 4 + dropout.lane_column;
    random[2] = dropout.batch_head;
    random[3] = (dropout.row_block + d * M_TILES / ROW_DRAWS) / 2 * 8 + dropout.lane_row;
    philox(random, dropout.seed.key[0], dropout.seed.key[1]);
    #pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (DRAWS_EARLY) pin(random[i]);
    }
  }
}

// Between the 16s of the depth of Q K^T: this one's share of the step's draws. Between those of P V: always one draw ahead
// of its use, so that the chain of rounds hides behind the products.
__device__ __forceinline__ void draw_beside_qk(DropoutRows &dropout, int k, int depth) {
  if (!DRAWS_EARLY) return;
  #pragma unroll
  for (int i = k * DRAWS_HELD / depth; i < (k + 1) * DRAWS_HELD / depth; ++i) draw(dropout, i * KEYS_PER_DRAW / 16);
}

__device__ __forceinline__ void draw_before_pv(DropoutRows &dropout) {
  if (!DRAWS_EARLY) draw(dropout, 0);
}

__device__ __forceinline__ void draw_beside_pv(DropoutRows &dropout, int k) {
  if (!DRAWS_EARLY && (k + 1) * 16 % KEYS_PER_DRAW == 0 && k + 1 < BLOCK_N / 16) draw(dropout, k + 1);
}

// Zeroes the dropped elements of a fragment of P, number COLUMN + 4 row. 14-bit integers compare like the fp16
// numbers of the same bits.
template <int COLUMN>
__device__ __forceinline__ void drop_fragment(unsigned (&rP)[FRAGMENT], const unsigned (&random)[4], int row,
                                              unsigned threshold_pair) {
  #pragma unroll
  for (int w = 0; w < 4; ++w) {
    unsigned word = random[w];
    if (COLUMN == 0) {
      word ^= (ror(random[(w + 1) % 4], 8) ^ ror(random[(w + 2) % 4], 20)) & (row == 0 ? 0u : ~0u);
    } else {
      word ^= ror(random[(w + COLUMN) % 4], row == 0 ? 8 : 20);
    }
    keep_pair(rP, w, halves_ge(word & 0x3FFF3FFFu, threshold_pair));
  }
}

// The 16 keys from 16 `block` of this step on. The compiler knows row and column where tiles are whole blocks of
// 32 rows and 64 keys.
__device__ __forceinline__ void drop(unsigned (&rP)[M_TILES][FRAGMENT], const DropoutRows &dropout, int block) {
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

// Draws as they are needed, and drops.
__device__ __forceinline__ void draw_and_drop(unsigned (&rP)[M_TILES][FRAGMENT], DropoutRows &dropout, int k) {
  if (k * 16 % KEYS_PER_DRAW == 0) draw(dropout, k);
  drop(rP, dropout, k);
}

// dP of the k-th 16 keys as dS wants it, in place: dropped elements, which are 0 in `kept`, have none.
template <int N>
__device__ __forceinline__ void drop_dp(float (&rDP)[M_TILES][N][4], DropoutRows &dropout, const Dropout &arguments, int k) {
  unsigned kept[M_TILES][FRAGMENT];
  #pragma unroll
  for (int m = 0; m < M_TILES; ++m) {
    #pragma unroll
    for (int i = 0; i < FRAGMENT; ++i) kept[m][i] = ~0u;
  }
  draw_and_drop(kept, dropout, k);
  #pragma unroll
  for (int m = 0; m < M_TILES; ++m) {
    #pragma unroll
    for (int i = 0; i < 4; ++i) {  // pair i: rows g + 8 (i % 2), keys 8 (i / 2) + 2 t
      float *dp = rDP[m][2 * k + i / 2] + 2 * (i % 2);
      dp[0] *= first_kept(kept[m], i) ? arguments.rescale : 0.f;
      dp[1] *= second_kept(kept[m], i) ? arguments.rescale : 0.f;
    }
  }
}

// ---- a work tile as the producer announces it: its keys are those of a list of mask blocks ---------------------
constexpr bool KEYS_LISTED = true;  // the producer announces the keys of each step

// In shared memory, beside its Q.
struct __align__(64) Announcement {
  int q0;                    // first query row
  int head, batch;
  int steps;                 // of the block, at least one; 0: there are no more work tiles
  int full_begin, full_end;  // in these of them, from the first keys on, every row sees every key
  KeyPart part;
  SequencePlace place;
};

__device__ __forceinline__ void announce_walk(Announcement &announced, const ForwardParams &params, const WorkTile &tile,
                                              const Keys &keys) {
  const int last_row = last_row_of(params, tile);
  auto is_full_step = [&](int step) {
    return is_full(params.sequence, params.visibility, tile.q0, last_row, key_of<BLOCK_N>(keys, step), BLOCK_N);
  };
  int begin = 0, end = keys.steps;
  while (end > 0 && !is_full_step(end - 1)) --end;
  if (HIDES_FIRST_KEYS) {
    while (begin < end && !is_full_step(begin)) ++begin;
  }
  announced.full_begin = begin;
  announced.full_end = end;
}

// Beside the K of a step: as an entry of MaskLists::blocks.
__device__ __forceinline__ void announce_key(int *place, int key, bool sees_whole) {
  *place = sees_whole ? int(key | 0x80000000u) : key;
}

// What a warpgroup takes of a work tile: 64 rows, and all steps.
struct Share {
  int q0, head, batch;
  int steps;                 // at least one; 0: there are no more work tiles
  int full_begin, full_end;  // in these of them, from the first keys on, every row sees every key
  int own_step;              // the first of its walk
  int hidden_first, hidden_last;  // steps of the block that it does not take: none
  KeyPart part;
  SequencePlace place;
};

__device__ __forceinline__ void find_steps(Share &share, const Announcement &announced, const ForwardParams &) {
  share.steps = announced.steps;
  share.full_begin = HIDES_FIRST_KEYS ? announced.full_begin : 0;
  share.full_end = announced.full_end;
  share.hidden_first = share.hidden_last = 0;
}

// The step whose K lies beside it, as the consumers want to know it.
struct AnnouncedStep {
  int key;                   // the first
  bool sees_whole;           // the score function is known to hide nothing of it
};

__device__ __forceinline__ AnnouncedStep announced_step(const Share &, const int *place, int) {
  return {block_of(*place), is_seen_whole(*place)};
}

// ---- the pipeline: tiles in shared memory, and the barriers that say who may touch them -------------------------
// TMA fills a tile in panels: rows of 128 bytes, swizzled. Each stage has two barriers: `full` completes
// when the bytes of its tile have landed, `empty` when every reader is done with them. The k-th use of a stage waits for
// the k-th phase of `full`, and its refill for the phase before of `empty`. Phases are told apart by their parity. V is one
// stage behind K: the K of a step and the V of the step before are multiplied at the same time and have the same stage.
// With TRANSPOSES_V it comes by rows to a place of its own, with barriers of its own, and is transposed from there.
constexpr int Q_TILE = D_PANELS * BLOCK_M * 128, K_TILE = D_PANELS * BLOCK_N * 128;
constexpr int V_ROWS_TILE = DV_PANELS * BLOCK_N * 128;      // as TMA brings it
constexpr int V_TILE = V_IN_COLUMNS ? (BLOCK_N + 127) / 128 * HEAD_DIM_V * 128 : V_ROWS_TILE;  // as products take it
constexpr int O_TILE = V_IN_COLUMNS ? 0 : DV_PANELS * BLOCK_M * 128;
constexpr int Q_STAGE = Q_TILE > O_TILE ? Q_TILE : O_TILE;  // O is staged in the place of its tile's Q
constexpr int P_TILE = (BLOCK_N + 63) / 64 * 64 * 128;      // 64 rows of a consumer, if P is in shared memory

// Where in shared memory: barriers, what the producer announces, tiles.
constexpr int SMEM_ANNOUNCED = 512, SMEM_STEP_KEYS = 768, SMEM_MORE_VALUES = 896, SMEM_Q = 1024;
constexpr int SMEM_K = 9216, SMEM_V = 58368, SMEM_P = 107520, SMEM_V_ROWS = 107520;
static_assert(SMEM_Q + Q_STAGES * Q_STAGE == SMEM_K && SMEM_K + STAGES * K_TILE == SMEM_V &&
              SMEM_V + STAGES * V_TILE == SMEM_P && (!TRANSPOSES_V || SMEM_P == SMEM_V_ROWS), "stages as budgeted");
static_assert(SMEM_ANNOUNCED + Q_STAGES * sizeof(Announcement) <= SMEM_STEP_KEYS &&
              SMEM_STEP_KEYS + 4 * STAGES <= SMEM_MORE_VALUES && SMEM_MORE_VALUES + 4 * STAGES <= SMEM_Q,
              "what the producer announces has room");

extern __shared__ __align__(1024) unsigned char shared[];

// The work tile of a Q stage. It is there when its Q is.
__device__ __forceinline__ Announcement &announced_tile(int stage) {
  return reinterpret_cast<Announcement *>(shared + SMEM_ANNOUNCED)[stage];
}

// The first key of a K stage, where only the producer knows it (KEYS_LISTED). It is there when its K is.
__device__ __forceinline__ int *step_key(int stage) { return reinterpret_cast<int *>(shared + SMEM_STEP_KEYS) + stage; }

// Of a stage of V by rows: whether there is a V in it, or none and no more to come.
__device__ __forceinline__ int *more_values(int stage) {
  return reinterpret_cast<int *>(shared + SMEM_MORE_VALUES) + stage;
}

// ---- barriers ----
constexpr int O_PLACES = V_IN_COLUMNS ? 0 : CONSUMERS;  // of a Q stage
constexpr int Q_BARRIERS = (2 + O_PLACES) * Q_STAGES;   // those of Q and O; those of K and V follow
static_assert(8 * (Q_BARRIERS + (TRANSPOSES_V ? 6 : 4) * STAGES) <= SMEM_ANNOUNCED, "the barriers have room");

__device__ __forceinline__ unsigned barrier_at(int number) { return shared_address(shared) + 8 * number; }
__device__ __forceinline__ unsigned q_full(int stage) { return barrier_at(stage); }
__device__ __forceinline__ unsigned q_empty(int stage) { return barrier_at(Q_STAGES + stage); }
// Each place for O has a barrier of its own: the next O may be there before the storing thread has looked at this one.
__device__ __forceinline__ unsigned o_full(int consumer, int stage) {
  return barrier_at((2 + consumer) * Q_STAGES + stage);
}
__device__ __forceinline__ unsigned k_full(int stage) { return barrier_at(Q_BARRIERS + stage); }
__device__ __forceinline__ unsigned k_empty(int stage) { return barrier_at(Q_BARRIERS + STAGES + stage); }
__device__ __forceinline__ unsigned v_full(int stage) { return barrier_at(Q_BARRIERS + 2 * STAGES + stage); }
__device__ __forceinline__ unsigned v_empty(int stage) { return barrier_at(Q_BARRIERS + 3 * STAGES + stage); }
__device__ __forceinline__ unsigned v_rows_full(int stage) { return barrier_at(Q_BARRIERS + 4 * STAGES + stage); }
__device__ __forceinline__ unsigned v_rows_empty(int stage) { return barrier_at(Q_BARRIERS + 5 * STAGES + stage); }

// Arrivals that complete a phase. What fills a stage arrives once: the producer's thread with the bytes to wait for, or
// the warpgroup that has staged its O. But V is filled by the warps that transpose it. What empties a stage:
constexpr int V_FILLERS = !TRANSPOSES_V ? 1 : PAGE > 0 ? 2 : 3;
constexpr int Q_READERS = DIRECT_STORE ? 4 * CONSUMERS : CONSUMERS;         // warps; else the threads that store O
constexpr int K_READERS = KEYS_LISTED ? 4 * CONSUMERS : CLUSTER * CONSUMERS;  // warps, of step_key, too; else warpgroups
constexpr int V_READERS = CLUSTER * CONSUMERS;                              // warpgroups

// By one thread, before any other thread touches a barrier.
__device__ __forceinline__ void init_barriers() {
  for (int i = 0; i < Q_STAGES; ++i) {
    mbarrier_init(q_full(i), 1);
    mbarrier_init(q_empty(i), Q_READERS);
  }
  for (int i = 0; i < O_PLACES * Q_STAGES; ++i) mbarrier_init(o_full(0, i), 1);
  for (int i = 0; i < STAGES; ++i) {
    mbarrier_init(k_full(i), 1);
    mbarrier_init(k_empty(i), K_READERS);
    mbarrier_init(v_full(i), V_FILLERS);
    mbarrier_init(v_empty(i), V_READERS);
    if (TRANSPOSES_V) {
      mbarrier_init(v_rows_full(i), 1);
      mbarrier_init(v_rows_empty(i), V_FILLERS);
    }
  }
  // No V belongs to the stage of the first K. Its phases are completed here, filled and emptied, and waited for: a phase
  // that nobody waits for is an error.
  if (TRANSPOSES_V) {
    mbarrier_arrive(v_rows_full(0));
    mbarrier_wait(v_rows_full(0), 0);
    for (int i = 0; i < V_FILLERS; ++i) mbarrier_arrive(v_rows_empty(0));
  }
  for (int i = 0; i < V_FILLERS; ++i) mbarrier_arrive(v_full(0));
  mbarrier_wait(v_full(0), 0);
  for (int i = 0; i < V_READERS; ++i) mbarrier_arrive(v_empty(0));
  mbarrier_init_fence();
}

// A place in a ring of COUNT stages, and the parity of the phase that its use waits for.
template <int COUNT> struct Ring {
  int stage;
  unsigned parity;
};

template <int COUNT> __device__ __forceinline__ Ring<COUNT> next(const Ring<COUNT> &ring) {
  const unsigned place = ring.stage + 1;
  if ((COUNT & (COUNT - 1)) == 0) return {int(place % COUNT), ring.parity ^ place / COUNT};  // no comparisons
  return place == COUNT ? Ring<COUNT>{0, ring.parity ^ 1} : Ring<COUNT>{int(place), ring.parity};
}

// ---- descriptors of wgmma operands ----
// Panels of 128-byte rows, swizzled: bits 0-13 hold the address / 16, bits 16-29 and 32-45 byte offsets / 16, bits 62-63
// the swizzle. Groups of eight rows are 1024 bytes apart. The tile is the one of `stage` in a ring of tiles.
__device__ __forceinline__ u64 descriptor(unsigned ring, int stage, int tile, unsigned offset) {
  return u64(1 << 30 | 1024 >> 4) << 32 | (((ring & 0x3FFFF) >> 4 | offset >> 4 << 16) + stage * (tile >> 4));
}

// The depth lies along the rows. The other offset is not looked at.
__device__ __forceinline__ u64 depth_along_rows(unsigned ring, int stage = 0, int tile = 0) {
  return descriptor(ring, stage, tile, 16);
}

// The depth lies across the rows. The next 64 columns are a panel further.
__device__ __forceinline__ u64 depth_across_rows(unsigned ring, int stage, int tile, unsigned panel) {
  return descriptor(ring, stage, tile, panel);
}

// Added to a descriptor, it moves the operand by so many bytes.
constexpr __device__ __forceinline__ u64 by_bytes(int bytes) { return u64(bytes >> 4); }

// ---- a block that loads every tile for itself ------------------------------------------------------------
__device__ __forceinline__ unsigned rank_of_loader() { return 0; }

__device__ __forceinline__ void sync_all() { __syncthreads(); }

// At a block's end nobody can still want its shared memory.
__device__ __forceinline__ void sync_at_end() {}

__device__ __forceinline__ void load_for_cluster(unsigned to, const TensorMap &map, unsigned barrier, int column, int row,
                                                 int head, int batch) {
  tma_load(to, map, barrier, column, row, head, batch);
}

// A warpgroup is done with a tile: one thread says so to the block that loads it.
__device__ __forceinline__ void arrive_at_loaders(unsigned barrier, int warp, int lane) {
  if (warp == 0 && lane == 0) mbarrier_arrive(barrier);
}

// ---- rows by TMA: batch entries are alike, and end where the tensor ends ------------------------------------

// ---- rows of Q and O by TMA ----------------------------------------------------------------------------
__device__ __forceinline__ void load_q_panel(const TiledForwardParams &params, unsigned to, unsigned barrier, int column,
                                             int row, int head, int batch, const SequencePlace &) {
  tma_load(to, params.q, barrier, column, row, head, batch);
}

__device__ __forceinline__ void store_o_panel(const TiledForwardParams &params, unsigned from, int column, int row,
                                              int head, int batch, const SequencePlace &) {
  tma_store(params.o, from, column, row, head, batch);
}

// ---- rows of K and V by TMA ----------------------------------------------------------------------------
// Rows of a tile from this one on.
__device__ __forceinline__ void load_keys(const TensorMap &map, unsigned to, unsigned barrier, int panels, int row,
                                          int head, int batch, const SequencePlace &) {
  for (int p = 0; p < panels; ++p) {
    load_for_cluster(to + p * BLOCK_N * 128, map, barrier, p * 64, row, head, batch);
  }
}

// ---- the producer asks TMA for every tile: its walks, and Q -------------------------------------------------
// A work tile and its walk over the keys. One whose rows see no key takes a step all the same, beyond the last key.
struct Walk {
  WorkTile tile;
  Keys keys;
  int steps;                 // 0: there are no more work tiles
};

// The walk at a place in the scheduler's order, or the next one that there is.
__device__ __forceinline__ Walk find_walk(const ForwardParams &params, TileCursor &cursor) {
  for (; !is_done(params, cursor); cursor = next_work(params, cursor)) {
    Walk walk;
    walk.tile = work_tile_at(params, cursor);
    walk.keys = find_keys(at_place(params, walk.tile.place), walk.tile);
    walk.steps = max(walk.keys.steps, 1);
    if (!is_missing(walk.tile.part)) return walk;
  }
  return {};
}

// Tells the consumers about a work tile, and loads its Q.
__device__ __forceinline__ void announce(const TiledForwardParams &params, const Walk &walk, Ring<Q_STAGES> &q_ring) {
  const WorkTile &tile = walk.tile;
  const unsigned full = q_full(q_ring.stage);
  Announcement &announced = announced_tile(q_ring.stage);
  mbarrier_wait(q_empty(q_ring.stage), q_ring.parity ^ 1);
  announced.q0 = tile.q0;
  announced.head = tile.head;
  announced.batch = tile.batch;
  announced.part = tile.part;
  announced.place = tile.place;
  announced.steps = walk.steps;
  announce_walk(announced, at_place(params.rest, tile.place), tile, walk.keys);
  if (walk.steps == 0) {
    mbarrier_arrive(full);
    return;
  }
  mbarrier_arrive_expect(full, Q_TILE);
  for (int p = 0; p < D_PANELS; ++p) {
    load_q_panel(params, shared_address(shared) + SMEM_Q + q_ring.stage * Q_STAGE + p * BLOCK_M * 128, full, p * 64,
                 tile.q0, tile.head, tile.batch, tile.place);
  }
  q_ring = next(q_ring);
}

// Tells those who transpose V that there is no more.
__device__ __forceinline__ void end_values(const Ring<STAGES> &ring) {
  mbarrier_wait(v_rows_empty(ring.stage), ring.parity ^ 1);
  *more_values(ring.stage) = 0;
  mbarrier_arrive(v_rows_full(ring.stage));
}

// ---- a tile of K, or of V by rows ---------------------------------------------------------------------------
// A K or V tile. Each block of a cluster loads its share of the rows for all blocks.
__device__ __forceinline__ void load_tile(const TiledForwardParams &params, const TensorMap &map, unsigned to,
                                          unsigned barrier, int panels, int key, int head, int batch,
                                          const SequencePlace &place) {
  const int first = rank_of_loader() * (BLOCK_N / CLUSTER);
  load_keys(map, to + first * 128, barrier, panels, key + first, head, batch, place);
}

// ---- V comes by rows ------------------------------------------------------------------------------------------
__device__ __forceinline__ void wait_for_values() {}

__device__ __forceinline__ void load_values(const TiledForwardParams &params, int stage, unsigned full, int key, int head,
                                            int batch, const SequencePlace &place) {
  mbarrier_arrive_expect(full, V_ROWS_TILE);
  const unsigned to = shared_address(shared) + (TRANSPOSES_V ? SMEM_V_ROWS : SMEM_V) + stage * V_ROWS_TILE;
  load_tile(params, params.v, to, full, DV_PANELS, key, head, batch, place);
}

// ---- K and V by the thread that asks for Q, too ---------------------------------------------------------------
__device__ __forceinline__ void load_k(const TiledForwardParams &params, const Ring<STAGES> &ring, int key,
                                       bool sees_whole, int head, int batch, const SequencePlace &place) {
  const unsigned full = k_full(ring.stage);
  mbarrier_wait(k_empty(ring.stage), ring.parity ^ 1);
  announce_key(step_key(ring.stage), key, sees_whole);
  mbarrier_arrive_expect(full, K_TILE);
  load_tile(params, params.k, shared_address(shared) + SMEM_K + ring.stage * K_TILE, full, D_PANELS,
            key, head, batch, place);
}

__device__ __forceinline__ void load_v(const TiledForwardParams &params, const Ring<STAGES> &ring, int key, int head,
                                       int batch, const SequencePlace &place) {
  if (head < 0) {  // no step had its K yet
    wait_for_values();
    return;
  }
  const unsigned full = TRANSPOSES_V ? v_rows_full(ring.stage) : v_full(ring.stage);
  mbarrier_wait(TRANSPOSES_V ? v_rows_empty(ring.stage) : v_empty(ring.stage), ring.parity ^ 1);
  if (TRANSPOSES_V) *more_values(ring.stage) = 1;
  load_values(params, ring.stage, full, key, head, batch, place);
}

__device__ __forceinline__ void produce(const TiledForwardParams &params, int warp, int lane) {
  if (lane != 0 || warp != 0) return;
  Ring<STAGES> ring = {0, 0};      // of K, and of V a step later; the first round finds every stage empty
  int v_key = 0, v_head = -1, v_batch = 0;  // of the step whose V is next; head -1: no step had its K yet
  SequencePlace v_place = {};
  Ring<Q_STAGES> q_ring = {0, 0};
  TileCursor cursor = first_work(params.rest);
  Walk walk = find_walk(params.rest, cursor);
  if (Q_STAGES > 1) announce(params, walk, q_ring);
  while (walk.steps > 0) {
    cursor = next_work(params.rest, cursor);
    Walk ahead;
    const int own = own_step(at_place(params.rest, walk.tile.place).sequence, walk.tile.q0, walk.steps);
    for (int left = walk.steps - 1; left >= 0; --left) {
      const bool first = left == walk.steps - 1;
      const int step = step_with_left(left, walk.steps, own);
      const int key = walk.keys.steps > 0 ? key_of<BLOCK_N>(walk.keys, step) : at_place(params.rest, walk.tile.place).sequence.nk;
      load_v(params, ring, v_key, v_head, v_batch, v_place);
      load_k(params, ring, key, walk.keys.steps > 0 && sees_whole<BLOCK_N>(walk.keys, step), walk.tile.kv_head,
             walk.tile.batch, walk.tile.place);
      if (Q_STAGES == 1 && first) announce(params, walk, q_ring);
      v_key = key;
      v_head = walk.tile.kv_head;
      v_batch = walk.tile.batch;
      v_place = walk.tile.place;
      if (first) ahead = find_walk(params.rest, cursor);  // early: it may have lists to fetch
      // The stage of the next Q is empty when the O before this work tile's has been stored. A warpgroup stores it after
      // the steps that it skips of this work tile: a wait before their K is loaded would never end.
      if (Q_STAGES > 1 && left == max(walk.steps - 3 - SKIPPED_STEPS, 0)) announce(params, ahead, q_ring);
      ring = next(ring);
    }
    walk = ahead;
  }
  load_v(params, ring, v_key, v_head, v_batch, v_place);
  if (TRANSPOSES_V) end_values(next(ring));
  if (Q_STAGES == 1) announce(params, walk, q_ring);
}

// ---- no score that reads a tile of queries and keys, or one that reads it element by element --------------------------------
struct ScoreTile {};

__device__ __forceinline__ void begin_tile(ScoreTile &, const ForwardParams &, const ScoredRows<1> &, int) {}

__device__ __forceinline__ void ask_for_tile(ScoreTile &, const ForwardParams &, const ScoredRows<1> &, int, int, int, int) {}

__device__ __forceinline__ bool take_tile(const float (&)[N_TILES][4], const ScoreTile &, const ForwardParams &,
                                          const ScoredRows<1> &, const float (&)[2], int, int, int, int, bool) {
  return false;
}

// ---- no score that adds for each key, or one that does so element by element ------------------------------------------------
constexpr bool KEYS_IN_PRODUCT = false;
struct KeyTerms {};

// ---- a consumer warpgroup ----------------------------------------------------------------------------------
// It computes 64 rows of each work tile of its block. A warp has 16 of them. A lane has rows g, g + 8 and columns 2 t,
// 2 t + 1 of every eight, where g = lane / 4 and t = lane % 4, as in mma.m16n8k16.
constexpr int P_FRAGMENTS = P_IN_SMEM ? 1 : BLOCK_N / 16;  // of 16 keys, that are in registers at a time

struct Consumer {
  int number, warp, lane;        // of the warpgroup, and the place in it
  Ring<STAGES> ring;             // the next K, and the V of the step before it
  Ring<Q_STAGES> q_ring;
  float rS[1][N_TILES][4];       // scores, then unnormalised P
  float rO[O_TILES][4];
  unsigned rP[P_FRAGMENTS][1][4];
  float row_max[2], row_sum[2];  // maximum times scale_log2; this lane's part of the sum
  bool k_ready;                  // whether the K of the next step has been seen to be there
  DropoutRows dropout;
  ScoredRows<1> score;
  ScoreTile tile;
  KeyTerms keys;
  Scales scales;
};

// The column tiles of rO are stored two at a time. Where their number is odd, the last one stands in for its partner, which
// lies beyond the columns and is not stored.
constexpr __device__ __forceinline__ int second_of_two(int n) { return n + 1 < O_TILES ? n + 1 : n; }

// The hidden steps of a walk are those that a warpgroup skips: none of its rows sees a key of them. They may come before
// those that it takes, and after.
constexpr bool SKIPS_BEFORE = SKIPPED_STEPS > 0 && (ASCENDING ? HIDES_FIRST_KEYS : HIDES_LAST_KEYS);
constexpr bool SKIPS_AFTER = SKIPPED_STEPS > 0 && (ASCENDING ? HIDES_LAST_KEYS : HIDES_FIRST_KEYS);

__device__ __forceinline__ int hidden_before(const Share &work) { return ASCENDING ? work.hidden_first : work.hidden_last; }
__device__ __forceinline__ int hidden_after(const Share &work) { return ASCENDING ? work.hidden_last : work.hidden_first; }

// This warpgroup's share of the work tile whose Q is next in the ring, once it is there.
__device__ __forceinline__ Share wait_for_work(const Consumer &consumer, const ForwardParams &params,
                                               const Ring<Q_STAGES> &q_ring) {
  mbarrier_wait(q_full(q_ring.stage), q_ring.parity);
  const Announcement &announced = announced_tile(q_ring.stage);
  Share work;
  work.head = announced.head;
  work.batch = announced.batch;
  work.part = announced.part;
  work.place = announced.place;
  work.q0 = announced.q0 + consumer.number * 64;
  find_steps(work, announced, at_place(params, work.place));
  work.own_step = own_step(at_place(params, work.place).sequence, announced.q0, work.steps);
  if (DIRECT_STORE) __syncwarp();  // see release_q
  return work;
}

// The step that has the next K, with `left` steps to go after it.
__device__ __forceinline__ AnnouncedStep step_of(const Consumer &consumer, const Share &work, int left) {
  return announced_step(work, step_key(consumer.ring.stage), step_with_left(left, work.steps, work.own_step));
}

// ---- stages given back ----
// One thread arrives for the warpgroup, whose threads have converged in the wait before.
__device__ __forceinline__ void arrive(const Consumer &consumer, unsigned barrier) {
  if (consumer.warp == 0 && consumer.lane == 0) mbarrier_arrive(barrier);
}

// The next K is no longer needed.
__device__ __forceinline__ void release_k(const Consumer &consumer) {
  if (KEYS_LISTED) {
    __syncwarp();  // each lane has read the key
    if (consumer.lane == 0) mbarrier_arrive(k_empty(consumer.ring.stage));
  } else {
    arrive_at_loaders(k_empty(consumer.ring.stage), consumer.warp, consumer.lane);
  }
}

// The V of this stage is no longer needed.
__device__ __forceinline__ void release_v(const Consumer &consumer, const Ring<STAGES> &ring) {
  arrive_at_loaders(v_empty(ring.stage), consumer.warp, consumer.lane);
}

// Q and what is told about its work tile are no longer needed once the last Q K^T is done, if O is not staged there. Each
// warp has read the work tile together.
__device__ __forceinline__ void release_q(const Consumer &consumer, const Ring<Q_STAGES> &q_ring) {
  if (DIRECT_STORE && consumer.lane == 0) mbarrier_arrive(q_empty(q_ring.stage));
}

// With one Q stage it is given back in the last step, as early as can be; with two it is given back behind the steps, which
// then have one thing less to do.
__device__ __forceinline__ void release_q_early(const Consumer &consumer, const Ring<Q_STAGES> &q_ring, int left) {
  if (Q_STAGES == 1 && left == 0) release_q(consumer, q_ring);
}

// ---- P from the registers of the softmax to P V: it stays there -----------------------------------------
// The descriptor of P, of which there is none.
__device__ __forceinline__ u64 wait_for_p(const Consumer &) { return 0; }

// O += P V, the part of the 16 keys at k.
__device__ __forceinline__ void multiply_p(Consumer &consumer, u64, int k, u64 v) {
  wgmma_rs_across(consumer.rO, consumer.rP[k][0], v);
}

// P for the next P V. The last P V has been waited for.
__device__ __forceinline__ void pack_p(Consumer &consumer, int key) {
  begin_step(consumer.dropout, key);
  #pragma unroll
  for (int k = 0; k < BLOCK_N / 16; ++k) pack_fragment(consumer.rP[k][0], consumer.rS[0], k);
  #pragma unroll
  for (int k = 0; k < BLOCK_N / 16; ++k) draw_and_drop(consumer.rP[k], consumer.dropout, k);
}

// ---- softmax of Q K^T as it is, or with keys hidden ---------------------------------------------------------------
struct Exponents {};

__device__ __forceinline__ bool may_move(const Exponents &) { return true; }

struct StepColumns {};

template <bool MASKED>
__device__ __forceinline__ StepColumns read_columns(const Consumer &, const ForwardParams &, const AnnouncedStep &) {
  return {};
}

template <bool MASKED>
__device__ __forceinline__ Exponents make_exponents(Consumer &consumer, const ForwardParams &params, const AnnouncedStep &step,
                                                    const StepColumns &) {
  apply_score(consumer.rS, consumer.score, params, step.key, step.sees_whole, consumer.lane);
  return {};
}

template <bool MASKED>
__device__ __forceinline__ int follow_maxima(float (&factor)[2], Consumer &consumer, const ForwardParams &params) {
  return move_maxima<MASKED>(factor, consumer.row_max, consumer.row_sum, consumer.rS[0], scale_log2_of(consumer.scales, params));
}

template <bool MASKED, int FROM, int TO>
__device__ __forceinline__ void take_powers(Consumer &consumer, const ForwardParams &params, const Exponents &) {
  exponentiate<MASKED, FROM, TO>(consumer.rS[0], consumer.row_sum, consumer.row_max, scale_log2_of(consumer.scales, params));
}

// ---- the steps of a consumer warpgroup -------------------------------------------------------------------
// ---- products ----
// S = Q K^T, begun.
__device__ __forceinline__ void begin_qk(Consumer &consumer, const Ring<Q_STAGES> &q_ring) {
  const unsigned smem = shared_address(shared);
  const u64 q = depth_along_rows(smem + SMEM_Q + consumer.number * 64 * 128, q_ring.stage, Q_STAGE);
  const u64 k = depth_along_rows(smem + SMEM_K, consumer.ring.stage, K_TILE);
  wgmma_fence();
  #pragma unroll
  for (int i = 0; i < K_STEPS; ++i) {  // 16 columns are 32 bytes, four times to a panel
    wgmma_ss(consumer.rS[0], q + by_bytes(i / 4 * BLOCK_M * 128 + i % 4 * 32),
             k + by_bytes(i / 4 * BLOCK_N * 128 + i % 4 * 32), i > 0);
  }
  wgmma_commit();
}

// O += P V with the V of this stage, begun.
__device__ __forceinline__ void begin_pv(Consumer &consumer, const Ring<STAGES> &ring) {
  const u64 v = depth_across_rows(shared_address(shared) + SMEM_V, ring.stage, V_TILE, BLOCK_N * 128);
  const u64 p = wait_for_p(consumer);
  wgmma_fence();
  #pragma unroll
  for (int k = 0; k < BLOCK_N / 16; ++k) multiply_p(consumer, p, k, v + by_bytes(k * 16 * 128));
  wgmma_commit();
}

// The barrier of this K was tested during the softmax before: the test takes time, and K is nearly always there.
__device__ __forceinline__ void wait_for_k(const Consumer &consumer) {
  if (!consumer.k_ready) mbarrier_wait(k_full(consumer.ring.stage), consumer.ring.parity);
}

// ---- ping-pong ----
// Each warpgroup waits for its turn, does what is done in turns, and passes the turn on. PINGPONG_PRODUCTS: they issue
// their products in turns, and one's products are under way while the others compute their softmax. PINGPONG_SOFTMAX: they
// begin their exponentials in turns, so that not all of them want MUFU at once and then all of them products. A warpgroup
// takes its turns at skipped steps, too: so all take equally many.
__device__ __forceinline__ void wait_turn(const Consumer &consumer) {
  barrier_sync(FIRST_TURN_BARRIER + consumer.number, 256);
}

// zero: see zero_after.
__device__ __forceinline__ void pass_turn(const Consumer &consumer, int zero = 0) {
  barrier_arrive(FIRST_TURN_BARRIER + (consumer.number + 1) % CONSUMERS + zero, 256);
}

// ---- a step's softmax ----
// Asks for what the score reads in this step. Its rows have begun, and what was read before is no longer needed.
__device__ __forceinline__ void ask_for_tile(Consumer &consumer, const ForwardParams &params, const AnnouncedStep &step) {
  ask_for_tile(consumer.tile, params, consumer.score, consumer.number, consumer.warp, consumer.lane, step.key);
}

// MASKED: some row may not see all keys of the step.
template <bool MASKED>
__device__ __forceinline__ Correction softmax(Consumer &consumer, const ForwardParams &params, const Share &work,
                                              const AnnouncedStep &step, const StepColumns &columns, int left) {
  constexpr bool MAY_SEE_NONE = MASKED || SCORES_HIDE;  // some row, up to this step
  constexpr int IN_TURN = PINGPONG_SOFTMAX ? (N_TILES + 7) / 8 * 2 : N_TILES;  // a quarter: then MUFU never runs dry
  const Ring<STAGES> ahead = next(consumer.ring);
  const Exponents exponents = make_exponents<MASKED>(consumer, params, step, columns);
  if (!KEYS_LISTED && left > 0) ask_for_tile(consumer, params, step_of(consumer, work, left - 1));
  if (MASKED && !is_full(params.sequence, params.visibility, work.q0, work.q0 + 63, step.key, BLOCK_N)) {
    hide_scores(consumer.rS, params.sequence, params.visibility, work.q0 + consumer.warp * 16, step.key, consumer.lane);
  }
  float factor[2];
  may_be_unset(factor[0], factor[1]);
  const int due = may_move(exponents) ? follow_maxima<MAY_SEE_NONE>(factor, consumer, params) : 0;
  if (PINGPONG_SOFTMAX) {
    wait_turn(consumer);
    hold(consumer.rS[0]);  // no exponential before the turn
  }
  consumer.k_ready = mbarrier_test(k_full(ahead.stage), ahead.parity);
  take_powers<MAY_SEE_NONE, 0, IN_TURN>(consumer, params, exponents);
  if (PINGPONG_SOFTMAX) {
    pass_turn(consumer, zero_after(consumer.row_sum));
    take_powers<MAY_SEE_NONE, IN_TURN, N_TILES>(consumer, params, exponents);
  }
  return {due, factor[0], factor[1]};
}

// ---- steps ----
__device__ __forceinline__ void begin_rows(Consumer &consumer, const ForwardParams &params, const Share &work) {
  consumer.row_max[0] = consumer.row_max[1] = MINUS_INFINITY;
  consumer.row_sum[0] = consumer.row_sum[1] = 0.f;
  consumer.dropout = begin_dropout(params.dropout, params.sequence, work.batch, work.head,
                                   work.q0 + consumer.warp * 16, consumer.lane);
  begin_scales(consumer.scales, params, work.batch, work.head, work.q0);
  consumer.score = begin_score<1>(params, work.batch, work.head, work.q0 + consumer.warp * 16, consumer.lane,
                                  scale_of(consumer.scales, params));
  begin_tile(consumer.tile, params, consumer.score, work.q0 + consumer.warp * 16);
}

__device__ __forceinline__ void clear_o(Consumer &consumer) {
  #pragma unroll
  for (int n = 0; n < O_TILES; ++n) consumer.rO[n][0] = consumer.rO[n][1] = consumer.rO[n][2] = consumer.rO[n][3] = 0.f;
}

// Steps that only other warpgroups take: gives their stages back, and moves to the next K after them. (A copy of the ring,
// made here, would take it and all descriptors of later steps out of uniform registers.)
__device__ __forceinline__ void skip_hidden(Consumer &consumer, int steps) {
  for (int i = 0; i < steps; ++i) {
    mbarrier_wait(k_full(consumer.ring.stage), consumer.ring.parity);
    // Before the wait for this V: its stage may still hold a V that another warpgroup multiplies by in its turn.
    if (PINGPONG_PRODUCTS || PINGPONG_SOFTMAX) {
      wait_turn(consumer);
      pass_turn(consumer);
    }
    mbarrier_wait(v_full(next(consumer.ring).stage), next(consumer.ring).parity);
    // No product has brought the warps together: one that still waits could miss this phase and the next.
    barrier_sync(FIRST_OWN_BARRIER + consumer.number, 128);
    release_k(consumer);
    consumer.ring = next(consumer.ring);
    release_v(consumer, consumer.ring);
    consumer.k_ready = false;
  }
}

// The first step of a work tile, but for its P V.
__device__ __forceinline__ void take_first_step(Consumer &consumer, const ForwardParams &params, const Share &work) {
  begin_rows(consumer, params, work);
  clear_o(consumer);
  if (SKIPS_BEFORE) skip_hidden(consumer, hidden_before(work));
  wait_for_k(consumer);
  const AnnouncedStep step = step_of(consumer, work, work.steps - 1);
  ask_for_tile(consumer, params, step);
  begin_qk(consumer, consumer.q_ring);
  begin_step(consumer.scales, params, step.key);
  wgmma_wait<0>();
  hold(consumer.rS[0]);
  release_k(consumer);
  release_q_early(consumer, consumer.q_ring, work.steps - 1);
  softmax<true>(consumer, params, work, step, StepColumns{}, work.steps - 1);
  pack_p(consumer, step.key);
  consumer.ring = next(consumer.ring);
}

// Q K^T of a step and P V of the step before, whose V is in this stage: both begun.
__device__ __forceinline__ void begin_both(Consumer &consumer, const Ring<Q_STAGES> &q_ring, const Ring<STAGES> &ring) {
  const bool v_ready = mbarrier_test(v_full(ring.stage), ring.parity);
  if (PINGPONG_PRODUCTS) wait_turn(consumer);
  begin_qk(consumer, q_ring);
  if (!v_ready) mbarrier_wait(v_full(ring.stage), ring.parity);
  begin_pv(consumer, ring);
  if (PINGPONG_PRODUCTS) pass_turn(consumer);
}

// One step: its Q K^T beside P V of the step before, then its softmax beside that P V. P V reads P and changes O until it
// has been waited for: only then is P replaced and O corrected.
template <bool MASKED>
__device__ __forceinline__ void take_step(Consumer &consumer, const ForwardParams &params, const Share &work, int left) {
  wait_for_k(consumer);
  const AnnouncedStep step = step_of(consumer, work, left);
  if (KEYS_LISTED) ask_for_tile(consumer, params, step);
  begin_both(consumer, consumer.q_ring, consumer.ring);
  const StepColumns columns = read_columns<MASKED>(consumer, params, step);
  begin_step(consumer.scales, params, step.key);
  wgmma_wait<1>();
  hold(consumer.rS[0]);
  release_k(consumer);
  release_q_early(consumer, consumer.q_ring, left);
  const Correction correction = softmax<MASKED>(consumer, params, work, step, columns, left);
  wgmma_wait<0>();
  hold(consumer.rO);
  release_v(consumer, consumer.ring);
  pack_p(consumer, step.key);
  correct(consumer.rO, correction);
  consumer.ring = next(consumer.ring);
}

// The steps after a work tile's first: partial ones, full ones, partial ones. Steps are cut by the end of the keys or by a
// bound on what the rows see. At the other end of the walk that is possible only where rows hide first keys.
__device__ __forceinline__ void take_steps(Consumer &consumer, const ForwardParams &params, const Share &work) {
  // The full steps are those with full_low to full_high - 1 steps left after them.
  const int full_low = ASCENDING ? max(work.steps - work.full_end, 0) : HIDES_FIRST_KEYS ? work.full_begin : 0;
  const int full_high = ASCENDING ? work.steps - work.full_begin : work.full_end;
  int left = work.steps - 2;
  if constexpr (BEGINS_AT_QUERY) {  // only the last keys may be cut
    const int cut = work.full_end < work.steps ? work.steps - 2 - work.own_step : -1;  // steps to go after theirs
    #pragma unroll 1
    for (; left >= 0; --left) {
      if (left == cut) take_step<true>(consumer, params, work, left);
      else take_step<false>(consumer, params, work, left);
    }
    return;
  }
  if (!ASCENDING || HIDES_FIRST_KEYS) {
    #pragma unroll 1
    for (; left >= full_high; --left) take_step<true>(consumer, params, work, left);
  }
  #pragma unroll 1
  for (; left >= full_low; --left) take_step<false>(consumer, params, work, left);
  if (ASCENDING || HIDES_FIRST_KEYS) {
    #pragma unroll 1
    for (; left >= 0; --left) take_step<true>(consumer, params, work, left);
  }
}

// P V of a work tile's last step, whose V is in this stage.
__device__ __forceinline__ void take_last_product(Consumer &consumer, const Ring<STAGES> &ring) {
  mbarrier_wait(v_full(ring.stage), ring.parity);
  begin_pv(consumer, ring);
  wgmma_wait<0>();
  hold(consumer.rO);
  release_v(consumer, ring);
}

// O is staged where its Q was, and handed to the thread that stores it.
__device__ __forceinline__ void store_o(const Consumer &consumer, const ForwardParams &, const Share &) {
  const unsigned sO = shared_address(shared) + SMEM_Q + consumer.q_ring.stage * Q_STAGE + consumer.number * 64 * 128;
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
  arrive(consumer, o_full(consumer.number, consumer.q_ring.stage));
}

// Stores the O tiles that a consumer warpgroup has staged, and gives their places back to Q.
__device__ __forceinline__ void store_tiles(const TiledForwardParams &params, int consumer) {
  Ring<Q_STAGES> q_ring = {0, 0};
  for (;;) {
    mbarrier_wait(q_full(q_ring.stage), q_ring.parity);
    const Announcement &work = announced_tile(q_ring.stage);
    if (work.steps == 0) break;
    mbarrier_wait(o_full(consumer, q_ring.stage), q_ring.parity);
    const unsigned sO = shared_address(shared) + SMEM_Q + q_ring.stage * Q_STAGE + consumer * 64 * 128;
    for (int p = 0; p < DV_PANELS; ++p) {
      store_o_panel(params, sO + p * BLOCK_M * 128, p * 64, work.q0 + consumer * 64, work.head, work.batch,
                    work.place);
    }
    tma_store_commit();
    tma_store_wait_read<0>();
    mbarrier_arrive(q_empty(q_ring.stage));
    q_ring = next(q_ring);
  }
  tma_store_wait<0>();
}

constexpr int STORERS = PAGE > 0 ? 2 : 3;  // the last warp loads pages of V

// What the warps of the producer's warpgroup do but the first: a thread for each consumer warpgroup stores its O.
__device__ __forceinline__ void assist_producer(const TiledForwardParams &params, int warp, int lane) {
  const int stores_for = warp - 1 + STORERS * lane;
  if (warp > 0 && (STORERS == 3 || warp <= STORERS) && stores_for < CONSUMERS) store_tiles(params, stores_for);
}

// ---- the end of a work tile: O = O / l, LSE = ln l + max -----------------------------------------------------
// LSE of a row's keys.
__device__ __forceinline__ float lse_of_keys(float row_max, float l) {
  return l == 0.f ? MINUS_INFINITY : (row_max + lg2(l)) * 0.69314718f;
}

// For the rows of this warpgroup. Rows that saw no key have l = 0: O = 0, LSE = -inf, or the sink.
__device__ __forceinline__ void normalise(Consumer &consumer, const ForwardParams &params, const Share &work,
                                          const float (&row_max)[2], const float (&row_sum)[2]) {
  const float descale = descale_of_v(consumer.scales, params, work.batch, work.head);
  #pragma unroll
  for (int h = 0; h < 2; ++h) {
    const float l = quad_sum(row_sum[h]);
    float normaliser = (l > 0.f ? rcp(l) : 0.f) * dropout_rescale(params.dropout);
    const int i = work.q0 + consumer.warp * 16 + h * 8 + consumer.lane / 4, head = head_of(params.sequence, work.head, i);
    float lse = lse_of_keys(row_max[h], l);
    if (is_whole(work.part)) normaliser *= add_sink(lse, params, head);
    if (consumer.lane % 4 == 0 && i < params.sequence.nq && is_of_head(params.sequence, i)) {
      float stored = lse_of_keys(row_max[h], l);  // again, where it is needed
      if (is_whole(work.part)) add_sink(stored, params, head);
      store_lse(params, work.part, row_of_part(params, work.part, work.batch, work.head, i), stored);
    }
    normaliser *= descale;
    #pragma unroll
    for (int n = 0; n < O_TILES; ++n) {
      consumer.rO[n][2 * h] *= normaliser;
      consumer.rO[n][2 * h + 1] *= normaliser;
    }
  }
}

// O of a part of the keys.
__device__ __forceinline__ void store_part(const Consumer &consumer, const ForwardParams &params, const Share &work) {
  #pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int i = work.q0 + consumer.warp * 16 + h * 8 + consumer.lane / 4;
    if (i >= params.sequence.nq) continue;
    if (!is_of_head(params.sequence, i)) continue;
    const long long row = row_of_part(params, work.part, work.batch, work.head, i);
    #pragma unroll
    for (int n = 0; n < O_TILES; ++n) {
      store_partial(params, work.part, row, n * 8 + consumer.lane % 4 * 2, consumer.rO[n][2 * h],
                    consumer.rO[n][2 * h + 1]);
    }
  }
}

__device__ __forceinline__ void finish(Consumer &consumer, const ForwardParams &params, const Share &work,
                                       const float (&row_max)[2], const float (&row_sum)[2]) {
  wait_for_room();
  normalise(consumer, params, work, row_max, row_sum);
  if (is_whole(work.part)) store_o(consumer, params, work); else store_part(consumer, params, work);
}

// Work tile after work tile.
__device__ __forceinline__ void consume(Consumer &consumer, const ForwardParams &all) {
  #pragma unroll 1
  for (;;) {
    const Share work = wait_for_work(consumer, all, consumer.q_ring);
    if (work.steps == 0) break;
    const auto &params = at_place(all, work.place);
    take_first_step(consumer, params, work);
    take_steps(consumer, params, work);
    if (Q_STAGES > 1) release_q(consumer, consumer.q_ring);
    take_last_product(consumer, consumer.ring);
    finish(consumer, params, work, consumer.row_max, consumer.row_sum);
    if (SKIPS_AFTER) skip_hidden(consumer, hidden_after(work));
    consumer.q_ring = next(consumer.q_ring);
  }
}

// ---- the kernel ----------------------------------------------------------------------------------
extern "C" __global__ void __launch_bounds__(THREADS, 1)
fatune_kernel(const __grid_constant__ TiledForwardParams all) {
  const TiledForwardParams &params = tiled_of(all);
  if (threadIdx.x == 0) init_barriers();
  sync_all();  // the barriers of all blocks that use each other's are ready

  const int warpgroup = threadIdx.x / 128, warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
  if (warpgroup == 0) {
    registers_release<PRODUCER_REGISTERS>();
    merge_may_begin();
    produce(params, warp, lane);
    assist_producer(params, warp, lane);
  } else {
    registers_claim<CONSUMER_REGISTERS>();
    Consumer consumer;
    consumer.number = uniform(warpgroup - 1);
    consumer.warp = warp;
    consumer.lane = lane;
    consumer.ring = {0, 0};
    consumer.q_ring = {0, 0};
    consumer.k_ready = false;
    consumer.scales = scales_of(all);
    if ((PINGPONG_PRODUCTS || PINGPONG_SOFTMAX) && consumer.number == CONSUMERS - 1) pass_turn(consumer);  // the first
    consume(consumer, params.rest);
  }
  sync_at_end();
}

// ---- the list of work tiles: sequences are alike, and a kernel finds its tiles without one ------------------------------
