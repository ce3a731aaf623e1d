// fatune: backward attention, sm_90a
// request  backward bf16 d128 causal
// config   wgmma_backward block_m=64 block_n=128 q_stages=2 do_stages=2 ds_stages=2 pacing=2
// budget   198656 bytes of shared memory, 512 threads, about 200 of 208 registers
// parts    wgmma_backward.cu.in, parts/ptx_common.cu.in, parts/ptx_memory.cu.in, parts/ptx_mma.cu.in, parts/ptx_mbarrier.cu.in, parts/ptx_tma.cu.in, parts/ptx_tma_5d.cu.in, parts/ptx_bulk.cu.in, parts/ptx_barriers.cu.in, parts/ptx_stmatrix.cu.in, parts/ptx_registers.cu.in, parts/ptx_wgmma.cu.in, parts/ptx_dependent.cu.in, parts/ptx_reductions.cu.in, parts/ptx_wgmma_product.cu.in, parts/pairs.cu.in, parts/score_function_none.cu.in, parts/arguments.cu.in, parts/walk_parts_none.cu.in, parts/sequence.cu.in, parts/sequence_rows.cu.in, parts/rows_of_heads.cu.in, parts/outputs.cu.in, parts/visibility.cu.in, parts/query_tiles.cu.in, parts/sink_gradient_none.cu.in, parts/key_order.cu.in, parts/key_tile.cu.in, parts/early_dq_none.cu.in, parts/query_walk.cu.in, parts/score_transposed_none.cu.in, parts/dropout_none.cu.in, parts/dropout_transposed_none.cu.in, parts/ds_unit_none.cu.in, parts/chunks.cu.in, parts/store_rows.cu.in, parts/staging.cu.in, parts/part_sums_none.cu.in, parts/dq_tickets_none.cu.in, parts/rows_of_dq.cu.in, parts/dq_sums.cu.in, parts/backward_prepare.cu.in, parts/backward_pipeline.cu.in, parts/ring.cu.in, parts/descriptors.cu.in, parts/tile_rows.cu.in, parts/backward_loads.cu.in, parts/backward_loader.cu.in, parts/clear_gradients.cu.in, parts/block_tiles_one.cu.in, parts/backward_draws_none.cu.in, parts/backward_dq_warpgroup.cu.in, parts/backward_adders_none.cu.in, parts/dq_walk.cu.in, parts/backward_consumer.cu.in, parts/backward_kept_own.cu.in, parts/backward_marked_none.cu.in, parts/store_sums_staged.cu.in, parts/backward_consumer_walk.cu.in, parts/work_list_none.cu.in
// again    fatune emit 'backward bf16 d128 nq1 causal' --gpu sm_90 --config 'wgmma_backward block_m=64 block_n=128 q_stages=2 do_stages=2 ds_stages=2 pacing=2'
//
// Three kernels, one after the other on a stream; where there is a fatune_work_list, it lists the key tiles before them:
//   fatune_prepare  q_tiles * batch * heads_q blocks of PREPARE_THREADS: row statistics, zeros in dq_sum
//   fatune_kernel   k_tiles * batch * heads_kv blocks of THREADS: dK, dV, and what dQ is the sum of
//   fatune_convert  q_tiles * batch * heads_q blocks of DQ_THREADS: dQ
// The gradients of O = softmax(scale Q K^T) V by tiles (FlashAttention, arXiv 2205.14135 and 2307.08691) on Hopper:
//   P = exp(scale Q K^T - LSE), delta = rowsum(dO o O) - dLSE, dS = P o (dO V^T - delta),
//   dV = P^T dO, dK = scale dS^T Q, dQ = scale dS K.
// A block owns BLOCK_N keys of one head of K and V. It walks over the queries that see them, BLOCK_M at a time, of all
// query heads of its group. A consumer warpgroup has 64 of the keys: it makes their scores transposed, rows of keys, so
// that P^T and dS^T are operands in registers, and holds dK and dV of them. It also puts dS into shared memory. Another
// warpgroup multiplies it by K and adds the product to dQ: consumers neither wait for each other nor add to dQ. Where adds
// to dQ have an order, warps beside the loader add the products.

// ---- constants ---------------------------------------------------------------------------------
constexpr int BLOCK_M = 64;        // query rows of a step
constexpr int BLOCK_N = 128;        // keys of a block
constexpr int CONSUMERS = BLOCK_N / 64;           // warpgroups that hold dK and dV
constexpr bool LOADS_BESIDE_DQ = false;   // the dQ warpgroup loads; else a warpgroup of its own does
constexpr int THREADS = 128 * (CONSUMERS + (LOADS_BESIDE_DQ ? 1 : 2));
constexpr int PREPARE_THREADS = 256, DQ_THREADS = 128;  // of the first and the last kernel
constexpr int Q_STAGES = 2, DO_STAGES = 2, DS_STAGES = 2;  // tiles in shared memory
constexpr int K_STAGES = 1;      // K tiles in shared memory
constexpr int DQ_STAGES = 0;    // steps whose dQ waits in shared memory for warps that add it in order
constexpr int ADDING_WARPS = DQ_STAGES > 0 ? DQ_STAGES : 4;
constexpr bool KV_IN_REGS = false;       // a consumer keeps its rows of K and V in registers
constexpr bool EARLY_SCORES = false;     // the next S is begun beside dK
constexpr bool IN_TURNS = true, STAGGERED = false;  // how consumers are kept out of step
constexpr int LOADER_REGISTERS = 24, CONSUMER_REGISTERS = 208, DQ_REGISTERS = 72;
constexpr int LAUNCH_REGISTERS = 65536 / THREADS / 8 * 8;  // of each thread, before they are shared out

constexpr int HEAD_DIM = 128;     // of Q, K
constexpr int HEAD_DIM_V = 128; // of V, O
constexpr int D_PAD = 128, DV_PAD = 128;  // multiples of 16, the rest zeros
constexpr int D_PANELS = 2, DV_PANELS = 2;  // of 64 columns in shared memory
constexpr int DQ_SUMS = 1;        // fp32 sums of a query tile's dQ
constexpr int QK_STRIDE = 256;  // bytes from row to row of dQ, as the last kernel stages it
constexpr int MASK_ROWS = 0, MASK_COLS = 0;  // of a block of the block mask; 0: none

constexpr int M_TILES = 1, WARP_KEYS = 16;        // mma tiles of a consumer's warp: keys,
constexpr int N_TILES = BLOCK_M / 8;              // queries of a step
constexpr int PART_QUERIES = BLOCK_M;
constexpr int DRAWS_AHEAD = 0;  // draws of a step beside the product before its P
constexpr int DRAWERS = 0;  // warps beside the loader that draw, for all consumers
constexpr int DRAWS = 0;  // of a step, each for 64 keys and 64 queries
constexpr int KEPT_WORDS = BLOCK_M / 64;          // of a lane, each step: which elements are kept
constexpr int KEPT_STAGES = 0;  // steps drawn ahead

#define MINUS_INFINITY __int_as_float(0xff800000)

// ---- PTX: one wrapper for each instruction. Here numbers and bits ---------------------------------------
typedef unsigned short element;  // bf16, moved and multiplied as 16-bit patterns
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

// Two fp32 values as a pair of bf16, round to nearest even; `low` in the low half.
__device__ __forceinline__ unsigned pack(float low, float high) {
  unsigned pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

// A pair of bf16 as fp32.
__device__ __forceinline__ float low_half(unsigned pair) {
  float x;
  asm("{ .reg .b16 l, h; mov.b32 {l, h}, %1; mov.b32 %0, {0, l}; }" : "=f"(x) : "r"(pair));
  return x;
}

__device__ __forceinline__ float high_half(unsigned pair) {
  float x;
  asm("{ .reg .b32 h; and.b32 h, %1, 0xffff0000; mov.b32 %0, h; }" : "=f"(x) : "r"(pair));
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

// ---- PTX: ldmatrix, mma.sync ------------------------------------------------------------------------------
// Four 8x8 matrices of 16-bit elements; lane i gives the address of row i % 8 of matrix i / 8.
__device__ __forceinline__ void ldmatrix_x4(unsigned (&r)[4], unsigned address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(address) : "memory");
}

// The same with each matrix transposed on the way.
__device__ __forceinline__ void ldmatrix_x4_trans(unsigned (&r)[4], unsigned address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(address) : "memory");
}

// c += A B for a 16x16 tile A (row-major fragments) and a 16x8 tile B (column-major), fp32 accumulators.
__device__ __forceinline__ void mma_m16n8k16(float (&c)[4], const unsigned (&a)[4], unsigned b0,
                                             unsigned b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
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

// ---- PTX: copies of bytes that lie side by side (sm_90) -----------------------------------------------------
// Addresses and numbers of bytes are multiples of 16. To shared memory; the barrier counts the bytes.
__device__ __forceinline__ void bulk_load(unsigned to, const float *from, unsigned bytes, unsigned barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
               :: "r"(to), "l"(from), "r"(bytes), "r"(barrier) : "memory");
}

// What other threads' TMA stores and additions did to global memory, and this thread has acquired, comes before its own.
__device__ __forceinline__ void global_proxy_fence() { asm volatile("fence.proxy.async.global;" ::: "memory"); }

// Numbers in shared memory are added to those in global memory. Committed and waited for as TMA stores are.
__device__ __forceinline__ void bulk_add(float *to, unsigned from, unsigned bytes) {
  asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;"
               :: "l"(to), "r"(from), "r"(bytes) : "memory");
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

// ---- PTX: kernels that begin before the one before them has ended (sm_90) ------------------------------------
// The next grid begins, if it was launched early, when every block of this one has called this or has ended.
__device__ __forceinline__ void next_grid_may_begin() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }

// Waits until the grid before this one has ended and what it wrote can be read.
__device__ __forceinline__ void wait_for_grid_before() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

// ---- PTX: additions to global memory that return nothing --------------------------------------------------
__device__ __forceinline__ void red_add_4(float *to, const float (&x)[4]) {
  asm volatile("red.global.add.v4.f32 [%0], {%1, %2, %3, %4};"
               :: "l"(to), "f"(x[0]), "f"(x[1]), "f"(x[2]), "f"(x[3]) : "memory");
}


// c = A B or, to accumulate, c += A B, 64 x 64 x 16. A from shared memory, the depth along its rows; B from shared memory, the depth along its rows.
__device__ __forceinline__ void wgmma_ss(float (&c)[8][4], u64 a, u64 b, bool accumulate = true) {
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"
               "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
               "%32, %33, p, 1, 1, 0, 0;\n}" :
               "+f"(c[0][0]), "+f"(c[0][1]), "+f"(c[0][2]), "+f"(c[0][3]),
               "+f"(c[1][0]), "+f"(c[1][1]), "+f"(c[1][2]), "+f"(c[1][3]),
               "+f"(c[2][0]), "+f"(c[2][1]), "+f"(c[2][2]), "+f"(c[2][3]),
               "+f"(c[3][0]), "+f"(c[3][1]), "+f"(c[3][2]), "+f"(c[3][3]),
               "+f"(c[4][0]), "+f"(c[4][1]), "+f"(c[4][2]), "+f"(c[4][3]),
               "+f"(c[5][0]), "+f"(c[5][1]), "+f"(c[5][2]), "+f"(c[5][3]),
               "+f"(c[6][0]), "+f"(c[6][1]), "+f"(c[6][2]), "+f"(c[6][3]),
               "+f"(c[7][0]), "+f"(c[7][1]), "+f"(c[7][2]), "+f"(c[7][3]) :
               "l"(a), "l"(b), "r"(int(accumulate)));
}

// c = A B or, to accumulate, c += A B, 64 x 128 x 16. A from registers, for each warp's 16 rows the fragments of
// mma.m16n8k16; B from shared memory, the depth across its rows.
__device__ __forceinline__ void wgmma_rs_across(float (&c)[16][4], const unsigned (&a)[4], u64 b,
                                        bool accumulate = true) {
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %69, 0;\n"
               "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
               "{%64, %65, %66, %67}, %68, p, 1, 1, 1;\n}" :
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
               "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(int(accumulate)));
}

// c = A B or, to accumulate, c += A B, 64 x 64 x 16. A from shared memory, the depth across its rows; B from shared memory, the depth across its rows.
__device__ __forceinline__ void wgmma_ss_both_across(float (&c)[8][4], u64 a, u64 b, bool accumulate = true) {
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"
               "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
               "%32, %33, p, 1, 1, 1, 1;\n}" :
               "+f"(c[0][0]), "+f"(c[0][1]), "+f"(c[0][2]), "+f"(c[0][3]),
               "+f"(c[1][0]), "+f"(c[1][1]), "+f"(c[1][2]), "+f"(c[1][3]),
               "+f"(c[2][0]), "+f"(c[2][1]), "+f"(c[2][2]), "+f"(c[2][3]),
               "+f"(c[3][0]), "+f"(c[3][1]), "+f"(c[3][2]), "+f"(c[3][3]),
               "+f"(c[4][0]), "+f"(c[4][1]), "+f"(c[4][2]), "+f"(c[4][3]),
               "+f"(c[5][0]), "+f"(c[5][1]), "+f"(c[5][2]), "+f"(c[5][3]),
               "+f"(c[6][0]), "+f"(c[6][1]), "+f"(c[6][2]), "+f"(c[6][3]),
               "+f"(c[7][0]), "+f"(c[7][1]), "+f"(c[7][2]), "+f"(c[7][3]) :
               "l"(a), "l"(b), "r"(int(accumulate)));
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

// Under a block mask the order in which the key tiles of a head start, and which of their walks are divided; else all 0.
struct ColumnOrder {
  const int *columns;                // one for each list of MaskLists: columns of mask blocks, those with most kept blocks first; null: in their order
  float *sums;                       // [batch, heads_kv, parts, BLOCK_N * (HEAD_DIM_V + HEAD_DIM)]: dV and dK of the parts
  int parts;                         // of the divided key tiles of a head
  int ends[6];                       // key tiles of a head that are divided into 64 parts; into 64 or 32; and so on, into 2 or more
};
static_assert(sizeof(ColumnOrder) == 48, "the host fills 48 bytes");

// The factor of the scores.
struct Softmax {
  float scale;                       // > 0
  float scale_log2;                  // scale * log2(e)
};
static_assert(sizeof(Softmax) == 8, "the host fills 8 bytes");

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

// The argument of all kernels of a backward.
struct BackwardParams {
  Tensor q;
  Tensor k;
  Tensor v;
  Tensor o;
  Tensor dout;
  Tensor dq;                         // written
  Tensor dk;                         // written
  Tensor dv;                         // written
  const float *lse;                  // [batch, heads_q, nq]
  const float *dlse;                 // likewise, or null
  float *dq_sum;                     // [batch, heads_q, q_tiles, DQ_SUMS, BLOCK_M * D_PAD], by fragments of the dQ product; null with dq_mode=2
  float *row_stats;                  // [batch, heads_q, q_tiles, 2, BLOCK_M]: LSE log2(e), then -delta
  int *counters;                     // [batch, heads_q, q_tiles, DQ_SUMS, ADDERS]: the ticket that adds to dq_sum next; null where adds have no order
  unsigned *tiles_taken;             // key tiles that blocks have taken beyond the first of each; null where a block has one
  int *section_counts;               // of each L2 section the warps that have added all of their dQ; null where the last kernel does not look
  Dropout dropout;
  Visibility visibility;
  Sequence sequence;
  Schedule schedule;
  ColumnOrder column_order;
  Softmax softmax;
  const float *sinks;                // [heads_q]; null without sinks, likewise below
  float *dsinks;                     // [heads_q], written
  float *sink_sums;                  // [batch, heads_q, q_tiles, PREPARE_THREADS / 32]: of the rows of a tile what a warp adds to dsinks
  Ragged ragged;                     // where it is, [batch, heads_q, q_tiles] above is [heads_q, numbers_q]
};
static_assert(sizeof(BackwardParams) == 648, "the host fills 648 bytes");

// That of a main kernel with its tensors as TMA wants them. The others take the first member, or with a score function all.
struct TiledBackwardParams {
  BackwardParams rest;
  TensorMap q;                       // in boxes of BLOCK_M rows
  TensorMap k;                       // in boxes of BLOCK_N rows
  TensorMap v;                       // in boxes of BLOCK_N rows
  TensorMap dout;                    // in boxes of BLOCK_M rows
  TensorMap dk;                      // in boxes of 64 rows
  TensorMap dv;                      // in boxes of 64 rows
};
static_assert(sizeof(TiledBackwardParams) == 1472, "the host fills 1472 bytes");


// ---- walk parts: a key tile has all queries of its walk ---------------------------------------------------------------
constexpr bool WALKS_ARE_DIVIDED = false;

struct WalkPart {};

__device__ __forceinline__ bool is_whole(const WalkPart &) { return true; }
__device__ __forceinline__ int places_of_head(const BackwardParams &params) { return params.schedule.k_tiles; }
__device__ __forceinline__ WalkPart part_at(const BackwardParams &, int place, int &rank) {
  rank = place;
  return {};
}
__device__ __forceinline__ int begin_of_part(const WalkPart &, int) { return 0; }
__device__ __forceinline__ int end_of_part(const WalkPart &, int steps) { return steps; }
__device__ __forceinline__ unsigned query_blocks(const BackwardParams &) { return gridDim.x; }

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

// ---- query tiles --------------------------------------------------------------------------------------------------------
// The first kernel and the last one have a block for each query tile of each head. They begin with the last heads, the main
// kernel with the first ones: each finds in the L2 cache what the kernel before it touched last.
struct QueryTile {
  int batch, head;
  int number;                // among those of its head
  int of_all;                // among those of all heads: tile_number
  SequencePlace place;
};

// The query tile of this block. Blocks begin with the last heads, or with FIRST_HEADS_FIRST with the first.
template <bool FIRST_HEADS_FIRST = false>
__device__ __forceinline__ QueryTile find_query_tile(const BackwardParams &params) {
  const int heads = params.sequence.heads_q, q_tiles = params.schedule.q_tiles;
  const int of_block = int(blockIdx.x) / q_tiles, number = int(blockIdx.x) % q_tiles;
  const int batch_head = FIRST_HEADS_FIRST ? of_block : params.sequence.batch * heads - 1 - of_block;
  return {batch_head / heads, batch_head % heads, number, batch_head * q_tiles + number, {}};
}

// The number, over all heads, of the tile that begins with query q0. There are as many blocks, so it is below 2^31.
__device__ __forceinline__ int tile_number(const BackwardParams &params, const SequencePlace &, int batch, int head, int q0) {
  return batch_head_of(params.sequence, batch, head) * params.schedule.q_tiles + q0 / BLOCK_M;
}

// ---- the gradient of the sinks: there are none ----------------------------------------------------------------------------
struct SinkSum {};

__device__ __forceinline__ SinkSum begin_sink() { return {}; }
__device__ __forceinline__ void add_to_sink(SinkSum &, const BackwardParams &, int, float, float) {}
__device__ __forceinline__ void end_sink(const SinkSum &, const BackwardParams &, const QueryTile &) {}
__device__ __forceinline__ void finish_sinks(const BackwardParams &) {}

// The number of the key tile that starts at this rank. Tiles start in the order of their keys.
__device__ __forceinline__ int key_tile_of_rank(const BackwardParams &, int, int, int rank) { return rank; }

// ---- a key tile and its place in the order ------------------------------------------------------------------------------
// Blocks start in the order of their number. The key tiles of an L2 section (a number of kv heads) run together. Inside it
// one tile of every head comes after the other, so that neighbours rarely add to the same dQ.
constexpr bool QUERIES_DESCEND = false;
constexpr bool SPREAD = false;

struct KeyTile {
  int batch, kv_head;
  int number;                // in the order of its head's tiles: the ticket with which it adds to dQ
  int k0;                    // its first key
  int begin;                 // SPREAD: first query of its first step
  WalkPart part;            // of its walk
  SequencePlace place;       // of its batch entry
};

// SPREAD: the first query of the first step of a head's key tile.
__device__ __forceinline__ int spread_begin(const Schedule &schedule, int number) {
  const long long spread = (long long)(schedule.k_tiles - 1 - number) * schedule.q_tiles;
  return SPREAD ? int(spread / schedule.k_tiles) * BLOCK_M : 0;
}

__device__ __forceinline__ unsigned count_key_tiles(const BackwardParams &params) {
  return unsigned(places_of_head(params)) * params.sequence.heads_kv * params.sequence.batch;
}

__device__ __forceinline__ KeyTile key_tile_at(const BackwardParams &params, unsigned place) {
  const Sequence &sequence = params.sequence;
  const Schedule &schedule = params.schedule;
  const unsigned section_blocks = unsigned(schedule.l2_section_heads) * places_of_head(params);
  const unsigned section = place / section_blocks;
  const unsigned first_head = section * schedule.l2_section_heads;
  const unsigned heads = min(unsigned(schedule.l2_section_heads), sequence.batch * sequence.heads_kv - first_head);
  const unsigned rest = place - section * section_blocks;
  const unsigned batch_head = first_head + rest % heads;
  KeyTile keys;
  keys.batch = batch_head / sequence.heads_kv;
  keys.kv_head = batch_head % sequence.heads_kv;
  int rank;
  keys.part = part_at(params, rest / heads, rank);
  keys.number = key_tile_of_rank(params, keys.batch, keys.kv_head, rank);
  keys.k0 = keys.number * BLOCK_N;
  keys.begin = spread_begin(schedule, keys.number);
  return keys;
}

__device__ __forceinline__ KeyTile find_key_tile(const BackwardParams &params) { return key_tile_at(params, blockIdx.x); }

// The ticket of the first key tile that adds to sum `sum` of a query tile.
__device__ __forceinline__ int first_ticket(const Sequence &sequence, const Visibility &visibility,
                                            const Schedule &schedule, int q_tile, int sum) {
  const long long next = q_tile + 1;
  if (SPREAD) {
    // To the first sum add the tiles that begin at this query tile or before it, where tile n begins at
    // floor((k_tiles - 1 - n) q_tiles / k_tiles).
    return sum == 0 ? schedule.k_tiles - int((next * schedule.k_tiles + schedule.q_tiles - 1) / schedule.q_tiles) : 0;
  }
  // The key tiles that its queries see. With none of them the ticket is not looked at.
  const int last_row = int(min(next * BLOCK_M, (long long)sequence.nq)) - 1;
  return key_tiles_seen<BLOCK_N>(sequence, visibility, q_tile * BLOCK_M, last_row).begin;
}

// A step of the walk over the query tiles that see some key of the tile, one head of the group after the other.
struct Step {
  int head;                  // within the group; the group's size: the walk is over
  int q0;                    // first query of the tile
  bool sees_whole;           // the score function is known to hide nothing of it
};

__device__ __forceinline__ bool is_over(const Sequence &sequence, const Step &step) {
  return step.head >= sequence.group;
}

__device__ __forceinline__ int query_head_of(const Sequence &sequence, const KeyTile &keys, const Step &step) {
  return keys.kv_head * sequence.group + step.head;
}

// The number of the step's query tile, over all heads.
__device__ __forceinline__ int tile_number(const BackwardParams &params, const KeyTile &keys, const Step &step) {
  return tile_number(params, keys.place, keys.batch, query_head_of(params.sequence, keys, step), step.q0);
}

// ---- dQ is made when the main kernel has ended -----------------------------------------------------------------------------
constexpr bool DQ_IS_EARLY = false;

__device__ __forceinline__ int section_of(const BackwardParams &, const KeyTile &) { return 0; }
__device__ __forceinline__ int section_of_block(const BackwardParams &) { return 0; }
__device__ __forceinline__ void say_added(const BackwardParams &, int, int) {}
__device__ __forceinline__ void clear_section_counts(const BackwardParams &) {}
__device__ __forceinline__ void wait_for_dq(const BackwardParams &) { wait_for_grid_before(); }

// The walk of a key tile over the queries: tiles of BLOCK_M queries, of each of which some query sees a key of the tile.
struct QueryWalk {
  Step step;
  int begin, end;            // of each head: the first step's query, and that behind the last one
};

__device__ __forceinline__ QueryWalk begin_walk(const Sequence &sequence, const Visibility &visibility,
                                                const KeyTile &keys) {
  const Interval tiles = query_tiles_seeing<BLOCK_M>(sequence, visibility, keys.k0, keys.k0 + BLOCK_N - 1);
  const int first_head = tiles.begin < tiles.end ? 0 : sequence.group;
  if (QUERIES_DESCEND) {
    const int begin = (tiles.end - 1) * BLOCK_M;
    return {{first_head, begin}, begin, (tiles.begin - 1) * BLOCK_M};
  }
  const int begin = SPREAD ? keys.begin : tiles.begin * BLOCK_M;
  const int end = HIDES_FIRST_KEYS ? tiles.end * BLOCK_M : sequence.nq;
  return {{first_head, begin}, begin, end};
}

__device__ __forceinline__ void advance(const Sequence &sequence, const Visibility &, const KeyTile &, QueryWalk &walk) {
  const int next = QUERIES_DESCEND ? walk.step.q0 - BLOCK_M : walk.step.q0 + BLOCK_M;
  if (SPREAD) {
    const int q0 = next < walk.end ? next : 0;
    walk.step = {walk.step.head + (q0 == walk.begin), q0};
  } else {
    const bool more = QUERIES_DESCEND ? next > walk.end : next < walk.end;
    walk.step = more ? Step{walk.step.head, next} : Step{walk.step.head + 1, walk.begin};
  }
}

// Whether few steps are left. Of a walk over some heads, only the last one's are counted.
__device__ __forceinline__ bool ends_soon(const Sequence &sequence, const QueryWalk &walk) {
  return walk.step.head + 1 >= sequence.group && walk.step.q0 + 3 * BLOCK_M >= walk.end;
}

// ---- score of S^T, and its slope ---------------------------------------------------------------------------------
// No score function: S stays as it is, and the slope is 1.
constexpr bool HAS_SCORE = false;

using Argument = BackwardParams;
__device__ __forceinline__ const BackwardParams &params_of(const Argument &argument) { return argument; }

__device__ __forceinline__ void clear_captured(const Argument &) {}
__device__ __forceinline__ void finish_captured(const Argument &) {}

__device__ __forceinline__ unsigned anew(unsigned x) { return x; }

template <int M> struct ScoredKeys {};
template <int M, class Params> __device__ __forceinline__ ScoredKeys<M> begin_score(const Params &) { return {}; }

template <int M>
__device__ __forceinline__ void begin_step(ScoredKeys<M> &, const Sequence &, int, int, int, bool, int) {}

template <int M, int N>
__device__ __forceinline__ void apply_score(float (&)[M][N][4], ScoredKeys<M> &, int, int) {}

template <int M> __device__ __forceinline__ void weigh(unsigned (&)[M][FRAGMENT], const ScoredKeys<M> &, int) {}

template <int M> struct Slopes {};

template <int M, class MakeScores>
__device__ __forceinline__ Slopes<M> slopes_of(const ScoredKeys<M> &, int, int, MakeScores) { return {}; }

template <int M> __device__ __forceinline__ float by_slope(float ds, const Slopes<M> &, int, int, int) { return ds; }

template <int M> __device__ __forceinline__ void add_gradients(ScoredKeys<M> &, const Slopes<M> &, int, int) {}
template <int M> __device__ __forceinline__ void end_score(ScoredKeys<M> &, int) {}

// ---- no dropout: what its parts say, said of nothing, costs nothing -------------------------------------------------------
__device__ __forceinline__ float dropout_rescale(const Dropout &) { return 1.f; }

struct DropoutColumns {};

__device__ __forceinline__ DropoutColumns begin_dropout(const Dropout &, int) { return {}; }
__device__ __forceinline__ void begin_step(DropoutColumns &, const Dropout &, int, int) {}
__device__ __forceinline__ void pin_seed(DropoutColumns &) {}
__device__ __forceinline__ void draw_ahead(DropoutColumns &, const Dropout &, int, int, int, int) {}
__device__ __forceinline__ void unmark(unsigned (&)[FRAGMENT]) {}

__device__ __forceinline__ void drop(unsigned (&rP)[M_TILES][FRAGMENT], unsigned (&marked)[M_TILES][FRAGMENT], DropoutColumns &, int, int,
                                     int) {
  #pragma unroll
  for (int m = 0; m < M_TILES; ++m) {
    #pragma unroll
    for (int i = 0; i < FRAGMENT; ++i) marked[m][i] = rP[m][i];
  }
}

constexpr bool DP_BEGINS_AS_DELTA = true;

// dS = P (dP - delta): the accumulators of dP begin as -delta.
template <int M, int N, class Load>
__device__ __forceinline__ void begin_dp(float (&rDP)[M][N][4], float (&minus_delta)[N][2], Load load_delta) {
  load_delta(minus_delta);
  #pragma unroll
  for (int m = 0; m < M; ++m) {
    #pragma unroll
    for (int n = 0; n < N; ++n) {
      #pragma unroll
      for (int i = 0; i < 4; ++i) rDP[m][n][i] = minus_delta[n][i % 2];
    }
  }
}

template <int N, class Load> __device__ __forceinline__ void end_dp(float (&)[N][2], Load) {}
__device__ __forceinline__ float ds_of(float p, float dp, float, const Dropout &) { return p * dp; }

__device__ __forceinline__ float ds_unit(const Dropout &) { return 1.f; }

// ---- tiles in shared memory --------------------------------------------------------------------------
// A tile is ROWS rows of CHUNKS chunks of 16 bytes. ldmatrix reads eight rows at once and they must fall into
// distinct banks: rows of whole 128 bytes are swizzled (chunk c of row r lies at c ^ r % 8), others are an odd
// number of chunks apart.
template <int STRIDE> __device__ __forceinline__ unsigned chunk_offset(int row, int chunk) {
  return row * STRIDE + (STRIDE % 128 == 0 ? chunk ^ row % 8 : chunk) * 16;
}

// From a lane's address of chunk pair 0 (0 or 1 behind the XOR) to the same lane's chunk pair `pair`.
template <int STRIDE> __device__ __forceinline__ unsigned chunk_pair(unsigned address, int pair) {
  return STRIDE % 128 == 0 ? (address ^ (pair % 4 * 32)) + pair / 4 * 128 : address + pair * 32;
}

// From shared to global memory: the first `rows` rows of a tile, in whole chunks, by `threads` threads together.
template <int ROWS, int CHUNKS, int STRIDE>
__device__ __forceinline__ void store_rows(element *to, long long row_stride, unsigned from, int rows, int thread,
                                           int threads) {
  #pragma unroll 4
  for (int c = thread; c < ROWS * CHUNKS; c += threads) {
    const int row = c / CHUNKS, chunk = c % CHUNKS;
    if (row < rows) {
      unsigned r[4];
      load_shared_16(r, from + chunk_offset<STRIDE>(row, chunk));
      store_global_16(to + row * row_stride + chunk * CHUNK, r);
    }
  }
}

// ---- accumulators of two products, 16 rows x 16 columns, on their way to memory ------------------------------------
// The lane's share of a row, rows g (h 0) or g + 8 (h 1): two pairs of columns.
struct Pair {
  int column;
  float first, second;
};

__device__ __forceinline__ Pair columns_of(const float (&c0)[4], const float (&c1)[4], int h, int pair, int lane) {
  const float *const c = (pair == 0 ? c0 : c1) + 2 * h;
  return {pair * 8 + lane % 4 * 2, c[0], c[1]};
}

// To the tile's row, the place-th 16 columns.
template <int STRIDE>
__device__ __forceinline__ void stage_row(unsigned tile, int row, int place, const float (&c0)[4], const float (&c1)[4], int h,
                                          float factor, int lane) {
  #pragma unroll
  for (int n = 0; n < 2; ++n) {
    const float *const c = (n == 0 ? c0 : c1) + 2 * h;
    store_shared_4(tile + chunk_offset<STRIDE>(row, 2 * place + n) + lane % 4 * 4, pack(c[0] * factor, c[1] * factor));
  }
}

// Where the rows lie of a product whose first operand was turned (load_turned).
__device__ __forceinline__ int turned_row(int h, int lane) { return lane / 4 + 8 * h; }

// No walk is divided: there are no sums of parts.
constexpr int VALUE_SUMS = 0;

template <int N>
__device__ __forceinline__ void store_part(const BackwardParams &, const KeyTile &, int, const float (&)[N][4], int, int) {}
__device__ __forceinline__ void clear_part(const BackwardParams &, const KeyTile &, int, int) {}
__device__ __forceinline__ bool add_parts(const BackwardParams &) { return false; }

// Key tiles add to dQ as they come.
__device__ __forceinline__ void wait_for_ticket(const BackwardParams &, int, int, bool) {}
__device__ __forceinline__ void pass_ticket(const BackwardParams &, int, int, int, bool &) {}
__device__ __forceinline__ void set_first_tickets(const BackwardParams &, const QueryTile &) {}

// ---- how rows of dQ leave the registers: through shared memory, so that global stores are whole rows of 16-byte chunks -------
// 16 columns, the pair-th such, of a row of the tile: h says which of the lane's two.
__device__ __forceinline__ void put_dq(const BackwardParams &params, const QueryTile &, unsigned sdQ, int, int row, int pair,
                                       const float (&low)[4], const float (&high)[4], int h, int lane) {
  stage_row<QK_STRIDE>(sdQ, row, pair, low, high, h, params.softmax.scale * ds_unit(params.dropout), lane);
}

// When all rows of the tile are put, whose first one is q0.
__device__ __forceinline__ void end_dq(const BackwardParams &params, const QueryTile &tile, unsigned sdQ, int q0) {
  __syncthreads();
  store_rows<BLOCK_M, HEAD_DIM / CHUNK, QK_STRIDE>(row_of(params.dq, tile.batch, tile.head, q0), params.dq.stride.row, sdQ,
                                               params.sequence.nq - q0, threadIdx.x, DQ_THREADS);
}

// ---- sums of dQ over the key tiles, in fp32 ----------------------------------------------------------------
// The number of the sum that the step adds its dQ to, of DQ_SUMS for each query tile.
__device__ __forceinline__ int sum_number(const BackwardParams &params, const KeyTile &keys, const Step &step) {
  const int tile = tile_number(params, keys, step);
  return SPREAD ? tile * 2 + (step.q0 < keys.begin) : tile;
}

// dq_sum holds a tile as blocks of 16 queries x 16 columns, each as the accumulators of two 16x8 products.
__device__ __forceinline__ void add_product(float *gSum, const float (&rdQ)[4], int lane) {
  red_add_4(gSum + lane * 4, rdQ);
}

__device__ __forceinline__ void load_product(float (&rdQ)[4], const float *gSum, int lane) {
  unsigned bits[4];
  load_global_16(bits, reinterpret_cast<const element *>(gSum + lane * 4));
  #pragma unroll
  for (int i = 0; i < 4; ++i) rdQ[i] = __uint_as_float(bits[i]);
}

__device__ __forceinline__ int product_offset(int row_block, int pair, int half) {
  return ((row_block * (D_PAD / 16) + pair) * 2 + half) * 128;
}

// By the first kernel.
__device__ __forceinline__ void clear_dq(const BackwardParams &params, const QueryTile &tile) {
  const unsigned zeros[4] = {0, 0, 0, 0};
  float *const gSum = params.dq_sum + (long long)tile.of_all * (DQ_SUMS * BLOCK_M * D_PAD);
  #pragma unroll 4
  for (int i = threadIdx.x; i < DQ_SUMS * BLOCK_M * D_PAD / 4; i += PREPARE_THREADS) {
    store_global_16(reinterpret_cast<element *>(gSum + 4 * i), zeros);
  }
}

// ---- the last kernel: dQ from the sums ---------------------------------------------------------------------------------------
extern "C" __global__ void __launch_bounds__(DQ_THREADS)
fatune_convert(const __grid_constant__ Argument argument) {
  const BackwardParams &all = params_of(argument);
  wait_for_dq(all);
  finish_captured(argument);
  finish_sinks(all);
  if (add_parts(all)) return;
  extern __shared__ __align__(128) unsigned char shared[];
  const unsigned sdQ = shared_address(shared);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const QueryTile tile = find_query_tile<DQ_IS_EARLY>(all);
  const auto &params = at_place(all, tile.place);
  const int q0 = tile.number * BLOCK_M;
  if (q0 >= params.sequence.nq) return;

  const float *const gSum = params.dq_sum + (long long)tile.of_all * (DQ_SUMS * BLOCK_M * D_PAD);
  constexpr int PAIRS = D_PAD / 16;
  #pragma unroll 4
  for (int block = warp; block < BLOCK_M / 16 * PAIRS; block += DQ_THREADS / 32) {
    const int row = block / PAIRS * 16, pair = block % PAIRS;
    float rdQ[2][4];
    #pragma unroll
    for (int half = 0; half < 2; ++half) {
      load_product(rdQ[half], gSum + product_offset(row / 16, pair, half), lane);
      if (DQ_SUMS == 2) {
        float rOther[4];
        load_product(rOther, gSum + BLOCK_M * D_PAD + product_offset(row / 16, pair, half), lane);
        #pragma unroll
        for (int i = 0; i < 4; ++i) rdQ[half][i] += rOther[i];
      }
    }
    #pragma unroll
    for (int h = 0; h < 2; ++h) put_dq(params, tile, sdQ, q0, row + turned_row(h, lane), pair, rdQ[0], rdQ[1], h, lane);
  }
  end_dq(params, tile, sdQ, q0);
}

// ---- the first kernel: LSE log2(e) and -delta = dLSE - rowsum(dO o O); zeros to add dQ to -------------------------------
// Rows that see nothing, and those from nq on, get LSE = +inf: all their P are 0.
extern "C" __global__ void __launch_bounds__(PREPARE_THREADS)
fatune_prepare(const __grid_constant__ Argument argument) {
  next_grid_may_begin();
  const BackwardParams &all = params_of(argument);
  constexpr int CHUNKS = HEAD_DIM_V / CHUNK;
  constexpr int LANES = CHUNKS <= 2 ? 2 : CHUNKS <= 4 ? 4 : CHUNKS <= 8 ? 8 : CHUNKS <= 16 ? 16 : 32;  // of a row
  const QueryTile tile = find_query_tile(all);
  const auto &params = at_place(all, tile.place);
  const Sequence &sequence = params.sequence;
  const int batch = tile.batch, head = tile.head, q0 = tile.number * BLOCK_M;
  const int chunk = threadIdx.x % LANES;
  const element *const gO = row_of(params.o, batch, head, 0) + chunk * CHUNK;
  const element *const gdO = row_of(params.dout, batch, head, 0) + chunk * CHUNK;
  float *const gStats = params.row_stats + (long long)tile.of_all * (2 * BLOCK_M);
  clear_dq(params, tile);
  clear_captured(argument);
  SinkSum sink = begin_sink();
  if (all.tiles_taken && blockIdx.x == 0 && threadIdx.x == 0) *all.tiles_taken = 0;
  if (blockIdx.x == 0) clear_section_counts(all);

  #pragma unroll
  for (int first = 0; first < BLOCK_M; first += PREPARE_THREADS / LANES) {
    const int row = first + threadIdx.x / LANES, i = q0 + row;
    const bool exists = row < BLOCK_M && i < sequence.nq;
    const long long number = lse_index(params, batch, head, i);
    const float lse = exists ? params.lse[number] : MINUS_INFINITY;
    float delta = exists && chunk == 0 && params.dlse ? -params.dlse[number] : 0.f;
    #pragma unroll
    for (int c = 0; c < CHUNKS; c += LANES) {
      if (exists && chunk < CHUNKS - c) {
        unsigned o[4], dout[4];
        load_global_16(o, gO + i * params.o.stride.row + c * CHUNK);
        load_global_16(dout, gdO + i * params.dout.stride.row + c * CHUNK);
        delta += dot_chunks(o, dout);
      }
    }
    #pragma unroll
    for (int lanes = LANES / 2; lanes > 0; lanes /= 2) delta += __shfl_xor_sync(0xffffffffu, delta, lanes);
    if (chunk == 0 && row < BLOCK_M) {
      gStats[row] = lse == MINUS_INFINITY ? -MINUS_INFINITY : lse * 1.44269504f;
      gStats[BLOCK_M + row] = lse == MINUS_INFINITY ? 0.f : -delta / ds_unit(params.dropout);
      add_to_sink(sink, params, head, lse, -delta);
    }
  }
  end_sink(sink, params, tile);
  set_first_tickets(params, tile);
}

// ---- the pipeline: tiles in shared memory, and the barriers that say who may touch them -------------------------
// TMA fills a tile in panels of 64 columns: rows of 128 bytes, swizzled. dS lies as consumers have it, a row for each key,
// in panels of 64 queries. Each stage has a barrier `full` and a barrier `empty`: the k-th use of a stage waits for the k-th
// phase of `full`, and its refill for the phase before of `empty`. Phases are told apart by their parity.
constexpr int K_TILE = D_PANELS * BLOCK_N * 128, V_TILE = DV_PANELS * BLOCK_N * 128;  // bytes
constexpr int Q_TILE = D_PANELS * BLOCK_M * 128, DO_TILE = DV_PANELS * BLOCK_M * 128;
constexpr int DS_TILE = BLOCK_M / 64 * BLOCK_N * 128;
constexpr int STATISTICS = BLOCK_M * 4;           // LSE or -delta of a tile's rows

// Where in shared memory.
constexpr int SMEM_LSE = 512, SMEM_DELTA = 1024;
constexpr int SMEM_K = 2048, SMEM_V = 34816;
constexpr int SMEM_Q = 67584, SMEM_DO = 100352, SMEM_DS = 133120;
constexpr int SMEM_DQ = 165888, SMEM_KEPT = 198656;
static_assert(SMEM_K + K_STAGES * K_TILE == SMEM_V && SMEM_V + V_TILE == SMEM_Q && SMEM_Q + Q_STAGES * Q_TILE == SMEM_DO &&
              SMEM_DO + DO_STAGES * DO_TILE == SMEM_DS && SMEM_DS + DS_STAGES * DS_TILE == SMEM_DQ,
              "tiles as budgeted");

extern __shared__ __align__(1024) unsigned char shared[];

// ---- barriers ----
constexpr int Q_BARRIERS = 3, DO_BARRIERS = Q_BARRIERS + 2 * Q_STAGES, DS_BARRIERS = DO_BARRIERS + 2 * DO_STAGES;
constexpr int DQ_BARRIERS = DS_BARRIERS + DS_STAGES * (1 + CONSUMERS);
constexpr int KEPT_BARRIERS = DQ_BARRIERS + 2 * DQ_STAGES + 1;  // behind one of block_tiles_many
static_assert(8 * (KEPT_BARRIERS + 2 * KEPT_STAGES) <= SMEM_LSE - 8, "the barriers have room");

__device__ __forceinline__ unsigned barrier_at(int number) { return shared_address(shared) + 8 * number; }
__device__ __forceinline__ unsigned k_full() { return barrier_at(0); }
__device__ __forceinline__ unsigned v_full() { return barrier_at(1); }
// The last dQ is made: dK may be staged in the place of K.
__device__ __forceinline__ unsigned k_empty() { return barrier_at(2); }
__device__ __forceinline__ unsigned q_full(int stage) { return barrier_at(Q_BARRIERS + stage); }
__device__ __forceinline__ unsigned q_empty(int stage) { return barrier_at(Q_BARRIERS + Q_STAGES + stage); }
__device__ __forceinline__ unsigned do_full(int stage) { return barrier_at(DO_BARRIERS + stage); }
__device__ __forceinline__ unsigned do_empty(int stage) { return barrier_at(DO_BARRIERS + DO_STAGES + stage); }
__device__ __forceinline__ unsigned ds_empty(int stage) { return barrier_at(DS_BARRIERS + stage); }
__device__ __forceinline__ unsigned ds_full(int stage, int consumer) {
  return barrier_at(DS_BARRIERS + DS_STAGES + stage * CONSUMERS + consumer);
}
__device__ __forceinline__ unsigned dq_full(int stage) { return barrier_at(DQ_BARRIERS + stage); }
__device__ __forceinline__ unsigned dq_empty(int stage) { return barrier_at(DQ_BARRIERS + DQ_STAGES + stage); }

// Dropout: what is kept of a step is known.
__device__ __forceinline__ unsigned kept_full(int stage) { return barrier_at(KEPT_BARRIERS + stage); }
__device__ __forceinline__ unsigned kept_empty(int stage) { return barrier_at(KEPT_BARRIERS + KEPT_STAGES + stage); }

// By one thread, before any other thread touches a barrier. Of each warp that is done with a tile one lane arrives.
// LOADS_BESIDE_DQ: where dS of all consumers is full, they are done with Q and dO of the step before, so that nobody need
// say that these are empty.
__device__ __forceinline__ void init_barriers() {
  mbarrier_init(k_full(), 1);
  mbarrier_init(v_full(), 1);
  mbarrier_init(k_empty(), 4);
  for (int i = 0; i < Q_STAGES; ++i) {
    mbarrier_init(q_full(i), 1);
    if (!LOADS_BESIDE_DQ) mbarrier_init(q_empty(i), 4 * CONSUMERS);
  }
  for (int i = 0; i < DO_STAGES; ++i) {
    mbarrier_init(do_full(i), 1);
    if (!LOADS_BESIDE_DQ) mbarrier_init(do_empty(i), 4 * CONSUMERS);
  }
  for (int i = 0; i < DS_STAGES; ++i) {
    mbarrier_init(ds_empty(i), 4);
    for (int consumer = 0; consumer < CONSUMERS; ++consumer) mbarrier_init(ds_full(i, consumer), 4);
  }
  for (int i = 0; i < DQ_STAGES; ++i) {
    mbarrier_init(dq_full(i), 4);
    mbarrier_init(dq_empty(i), 1);
  }
  for (int i = 0; i < KEPT_STAGES && DRAWERS > 0; ++i) {
    mbarrier_init(kept_full(i), DRAWERS);
    mbarrier_init(kept_empty(i), 4 * CONSUMERS);
  }
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

// Named barriers: a consumer's own, and those by which consumers are kept out of step.
__device__ __forceinline__ int own_barrier(int consumer) { return 1 + consumer; }
__device__ __forceinline__ int turn_barrier(int consumer) { return 1 + CONSUMERS + consumer; }

// ---- rows of a tile by TMA ----------------------------------------------------------------------------------
// What a row's number counts from.
struct TileRows {
  int batch;
};

__device__ __forceinline__ TileRows query_rows_of(const KeyTile &keys) { return {keys.batch}; }
__device__ __forceinline__ TileRows key_rows_of(const KeyTile &keys) { return {keys.batch}; }

__device__ __forceinline__ void load_panel(unsigned to, const TensorMap &map, unsigned barrier, int column, int row,
                                           int head, const TileRows &rows) {
  tma_load(to, map, barrier, column, row, head, rows.batch);
}

__device__ __forceinline__ void store_panel(const TensorMap &map, unsigned from, int column, int row, int head,
                                            const TileRows &rows) {
  tma_store(map, from, column, row, head, rows.batch);
}

// ---- the loader: one thread that asks TMA for every tile ---------------------------------------------------
struct Loader {
  QueryWalk walk;            // its step is the next to be loaded
  Ring<Q_STAGES> q_ring;     // the first round finds every stage empty
  Ring<DO_STAGES> do_ring;
};

__device__ __forceinline__ Loader begin_loads(const BackwardParams &params, const KeyTile &keys) {
  return {begin_walk(params.sequence, params.visibility, keys), {0, 1}, {0, 1}};
}

__device__ __forceinline__ void load_tile(unsigned to, const TensorMap &map, unsigned barrier, int panels, int tile_rows,
                                          int row, int head, const TileRows &rows) {
  for (int p = 0; p < panels; ++p) load_panel(to + p * tile_rows * 128, map, barrier, p * 64, row, head, rows);
}

// Q with LSE, dO with -delta. LOADS_BESIDE_DQ: the caller knows that the stages are empty.
__device__ __forceinline__ void load_queries(const TiledBackwardParams &params, const BackwardParams &own, const KeyTile &keys,
                                             const Step &step, Loader &loader) {
  const int head = query_head_of(own.sequence, keys, step), q_stage = loader.q_ring.stage, do_stage = loader.do_ring.stage;
  const int tile = tile_number(own, keys, step);
  const float *const gStats = own.row_stats + (long long)tile * (2 * BLOCK_M);
  const unsigned smem = shared_address(shared);
  const TileRows rows = query_rows_of(keys);
  if (!LOADS_BESIDE_DQ) mbarrier_wait(q_empty(q_stage), loader.q_ring.parity);
  mbarrier_arrive_expect(q_full(q_stage), Q_TILE + STATISTICS);
  load_tile(smem + SMEM_Q + q_stage * Q_TILE, params.q, q_full(q_stage), D_PANELS, BLOCK_M, step.q0, head, rows);
  bulk_load(smem + SMEM_LSE + q_stage * STATISTICS, gStats, STATISTICS, q_full(q_stage));
  if (!LOADS_BESIDE_DQ) mbarrier_wait(do_empty(do_stage), loader.do_ring.parity);
  mbarrier_arrive_expect(do_full(do_stage), DO_TILE + STATISTICS);
  load_tile(smem + SMEM_DO + do_stage * DO_TILE, params.dout, do_full(do_stage), DV_PANELS, BLOCK_M, step.q0, head, rows);
  bulk_load(smem + SMEM_DELTA + do_stage * STATISTICS, gStats + BLOCK_M, STATISTICS, do_full(do_stage));
  loader.q_ring = next(loader.q_ring);
  loader.do_ring = next(loader.do_ring);
}

__device__ __forceinline__ void load_step(const TiledBackwardParams &params, const BackwardParams &own,
                                          const KeyTile &keys, Loader &loader) {
  load_queries(params, own, keys, loader.walk.step, loader);
  advance(own.sequence, own.visibility, keys, loader.walk);
}

__device__ __forceinline__ void load_keys(const TiledBackwardParams &params, const KeyTile &keys) {
  const unsigned smem = shared_address(shared);
  const TileRows rows = key_rows_of(keys);
  mbarrier_arrive_expect(k_full(), K_TILE);
  load_tile(smem + SMEM_K, params.k, k_full(), D_PANELS, BLOCK_N, keys.k0, keys.kv_head, rows);
  mbarrier_arrive_expect(v_full(), V_TILE);
  load_tile(smem + SMEM_V, params.v, v_full(), DV_PANELS, BLOCK_N, keys.k0, keys.kv_head, rows);
}

// Writes zeros for keys that no query sees. `thread` is the number of this thread among `threads`.
template <int COLUMNS>
__device__ __forceinline__ void clear_rows(const BackwardParams &params, const Tensor &tensor, const KeyTile &keys, int thread,
                                           int threads) {
  const unsigned zeros[4] = {0, 0, 0, 0};
  element *const to = row_of(tensor, keys.batch, keys.kv_head, keys.k0);
  for (int c = thread; c < min(BLOCK_N, params.sequence.nk - keys.k0) * (COLUMNS / CHUNK); c += threads) {
    store_global_16(to + c / (COLUMNS / CHUNK) * tensor.stride.row + c % (COLUMNS / CHUNK) * CHUNK, zeros);
  }
}

__device__ __forceinline__ void clear_gradients(const BackwardParams &params, const KeyTile &keys, int thread, int threads) {
  clear_rows<OUTPUT_ELEMENTS * HEAD_DIM>(params, params.dk, keys, thread, threads);
  clear_rows<OUTPUT_ELEMENTS * HEAD_DIM_V>(params, params.dv, keys, thread, threads);
}

// ---- a block has one key tile -----------------------------------------------------------------------------------------
constexpr bool TAKES_TILES = false;

// How far those who wait for key tiles are.
struct Turn {
  bool is_over;
};

__device__ __forceinline__ Turn first_turn() { return {false}; }
__device__ __forceinline__ void end_turn(Turn &turn) { turn.is_over = true; }

// Of the barriers that a key tile passes once.
__device__ __forceinline__ unsigned parity_of(const Turn &) { return 0; }

__device__ __forceinline__ void init_turns() {}
__device__ __forceinline__ void say_products_made(int) {}
__device__ __forceinline__ void leave_unseen(const Turn &, int) {}

__device__ __forceinline__ bool has_tile(const BackwardParams &, const Turn &turn) { return !turn.is_over; }
__device__ __forceinline__ KeyTile tile_of(const BackwardParams &params, const Turn &) { return find_key_tile(params); }

// By all threads as the block begins: whether there is nothing to sum up. Then the gradients are zeros, which it writes.
__device__ __forceinline__ bool ends_at_once(const BackwardParams &params) {
  const KeyTile keys = find_key_tile(params);
  const auto &own = at_place(params, keys.place);
  if (keys.k0 >= own.sequence.nk) return true;  // of a block mask the last column of blocks may have fewer tiles; so may a list of them
  if (!is_over(own.sequence, begin_walk(own.sequence, own.visibility, keys).step)) return false;
  // No query sees these keys.
  if (is_whole(keys.part)) clear_gradients(own, keys, threadIdx.x, THREADS); else clear_part(own, keys, threadIdx.x, THREADS);
  return true;
}

__device__ __forceinline__ void help_loader(const BackwardParams &, int, int) {}

__device__ __forceinline__ void load_all(const TiledBackwardParams &params) {
  const KeyTile keys = find_key_tile(params.rest);
  const auto &own = at_place(params.rest, keys.place);
  Loader loader = begin_loads(own, keys);
  load_keys(params, keys);
  while (!is_over(own.sequence, loader.walk.step)) load_step(params, own, keys, loader);
}

using KeptOf = DropoutColumns;

__device__ __forceinline__ void draw_all(const BackwardParams &, unsigned) {}

// ---- the dQ warpgroup: dQ += dS K, 64 queries and 64 columns at a time ------------
// A warp's 16 rows of the product lie in shared memory as they do in dq_sum, and are added from there by TMA: dq_sum has
// the accumulators of its lanes side by side. The four warps need not wait for each other.
constexpr int COLUMN_PIECES = (D_PAD + 63) / 64;              // of 64 columns, the last of what is left
constexpr int PIECES = BLOCK_M / 64 * COLUMN_PIECES;          // of a step
constexpr int DQ_TAIL = D_PAD % 64;

// A warp adds its pieces itself, by TMA and in any order.
struct Adds {};

__device__ __forceinline__ Adds no_adds() { return {}; }

// The piece's place in shared memory was last read PIECES pieces ago.
__device__ __forceinline__ unsigned begin_piece(const Adds &, int place, bool) {
  if (threadIdx.x % 32 == 0) tma_store_wait_read<PIECES - 1>();
  __syncwarp();
  return shared_address(shared) + SMEM_DQ + place * 4;
}

__device__ __forceinline__ void end_piece(const BackwardParams &params, Adds &, int sum, int place, unsigned sdQ, int bytes,
                                          bool) {
  async_proxy_fence();
  __syncwarp();
  if (threadIdx.x % 32 == 0) {
    bulk_add(params.dq_sum + (long long)sum * (BLOCK_M * D_PAD) + place, sdQ, bytes);
    tma_store_commit();
  }
}

__device__ __forceinline__ void end_adds(const BackwardParams &params) {
  if (threadIdx.x % 32 != 0) return;
  tma_store_wait<0>();
  say_added(params, section_of_block(params), 1);
}

__device__ __forceinline__ void add_steps(const BackwardParams &, int) {}

struct DqWarpgroup {
  int warp, lane;
  Ring<DS_STAGES> ds_ring;
  Adds adds;
  bool loads;                // LOADS_BESIDE_DQ: this thread does
  Loader loader;
  int k_stage;
};

// LOADS_BESIDE_DQ: all have stored dS of a step, so they are done with Q and dO of the step before, whose place the next
// tiles to be loaded have.
__device__ __forceinline__ void load_beside(DqWarpgroup &dq, const TiledBackwardParams &params, const BackwardParams &own,
                                            const KeyTile &keys, bool first_step) {
  if (!first_step && dq.loads && !is_over(own.sequence, dq.loader.walk.step)) load_step(params, own, keys, dq.loader);
  __syncwarp();
}

// The product of a piece: 64 queries from first_row of the tile on, COLUMNS columns from first_column on.
template <int COLUMNS>
__device__ __forceinline__ void add_piece(DqWarpgroup &dq, const TiledBackwardParams &params, const BackwardParams &own,
                                          const KeyTile &keys, int sum, int first_row, int first_column, bool first_step) {
  const unsigned smem = shared_address(shared);
  const bool first = first_row == 0 && first_column == 0;
  const bool last = first_row + 64 == BLOCK_M && first_column + COLUMNS >= HEAD_DIM;
  const u64 ds = depth_across_rows(smem + SMEM_DS + first_row / 64 * BLOCK_N * 128, dq.ds_ring.stage, DS_TILE, BLOCK_N * 128);
  const u64 k = depth_across_rows(smem + SMEM_K + first_column / 64 * BLOCK_N * 128, dq.k_stage, K_TILE, BLOCK_N * 128);
  float rdQ[COLUMNS / 8][4];
  #pragma unroll
  for (int consumer = 0; consumer < CONSUMERS; ++consumer) {
    if (first) mbarrier_wait(ds_full(dq.ds_ring.stage, consumer), dq.ds_ring.parity);
    wgmma_fence();
    #pragma unroll
    for (int i = 0; i < 4; ++i) {
      const u64 keys_further = by_bytes((consumer * 4 + i) * 16 * 128);
      wgmma_ss_both_across(rdQ, ds + keys_further, k + keys_further, consumer + i > 0);
    }
  }
  wgmma_commit();
  if (LOADS_BESIDE_DQ && first) load_beside(dq, params, own, keys, first_step);
  wgmma_wait<0>();
  hold(rdQ);
  if (last) {
    __syncwarp();
    if (dq.lane == 0) mbarrier_arrive(ds_empty(dq.ds_ring.stage));
  }
  const int place = product_offset(first_row / 16 + dq.warp, first_column / 16, 0);
  const unsigned sdQ = begin_piece(dq.adds, place, first);
  #pragma unroll
  for (int n = 0; n < COLUMNS / 8; ++n) store_shared_16(sdQ + n * 512 + dq.lane * 16, rdQ[n]);
  end_piece(own, dq.adds, sum, place, sdQ, COLUMNS * 16 * 4, last);
}

__device__ __forceinline__ void add_step(DqWarpgroup &dq, const TiledBackwardParams &params, const BackwardParams &own,
                                         const KeyTile &keys, int sum, bool first_step) {
  #pragma unroll
  for (int row = 0; row < BLOCK_M; row += 64) {
    if constexpr (D_PAD >= 64) {
      #pragma unroll
      for (int column = 0; column + 64 <= D_PAD; column += 64) {
        add_piece<64>(dq, params, own, keys, sum, row, column, first_step);
      }
    }
    if constexpr (DQ_TAIL > 0) add_piece<DQ_TAIL>(dq, params, own, keys, sum, row, D_PAD - DQ_TAIL, first_step);
  }
  dq.ds_ring = next(dq.ds_ring);
}

__device__ __forceinline__ void sum_queries(const TiledBackwardParams &params, int warp, int lane) {
  DqWarpgroup dq;
  dq.warp = warp;
  dq.lane = lane;
  dq.ds_ring = {0, 0};
  dq.adds = no_adds();
  dq.k_stage = 0;
  dq.loads = LOADS_BESIDE_DQ && warp == 0 && lane == 0;
  #pragma unroll 1
  for (Turn turn = first_turn(); has_tile(params.rest, turn); end_turn(turn)) {
    const KeyTile keys = tile_of(params.rest, turn);
    const auto &own = at_place(params.rest, keys.place);
    const Sequence &sequence = own.sequence;
    if (dq.loads) {
      dq.loader = begin_loads(own, keys);
      load_keys(params, keys);
      for (int i = 0; i < Q_STAGES && !is_over(sequence, dq.loader.walk.step); ++i) load_step(params, own, keys, dq.loader);
    }
    mbarrier_wait(k_full(), parity_of(turn));
    QueryWalk walk = begin_walk(sequence, own.visibility, keys);
    bool first_step = true;
    #pragma unroll 1
    while (!is_over(sequence, walk.step)) {
      add_step(dq, params, own, keys, sum_number(own, keys, walk.step), first_step);
      advance(sequence, own.visibility, keys, walk);
      first_step = false;
    }
    __syncwarp();
    if (lane == 0) mbarrier_arrive(k_empty());
  }
  end_adds(params.rest);
}

// ---- a consumer warpgroup: 64 keys, their scores, dK and dV -----------------------------------------------
// One accumulator holds S, then -delta + dP, then dS, each in the place of the one before: that leaves room for dK and dV.
struct Consumer {
  int number, warp;
  unsigned lane;
  unsigned smem;             // where shared memory begins
  Ring<Q_STAGES> q_ring;     // of the step
  Ring<DO_STAGES> do_ring;
  Ring<DS_STAGES> ds_ring;   // the first round finds every stage empty
  float rdK[HEAD_DIM / 8][4], rdV[HEAD_DIM_V / 8][4];
  float rS[1][N_TILES][4];
  float lse[N_TILES][2];     // of this lane's queries, two of each tile
  unsigned rP[N_TILES / 2][1][4];
  ScoredKeys<M_TILES> score;
  KeptOf kept;
};

__device__ __forceinline__ int k_stage_of(const Consumer &) { return 0; }

// Byte of a lane's row and chunk in a panel, for the k-th pair of chunks: row lane % 16 of the warp's, chunk lane / 16.
__device__ __forceinline__ unsigned fragment_at(const Consumer &consumer, int k) {
  const int row = consumer.number * 64 + consumer.warp * 16 + consumer.lane % 16;
  return k / 4 * BLOCK_N * 128 + row * 128 + ((k % 4 * 2 + consumer.lane / 16) ^ row % 8) * 16;
}

// ---- which elements of P are kept: each warp draws for itself --------------------------------------------------------------
__device__ __forceinline__ KeptOf begin_kept(const BackwardParams &params, int lane) { return begin_dropout(params.dropout, lane); }

__device__ __forceinline__ void begin_kept_step(Consumer &consumer, const BackwardParams &params, const KeyTile &keys,
                                                const Step &step) {
  pin_seed(consumer.kept);
  begin_step(consumer.kept, params.dropout, keys.batch, query_head_of(params.sequence, keys, step));
}

// first_key: of this consumer.
__device__ __forceinline__ void draw_ahead_of(Consumer &consumer, const BackwardParams &params, const KeyTile &keys,
                                              const Step &step, int first_key, bool) {
  pin_seed(consumer.kept);
  draw_ahead(consumer.kept, params.dropout, keys.batch, query_head_of(params.sequence, keys, step),
             first_key + consumer.warp * 16, step.q0);
}

__device__ __forceinline__ void pass_kept(Consumer &) {}

__device__ __forceinline__ void drop_step(Consumer &consumer, unsigned (&marked)[1][4], int first_key, int first_query, int k) {
  drop(consumer.rP[k], marked, consumer.kept, first_key, first_query, k);
}

// ---- P for dS: as it is in registers for dV -------------------------------------------------------------------------
constexpr bool LSE_AHEAD = !HAS_SCORE;      // LSE of a step is loaded before its S is there
constexpr bool DS_TAKES_DELTA = false;

__device__ __forceinline__ void wait_before_p(const Consumer &) {}

// The place of dS is free.
__device__ __forceinline__ void wait_before_ds(const Consumer &consumer) {
  mbarrier_wait(ds_empty(consumer.ds_ring.stage), consumer.ds_ring.parity);
}

__device__ __forceinline__ void keep_marked(const Consumer &, const unsigned (&)[1][4], int) {}

__device__ __forceinline__ void load_marked(unsigned (&p)[4], const Consumer &consumer, int k) {
  #pragma unroll
  for (int i = 0; i < 4; ++i) p[i] = consumer.rP[k][0][i];
}

__device__ __forceinline__ void load_minus_delta(float (&minus_delta)[2], const Consumer &, int) {
  minus_delta[0] = minus_delta[1] = 0.f;  // the accumulator began as it
}

__device__ __forceinline__ void keep_whole(Consumer &, int) {}

// dS of an element. p: P before dropout; the second argument: P after dropout.
__device__ __forceinline__ float ds_of(float p, float, float dp, float minus_delta, const Dropout &arguments) {
  return ds_of(p, dp, minus_delta, arguments);
}

// ---- products ----
__device__ __forceinline__ void keep_rows(Consumer &, const Turn &turn) {
  mbarrier_wait(k_full(), parity_of(turn));
  mbarrier_wait(v_full(), parity_of(turn));
}

__device__ __forceinline__ void multiply_k(Consumer &consumer, u64 q, int k) {
  const u64 rows = depth_along_rows(consumer.smem + SMEM_K + consumer.number * 64 * 128, k_stage_of(consumer), K_TILE);
  wgmma_ss(consumer.rS[0], rows + by_bytes(k / 4 * BLOCK_N * 128 + k % 4 * 32), q, k > 0);
}

__device__ __forceinline__ void load_k(unsigned (&a)[4], const Consumer &consumer, int k) {
  ldmatrix_x4(a, consumer.smem + SMEM_K + fragment_at(consumer, k));
}

__device__ __forceinline__ void multiply_v(Consumer &consumer, u64 d_o, int k) {
  const u64 rows = depth_along_rows(consumer.smem + SMEM_V + consumer.number * 64 * 128);
  wgmma_ss(consumer.rS[0], rows + by_bytes(k / 4 * BLOCK_N * 128 + k % 4 * 32), d_o, DP_BEGINS_AS_DELTA || k > 0);
}

// S^T = K Q^T, begun.
__device__ __forceinline__ void begin_scores(Consumer &consumer, int stage) {
  const u64 q = depth_along_rows(consumer.smem + SMEM_Q, stage, Q_TILE);
  wgmma_fence();
  #pragma unroll
  for (int k = 0; k < D_PAD / 16; ++k) multiply_k(consumer, q + by_bytes(k / 4 * BLOCK_M * 128 + k % 4 * 32), k);
  wgmma_commit();
}

// S^T of the k-th 16 queries of a step once more, by mma.sync: no accumulator is free for it but a small one.
__device__ __forceinline__ void make_scores_again(float (&rS)[1][2][4], Consumer &consumer, int stage, int k) {
  pin(consumer.lane);        // addresses are computed anew
  const unsigned row = k * 16 + consumer.lane % 8 + consumer.lane / 16 * 8;
  const unsigned q = consumer.smem + SMEM_Q + stage * Q_TILE + row * 128;
  #pragma unroll
  for (int i = 0; i < D_PAD / 16; ++i) {
    unsigned a[4], b[4];
    load_k(a, consumer, i);
    ldmatrix_x4(b, q + i / 4 * BLOCK_M * 128 + ((i % 4 * 2 + consumer.lane / 8 % 2) ^ row % 8) * 16);
    mma_m16n8k16(rS[0][0], a, b[0], b[1]);
    mma_m16n8k16(rS[0][1], a, b[2], b[3]);
  }
}

// dP^T = V dO^T, added to what the accumulator holds.
__device__ __forceinline__ void begin_dp_product(Consumer &consumer) {
  const u64 d_o = depth_along_rows(consumer.smem + SMEM_DO, consumer.do_ring.stage, DO_TILE);
  wgmma_fence();
  #pragma unroll
  for (int k = 0; k < DV_PAD / 16; ++k) multiply_v(consumer, d_o + by_bytes(k / 4 * BLOCK_M * 128 + k % 4 * 32), k);
  wgmma_commit();
}

// dV += P^T dO, dK += dS^T Q: a fragment for each 16 queries.
template <int N>
__device__ __forceinline__ void begin_sum(float (&rSum)[N][4], const unsigned (&a)[N_TILES / 2][1][4], unsigned tiles,
                                          int stage, int tile, bool begun = true) {
  const u64 b = depth_across_rows(tiles, stage, tile, BLOCK_M * 128);
  wgmma_fence();
  #pragma unroll
  for (int k = 0; k < N_TILES / 2; ++k) wgmma_rs_across(rSum, a[k][0], b + by_bytes(k * 16 * 128), k > 0 || begun);
  wgmma_commit();
}

// ---- pieces of a step ----
// LSE of the queries of tiles first to last - 1.
__device__ __forceinline__ void load_lse(Consumer &consumer, int stage, int first, int last) {
  const unsigned from = consumer.smem + SMEM_LSE + stage * STATISTICS + consumer.lane % 4 * 8;
  #pragma unroll
  for (int n = first; n < last; ++n) load_shared_8(consumer.lse[n], from + n * 32);
}

__device__ __forceinline__ void load_lse_ahead(Consumer &consumer, int stage) {
  if (LSE_AHEAD) load_lse(consumer, stage, 0, N_TILES);
}

// P^T = exp(S^T - LSE) as fragments, from the warp's first key and the step's first query on. As its place becomes free, the
// accumulator of dP begins as -delta.
__device__ __forceinline__ void exponentiate(Consumer &consumer, float scale_log2, int first_key, int first_query) {
  const unsigned delta = consumer.smem + SMEM_DELTA + consumer.do_ring.stage * STATISTICS + consumer.lane % 4 * 8;
  #pragma unroll
  for (int k = 0; k < N_TILES / 2; ++k) {
    if (!LSE_AHEAD) load_lse(consumer, consumer.q_ring.stage, 2 * k, 2 * k + 2);
    #pragma unroll
    for (int i = 0; i < 4; ++i) {  // fragment register i: keys g + 8 (i % 2), queries 8 (i / 2) + 2 t
      const float *const s = consumer.rS[0][2 * k + i / 2] + 2 * (i % 2), *const lse = consumer.lse[2 * k + i / 2];
      consumer.rP[k][0][i] = pack(ex2(s[0] * scale_log2 - lse[0]), ex2(s[1] * scale_log2 - lse[1]));
    }
    keep_whole(consumer, k);
    unsigned marked[1][4];
    drop_step(consumer, marked, first_key, first_query, k);
    weigh(marked, consumer.score, k);
    keep_marked(consumer, marked, k);
    #pragma unroll
    for (int n = 2 * k; n < 2 * k + 2 && DP_BEGINS_AS_DELTA; ++n) {
      float minus_delta[2];
      load_shared_8(minus_delta, delta + n * 32);
      #pragma unroll
      for (int i = 0; i < 4; ++i) consumer.rS[0][n][i] = minus_delta[i % 2];
    }
  }
}

// dS^T as fragments. Q of the step is still there.
__device__ __forceinline__ void make_ds(unsigned (&rdS)[N_TILES / 2][1][4], Consumer &consumer, const Dropout &dropout,
                                        int q_stage, int first) {
  const int first_query = anew(first);  // what it led to before P would fill registers until now
  #pragma unroll
  for (int k = 0; k < N_TILES / 2; ++k) {
    unsigned p[4];
    float minus_delta[2][2];
    __syncwarp();            // what the next 16 queries need is not loaded meanwhile
    load_marked(p, consumer, k);
    load_minus_delta(minus_delta[0], consumer, 2 * k);
    load_minus_delta(minus_delta[1], consumer, 2 * k + 1);
    auto make_scores = [&](float (&rS)[1][2][4]) { make_scores_again(rS, consumer, q_stage, k); };
    const Slopes<M_TILES> slopes = slopes_of(consumer.score, first_query + k * 16, consumer.lane, make_scores);
    #pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int c = 2 * (i % 2);
      const float *const dp = consumer.rS[0][2 * k + i / 2] + c;
      const unsigned kept = consumer.rP[k][0][i];
      rdS[k][0][i] =
          pack(by_slope(ds_of(low_half(p[i]), low_half(kept), dp[0], minus_delta[i / 2][0], dropout), slopes, 0, i / 2, c),
               by_slope(ds_of(high_half(p[i]), high_half(kept), dp[1], minus_delta[i / 2][1], dropout), slopes, 0, i / 2, c + 1));
    }
    add_gradients(consumer.score, slopes, first_query + k * 16, consumer.lane);
  }
}

// To shared memory, for the dQ warpgroup. The fence takes hundreds of cycles, so products are under way beside it.
__device__ __forceinline__ void store_ds(const Consumer &consumer, const unsigned (&rdS)[N_TILES / 2][1][4]) {
  const unsigned to = consumer.smem + SMEM_DS + consumer.ds_ring.stage * DS_TILE;
  #pragma unroll
  for (int k = 0; k < N_TILES / 2; ++k) stmatrix_x4(to + fragment_at(consumer, k), rdS[k][0]);
  async_proxy_fence();
  __syncwarp();
  if (consumer.lane == 0) mbarrier_arrive(ds_full(consumer.ds_ring.stage, consumer.number));
}

// This warp is done with a Q or dO tile.
__device__ __forceinline__ void release(const Consumer &consumer, unsigned barrier) {
  if (!LOADS_BESIDE_DQ && consumer.lane == 0) mbarrier_arrive(barrier);
}

// ---- out of step ----
// While one consumer computes exponentials, another's products should be under way. IN_TURNS: they compute exponentials one
// after the other in every step. STAGGERED: each begins when the one before it is in its first step.
__device__ __forceinline__ void wait_turn(Consumer &consumer) {
  if (!IN_TURNS) return;
  barrier_sync(turn_barrier(consumer.number), 256);
  hold(consumer.rS[0]);      // no exponential before the turn
}

__device__ __forceinline__ void pass_turn(const Consumer &consumer) {
  if (IN_TURNS) barrier_arrive(turn_barrier((consumer.number + 1) % CONSUMERS), 256);
}

// The first consumer has the first turn of the block.
__device__ __forceinline__ void begin_turns(const Consumer &consumer) {
  if (consumer.number == CONSUMERS - 1) pass_turn(consumer);
}

// Before the first step of a key tile.
__device__ __forceinline__ void wait_to_begin(const Consumer &consumer) {
  if (STAGGERED && consumer.number > 0) barrier_sync(turn_barrier(consumer.number), 256);
}

__device__ __forceinline__ void let_next_begin(const Consumer &consumer, bool first_step) {
  if (STAGGERED && first_step && consumer.number + 1 < CONSUMERS) barrier_arrive(turn_barrier(consumer.number + 1), 256);
}

// ---- the sums of a key tile ----
__device__ __forceinline__ void begin_sums(Consumer &consumer) {
  #pragma unroll
  for (int n = 0; n < HEAD_DIM / 8; ++n) {
    #pragma unroll
    for (int i = 0; i < 4; ++i) consumer.rdK[n][i] = 0.f;
  }
  #pragma unroll
  for (int n = 0; n < HEAD_DIM_V / 8; ++n) {
    #pragma unroll
    for (int i = 0; i < 4; ++i) consumer.rdV[n][i] = 0.f;
  }
}

// ---- dK and dV through shared memory, where K and V were ----------------------------------------------------------------
// 64 rows of dK or dV to where these rows of K or V were, and from there by TMA.
template <int N>
__device__ __forceinline__ void store_sums(const Consumer &consumer, const TensorMap &map, const float (&rSum)[N][4],
                                           float factor, unsigned tile, const KeyTile &keys) {
  const unsigned to = consumer.smem + tile;
  #pragma unroll
  for (int k = 0; k < (N + 1) / 2; ++k) {
    const int second = 2 * k + 1 < N ? 2 * k + 1 : 2 * k;  // beyond the columns: not stored
    const float(&low)[4] = rSum[2 * k], (&high)[4] = rSum[second];
    const unsigned r[4] = {pack(low[0] * factor, low[1] * factor), pack(low[2] * factor, low[3] * factor),
                           pack(high[0] * factor, high[1] * factor), pack(high[2] * factor, high[3] * factor)};
    stmatrix_x4(to + fragment_at(consumer, k), r);
  }
  async_proxy_fence();
  barrier_sync(own_barrier(consumer.number), 128);
  if (consumer.warp == 0 && consumer.lane == 0) {
    for (int p = 0; p < (N * 8 + 63) / 64; ++p) {
      store_panel(map, to + p * BLOCK_N * 128 + consumer.number * 64 * 128, p * 64, keys.k0 + consumer.number * 64,
                  keys.kv_head, key_rows_of(keys));
    }
    tma_store_commit();
  }
}

__device__ __forceinline__ void store_gradients(const Consumer &consumer, const TiledBackwardParams &params,
                                                const KeyTile &keys) {
  const BackwardParams &rest = params.rest;
  store_sums(consumer, params.dv, consumer.rdV, dropout_rescale(rest.dropout), SMEM_V, keys);
  mbarrier_wait(k_empty(), 0);
  store_sums(consumer, params.dk, consumer.rdK, rest.softmax.scale * ds_unit(rest.dropout), SMEM_K, keys);
  if (consumer.warp == 0 && consumer.lane == 0) tma_store_wait_read<0>();
}

__device__ __forceinline__ void begin(Consumer &consumer, const TiledBackwardParams &params, int number, int warp, int lane) {
  consumer.number = number;
  consumer.warp = warp;
  consumer.lane = lane;
  consumer.smem = shared_address(shared);
  consumer.q_ring = {0, 0};
  consumer.do_ring = {0, 0};
  consumer.ds_ring = {0, 1};
  consumer.kept = begin_kept(params.rest, lane);
  begin_turns(consumer);
}

// ---- a step ----
// Whether -delta, which comes with dO, is read when dO no longer is. The loader waits for the place of Q before that of dO, so
// with as many stages of dO as of Q neither is overwritten until dS of the step is made.
constexpr bool DELTA_AFTER_DO = DS_TAKES_DELTA && DO_STAGES < Q_STAGES;

// Its S is there as it begins, and that of the next one as it ends. There is no step after the last: its S is that of the
// last Q once more, because a product under a condition would make the compiler wait for every product at once.
__device__ __forceinline__ void take_step(Consumer &consumer, const BackwardParams &params, const KeyTile &keys,
                                          const Step &step, const Step &next_step, bool first_step, bool last_step) {
  pin(consumer.lane);        // what depends on it is computed anew, not kept in registers
  consumer.smem = anew(shared_address(shared));
  const Ring<Q_STAGES> q_ring = consumer.q_ring, q_next = last_step ? q_ring : next(q_ring);
  const Ring<DO_STAGES> do_next = last_step ? consumer.do_ring : next(consumer.do_ring);
  const int first_key = keys.k0 + consumer.number * 64;
  begin_kept_step(consumer, params, keys, step);
  begin_step(consumer.score, params.sequence, keys.batch, query_head_of(params.sequence, keys, step),
             first_key + consumer.warp * 16, step.sees_whole, consumer.lane);
  let_next_begin(consumer, first_step);
  apply_score(consumer.rS, consumer.score, step.q0, consumer.lane);
  if (!is_full(params.sequence, params.visibility, step.q0, step.q0 + BLOCK_M - 1, first_key, 64)) {
    hide_transposed(consumer.rS, params.sequence, params.visibility, first_key + consumer.warp * 16, step.q0,
                    consumer.lane);
  }
  wait_before_p(consumer);
  wait_turn(consumer);
  exponentiate(consumer, params.softmax.scale_log2, first_key + consumer.warp * 16, step.q0);
  pass_turn(consumer);
  hold(consumer.rS[0]);
  begin_dp_product(consumer);
  begin_sum(consumer.rdV, consumer.rP, consumer.smem + SMEM_DO, consumer.do_ring.stage, DO_TILE);
  wait_before_ds(consumer);
  unsigned rdS[N_TILES / 2][1][4];
  if (EARLY_SCORES) {
    wgmma_wait<0>();         // dP and dV: dS takes the place of P, and the next S that of dP
    hold(consumer.rS[0]);
    __syncwarp();
    if (!DELTA_AFTER_DO) release(consumer, do_empty(consumer.do_ring.stage));
    make_ds(rdS, consumer, params.dropout, q_ring.stage, step.q0);
    if (!last_step) mbarrier_wait(q_full(q_next.stage), q_next.parity);
    begin_sum(consumer.rdK, rdS, consumer.smem + SMEM_Q, q_ring.stage, Q_TILE);
    begin_scores(consumer, q_next.stage);
    store_ds(consumer, rdS);
    if (DELTA_AFTER_DO) release(consumer, do_empty(consumer.do_ring.stage));
    wgmma_wait<1>();         // dK
    if (!TAKES_TILES || !last_step) release(consumer, q_empty(q_ring.stage));
  } else {
    wgmma_wait<1>();         // dP
    hold(consumer.rS[0]);
    make_ds(rdS, consumer, params.dropout, q_ring.stage, step.q0);
    begin_sum(consumer.rdK, rdS, consumer.smem + SMEM_Q, q_ring.stage, Q_TILE);
    store_ds(consumer, rdS);
    if (!last_step) mbarrier_wait(q_full(q_next.stage), q_next.parity);
    wgmma_wait<1>();         // dV
    release(consumer, do_empty(consumer.do_ring.stage));
    wgmma_wait<0>();         // dK
    if (!TAKES_TILES || !last_step) release(consumer, q_empty(q_ring.stage));
    begin_scores(consumer, q_next.stage);
  }
  load_lse_ahead(consumer, q_next.stage);
  draw_ahead_of(consumer, params, keys, next_step, first_key, !last_step);
  if (!last_step) mbarrier_wait(do_full(do_next.stage), do_next.parity);
  wgmma_wait<0>();
  hold(consumer.rS[0]);
  consumer.q_ring = q_next;
  consumer.do_ring = do_next;
  consumer.ds_ring = next(consumer.ds_ring);
}

// ---- steps in which no query sees a key of this consumer ----
// The walk of a block may begin with them where last keys are hidden. The consumer computes nothing then.
constexpr bool HAS_UNSEEN_STEPS = HIDES_LAST_KEYS && BLOCK_M < BLOCK_N && !TAKES_TILES && !QUERIES_DESCEND && !SPREAD;

__device__ __forceinline__ bool is_unseen(const BackwardParams &params, int first_key, const Step &step) {
  return HAS_UNSEEN_STEPS && step.q0 + BLOCK_M <= queries_seeing(params.sequence, params.visibility, first_key).begin;
}

// The dQ warpgroup gets a dS of zeros.
__device__ __forceinline__ void leave_step(Consumer &consumer) {
  const unsigned zeros[N_TILES / 2][1][4] = {};
  mbarrier_wait(q_full(consumer.q_ring.stage), consumer.q_ring.parity);
  mbarrier_wait(do_full(consumer.do_ring.stage), consumer.do_ring.parity);
  mbarrier_wait(ds_empty(consumer.ds_ring.stage), consumer.ds_ring.parity);
  wait_turn(consumer);
  pass_turn(consumer);
  pass_kept(consumer);
  store_ds(consumer, zeros);
  release(consumer, do_empty(consumer.do_ring.stage));
  release(consumer, q_empty(consumer.q_ring.stage));
  consumer.q_ring = next(consumer.q_ring);
  consumer.do_ring = next(consumer.do_ring);
  consumer.ds_ring = next(consumer.ds_ring);
}

// TAKES_TILES: all products of the tile are made, so K, V and the last Q are no longer read.
__device__ __forceinline__ void leave_tile(Consumer &consumer) {
  say_products_made(consumer.lane);
  release(consumer, q_empty(consumer.q_ring.stage));
  consumer.q_ring = next(consumer.q_ring);
  consumer.do_ring = next(consumer.do_ring);
}

// The sums of a tile that some query sees.
__device__ __forceinline__ void sum_tile(Consumer &consumer, const BackwardParams &own, const KeyTile &keys, QueryWalk &walk,
                                         const Turn &turn) {
  const Sequence &sequence = own.sequence;
  begin_sums(consumer);
  keep_rows(consumer, turn);
  wait_to_begin(consumer);
  const int first_key = keys.k0 + consumer.number * 64;
  bool first_step = true;
  #pragma unroll 1
  while (!is_over(sequence, walk.step) && is_unseen(own, first_key, walk.step)) {
    if (CONSUMERS > 2) {     // they may be more steps than dS has stages: the consumer behind this one must make its dS of them, too
      let_next_begin(consumer, first_step);
      first_step = false;
    }
    leave_step(consumer);
    advance(sequence, own.visibility, keys, walk);
  }
  if (HAS_UNSEEN_STEPS && is_over(sequence, walk.step)) {
    let_next_begin(consumer, first_step);
    return;
  }
  mbarrier_wait(q_full(consumer.q_ring.stage), consumer.q_ring.parity);
  begin_scores(consumer, consumer.q_ring.stage);
  load_lse_ahead(consumer, consumer.q_ring.stage);
  draw_ahead_of(consumer, own, keys, walk.step, first_key, true);
  mbarrier_wait(do_full(consumer.do_ring.stage), consumer.do_ring.parity);
  wgmma_wait<0>();
  hold(consumer.rS[0]);
  #pragma unroll 1
  do {
    const Step step = walk.step;
    advance(sequence, own.visibility, keys, walk);
    take_step(consumer, own, keys, step, walk.step, first_step, is_over(sequence, walk.step));
    first_step = false;
  } while (!is_over(sequence, walk.step));
}

__device__ __forceinline__ void sum_keys(const TiledBackwardParams &params, int number, int warp, int lane) {
  const BackwardParams &rest = params.rest;
  Consumer consumer;
  begin(consumer, params, number, warp, lane);
  #pragma unroll 1
  for (Turn turn = first_turn(); has_tile(rest, turn); end_turn(turn)) {
    {
      const KeyTile keys = tile_of(rest, turn);
      const auto &own = at_place(rest, keys.place);
      QueryWalk walk = begin_walk(own.sequence, own.visibility, keys);
      if (TAKES_TILES && is_over(own.sequence, walk.step)) {
        clear_gradients(own, keys, number * 128 + warp * 32 + lane, 128 * CONSUMERS);
        leave_unseen(turn, lane);
        continue;
      }
      consumer.score = begin_score<M_TILES>(params);
      sum_tile(consumer, own, keys, walk, turn);
    }
    end_score(consumer.score, lane);
    wgmma_wait<0>();
    hold(consumer.rdK);
    hold(consumer.rdV);
    if (TAKES_TILES) leave_tile(consumer);
    const KeyTile keys = tile_of(rest, turn);  // found again, so that it is in no registers meanwhile
    if (is_whole(keys.part)) {
      store_gradients(consumer, params, keys);
    } else {
      store_part(rest, keys, 0, consumer.rdV, number * 4 + warp, lane);
      hold(consumer.rdK);    // else registers are spilled
      store_part(rest, keys, VALUE_SUMS, consumer.rdK, number * 4 + warp, lane);
    }
  }
}

// ---- the kernel ----------------------------------------------------------------------------------
extern "C" __global__ void __launch_bounds__(THREADS, 1)
fatune_kernel(const __grid_constant__ TiledBackwardParams params) {
  if (!DQ_IS_EARLY) next_grid_may_begin();
  wait_for_grid_before();
  if (DQ_IS_EARLY) next_grid_may_begin();  // the first kernel has cleared the counts that the last one reads
  if (ends_at_once(params.rest)) {
    const KeyTile keys = find_key_tile(params.rest);
    if (threadIdx.x == 0) say_added(params.rest, section_of(params.rest, keys), ADDING_WARPS);
    return;
  }
  if (threadIdx.x == 0) init_turns();
  if (threadIdx.x == 0) init_barriers();
  __syncthreads();

  const int warpgroup = uniform(threadIdx.x / 128), warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
  if (!LOADS_BESIDE_DQ && warpgroup == 0) {
    registers_release<LOADER_REGISTERS>();
    if (warp == 0 && lane == 0) load_all(params);
    if (warp > 0) help_loader(params.rest, warp, lane);
    if (warp > 0 && warp <= DQ_STAGES) add_steps(params.rest, warp - 1);
    if (DRAWERS > 0 && warp > 0) draw_all(params.rest, uniform(threadIdx.x / 32 - 1));
  } else if (warpgroup == (LOADS_BESIDE_DQ ? 0 : 1)) {
    if (DQ_REGISTERS < LAUNCH_REGISTERS) {
      registers_release<DQ_REGISTERS>();
    } else {
      registers_claim<DQ_REGISTERS>();
    }
    sum_queries(params, warp, lane);
  } else {
    registers_claim<CONSUMER_REGISTERS>();
    sum_keys(params, warpgroup - (LOADS_BESIDE_DQ ? 1 : 2), warp, lane);
  }
}

// ---- the list of work tiles: sequences are alike, and a kernel finds its tiles without one ------------------------------
